// Unfold: structure diagrams of the textbook's networks, with letters or with the shapes of a run.

import { card, el, fetchJson, latest, picker, runPath } from "./dom.js";
import { remember } from "./link.js";
import { language, t } from "./words.js";
import "./unfold_words.js";

// What scrolls can be reached by the keyboard.
const region = (label) => ({ tabindex: "0", role: "region", "aria-label": label });

const reads = (run) => !run.error && run.task === "language" && (run.options?.recurrence ?? "hidden") === "hidden";

export function unfold(body, { runs, name, params }) {
  const fitting = runs.filter(reads).map((run) => run.name);
  const settings = { diagram: params.get("diagram") ?? "", run: fitting.includes(name) ? name : "" };
  const choose = el("div", { class: "row" }), picture = el("div", { class: "scroll", id: "unrolled", ...region(t("view_unfold")) });
  const caption = el("p", { class: "lead", id: "unrolled-about" }), about = el("div", { class: "stack" });

  function draw(diagrams) {
    const shown = diagrams.find((one) => one.name === settings.diagram) ?? diagrams[0];
    settings.diagram = shown.name;
    remember("unfold", settings.run, { diagram: shown.name });
    choose.replaceChildren(
      picker(t("pattern"), diagrams.map((one) => ({ value: one.name, label: one.label })), shown.name, (value) => {
        settings.diagram = value;
        draw(diagrams);
      }),
      fitting.length ? picker(t("unfold_sizes"), [{ value: "", label: t("unfold_letters") }, ...fitting], settings.run, (value) => {
        settings.run = value;
        update();
      }) : "");
    const drawing = new DOMParser().parseFromString(shown.svg, "image/svg+xml").documentElement;
    picture.replaceChildren(drawing);
    caption.textContent = t(`about_${shown.name}`);
  }

  const update = latest(async (signal) => {
    const model = settings.run ? await fetchJson(runPath(settings.run, "unfold"), {}, signal) : null;
    const sizes = model ? { D: model.D, H: model.H, K: model.K, gates: model.gates.length } : {};
    const { diagrams } = await fetchJson("/api/structures", { ...sizes, language: language() }, signal);
    about.replaceChildren(...(model ? parts(model) : []));
    draw(diagrams);
  });

  function parts(model) {
    const title = `${model.cell} · ${model.size.toLocaleString()} ${t("parameters")}`;
    const rows = model.weights.map((weight) => el("tr", {}, el("td", {}, el("b", {}, weight.letter)),
      el("td", {}, el("code", {}, weight.name)), el("td", { class: "number" }, weight.shape.join(" × "))));
    return [card("", el("h2", {}, title), el("pre", { class: "equations", ...region(title) }, model.equations)),
      el("div", { class: "card scroll", ...region(t("weights")) }, el("h2", {}, t("weights")), el("table", {}, el("tbody", {}, rows)))];
  }

  body.append(choose, card("", picture, caption), about);
  update();
}
