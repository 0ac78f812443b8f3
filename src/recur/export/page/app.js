// Entry point of the page: shows the model and the view for its task.

const KINDS = {
  language: ["lead_language", (model, about) => languageView(new LanguageModel(model, about), about)],
  conditional: ["lead_conditional", (model, about) => languageView(new ConditionalModel(model, about), about)],
  pairs: ["lead_pairs", (model, about) => pairsView(new PairsModel(model, about), about)],
  classifier: ["lead_classify", (model, about) => classifierView(new TextClassifier(model, about), about)],
  tagger: ["lead_tag", (model, about) => taggerView(new WordTagger(model, about), about)],
  forecaster: ["lead_forecast", (model, about) => forecastView(new SeriesForecaster(model, about), about)],
  numbers: ["lead_numbers", numbersView],
  copy: ["lead_copy", copyView],
};

function open() {
  const about = JSON.parse(document.getElementById("about").textContent), [lead, view] = KINDS[about.page];
  const [header, main, footer] = ["header", "main", "footer"].map((tag) => document.querySelector(tag));
  let model = null, failure = "";
  try {
    model = new Model(about, document.getElementById("weights").textContent);
  } catch (error) {
    failure = error.message;
  }
  const render = () => {
    document.documentElement.lang = current;
    document.querySelector(".skip").textContent = t("skip");
    const other = current === "en" ? "zh" : "en";
    const facts = about.facts.map(([name, value]) => el("div", {}, el("dt", {}, factName(name)), el("dd", {}, value)));
    header.replaceChildren(
      el("div", { class: "masthead" },
        el("div", {}, el("p", { class: "kind" }, t(`kind_${about.page}`)), el("h1", {}, about.name)),
        el("button", { type: "button", id: "language", class: "quiet", lang: other, onclick: () => { current = other; render(); } }, WORDS[other].language_name)),
      el("p", { class: "lead" }, t(lead, { count: about.settings.message, most: about.labels.length - 2, length: about.settings.length })), el("dl", { class: "facts" }, facts));
    main.replaceChildren(model ? view(model, about) : el("p", { class: "unknown", role: "alert" }, t("failed", { why: failure })));
    const size = about.bytes >= 1e6 ? `${(about.bytes / 1e6).toFixed(2)} MB` : `${Math.round(about.bytes / 1000)} kB`;
    footer.replaceChildren(...[t("made"), t(`weights_${about.weights}`), t("size", { size }), "recur export --to html"].map((line) => el("span", {}, line)),
      ...about.notes.map((note) => el("span", { class: "said", lang: "en" }, note)));
  };
  render();
}

open();
