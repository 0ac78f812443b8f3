// What a model said of an input, by the kind of its task: elements that show it.

import { chart, COLOURS } from "./chart.js";
import { dot, el, number, svg, visible } from "./predict_tools.js";
import { t } from "./words.js";

const percent = (p) => `${(100 * p).toFixed(1)} %`;
const SCALE = ["#1f4fb0", "#4f78b8", "#6b7480", "#b5692f", "#c2410c"];  // of classes that are numbers, such as of sentiment

function colourOf(names) {
  const ordered = names.length > 2 && names.every((name) => /^-?\d+$/.test(name)) ? [...names].sort((a, b) => a - b) : null;
  const other = (k) => (k < COLOURS.length ? COLOURS[k] : `hsl(${Math.round(137.5 * k) % 360} 60% 52%)`);  // no two alike
  if (!ordered) return (name) => other(Math.max(0, names.indexOf(name)));
  return (name) => SCALE[Math.round(ordered.indexOf(name) / (ordered.length - 1) * (SCALE.length - 1))];
}
const MOST = 12;

function chances(probabilities) {
  const rows = Object.entries(probabilities).sort((a, b) => b[1] - a[1]).slice(0, MOST);
  return el("div", { class: "chances" }, rows.map(([name, p]) => el("div", { class: "chance", "data-class": name, "data-p": String(p) },
    el("span", {}, name), el("span", { class: "track" }, el("span", { class: "p", style: { width: `${100 * p}%` } })),
    el("span", { class: "share" }, percent(p)))));
}

const answer = (text) => el("p", { class: "answer", id: "answer" }, text === "" ? el("i", {}, t("empty_output")) : text);

// The share of the class that it says, after every token.
function along({ tokens, rows }, names, output) {
  const k = names.indexOf(output);
  const piece = (token, i) => el("span", { title: `${visible(token)}: ${output} ${percent(rows[i][k])}`,
    style: { background: `rgba(var(--warm), calc(${rows[i][k].toFixed(3)} * var(--strong)))` } }, token, tokens.join("").length > tokens.length ? " " : "");
  return [el("h3", {}, t("along", { output })), el("p", { class: "along" }, tokens.map(piece))];
}

const classes = (found) => [answer(found.output), chances(found.probabilities),
  ...(found.along ? along(found.along, Object.keys(found.probabilities), found.output) : [])];

function tags(found) {
  const names = Object.keys(found.probabilities[0] ?? {}), colour = colourOf(names);
  const others = (row) => Object.entries(row).sort((a, b) => b[1] - a[1]).slice(0, 3).map(([tag, p]) => `${tag} ${percent(p)}`).join("\n");
  const word = (one, k) => el("span", { class: "tagged", title: others(found.probabilities[k]), "data-tag": found.tags[k] },
    el("span", { style: { borderColor: colour(found.tags[k]) } }, one),
    el("small", {}, `${found.tags[k]} ${Math.round(100 * found.probability[k])} %`));
  const used = [...new Set(found.tags)];
  return [el("div", { class: "sentence" }, found.words.map(word)),
    el("div", { class: "legend" }, used.map((tag) => dot(colour(tag), tag)))];
}

function pairs(found) {
  const others = found.nbest.slice(1).map((one) => el("li", {}, one.output || t("empty_output"), el("small", {}, ` log P ${one.score.toFixed(2)}`)));
  return [answer(found.output), el("p", { class: "legend" }, `log P ${found.score.toFixed(2)}`, found.cut ? ` · ${t("was_cut")}` : ""),
    ...(found.attention ? attention(found.attention) : [el("p", { class: "lead" }, t("no_attention"))]),
    ...(others.length ? [el("h3", {}, t("next_best")), el("ol", { class: "list" }, others)] : [])];
}

function attention({ source, target, weights }) {
  const size = 24, left = 90, top = 64;
  const picture = svg("svg", { class: "attention", id: "attention", role: "img", "aria-label": t("attention"),
    viewBox: `0 0 ${left + size * source.length + 8} ${top + size * target.length + 4}` });
  picture.style.maxWidth = `${1.5 * (left + size * source.length)}px`;
  source.forEach((token, s) => picture.append(svg("text", { transform: `translate(${left + size * (s + 0.6)} ${top - 6}) rotate(-45)` }, visible(token))));
  target.forEach((token, row) => {
    picture.append(svg("text", { x: left - 6, y: top + size * (row + 0.65), "text-anchor": "end" }, visible(token)));
    source.forEach((from, s) => picture.append(svg("rect", { class: "warm", x: left + size * s, y: top + size * row, width: size - 1, height: size - 1,
      "fill-opacity": (weights[row]?.[s] ?? 0).toFixed(3) }, svg("title", {}, `${visible(token)} ← ${visible(from)}: ${percent(weights[row]?.[s] ?? 0)}`))));
  });
  return [el("h3", {}, t("attention")), el("p", { class: "legend" }, t("attention_about")), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("attention") }, picture)];
}

// A tree, each node in the colour of its class: from its root down, or from the left with a word a line, where it is too wide.
function tree(found) {
  const names = Object.keys(found.probabilities), colour = colourOf(names), words = [...found.words];
  const room = innerWidth < 760 ? 300 : 430, down = words.length * 76 <= room;
  const x = [], y = [];
  let leaf = 0;
  found.nodes.forEach(({ children }, k) => {
    if (!children.length) [x[k], y[k]] = [leaf++, 0];
    else [x[k], y[k]] = [children.reduce((sum, c) => sum + x[c], 0) / children.length, 1 + Math.max(...children.map((c) => y[c]))];
  });
  const deepest = Math.max(...y), longest = 8 * Math.max(...words.map((word) => word.length));
  const width = down ? 76 : 26, height = down ? 64 : Math.min(30, Math.max(9, (room - 40 - longest) / deepest)), radius = down ? 13 : 9;
  const along = (k) => width * (x[k] + 0.5), level = (k) => 20 + height * (deepest - y[k]);
  const [px, py] = down ? [along, level] : [level, along];
  const size = down ? [width * words.length, height * (deepest + 1)] : [40 + height * deepest + longest, width * words.length];
  const picture = svg("svg", { class: "tree", id: "tree", role: "img", "aria-label": found.tree, viewBox: `0 0 ${size.join(" ")}` });
  picture.style.width = `${size[0]}px`;
  found.nodes.forEach(({ children }, k) => children.forEach((c) => picture.append(
    svg("line", { class: "edge", x1: px(k), y1: py(k), x2: px(c), y2: py(c) }))));
  let word = 0;
  found.nodes.forEach(({ label, children }, k) => {
    picture.append(svg("circle", { cx: px(k), cy: py(k), r: radius, fill: colour(label) }),
      svg("text", { x: px(k), y: py(k) + 4, "text-anchor": "middle", class: "on" }, label));
    const beside = down ? { x: px(k), y: py(k) + 30, "text-anchor": "middle" } : { x: px(k) + 14, y: py(k) + 5 };
    if (!children.length) picture.append(svg("text", { ...beside, class: "strong" }, words[word++]));
  });
  return [answer(found.output), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("coloured_tree") }, picture),
    el("div", { class: "legend" }, names.map((name) => dot(colour(name), name))), chances(found.probabilities)];
}

function series(found, { target }) {
  const past = found.history.length, points = (values) => values.map((value, k) => [past + k, value]);
  const levels = Object.keys(found.forecast[0]?.quantiles ?? {}), low = levels[0], high = levels.at(-1);
  const of = (level) => points(found.forecast.map((row) => row.quantiles[level]));
  const dates = found.dates.length ? [...found.dates, ...found.forecast.map((row) => row.date)] : [];
  // A value that is missing stays in its place, so that those after it stand beside their own forecasts.
  const came = target ? target.split(" ").map((cell) => (Number.isFinite(Number(cell)) ? Number(cell) : null)) : [];
  const known = came.map((value, k) => [value, k]).filter(([value]) => value !== null);
  const shown = found.history.map((value, k) => [k, value]).slice(-Math.max(48, 4 * found.forecast.length));
  const picture = chart([{ name: t("history"), colour: COLOURS[7], points: shown },
    ...(came.length ? [{ name: t("came"), colour: COLOURS[7], points: points(came), ghost: true }] : []),
    { name: t("naive", found), colour: COLOURS[4], points: points(found.naive), ghost: true },
    { name: t("median"), colour: COLOURS[0], points: of("0.5") }],
  { x: found.dates.length ? "" : t("step"), showX: (k) => dates[k] ?? number(k), label: t("forecast"), band: levels.length > 1 ? { low: of(low), high: of(high), colour: COLOURS[0] } : null });
  const rows = found.forecast.map((row, k) => el("tr", {}, el("th", { scope: "row" }, row.date ?? `+${row.step}`),
    levels.map((level) => el("td", { class: "number", "data-q": level }, number(row.quantiles[level]))),
    el("td", { class: "number" }, number(found.naive[k])), came.length ? el("td", { class: "number" }, came[k] == null ? "–" : number(came[k])) : null));
  const heads = ["", ...levels.map((level) => `${100 * level} %`), t("naive_short"), ...(came.length ? [t("came")] : [])];
  const error = (values) => known.reduce((sum, [value, k]) => sum + Math.abs(values[k] - value), 0) / known.length;
  const judged = known.length && came.length === found.naive.length ? t("judged", { own: number(error(found.forecast.map((row) => row.quantiles["0.5"]))),
    naive: number(error(found.naive)) }) : "";
  return [picture, el("div", { class: "legend" }, dot(COLOURS[0], t("median")), levels.length > 1 ? dot(`${COLOURS[0]}55`, t("band", { low: 100 * low, high: 100 * high })) : null,
    dot(COLOURS[4], t("naive", found)), came.length ? dot(COLOURS[7], t("came")) : null), el("p", { id: "judged" }, judged),
  el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("forecast") }, el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el(head ? "th" : "td", { class: "number" }, head)))), el("tbody", {}, rows)))];
}

// Pixels that can be painted: a click turns one from dark to light, or back.
function image(found, { edit }) {
  const { rows } = found, high = Math.max(...rows.flat(), 1e-9), low = Math.min(...rows.flat(), 0);
  const paint = (r, c) => edit(rows.map((row, i) => row.map((v, j) => (i === r && j === c ? (v > (low + high) / 2 ? low : high) : v)).join(" ")).join("\n"));
  const cell = (v, r, c) => el("button", { type: "button", class: "pixel", "aria-label": t("pixel", { r: r + 1, c: c + 1, v: number(v) }),
    tabindex: r + c ? "-1" : "0", onclick: () => paint(r, c),
    onkeydown: (event) => move(event, r, c), style: { background: `rgba(var(--cold), ${((v - low) / (high - low || 1)).toFixed(3)})` } });
  const grid = el("div", { class: "pixels", id: "pixels", role: "group", "aria-label": t("takes_image"),
    style: { gridTemplateColumns: `repeat(${rows[0].length}, 1fr)` } }, rows.flatMap((row, r) => row.map((v, c) => cell(v, r, c))));
  function move(event, r, c) {
    const to = { ArrowRight: [r, c + 1], ArrowLeft: [r, c - 1], ArrowDown: [r + 1, c], ArrowUp: [r - 1, c] }[event.key];
    if (!to || !rows[to[0]] || rows[to[0]][to[1]] === undefined) return;
    event.preventDefault();
    grid.children[to[0] * rows[0].length + to[1]].focus();
  }
  return [answer(found.output), grid, chances(found.probabilities)];
}

function numbers(found) {
  const columns = found.rows[0]?.length ?? 0;
  const lines = Array.from({ length: Math.min(columns, 8) }, (_, k) => ({ name: String(k + 1), colour: COLOURS[k], points: found.rows.map((row, i) => [i, row[k]]) }));
  return [answer(found.output), chart(lines, { x: t("step"), label: t("input") }), ...(found.probabilities ? [chances(found.probabilities)] : [])];
}

function line(found) {
  const wanted = found.sum !== undefined ? t("sum_is", { sum: number(found.sum) }) : found.right !== undefined ? t("symbols_right", { right: found.right }) : "";
  return [answer(found.output), el("p", { class: "legend" }, wanted)];
}

const labels = (found) => [answer(found.output), el("p", { class: "legend" }, `log P ${found.score.toFixed(2)}`)];

export const shows = { classes, tags, pairs, tree, series, image, numbers, line, labels };
