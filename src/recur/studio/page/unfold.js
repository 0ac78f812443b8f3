// Unfold: the network unrolled along time with its shapes, for each design pattern of the textbook.

import { el, fetchJson, latest, picker, runPath, svg } from "./dom.js";
import { t } from "./words.js";

const PATTERNS = ["one output per step", "output fed back", "one output at the end", "bidirectional", "encoder–decoder",
  "deep"];
const settings = { pattern: PATTERNS[0] };
const STEPS = 4, GAP = 170, ROW = 90, LEFT = 90, BOX = { width: 96, height: 34 };
const TIMES = ["t−1", "t", "t+1", "t+2"], SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

// What scrolls can be reached by the keyboard.
const region = (label) => ({ tabindex: "0", role: "region", "aria-label": label });

export function unfold(body, { name }) {
  const picture = el("div", { class: "scroll", id: "unrolled", ...region(t("view_unfold")) }), about = el("div", { class: "stack" });
  const choose = el("div", { class: "row" });
  let model = null;

  function draw() {
    const patterns = PATTERNS.map((value) => ({ value, label: t(value) }));
    choose.replaceChildren(picker(t("pattern"), patterns, settings.pattern, (value) => {
      settings.pattern = value;
      draw();
    }));
    picture.replaceChildren(unrolled(model, settings.pattern));
  }

  latest(async (signal) => {
    model = await fetchJson(runPath(name, "unfold"), {}, signal);
    const title = `${model.cell} · ${model.size.toLocaleString()} ${t("parameters")}`;
    const rows = model.weights.map((weight) => el("tr", {}, el("td", {}, el("b", {}, weight.letter)),
      el("td", {}, el("code", {}, weight.name)), el("td", { class: "number" }, weight.shape.join(" × "))));
    about.replaceChildren(
      el("div", { class: "card" }, el("h2", {}, title), el("pre", { class: "equations", ...region(title) }, model.equations)),
      el("div", { class: "card scroll", ...region(t("weights")) }, el("h2", {}, t("weights")), el("table", {}, el("tbody", {}, rows))));
    draw();
  })();
  body.append(choose, el("div", { class: "card" }, picture), about);
}

// What a pattern has: how many layers, which steps read and which write.
function layout(model, pattern) {
  const both = pattern === "bidirectional";
  const layers = both ? 1 : pattern === "deep" ? Math.max(2, model.layers) : model.layers;
  const half = pattern === "encoder–decoder" ? STEPS / 2 : null;
  const states = Array.from({ length: layers }, (_, k) => ({ kind: "state", label: stateLabel(k, layers, both) }));
  if (both) states.push({ kind: "backward", label: "h←" });
  return {
    both, half,
    feedback: pattern === "output fed back",
    rows: [{ kind: "input", label: "x" }, ...states, { kind: "output", label: "softmax" }],
    reads: (k) => half === null || k < half,
    writes: (k) => (pattern === "one output at the end" ? k === STEPS - 1 : half === null || k >= half),
  };
}

const stateLabel = (k, layers, both) =>
  both ? "h→" : layers > 1 ? `h${SUPERSCRIPTS[k + 1] ?? `(${k + 1})`}` : "h";

// Where the box of a row and a step is, and lines between boxes.
function canvas(rows, label) {
  const height = ROW * rows + 4, width = LEFT + GAP * STEPS + 10;
  const x = (k) => LEFT + GAP * k + 60, y = (row) => height - 46 - ROW * row;
  const { width: w, height: h } = BOX;
  const markers = ["arrow", "arrow-time"].map((id) => svg("marker",
    { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
    svg("path", { d: "M0 0 8 4 0 8z", class: id })));
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    svg("defs", {}, ...markers));
  picture.style.minWidth = "560px";
  const path = (d, kind = "edge") => picture.append(
    svg("path", { class: kind, "marker-end": `url(#${kind === "time" ? "arrow-time" : "arrow"})`, d }));
  return {
    picture, x, y,
    box: (k, row, content, round) => picture.append(
      svg("rect", { class: "box", x: x(k) - w / 2, y: y(row) - h / 2, width: w, height: h, rx: round ? 17 : 6 }),
      svg("text", { x: x(k), y: y(row) + 4, class: "strong", "text-anchor": "middle" }, content,
        svg("tspan", { dy: 5, "font-size": 10 }, TIMES[k]))),
    text: (atX, atY, content, anchor = "middle") =>
      picture.append(svg("text", { x: atX, y: atY, "text-anchor": anchor }, content)),
    up: (k, row) => path(`M${x(k)} ${y(row) - h / 2}L${x(k)} ${y(row + 1) + h / 2}`),
    around: (k, from, to) => path(`M${x(k) - w / 3} ${y(from) - h / 2}C${x(k) - w} ${y(from) - 70} `
      + `${x(k) - w} ${y(to) + 70} ${x(k) - w / 3} ${y(to) + h / 2}`),
    forward: (k, row) => path(`M${x(k) + w / 2} ${y(row)}L${x(k + 1) - w / 2} ${y(row)}`, "time"),
    backward: (k, row) => path(`M${x(k + 1) - w / 2} ${y(row)}L${x(k) + w / 2} ${y(row)}`, "time"),
    feedback: (k, row, kind) => path(`M${x(k) + w / 2} ${y(row)}C${x(k) + w / 2 + 40} ${y(row)} `
      + `${x(k + 1) - w / 2 - 40} ${y(1)} ${x(k + 1) - w / 2} ${y(1)}`, kind),
  };
}

function unrolled(model, pattern) {
  const plan = layout(model, pattern), { rows, both } = plan;
  const on = canvas(rows.length, t(pattern));
  rows.forEach(({ kind, label }, row) => {
    for (let k = 0; k < STEPS; k++) {
      if ((kind === "input" && !plan.reads(k)) || (kind === "output" && !plan.writes(k))) continue;
      on.box(k, row, label, kind === "state" || kind === "backward");
      drawUpward(on, plan, row, k);
      if (k + 1 < STEPS) drawAlongTime(on, plan, row, k);
    }
    const shapes = { input: [`(B, D = ${model.D})`], output: [`(B, K = ${model.K})`] }[kind]
      ?? model.states.map((state) => `${state} (B, ${model.H})`);
    shapes.forEach((shape, i) => on.text(4, on.y(row) + 4 + 14 * i, shape, "start"));
  });
  const G = model.gates.length * model.H, top = rows.length - 1;
  const between = on.x(0) + GAP / 2;
  if (plan.feedback) on.text(between, on.y(top) - 8, `W ${G} × ${model.K}`);
  else on.text(between, on.y(1) - 8, `W ${G} × ${model.H}`);
  on.text(on.x(0) + 6, on.y(0) - 42, `U ${G} × ${model.D}`, "start");
  on.text(on.x(STEPS - 1) + 6, on.y(top - 1) - 42, `V ${model.K} × ${both ? 2 * model.H : model.H}`, "start");
  return on.picture;
}

function drawUpward(on, { rows, both, writes }, row, k) {
  const { kind } = rows[row], above = rows[row + 1];
  if (both && (kind === "input" || kind === "state")) {  // both directions read x, and the output reads both
    if (kind === "input") on.up(k, row);
    on.around(k, row, row + 2);
  } else if (above && (above.kind !== "output" || writes(k))) on.up(k, row);
}

function drawAlongTime(on, { rows, feedback, half }, row, k) {
  const { kind } = rows[row];
  if (kind === "backward") on.backward(k, row);
  else if (kind === "state" && !feedback) on.forward(k, row);
  else if (kind === "output" && feedback) on.feedback(k, row, "time");
  else if (kind === "output" && half !== null) on.feedback(k, row, "edge");
}
