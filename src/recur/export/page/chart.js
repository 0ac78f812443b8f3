// SVG chart of a series and its forecast.

// As wide as the screen, so that its text has the normal size.
function chartSize() {
  const width = Math.max(280, Math.min(720, document.documentElement.clientWidth - 66));
  return { width, height: width < 500 ? 230 : 300, left: width < 500 ? 40 : 52, right: 14, top: 12, bottom: 26 };
}

function ticks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}

function forecastChart({ name, past, quantiles, dates }, levels) {
  const { width, height, left, right, top: above, bottom } = chartSize(), k = quantiles.length;
  const shown = past.slice(-Math.max(40, 4 * k)), skipped = past.length - shown.length, n = shown.length + k;
  const every = [...shown, ...quantiles.flat()].filter(Number.isFinite);
  let low = Math.min(...every), high = Math.max(...every);
  const pad = 0.06 * (high - low) || Math.abs(high) * 0.1 || 1;
  [low, high] = [low - pad, high + pad];
  const x = (t) => left + ((width - left - right) * t) / Math.max(n - 1, 1), y = (value) => height - bottom - ((height - bottom - above) * (value - low)) / (high - low);
  const line = (points) => points.map(([t, value], at) => `${at ? "L" : "M"}${x(t).toFixed(1)},${y(value).toFixed(1)}`).join("");
  const last = shown.length - 1, middle = levels.indexOf(0.5), end = shown[last];
  const bands = Array.from({ length: Math.floor(levels.length / 2) }, (_, b) => {
    const upper = quantiles.map((row, j) => [last + 1 + j, row[levels.length - 1 - b]]), lower = quantiles.map((row, j) => [last + 1 + j, row[b]]);
    return svg("path", { class: "band", d: `${line([[last, end], ...upper, ...lower.reverse()])}Z` });
  });
  const labelled = dates && width > 500 ? [0, Math.round(last / 2), last, n - 1].filter((at, place, all) => all.indexOf(at) === place) : width > 500 || !dates ? [0, last, n - 1] : [0, n - 1];
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name}: ${t("forecast")}` },
    ticks(low, high, 5).map((value) => [
      svg("line", { class: "gridline", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, figure(value)),
    ]).flat(),
    svg("line", { class: "now", x1: x(last), x2: x(last), y1: above, y2: height - bottom }),
    bands,
    svg("path", { class: "past", d: line(shown.map((value, t) => [t, value])) }),
    svg("path", { class: "median", d: line([[last, end], ...quantiles.map((row, j) => [last + 1 + j, row[middle]])]) }),
    labelled.map((at) => svg("text", { x: x(at), y: height - 6, "text-anchor": at === 0 ? "start" : at === n - 1 ? "end" : "middle" },
      dates ? dates[skipped + at] : at === n - 1 ? `+${k}` : String(skipped + at + 1))));
}
