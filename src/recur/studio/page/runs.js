// Runs: a table, curves side by side, samples over time; asked for again while the view is open.

import { askJson, el, number, picker, runPath } from "./dom.js";
import { chart, COLOURS } from "./chart.js";
import { t } from "./words.js";

const EVERY = 2000;
const CURVES = { valid_perplexity: "valid perplexity", train_perplexity: "train perplexity", grad_norm: "gradient norm", clipped: "share clipped" };
const seen = { chosen: null, curve: "valid_perplexity" };

export function runs(body, { runs: first }) {
  let list = first, timer = null, gone = false;
  if (!seen.chosen) {
    const newest = [...list].filter((run) => !run.broken).sort((a, b) => b.changed - a.changed).slice(0, 4);
    seen.chosen = new Set(newest.map((run) => run.name));
  }
  const colour = (name) => COLOURS[list.findIndex((run) => run.name === name) % COLOURS.length];
  const table = el("div", { class: "card scroll runs" }), picture = el("div"), legend = el("div", { class: "legend" }), samples = el("div", { class: "card" });
  const head = el("div", { class: "row" }, picker(t("curve"), Object.entries(CURVES).map(([value, label]) => ({ value, label: t(label) })), seen.curve,
    (value) => { seen.curve = value; refresh(); }));
  body.append(table, el("div", { class: "grid" }, el("div", { class: "card" }, head, picture, legend), samples));

  function row(run) {
    if (run.broken) return el("tr", { class: "broken" }, el("td"), el("td", {}, run.name), el("td", { colspan: "5" }, `${t("broken")}: ${run.broken}`));
    const box = el("input", { type: "checkbox", "aria-label": `${t("compare")} ${run.name}`, checked: seen.chosen.has(run.name),
      onchange: () => { box.checked ? seen.chosen.add(run.name) : seen.chosen.delete(run.name); refresh(); } });
    return el("tr", { "data-run": run.name }, el("td", {}, box),
      el("td", {}, el("span", { class: "dot", style: { background: colour(run.name) } }), el("a", { href: `#/write/${encodeURIComponent(run.name)}` }, run.name),
        run.live ? el("span", { class: "live" }, t("live")) : null),
      el("td", { class: "optional" }, run.cell), el("td", { class: "optional" }, `${run.layers} × ${run.hidden}`),
      el("td", { class: "number" }, number(run.step)), el("td", { class: "number" }, number(run.best)), el("td", { class: "number" }, number(run.baseline)));
  }

  function drawTable() {
    const focused = document.activeElement?.getAttribute("aria-label");
    const heads = [["", ""], ["name", ""], ["cell", "optional"], ["size", "optional"], ["step", "number"], ["best", "number"], ["ngram", "number"]];
    table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads.map(([name, kind]) => el("th", { class: kind, scope: "col" }, name && t(name))))),
      el("tbody", {}, list.map(row))));
    if (focused) table.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  async function refresh() {
    const names = list.filter((run) => !run.broken && seen.chosen.has(run.name)).map((run) => run.name);
    const found = await Promise.all(names.map((name) => askJson(runPath(name)).catch(() => null)));
    if (gone) return;
    const kept = found.filter(Boolean);
    const share = seen.curve === "clipped";
    picture.replaceChildren(chart(kept.map((run) => ({ name: run.name, colour: colour(run.name),
      points: run.curves.step.map((step, k) => [step, run.curves[seen.curve][k]]) })),
    { log: !share, x: t("step"), label: t(CURVES[seen.curve]),
      lines: seen.curve.endsWith("perplexity") ? kept.filter((run) => run.baseline).map((run) => ({ y: run.baseline, colour: colour(run.name) })) : [] }));
    legend.replaceChildren(...kept.map((run) => el("span", {}, el("span", { class: "dot", style: { background: colour(run.name) } }), run.name)));
    const best = kept.filter((run) => run.samples.length).sort((a, b) => b.changed - a.changed)[0];
    samples.replaceChildren(el("h2", {}, best ? `${t("samples")} · ${best.name}` : t("samples")),
      ...(best ? best.samples.slice(-4).reverse().flatMap((s) => [el("span", { class: "legend" }, `${t("step")} ${s.step}`), el("div", { class: "sample" }, s.text.trim())])
        : [el("p", { class: "lead" }, t("no samples"))]));
  }

  async function again() {
    try {
      const { runs: now } = await askJson("/api/runs");
      if (gone) return;
      const fresh = now.filter((run) => !run.broken && !list.some((old) => old.name === run.name));
      fresh.forEach((run) => seen.chosen.add(run.name));
      const changed = JSON.stringify(now) !== JSON.stringify(list);
      list = now;
      if (changed) { drawTable(); await refresh(); }
    } catch { /* the server may be restarting: the next round asks again */ }
    if (!gone) timer = setTimeout(again, EVERY);
  }

  drawTable();
  refresh();
  timer = setTimeout(again, EVERY);
  return () => { gone = true; clearTimeout(timer); };
}
