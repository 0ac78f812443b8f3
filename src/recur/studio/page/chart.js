// Line charts in SVG: axes, a logarithmic scale where wanted, dashed reference lines.

import { svg, number } from "./dom.js";

export const COLOURS = ["#2f6fde", "#d9622b", "#1f9d7a", "#a44fc4", "#b8860b", "#c2385a", "#3a9ad9", "#7a8798"];
const H = 300, LEFT = 56, RIGHT = 12, TOP = 10, BOTTOM = 34, DOTS = 40;

function logTicks(low, high) {
  const found = [], steps = high / low > 300 ? [1] : [1, 2, 5];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
    found.push(...steps.map((m) => m * 10 ** e));
  const inside = found.filter((v) => v >= low && v <= high);
  return inside.filter((_, k) => k % Math.ceil(inside.length / 8) === 0);
}

function ticks(low, high) {
  const raw = (high - low || 1) / 5, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power;
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step)
    found.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return found;
}

function bounds(values, log) {
  const low = Math.min(...values), high = Math.max(...values);
  if (log) return [low / 1.05, high * 1.05];
  const padding = (high - low || Math.abs(high) || 1) * 0.06;
  return [low === 0 ? 0 : low - padding, high + padding];
}

// series: [{ name, colour, points: [[x, y], …], ghost }]; lines: [{ y, colour, label }]; range: [x0, x1, y0, y1] of axes that stay;
// showX: a mark of the horizontal axis in words; band: { low: [[x, y], …], high: [[x, y], …], colour }
export function chart(series, { log = false, label = "", x: xLabel = "", showX = number, lines = [], range = null, band = null } = {}) {
  const W = innerWidth < 760 ? 400 : 720;  // drawn for its place, so that its words keep their size
  const usable = ([x, y]) => x !== null && y !== null && (!log || y > 0);
  const drawn = series.map((one) => ({ ...one, points: one.points.filter(usable) }));
  const points = [...drawn.flatMap((one) => one.points), ...(band ? [...band.low, ...band.high] : [])], references = lines.filter((line) => !log || line.y > 0);
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label });
  if (!points.length) return picture;
  const xs = points.map((point) => point[0]), ys = [...points.map((point) => point[1]), ...references.map((r) => r.y)];
  const [x0, x1] = range ?? [Math.min(...xs), Math.max(...xs, Math.min(...xs) + 1e-9)];
  const [y0, y1] = range?.slice(2) ?? bounds(ys, log);
  const f = log ? Math.log : (v) => v;
  const px = (v) => LEFT + ((v - x0) / (x1 - x0)) * (W - LEFT - RIGHT);
  const py = (v) => H - BOTTOM - ((f(v) - f(y0)) / (f(y1) - f(y0) || 1)) * (H - TOP - BOTTOM);
  for (const v of log ? logTicks(y0, y1) : ticks(y0, y1)) picture.append(
    svg("line", { class: "axis", x1: LEFT, x2: W - RIGHT, y1: py(v), y2: py(v) }),
    svg("text", { x: LEFT - 8, y: py(v) + 4, "text-anchor": "end" }, number(v)));
  for (const v of ticks(x0, x1)) picture.append(
    svg("text", { x: px(v), y: H - BOTTOM + 16, "text-anchor": "middle" }, showX(v)));
  picture.append(svg("text", { x: W - RIGHT, y: H - 4, "text-anchor": "end" }, xLabel));
  for (const { y, colour, label: words } of references) picture.append(svg("line", { x1: LEFT, x2: W - RIGHT, y1: py(y), y2: py(y),
    stroke: colour, "stroke-dasharray": "5 4", "stroke-width": 1.3 }),
  words ? svg("text", { x: W - RIGHT, y: py(y) - 5, "text-anchor": "end" }, words) : "");
  if (band) picture.append(svg("polygon", { fill: band.colour, "fill-opacity": 0.2,
    points: [...band.low, ...band.high.toReversed()].map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(" ") }));
  for (const one of drawn) {
    const inside = range ? one.points.filter(([x, y]) => x >= x0 && x <= x1 && y >= y0) : one.points;
    const d = inside.map(([x, y], k) => `${k ? "L" : "M"}${px(x).toFixed(1)} ${py(Math.min(y, y1)).toFixed(1)}`).join("");
    picture.append(svg("path", { d, fill: "none", stroke: one.colour, "stroke-linejoin": "round", "data-name": one.name,
      ...(one.ghost ? { "stroke-width": 1.5, "stroke-dasharray": "2 3", opacity: 0.75 } : { "stroke-width": 2 }) }));
    if (one.points.length <= DOTS && !range) for (const [x, y] of one.points) picture.append(
      svg("circle", { cx: px(x), cy: py(y), r: 3, fill: one.colour },
        svg("title", {}, `${one.name}: ${number(y)} @ ${number(x)}`)));
  }
  return picture;
}
