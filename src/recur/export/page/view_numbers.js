// Views of forecasts, sequences of numbers and table rows.

const CHARTS = 8;

const told = (error) => (error instanceof TableError ? t(error.message, error.values) : t("failed", { why: error.message }));

// Error message of a table; empty input is not an error.
function tell(error, note, fault) {
  const empty = error.message === "empty";
  note.textContent = empty ? t("empty") : "";
  fault.replaceChildren(...(empty ? [] : [told(error)]));
}

function forecastView(model, about) {
  const { quantiles: levels, series } = model.settings;
  const area = el("textarea", { id: "text", spellcheck: "false", "aria-label": t("series"), placeholder: t("placeholder_forecast") });
  const note = el("p", { class: "note", role: "status", "aria-live": "polite" }), fault = el("p", { class: "unknown", role: "alert" });
  const charts = el("div", { class: "stack", id: "charts" }), several = model.inputs.includes("series") && series.length > 1;
  let chosen = null;
  const percentOf = (level) => Number((100 * level).toPrecision(4));
  const table = ({ quantiles, dates, past }) => el("details", {}, el("summary", {}, t("table")), el("div", { class: "scroll" }, el("table", { class: "figures" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, t("step")), levels.map((level) => el("th", { scope: "col" }, level === 0.5 ? t("median") : `${percentOf(level)} %`)))),
    el("tbody", {}, quantiles.map((row, k) => el("tr", {}, el("th", { scope: "row" }, dates ? dates[past.length + k] : `+${k + 1}`), row.map((value) => el("td", {}, figure(value)))))))));
  const show = () => {
    try {
      const made = model.forecast(area.value, chosen);
      fault.replaceChildren();
      note.textContent = t("values_read", { count: made[0].past.length });
      charts.replaceChildren(...made.slice(0, CHARTS).map((one) => el("section", { class: "card", "aria-label": one.name },
        el("h2", {}, one.name, el("small", {}, levels.length > 1 ? t("band", { low: percentOf(levels[0]), high: percentOf(levels.at(-1)) }) : "")), forecastChart(one, levels), table(one))));
    } catch (error) {
      tell(error, note, fault);
      charts.replaceChildren();
    }
  };
  area.addEventListener("input", calmly(show, 150));
  addEventListener("resize", calmly(() => area.isConnected && show(), 200));
  area.value = about.example ?? "";
  const choose = several ? picker("series", [["", "–"], ...series.map((name, k) => [String(k), name])], "", (value) => { chosen = value === "" ? null : Number(value); show(); }) : null;
  const example = about.example ? el("button", { type: "button", onclick: () => { area.value = about.example; show(); } }, t("example")) : null;
  show();
  return el("div", { class: "columns" }, card("series", {}, area, fault, el("div", { class: "tools" }, example, choose, note)), charts);
}

// Sequences of numbers: class, one label per step, CTC labels, or value.
function numbersView(model, about) {
  const { settings, labels, kind } = about, D = settings.features, stack = settings.stack;
  const colours = tagColours(labels);
  const area = el("textarea", { id: "text", spellcheck: "false", "aria-label": t("series"), placeholder: t("placeholder_numbers") });
  const note = el("p", { class: "note", role: "status", "aria-live": "polite" }), fault = el("p", { class: "unknown", role: "alert" });
  const verdict = el("p", { class: "verdict", id: "verdict", role: "status", "aria-live": "polite" }), list = el("div", { class: "bars wide", role: "list" });
  const show = () => {
    try {
      const rows = readRows(area.value, D), found = model.run("sequence", { x: stacked(rows, stack) });
      fault.replaceChildren();
      note.textContent = t("rows_read", { count: rows.length });
      if (kind === "classifier") {
        const p = Float64Array.from(found.log_p, Math.exp);
        verdict.replaceChildren(labels[largest(p)], " ", el("small", {}, percent(Math.max(...p))));
        list.replaceChildren(...classRows(labels, p));
      } else if (kind === "transcriber") {
        verdict.replaceChildren(bestPath(found.scores, labels.length + 1, settings.blank).map((k) => labels[k]).join(" ") || "∅");
      } else if (kind === "tagger") {
        const K = labels.length, steps = found.scores.length / K;
        verdict.replaceChildren();
        list.replaceChildren(el("div", { class: "tagged" }, Array.from({ length: steps }, (_, s) => {
          const tag = labels[largest(found.scores.subarray(s * K, (s + 1) * K))];
          return el("span", { class: "tag", style: colours.get(tagKind(tag)) ?? {} }, tag);
        })));
      } else {
        verdict.replaceChildren(figure(found.value[0]));
      }
    } catch (error) {
      tell(error, note, fault);
      verdict.replaceChildren();
      list.replaceChildren();
    }
  };
  area.addEventListener("input", calmly(show, 100));
  area.value = about.example ?? "";
  show();
  return el("div", { class: "grid" }, card("series", {}, area, fault, el("div", { class: "tools" }, note)), card("result", {}, verdict, list));
}

// Copy task: message, blanks, recalled message.
function copyView(model, about) {
  const { settings, labels } = about, symbols = labels.length - 1;
  const area = el("textarea", { id: "text", class: "short", spellcheck: "false", "aria-label": t("text"), placeholder: t("placeholder_copy") });
  const fault = el("p", { class: "unknown", role: "alert" }), verdict = el("p", { class: "result", id: "verdict", role: "status", "aria-live": "polite" });
  const show = () => {
    const given = splitSpaces(area.value).map(Number), fits = given.length === settings.message && given.every((k) => Number.isInteger(k) && k >= 0 && k < symbols);
    fault.replaceChildren(...(fits || !area.value ? [] : [t("lead_copy", { count: settings.message, most: symbols - 1, length: settings.length })]));
    verdict.replaceChildren();
    if (!fits) return;
    const silence = (count) => new Array(count).fill(settings.silence);
    const { scores } = model.run("sequence", { tokens: [...given, ...silence(settings.length - 1), settings.go, ...silence(settings.message)] });
    const K = labels.length, steps = scores.length / K;
    const said = given.map((_, k) => largest(scores.subarray((steps - settings.message + k) * K, (steps - settings.message + k + 1) * K)));
    verdict.replaceChildren(...said.map((k, at) => el("span", { class: k === given[at] ? null : "wrong" }, `${labels[k] || "–"} `)));
  };
  area.addEventListener("input", calmly(show));
  show();
  return el("div", { class: "grid" }, card("text", {}, area, fault), card("result", {}, verdict));
}
