// Curves of several runs on one axis, with a crosshair: what the pointer or the arrow keys are at is read below them.

import { dot, el, number, svg } from "./dom.js";
import { t } from "./words.js";
import "./curves_words.js";

const H = 280, LEFT = 58, RIGHT = 14, TOP = 10, BOTTOM = 34, DOTS = 30;

function logTicks(low, high) {
  const found = [], steps = high / low > 300 ? [1] : high / low > 8 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
    found.push(...steps.map((m) => m * 10 ** e));
  const inside = found.filter((v) => v >= low && v <= high);
  return inside.length < 2 ? ticks(low, high) : inside.filter((_, k) => k % Math.ceil(inside.length / 7) === 0);
}

function ticks(low, high, count = 5) {
  const raw = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power, found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step)
    found.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return found;
}

// A mark of an axis, with as many digits as tell it from its neighbours.
function mark(v, marks) {
  const step = marks.length > 1 ? Math.abs(marks[1] - marks[0]) : Math.abs(v) || 1;
  const digits = Math.min(8, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  return v === 0 ? "0" : Math.abs(v) < 1e-3 && step < 1e-3 && Math.abs(v) < 10 * step ? v.toExponential(0)
    : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString() : v.toFixed(digits);
}

// An exponential mean that is fair to the first points: of weight `share` for what came before.
export function smoothed(points, share) {
  if (!share) return points;
  let mean = 0, weight = 0;
  return points.map(([x, y]) => {
    mean = share * mean + (1 - share) * y;
    weight = share * weight + (1 - share);
    return [x, mean / weight];
  });
}

function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    points[middle][0] <= x ? (low = middle) : (high = middle);
  }
  return !points.length ? null : Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? low : high;
}

const path = (points, px, py) =>
  points.map(([x, y], k) => `${k ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("");

function clock(seconds) {
  const s = Math.round(seconds), [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
  const two = (n) => String(n).padStart(2, "0");
  return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

export const AXES = {
  step: { label: "step", show: number }, tokens: { label: "axis_tokens", show: number },
  seconds: { label: "axis_time", show: clock },
};
export const duration = clock;

// label: what is drawn. draw([{ name, colour, points: [[x, y], …], baseline: { name, value } }], { axis, log, smoothing })
export function curves(label, key) {
  const picture = svg("svg", { class: "chart", role: "img", "aria-label": label });
  const legend = el("ul", { class: "values", "aria-live": "off" });
  const where = el("span", { class: "where" });
  const node = el("div", { class: "curves", tabindex: "0", role: "group", "data-key": key,
    "aria-label": `${label}. ${t("curves_hint")}` }, picture, el("div", { class: "reading" }, where, legend));
  let shown = { series: [], axis: AXES.step }, at = null, place = null;

  function draw(series, { axis = "step", log = false, smoothing = 0 } = {}) {
    const usable = ([x, y]) => x !== null && y !== null && Number.isFinite(y) && (!log || y > 0);
    const drawn = series.map((one) => {
      const raw = one.points.filter(usable);
      return { ...one, raw, points: smoothed(raw, smoothing) };
    });
    shown = { series: drawn, axis: AXES[axis] };
    paint(drawn, AXES[axis], log, smoothing);
    read();
  }

  function paint(drawn, axis, log, smoothing) {
    const W = Math.max(300, Math.round(node.clientWidth || 640));
    picture.setAttribute("viewBox", `0 0 ${W} ${H}`);
    picture.replaceChildren();
    const all = drawn.flatMap((one) => one.raw), bases = drawn.flatMap((one) => one.baseline?.value ?? []);
    place = null;
    if (!all.length) {
      picture.append(svg("text", { x: W / 2, y: H / 2, "text-anchor": "middle" }, t("curves_none")));
      return;
    }
    const xs = all.map((p) => p[0]), ys = [...all.map((p) => p[1]), ...bases].filter((y) => !log || y > 0);
    const least = (values) => values.reduce((a, b) => Math.min(a, b)), most = (values) => values.reduce((a, b) => Math.max(a, b));
    const x0 = least(xs), x1 = Math.max(most(xs), x0 + (axis === AXES.seconds ? 0.1 : 1));
    let y0 = least(ys), y1 = most(ys);
    if (log) [y0, y1] = [y0 / 1.05, y1 * 1.05];
    else {
      const flat = y1 - y0 <= 1e-3 * Math.abs(y1);  // digits that nobody reads would be all there is to see
      const padding = (flat ? Math.abs(y1) || 1 : y1 - y0) * 0.06;
      [y0, y1] = [y0 === 0 ? 0 : y0 - padding, y1 + padding];
    }
    const f = log ? Math.log : (v) => v;
    const px = (v) => LEFT + ((v - x0) / (x1 - x0)) * (W - LEFT - RIGHT);
    const py = (v) => H - BOTTOM - ((f(v) - f(y0)) / (f(y1) - f(y0) || 1)) * (H - TOP - BOTTOM);
    const marks = log ? logTicks(y0, y1) : ticks(y0, y1);
    for (const v of marks) picture.append(
      svg("line", { class: "axis", x1: LEFT, x2: W - RIGHT, y1: py(v), y2: py(v) }),
      svg("text", { x: LEFT - 8, y: py(v) + 4, "text-anchor": "end" }, log ? number(v) : mark(v, marks)));
    for (const v of ticks(x0, x1, W < 480 ? 3 : 6)) picture.append(
      svg("text", { x: px(v), y: H - BOTTOM + 16, "text-anchor": "middle" }, axis.show(v)));
    picture.append(svg("text", { x: W - RIGHT, y: H - 3, "text-anchor": "end" }, t(axis.label)));
    for (const { baseline, colour } of drawn) if (baseline && (!log || baseline.value > 0)) picture.append(
      svg("line", { class: "base", x1: LEFT, x2: W - RIGHT, y1: py(baseline.value), y2: py(baseline.value), stroke: colour,
        "stroke-dasharray": "5 4", "stroke-width": 1.3 }));
    for (const one of drawn) {
      if (smoothing) picture.append(svg("path", { d: path(one.raw, px, py), fill: "none", stroke: one.colour, "stroke-width": 1,
        opacity: 0.3 }));
      picture.append(svg("path", { d: path(one.points, px, py), class: "curve", fill: "none", stroke: one.colour,
        "stroke-width": 2, "stroke-linejoin": "round" }));
      if (one.raw.length <= DOTS) for (const [x, y] of one.points)
        picture.append(svg("circle", { cx: px(x), cy: py(y), r: 2.6, fill: one.colour }));
    }
    place = { W, x0, x1, px, py, cross: svg("g", { class: "cross" }) };
    picture.append(place.cross);
  }

  // The legend: each run with its value at the crosshair, or with its last one.
  function read() {
    where.textContent = at === null || !place ? "" : `${t(shown.axis.label)} ${shown.axis.show(at)}`;
    place?.cross.replaceChildren();
    if (at !== null && place) place.cross.append(
      svg("line", { x1: place.px(at), x2: place.px(at), y1: TOP, y2: H - BOTTOM }));
    legend.replaceChildren(...shown.series.map(({ name, colour, points, baseline }) => {
      const k = at === null ? points.length - 1 : nearest(points, at), found = points[k];
      if (at !== null && place && found)
        place.cross.append(svg("circle", { cx: place.px(found[0]), cy: place.py(found[1]), r: 4, fill: colour }));
      const base = baseline ? el("small", {}, ` ${baseline.name} ${number(baseline.value)}`) : null;
      return el("li", { "data-name": name }, dot(colour, name), " ", el("b", {}, found ? number(found[1]) : "–"), base);
    }));
  }

  function move(x) {
    at = x === null || !place ? null : Math.min(place.x1, Math.max(place.x0, x));
    read();
  }

  picture.addEventListener("pointermove", (event) => {
    if (!place) return;
    const box = picture.getBoundingClientRect(), x = (event.clientX - box.left) * (place.W / box.width);
    const wanted = place.x0 + ((x - LEFT) / (place.W - LEFT - RIGHT)) * (place.x1 - place.x0);
    const nearby = shown.series.flatMap(({ points }) => (points.length ? [points[nearest(points, wanted)][0]] : []));
    move(nearby.reduce((a, b) => (Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a), nearby[0] ?? wanted));
  });
  picture.addEventListener("pointerleave", () => move(null));
  node.addEventListener("blur", () => { legend.setAttribute("aria-live", "off"); move(null); });
  node.addEventListener("keydown", (event) => {
    const marks = [...new Set(shown.series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
    if (!marks.length) return;
    const k = at === null ? marks.length - 1 : marks.findIndex((x) => x >= at - 1e-9), jump = event.shiftKey ? 10 : 1;
    const to = { ArrowLeft: k - jump, ArrowRight: at === null ? k : k + jump, Home: 0, End: marks.length - 1 }[event.key];
    if (event.key === "Escape") move(null);
    else if (to === undefined) return;
    else {
      legend.setAttribute("aria-live", "polite");
      move(marks[Math.min(marks.length - 1, Math.max(0, to))]);
    }
    event.preventDefault();
  });
  return { node, draw };
}
