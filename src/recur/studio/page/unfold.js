// Unfold: the network drawn along time with its shapes, for each design pattern of the textbook.

import { askJson, el, latest, picker, runPath, svg } from "./dom.js";
import { t } from "./words.js";

const PATTERNS = ["one output a step", "output fed back", "one output at the end", "bidirectional", "encoder–decoder", "deep"];
const kept = { pattern: PATTERNS[0] };
const STEPS = 4, GAP = 170, BOX = [96, 34], LEFT = 90;

export function unfold(body, { name }) {
  const picture = el("div", { class: "scroll", id: "unrolled" }), about = el("div", { class: "stack" }), choose = el("div", { class: "row" });
  let model = null;

  function draw() {
    choose.replaceChildren(picker(t("pattern"), PATTERNS.map((p) => ({ value: p, label: t(p) })), kept.pattern, (value) => { kept.pattern = value; draw(); }));
    picture.replaceChildren(unrolled(model, kept.pattern));
  }

  latest(async (signal) => {
    model = await askJson(runPath(name, "unfold"), {}, signal);
    about.replaceChildren(
      el("div", { class: "card" }, el("h2", {}, `${model.cell} · ${model.size.toLocaleString()} ${t("parameters")}`), el("pre", { class: "equations" }, model.equations)),
      el("div", { class: "card scroll" }, el("h2", {}, t("weights")), el("table", {}, el("tbody", {}, Object.entries(model.weights).map(([key, shape]) =>
        el("tr", {}, el("td", {}, el("code", {}, key)), el("td", { class: "number" }, shape.join(" × "))))))));
    draw();
  })();
  body.append(choose, el("div", { class: "card" }, picture), about);
}

function unrolled(model, pattern) {
  const both = pattern === "bidirectional", layers = pattern === "deep" ? Math.max(2, model.layers) : both ? 1 : model.layers;
  const split = pattern === "encoder–decoder" ? 2 : null, last = pattern === "one output at the end", back = pattern === "output fed back";
  const rows = ["x", ...Array.from({ length: layers }, (_, k) => `h${k + 1}`), ...(both ? ["g"] : []), "o"];
  const [w, h] = BOX;
  const height = 90 * rows.length + 4, width = LEFT + GAP * STEPS + 10;
  const px = (k) => LEFT + GAP * k + 60, py = (r) => height - 46 - 90 * r;
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": t(pattern) },
    svg("defs", {}, ...["arrow", "arrow-time"].map((id) => svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, svg("path", { d: "M0 0 8 4 0 8z", class: id })))));
  picture.style.minWidth = "560px";
  const edge = (x1, y1, x2, y2, kind = "edge", bend = 0) => picture.append(svg("path", { class: kind, "marker-end": `url(#${kind === "time" ? "arrow-time" : "arrow"})`,
    d: bend ? `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` : `M${x1} ${y1}L${x2} ${y2}` }));
  const around = (k, from, to) => picture.append(svg("path", { class: "edge", "marker-end": "url(#arrow)",
    d: `M${px(k) - w / 3} ${py(from) - h / 2}C${px(k) - w} ${py(from) - 70} ${px(k) - w} ${py(to) + 70} ${px(k) - w / 3} ${py(to) + h / 2}` }));
  const label = (x, y, words, kind = "", anchor = "middle") => picture.append(svg("text", { x, y, class: kind, "text-anchor": anchor }, words));
  const sub = (k) => ["t−1", "t", "t+1", "t+2"][k];
  const hasInput = (k) => split === null || k < split, hasOutput = (k) => (last ? k === STEPS - 1 : split === null || k >= split);
  rows.forEach((row, r) => {
    for (let k = 0; k < STEPS; k++) {
      const input = row === "x", output = row === "o";
      if ((input && !hasInput(k)) || (output && !hasOutput(k))) continue;
      picture.append(svg("rect", { class: "box", x: px(k) - w / 2, y: py(r) - h / 2, width: w, height: h, rx: input || output ? 6 : 17 }));
      const name = input ? "x" : output ? "softmax" : row === "g" ? "h←" : both ? "h→" : layers > 1 ? `h${"⁰¹²³⁴⁵⁶⁷⁸⁹"[row.slice(1)] ?? row.slice(1)}` : "h";
      picture.append(svg("text", { x: px(k), y: py(r) + 4, class: "strong", "text-anchor": "middle" }, name, svg("tspan", { dy: 5, "font-size": 10 }, sub(k))));
      const next = rows[r + 1];
      if (both && row !== "g" && !output) {  // neither direction reads the other: both read x, and the output reads both
        if (input) edge(px(k), py(r) - h / 2, px(k), py(r + 1) + h / 2);
        around(k, r, r + 2);
      } else if (next && (next !== "o" || hasOutput(k))) edge(px(k), py(r) - h / 2, px(k), py(r + 1) + h / 2);
      const recurrent = !input && !output;
      if (recurrent && !back && k + 1 < STEPS) row === "g" ? edge(px(k + 1) - w / 2, py(r), px(k) + w / 2, py(r), "time") : edge(px(k) + w / 2, py(r), px(k + 1) - w / 2, py(r), "time");
      if (back && output && k + 1 < STEPS) edge(px(k) + w / 2, py(r), px(k + 1) - w / 2, py(1), "time", 40);
      if (split !== null && output && k + 1 < STEPS) edge(px(k) + w / 2, py(r), px(k + 1) - w / 2, py(1), "edge", 40);
    }
    const shapes = row === "x" ? [`(B, ${model.input})`] : row === "o" ? [`(B, ${model.vocabulary})`] : model.states.map((s) => `${s} (B, ${model.hidden})`);
    shapes.forEach((shape, i) => label(4, py(r) + 4 + 14 * i, shape, "", "start"));
  });
  const gates = model.gates.length * model.hidden;
  label(px(0) + GAP / 2 + (back ? 44 : 0), back ? (py(1) + py(rows.length - 1)) / 2 : py(1) - 8, `W ${gates} × ${back ? model.vocabulary : model.hidden}`);
  label(px(0) + 6, py(0) - 42, `U ${gates} × ${model.input}`, "", "start");
  label(px(STEPS - 1) + 6, py(rows.length - 2) - 42, `V ${model.vocabulary} × ${both ? 2 * model.hidden : model.hidden}`, "", "start");
  return picture;
}
