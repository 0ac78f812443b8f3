// Runs: a table, curves side by side, a chart a task and measure; what they differ in, notes, samples. What trains is live.

import { card, el, emptyCard, fetchJson, keepFocus, notice, picker, runPath, slider } from "./dom.js";
import { colours } from "./colours.js";
import { AXES, curves } from "./curves.js";
import { remember } from "./link.js";
import { differences, metricOptions, metricsOf, notes, samples } from "./runs_panels.js";
import { table } from "./runs_table.js";
import { watch } from "./watch.js";
import { metricLabel, t } from "./words.js";
import "./runs_words.js";

const INITIAL = 4, LOSS = "train_loss", TRIES = 400;
const LOGARITHMIC = /perplexity|grad_norm|mse|per_second|^lr$/;
const state = { runs: null, metrics: {}, axis: "step", smoothing: 0, sort: "runs_changed", order: -1, every: false, sampled: "",
  filter: { words: "", task: "", cell: "" } };

const byChange = (runs) => [...runs].sort((a, b) => b.changed - a.changed);
const whole = (runs) => runs.filter((run) => !run.error && !run.pending);

// The points of a run's measure over an axis.
export function points(run, metric, axis) {
  const found = run.curves[metric];
  return found ? found[axis].map((x, k) => [x, found.value[k]]) : [];
}

// Points that came meanwhile, behind those that are known.
export function extend(run, fresh) {
  for (const point of fresh) for (const [name, value] of Object.entries(point)) {
    const curve = run.curves[name];
    const last = curve?.step.at(-1) ?? -1;
    if (!curve || typeof value !== "number" || name.startsWith("valid_") || point.step <= last) continue;
    curve.step.push(point.step);
    curve.tokens.push(point.predictions);
    curve.seconds.push(point.seconds);
    curve.value.push(value);
  }
}

function fromAddress(params, list) {
  const named = params.get("runs")?.split(",").filter((name) => list.some((run) => run.name === name));
  if (named?.length) state.runs = new Set(named);
  if (params.get("axis") in AXES) state.axis = params.get("axis");
  const share = Number(params.get("smoothing"));
  if (share > 0 && share < 1) state.smoothing = share;
  state.runs ??= new Set(byChange(whole(list)).slice(0, INITIAL).map((run) => run.name));
}

export function runs(body, { runs: first, params }) {
  let list = first, found = [], closed = false, unwatch = () => {}, readOnly = false;
  const empty = el("div");
  if (!first.length) {
    body.append(empty);
    empty.append(emptyCard(t("runs_empty"), "recur train --out runs/first"));
  }
  fromAddress(params, list);
  const colour = (name) => colours([...state.runs]).get(name) ?? "var(--dim)";
  const rows = table(state, colour, (selected) => { keep(); if (selected) choose(); });
  const charts = el("div", { class: "stack" }), tools = el("div", { class: "row tools-of-charts" });
  const differing = card(""), written = card("written"), made = card("");
  const parts = el("div", { hidden: !first.length }, rows.filters, rows.place, tools, charts,
    el("div", { class: "grid" }, el("div", { class: "stack" }, differing, made), written));
  body.append(parts);

  const keep = () => remember("runs", "", { runs: [...state.runs].join(","), axis: state.axis === "step" ? "" : state.axis,
    smoothing: state.smoothing || "" });

  function drawTools() {
    const axes = Object.entries(AXES).map(([value, { label }]) => ({ value, label: t(label) }));
    tools.replaceChildren(
      picker(t("runs_axis"), axes, state.axis, (value) => { state.axis = value; keep(); drawCharts(); }),
      slider(t("runs_smoothing"), { min: 0, max: 0.99, step: 0.01, value: state.smoothing, show: (v) => v.toFixed(2),
        oninput: (value) => { state.smoothing = value; keep(); drawCharts(); } }));
  }

  // A card a task: its measure, and the training loss as it goes. Charts are kept while their runs are.
  const kept = new Map();
  function drawCharts() {
    const tasks = [...new Set(found.map((run) => run.task))];
    for (const task of [...kept.keys()]) if (!tasks.includes(task)) { kept.get(task).node.remove(); kept.delete(task); }
    for (const task of tasks) {
      const runs = found.filter((run) => run.task === task);
      if (!kept.has(task)) kept.set(task, chartsOf(task));
      kept.get(task).draw(runs);
    }
  }

  function chartsOf(task) {
    const head = el("div", { class: "row" }), pair = el("div", { class: "pair" });
    const node = card("", head, pair);
    node.dataset.task = task;
    charts.append(node);
    let offer = "", drawn = new Map();
    const draw = (runs) => {
      const metrics = metricsOf(runs);
      if (!metrics.includes(state.metrics[task])) state.metrics[task] = metrics[0];
      const metric = state.metrics[task], measures = [...new Set([metric, LOSS])].filter((name) => metrics.includes(name));
      if (offer !== JSON.stringify([metrics, metric])) {
        offer = JSON.stringify([metrics, metric]);
        keepFocus(head, () => head.replaceChildren(el("h2", {}, task), picker(t("metric"), metricOptions(metrics), metric, (value) => {
          state.metrics[task] = value;
          draw(found.filter((run) => run.task === task));
        })));
        drawn = new Map(measures.map((name) => [name, curves(metricLabel(name), `${task} ${name}`)]));
        pair.replaceChildren(...measures.map((name) => el("div", { "data-measure": name },
          el("h3", {}, metricLabel(name)), drawn.get(name).node)));
      }
      for (const [name, chart] of drawn) chart.draw(runs.filter((run) => name in run.curves).map((run) => ({ name: run.name,
        colour: colour(run.name), points: points(run, name, state.axis),
        baseline: name === run.metric ? run.baseline : null })),
      { axis: state.axis, log: LOGARITHMIC.test(name), smoothing: state.smoothing });
    };
    return { node, draw };
  }

  function drawPanels() {
    differences(differing, found, colour);
    notes(written, found, colour, readOnly);
    samples(made, found, state);
    differing.hidden = written.hidden = made.hidden = !found.length;
    tools.hidden = !found.length;
  }

  const names = () => byChange(whole(list).filter((run) => state.runs.has(run.name))).map((run) => run.name);
  const load = (name) => fetchJson(runPath(name)).catch(() => null);

  async function refresh(only = null) {
    const wanted = names();
    const answers = await Promise.all(wanted.map((name) =>
      only && !only.includes(name) ? found.find((run) => run.name === name) ?? load(name) : load(name)));
    if (closed) return;
    found = answers.filter((run) => run && !run.error);
    drawCharts();
    drawPanels();
  }

  // Curves first: what is watched has all runs looked at, and they would wait behind that.
  let chosen = 0;
  async function choose() {
    const mine = ++chosen;
    unwatch();
    unwatch = () => {};
    await refresh([]);
    if (!closed && mine === chosen) unwatch = watch(names(), tell);
  }

  let waiting = null;
  const soon = (name) => {  // measured anew: fetched once for all that came
    waiting ??= (setTimeout(() => { const only = waiting; waiting = null; refresh(only); }, 300), []);
    waiting.push(name);
  };

  async function all() {
    for (let k = 0; k < TRIES; k++) {
      const { runs: now } = await fetchJson("/api/runs?rest");
      if (closed) return;
      list = now;
      if (!list.some((run) => run.pending)) break;
      rows.draw(list);
    }
    rows.draw(list);
  }

  function tell(news) {
    if (closed) return;
    if (news.fresh) all().then(() => refresh()).catch(() => {});
    for (const run of news.runs ?? []) {
      const k = list.findIndex((old) => old.name === run.name), before = list[k];
      if (!before || before.pending) {
        if (!before) list = [...list, run];
        if (!run.error && run.live) state.runs.add(run.name);
        appear();
        rows.draw(list);
        if (state.runs.has(run.name)) choose();
        continue;
      }
      list[k] = run;
      if (before.error || run.error) rows.draw(list);
      else rows.update(run);
      if (state.runs.has(run.name) && (before.changed !== run.changed || before.live !== run.live)) soon(run.name);
    }
    if (news.gone) {
      list = list.filter((run) => !news.gone.includes(run.name));
      rows.draw(list);
      refresh([]);
    }
    for (const [name, fresh] of Object.entries(news.points ?? {})) {
      const run = found.find((one) => one.name === name);
      if (run && LOSS in run.curves) extend(run, fresh);
      else soon(name);
    }
    if (news.points) drawCharts();
    for (const name of news.again ?? []) soon(name);
  }

  function appear() {
    empty.remove();
    parts.hidden = false;
  }

  drawTools();
  rows.draw(list);
  fetchJson("/api/train").then((about) => { readOnly = about.read_only; }).catch((error) => notice(error.message));
  choose();  // what is pending comes with the first news
  const resized = () => drawCharts();
  addEventListener("resize", resized);
  return () => { closed = true; unwatch(); removeEventListener("resize", resized); };
}
