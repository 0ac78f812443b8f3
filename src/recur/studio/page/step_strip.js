// The network unrolled along the text, as the notes draw it: input below, state in the middle, what it should say above.

import { el, visible } from "./dom.js";
import { short } from "./step_formula.js";
import { t } from "./words.js";

// `at` is { t, back }; choose(t) goes to a step.
export function strip(found, at, choose) {
  const output = found.states[0], row = found.rows.findIndex((one) => one.node === output.node);
  const chance = found.rows.findIndex((one) => one.op === "softmax");
  const norms = found.from_next.map((parts) => Math.hypot(...(parts[output.name] ?? []).map(Number)));
  const largest = Math.max(...norms, 1e-12);
  const tiles = found.inputs.flatMap((sign, k) => {
    const target = found.targets[k], p = found.values[k][chance][found.symbols.indexOf(target)];
    const aside = (words) => el("span", { class: "aside" }, words);
    const done = at.back ? k >= at.t : k <= at.t;
    const tile = el("button", { type: "button", class: `tile${done ? " done" : ""}`, "data-key": `tile${k}`,
      "aria-current": k === at.t ? "step" : null, onclick: () => choose(k) },
      aside(`${t("step_position", { t: k + 1, T: found.inputs.length })}, ${t("step_says")} `),
      el("span", { class: "sign" }, visible(target)),
      el("span", { class: "chance" }, el("span", { class: "bar", style: { width: `${Math.round(100 * (Number(p) || 0))}%` } })),
      el("span", { class: "small" }, `ŷ ${short(p)}`),
      el("span", { class: "units" }, found.values[k][row].map((value) => tint(value))),
      el("span", { class: "small" }, "h", el("sub", {}, String(k + 1))),
      aside(`, ${t("step_reads")} `), el("span", { class: "sign" }, visible(sign)));
    if (k + 1 === found.inputs.length) return [tile];
    const width = at.back ? 1 + 5 * norms[k] / largest : 2;
    const arrow = el("span", { class: `carry${at.back ? " back" : ""}${at.back ? (k >= at.t ? " done" : "") : k < at.t ? " done" : ""}`,
      "aria-hidden": "true", title: at.back ? `‖∂L/∂h‖ ${short(norms[k])}` : "" });
    arrow.style.setProperty("--w", `${width.toFixed(1)}px`);
    return [tile, arrow];
  });
  const quoted = (signs) => `“${signs.map(visible).join("")}”`;
  return el("div", { class: "strip", role: "group", "aria-label": `${quoted(found.inputs)} → ${quoted(found.targets)}` }, tiles);
}

function tint(value) {
  const node = el("span", { class: value > 0 ? "plus" : "minus", title: short(value) });
  node.style.setProperty("--v", Math.min(Math.abs(Number(value) || 0), 1).toFixed(3));
  return node;
}
