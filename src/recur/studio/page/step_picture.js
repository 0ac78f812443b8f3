// Picture of a gated cell, with the numbers of the current step: one square per unit below each gate, red above 0, blue below.

import { el, fetchJson, svg } from "./dom.js";
import { short } from "./step_formula.js";
import { language, t } from "./words.js";

const PICTURED = ["lstm", "gru"];
const SIDE = 9;

// `choose(name)` goes to the row of a quantity. Returns its element and a function that fills it; `hidden(row)` hides numbers.
export function picture(choose) {
  const place = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("step_picture") });
  const node = el("details", { class: "card picture", id: "step-picture" }, el("summary", {}, t("step_picture")),
    el("p", { class: "hint" }, t("step_picture_hint")), place);
  const drawings = {};
  let waiting = null;

  async function drawingOf(cell) {
    const key = `${cell} ${language()}`;
    if (!drawings[key]) {
      const { diagrams } = await fetchJson("/api/structures", { language: language() });
      for (const one of diagrams) drawings[`${one.name} ${language()}`] = one.svg;
    }
    return new DOMParser().parseFromString(drawings[key], "image/svg+xml").documentElement;
  }

  function mark(drawing, found, at, hidden) {
    for (const old of drawing.querySelectorAll(".value")) old.remove();
    for (const part of drawing.querySelectorAll("[data-part]")) {
      const name = part.dataset.part, k = found.rows.findIndex((row) => row.name === name && row.op !== "before");
      part.classList.toggle("now", k === at.k);
      if (k < 0 || hidden(k)) continue;
      const values = found.values[at.t][k], round = part.tagName === "circle";
      const x = Number(part.getAttribute(round ? "cx" : "x")) + (round ? 18 : Number(part.getAttribute("width")) / 2 - 4 * SIDE - 4);
      const y = Number(part.getAttribute(round ? "cy" : "y")) + (round ? -24 : Number(part.getAttribute("height")) + 4);
      values.forEach((value, unit) => part.after(svg("rect", { class: `value ${value > 0 ? "plus" : "minus"}`,
        x: x + SIDE * (unit % 4), y: y + SIDE * Math.floor(unit / 4), width: SIDE - 1, height: SIDE - 1,
        "fill-opacity": Math.min(1, 0.1 + Math.abs(Number(value) || 0)).toFixed(3) }, svg("title", {}, `${name} ${found.units[unit]}: ${short(value)}`))));
    }
  }

  async function fill(found, at, hidden) {
    node.hidden = !PICTURED.includes(found.cell);
    if (node.hidden || !node.open) return;
    waiting = found;
    const shown = place.firstChild?.dataset.cell === `${found.cell} ${language()}` ? place.firstChild : await drawingOf(found.cell);
    if (waiting !== found || !node.open) return;
    shown.dataset.cell = `${found.cell} ${language()}`;
    if (shown !== place.firstChild) {
      for (const part of shown.querySelectorAll("[data-part]")) part.addEventListener("click", () => choose(part.dataset.part));
      place.replaceChildren(shown);
    }
    mark(shown, found, at, hidden);
  }

  return { node, fill };
}
