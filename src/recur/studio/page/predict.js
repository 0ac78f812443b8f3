// Predict: an input of the run's own task, what the model makes of it, and where it errs.

import { card, el, fetchJson, latest, number, picker, remember, runPath } from "./predict_tools.js";
import { confusion } from "./predict_confusion.js";
import { shows } from "./predict_shows.js";
import { t } from "./words.js";
import "./predict_words.js";

export function predict(body, { name, params }) {
  const area = el("textarea", { id: "input", "aria-label": t("input"), spellcheck: "false" });
  const form = el("div"), made = el("div", { id: "made", "aria-live": "polite" }), unknown = el("p", { class: "unknown" });
  const chooser = el("div", { class: "row tight" }), wanted = el("p", { class: "legend", id: "wanted" });
  let offered = [], at = 0, kind = "";

  const update = latest(async (signal) => {
    remember("predict", name, { input: area.value });
    if (!made.children.length) made.append(el("p", { class: "lead" }, t("reading_input")));
    const found = await fetchJson(runPath(name, "predict"), { input: area.value }, signal);
    made.replaceChildren(...shows[found.kind]?.(found, { target: offered[at]?.target, input: area.value, edit }) ?? []);
    unknown.textContent = found.unknown?.length ? t("unknown_inputs", { tokens: found.unknown.slice(0, 12).join("  ") }) : "";
  });

  function edit(value) {
    area.value = value;
    update();
  }

  function take(k) {
    at = (k + offered.length) % offered.length;
    area.value = offered[at].input;
    const { target } = offered[at];
    wanted.textContent = target && kind !== "series" ? t("wanted", { target }) : "";
    update();
  }

  async function open() {
    const found = await fetchJson(runPath(name, "samples"), {});
    [offered, kind] = [found.examples, found.kind];
    lead.textContent = t(`takes_${kind}`);
    if (kind === "labels") form.replaceChildren(picker(t("label"), found.labels, offered[0].input, edit));
    else form.replaceChildren(area);
    area.classList.toggle("short", ["classes", "tags", "pairs", "tree", "line"].includes(kind));
    const another = el("button", { type: "button", onclick: () => take(at + 1) }, t("another"));
    chooser.replaceChildren(...(offered.length > 1 && kind !== "labels" ? [another] : []),
      ...(kind === "labels" ? [el("button", { type: "button", class: "main", onclick: () => update() }, t("draw_one"))] : []),
      ["labels", "line"].includes(kind) ? "" : el("span", { class: "legend" }, found.own ? t("own_examples") : t("no_examples")));
    if (found.confusion) body.append(confusion(name, (text) => { area.value = text; wanted.textContent = ""; update(); scrollTo({ top: 0 }); }));
    if (params.get("input")) edit(params.get("input"));
    else take(0);
  }

  const lead = el("p", { class: "lead" });
  area.addEventListener("input", () => { wanted.textContent = ""; offered[at] = { ...offered[at], target: "" }; update(); });
  body.append(el("div", { class: "grid" }, card("", el("h2", {}, t("input")), lead, form, chooser, wanted, unknown),
    card("", el("h2", {}, t("prediction")), made)));
  latest(open)();
}
