// The confusion table of the validation part; a click on a cell shows its examples, and one of those fills the form.

import { card, el, fetchJson, latest, runPath } from "./predict_tools.js";
import { t } from "./words.js";

const MOST = 24;  // classes

export function confusion(name, onPick) {
  const table = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("confusion") }), examples = el("div", { id: "cell-examples" });

  const show = latest(async (signal, classes, right, said) => {
    const found = await fetchJson(runPath(name, "mistakes"), { right, said }, signal);
    const item = ({ text, sure }) => el("li", {}, el("button", { type: "button", class: "plain", onclick: () => onPick(text.replace(/[[\]]/g, "")) }, text.length > 160 ? `${text.slice(0, 159)}…` : text),
      sure === null ? "" : el("small", {}, ` ${(100 * sure).toFixed(0)} %`));
    examples.replaceChildren(el("h3", {}, t(right === said ? "cell_right" : "cell_wrong", { right: classes[right], said: classes[said], count: found.count })),
      el("ul", { class: "list" }, found.examples.map(item)));
  });

  latest(async (signal) => {
    const { classes, table: counts } = await fetchJson(runPath(name, "mistakes"), {}, signal);
    const shown = classes.slice(0, MOST), most = Math.max(...counts.flat(), 1);
    const cell = (count, right, said) => el("td", { class: "number" }, count ? el("button", { type: "button", class: "cell", onclick: () => show(classes, right, said),
      "aria-label": t("cell_label", { right: classes[right], said: classes[said], count }),
      style: { background: `rgba(var(${right === said ? "--cold" : "--warm"}), calc(${(0.15 + 0.85 * count / most).toFixed(3)} * var(--strong)))` } }, String(count)) : "·");
    const row = (right) => el("tr", {}, el("th", { scope: "row" }, classes[right]), shown.map((_, said) => cell(counts[right][said], right, said)),
      el("td", { class: "number" }, recall(counts[right], right)));
    table.replaceChildren(el("table", { class: "confusion", id: "confusion" },
      el("thead", {}, el("tr", {}, el("td"), shown.map((one) => el("th", { scope: "col", class: "number" }, one)), el("th", { scope: "col", class: "number" }, t("found_share")))),
      el("tbody", {}, shown.map((_, k) => row(k)))));
  })();

  const recall = (counts, right) => {
    const total = counts.reduce((sum, count) => sum + count, 0);
    return total ? `${Math.round(100 * counts[right] / total)} %` : "–";
  };
  return card("", el("h2", {}, t("confusion")), el("p", { class: "lead" }, t("lead_confusion")), table, examples);
}
