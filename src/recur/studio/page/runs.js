// Runs: a table, curves side by side, samples over time; refreshed while the view is open.

import { dot, el, emptyCard, fetchJson, number, picker, runPath } from "./dom.js";
import { address } from "./link.js";
import { viewFor } from "./views.js";
import { chart, COLOURS } from "./chart.js";
import { metricLabel, t } from "./words.js";
import "./runs_words.js";

const EVERY = 2000, INITIAL = 4, SAMPLES = 4;
const LOGARITHMIC = /perplexity|grad_norm|mse|per_second|^rate$/;
const selection = { runs: null, metric: null };

const byChange = (runs) => [...runs].sort((a, b) => b.changed - a.changed);

// All metrics of some runs: what their tasks are judged by first, then others of the validation part, then the rest.
function metricsOf(runs) {
  const own = runs.map((run) => run.metric), all = runs.flatMap((run) => Object.keys(run.curves));
  const of = (part) => all.filter((name) => name.startsWith(part));
  return [...new Set([...own, ...of("valid_"), ...of("train_"), ...all])];
}

export function runs(body, { runs: first }) {
  if (!first.length) {
    body.append(emptyCard(t("empty"), "recur train --out runs/first"));
    return null;
  }
  let list = first, timer = null, closed = false, offered = "";
  selection.runs ??= new Set(byChange(list.filter((run) => !run.error)).slice(0, INITIAL).map((run) => run.name));
  const colour = (name) => COLOURS[list.findIndex((run) => run.name === name) % COLOURS.length];
  const table = el("div", { class: "card scroll runs" }), samples = el("div", { class: "card" });
  const head = el("div", { class: "row" }), picture = el("div"), legend = el("div", { class: "legend" });
  body.append(table, el("div", { class: "grid" }, el("div", { class: "card" }, head, picture, legend), samples));

  function row(run) {
    if (run.error) return el("tr", { class: "error" }, el("td"), el("td", {}, run.name),
      el("td", { colspan: "6" }, `${t("error")}: ${run.error}`));
    const box = el("input", { type: "checkbox", "aria-label": `${t("compare")} ${run.name}`,
      checked: selection.runs.has(run.name), onchange: () => {
        box.checked ? selection.runs.add(run.name) : selection.runs.delete(run.name);
        refresh();
      } });
    const opens = viewFor(run);
    const name = opens ? el("a", { href: address(opens.name, run.name) }, run.name) : run.name;
    const { layers, hidden } = run.options;
    const size = [layers, hidden].filter((part) => part !== undefined).join(" × ");
    return el("tr", { "data-run": run.name }, el("td", {}, box),
      el("td", {}, dot(colour(run.name), name), run.live ? el("span", { class: "live" }, t("live")) : null),
      el("td", { class: "optional" }, run.task), el("td", { class: "optional" }, run.architecture),
      el("td", { class: "optional" }, size),
      el("td", { class: "number step" }, number(run.step)),
      el("td", { class: "number" }, number(run.best), el("small", {}, metricLabel(run.metric))),
      el("td", { class: "number" }, number(run.baseline?.value), el("small", {}, run.baseline?.name ?? "")));
  }

  function drawTable() {
    const focused = document.activeElement?.getAttribute("aria-label");
    const columns = [["", ""], ["name", ""], ["task", "optional"], ["cell", "optional"], ["size", "optional"],
      ["step", "number"], ["best", "number"], ["baseline", "number"]];
    const heads = columns.map(([name, kind]) => el("th", { class: kind, scope: "col" }, name && t(name)));
    table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, list.map(row))));
    if (focused) table.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  function drawPicker(found) {
    const metrics = metricsOf(found);
    if (!metrics.includes(selection.metric)) selection.metric = metrics[0] ?? null;
    const offer = JSON.stringify([metrics, selection.metric]);
    if (offer === offered) return;
    offered = offer;
    const options = metrics.map((name) => ({ value: name, label: metricLabel(name) }));
    head.replaceChildren(picker(t("metric"), options, selection.metric, (value) => {
      selection.metric = value;
      refresh();
    }));
  }

  function drawCurves(found) {
    const drawn = found.filter((run) => selection.metric in run.curves);
    const series = drawn.map((run) => ({ name: run.name, colour: colour(run.name),
      points: run.steps.map((step, k) => [step, run.curves[selection.metric][k]]) }));
    const lines = drawn.filter((run) => run.baseline && run.metric === selection.metric)
      .map((run) => ({ y: run.baseline.value, colour: colour(run.name) }));
    const log = LOGARITHMIC.test(selection.metric);
    picture.replaceChildren(chart(series, { log, x: t("step"), label: metricLabel(selection.metric ?? ""), lines }));
    legend.replaceChildren(...drawn.map((run) => dot(colour(run.name), run.name)));
  }

  function drawSamples(found) {
    const newest = byChange(found).find((run) => run.samples.length);
    samples.replaceChildren(el("h2", {}, newest ? `${t("samples")} · ${newest.name}` : t("samples")));
    if (!newest) samples.append(el("p", { class: "lead" }, t("no samples")));
    for (const { step, text } of newest?.samples.slice(-SAMPLES).reverse() ?? [])
      samples.append(el("span", { class: "legend" }, `${t("step")} ${step}`),
        el("div", { class: "sample" }, text.trim()));
  }

  async function refresh() {
    const names = byChange(list.filter((run) => !run.error && selection.runs.has(run.name))).map((run) => run.name);
    const answers = await Promise.all(names.map((name) => fetchJson(runPath(name)).catch(() => null)));
    if (closed) return;
    const found = answers.filter((run) => run && !run.error);
    drawPicker(found);
    drawCurves(found);
    drawSamples(found);
  }

  async function poll() {
    try {
      const { runs: now } = await fetchJson("/api/runs");
      if (closed) return;
      for (const run of now) if (!run.error && !list.some((old) => old.name === run.name)) selection.runs.add(run.name);
      const changed = JSON.stringify(now) !== JSON.stringify(list);
      list = now;
      if (changed) {
        drawTable();
        await refresh();
      }
    } catch { /* the server may be restarting: the next round tries again */ }
    if (!closed) timer = setTimeout(poll, EVERY);
  }

  drawTable();
  refresh();
  timer = setTimeout(poll, EVERY);
  return () => { closed = true; clearTimeout(timer); };
}
