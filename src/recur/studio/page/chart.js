// Line charts in SVG: axes, a logarithmic scale where asked for, dashed reference lines.

import { svg, number } from "./dom.js";

export const COLOURS = ["#2f6fde", "#d9622b", "#1f9d7a", "#a44fc4", "#b8860b", "#c2385a", "#3a9ad9", "#7a8798"];
const H = 300, LEFT = 56, RIGHT = 12, TOP = 10, BOTTOM = 34, DOTS = 40;

function ticks(low, high, log) {
  if (log) {
    const found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
      for (const m of high / low > 300 ? [1] : [1, 2, 5]) found.push(m * 10 ** e);
    const inside = found.filter((v) => v >= low && v <= high);
    return inside.filter((_, k) => k % Math.ceil(inside.length / 8) === 0);
  }
  const raw = (high - low || 1) / 5, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power;
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step) found.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return found;
}

// series: [{ name, colour, points: [[x, y], …], dashed }]; lines: [{ y, colour }]
export function chart(series, { log = false, label = "", x: xLabel = "", lines = [] } = {}) {
  const W = innerWidth < 760 ? 400 : 720;  // drawn for its place, so that its words keep their size
  const kept = series.map((s) => ({ ...s, points: s.points.filter(([x, y]) => x !== null && y !== null && (!log || y > 0)) }));
  const points = kept.flatMap((s) => s.points);
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label });
  if (!points.length) return picture;
  const xs = points.map((p) => p[0]), ys = [...points.map((p) => p[1]), ...lines.map((l) => l.y)];
  const x0 = Math.min(...xs), x1 = Math.max(...xs, x0 + 1e-9);
  let y0 = Math.min(...ys), y1 = Math.max(...ys);
  if (log) { y0 /= 1.05; y1 *= 1.05; } else { const pad = (y1 - y0 || Math.abs(y1) || 1) * 0.06; y0 -= y0 === 0 ? 0 : pad; y1 += pad; }
  const f = log ? Math.log : (v) => v;
  const px = (v) => LEFT + ((v - x0) / (x1 - x0)) * (W - LEFT - RIGHT);
  const py = (v) => H - BOTTOM - ((f(v) - f(y0)) / (f(y1) - f(y0) || 1)) * (H - TOP - BOTTOM);
  for (const v of ticks(y0, y1, log)) picture.append(
    svg("line", { class: "axis", x1: LEFT, x2: W - RIGHT, y1: py(v), y2: py(v) }),
    svg("text", { x: LEFT - 8, y: py(v) + 4, "text-anchor": "end" }, number(v)));
  for (const v of ticks(x0, x1, false)) picture.append(
    svg("text", { x: px(v), y: H - BOTTOM + 16, "text-anchor": "middle" }, number(v)));
  picture.append(svg("text", { x: W - RIGHT, y: H - 4, "text-anchor": "end" }, xLabel));
  for (const line of lines) picture.append(svg("line", {
    x1: LEFT, x2: W - RIGHT, y1: py(line.y), y2: py(line.y), stroke: line.colour, "stroke-dasharray": "5 4", "stroke-width": 1.3 }));
  for (const s of kept) {
    const path = s.points.map(([x, y], k) => `${k ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("");
    picture.append(svg("path", { d: path, fill: "none", stroke: s.colour, "stroke-width": 2, "stroke-linejoin": "round" }));
    if (s.points.length <= DOTS) for (const [x, y] of s.points) picture.append(
      svg("circle", { cx: px(x), cy: py(y), r: 3, fill: s.colour }, svg("title", {}, `${s.name}: ${number(y)} @ ${number(x)}`)));
  }
  return picture;
}
