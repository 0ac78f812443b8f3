// The table of runs: sorted by any column, filtered by words, task and cell; a box chooses what is drawn.

import { dot, el, keepFocus, number, picker } from "./dom.js";
import { duration } from "./curves.js";
import { address } from "./link.js";
import { viewFor } from "./views.js";
import { metricLabel, t } from "./words.js";

const SHOWN = 200;  // rows, until all are asked for

const times = () => new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "short", timeStyle: "short" });
const size = ({ options: o = {} }) => (o.hidden_size ? [o.num_layers, o.hidden_size].filter((n) => n !== undefined).join(" × ") : "");

// Columns: what a run is sorted by, its cell, and its class.
const COLUMNS = {
  name: { by: (run) => run.name.toLowerCase() },
  task: { by: (run) => run.task, kind: "optional" },
  cell: { by: (run) => run.architecture, kind: "optional" },
  size: { by: (run) => (run.options?.hidden_size ?? 0) * (run.options?.num_layers ?? 1), kind: "optional" },
  step: { by: (run) => run.step, kind: "number" },
  runs_time: { by: (run) => run.seconds, kind: "number optional" },
  runs_loss: { by: (run) => run.train_loss ?? Infinity, kind: "number optional" },
  best: { by: (run) => run.best ?? Infinity, kind: "number" },
  baseline: { by: (run) => run.baseline?.value ?? Infinity, kind: "number" },
  runs_changed: { by: (run) => run.changed, kind: "number optional" },
};

export function table(state, colour, changed) {
  const filters = el("div", { class: "row filters" }), place = el("div", { class: "card scroll runs", tabindex: "0", role: "region" });
  let list = [], offered = "";

  function fits(run) {
    const { words, task, cell } = state.filter;
    if ((task && run.task !== task) || (cell && run.architecture !== cell)) return false;
    const text = `${run.name} ${run.task} ${run.architecture} ${run.notes ?? ""} ${Object.entries(run.options ?? {}).flat().join(" ")}`;
    return words.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));
  }

  function sorted() {
    const { by } = COLUMNS[state.sort], compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const whole = list.filter((run) => !run.error && !run.pending && fits(run));
    whole.sort((a, b) => state.order * compare(by(a), by(b)) || compare(b.changed, a.changed));
    return whole;
  }

  function drawFilters() {
    const known = (of) => [...new Set(list.map(of).filter(Boolean))].sort();
    const tasks = known((run) => run.task), cells = known((run) => run.architecture);
    if (offered === JSON.stringify([tasks, cells])) return;
    offered = JSON.stringify([tasks, cells]);
    const all = { value: "", label: t("all") };
    const words = el("input", { type: "search", "data-key": "filter", placeholder: t("runs_filter"), "aria-label": t("runs_filter"),
      oninput: () => { state.filter.words = words.value; draw(list); changed(false); } });
    words.value = state.filter.words;
    const choose = (name, values) => picker(t(name), [all, ...values], state.filter[name], (value) => {
      state.filter[name] = value;
      draw(list);
      changed(false);
    });
    const pick = (label, names) => el("button", { type: "button", onclick: () => { state.runs = new Set(names()); draw(list); changed(true); } }, t(label));
    keepFocus(filters, () => filters.replaceChildren(words, choose("task", tasks), choose("cell", cells),
      pick("runs_all", () => sorted().slice(0, 20).map((run) => run.name)), pick("runs_none", () => [])));
  }

  function heads() {
    return Object.entries(COLUMNS).map(([name, { kind }]) => el("th", { class: kind, scope: "col",
      "aria-sort": name !== state.sort ? null : state.order > 0 ? "ascending" : "descending" },
    el("button", { type: "button", class: "sort", "data-key": `sort ${name}`, onclick: () => {
      state.order = state.sort === name ? -state.order : name === "runs_changed" ? -1 : 1;
      state.sort = name;
      draw(list);
      changed(false);
    } }, t(name), el("span", { "aria-hidden": "true" }, name !== state.sort ? "" : state.order > 0 ? " ▲" : " ▼"))));
  }

  function row(run, when) {
    const box = el("input", { type: "checkbox", "aria-label": `${t("compare")} ${run.name}`, checked: state.runs.has(run.name),
      onchange: () => {
        box.checked ? state.runs.add(run.name) : state.runs.delete(run.name);
        changed(true);
        draw(list);
      } });
    const opens = viewFor(run);
    const name = opens ? el("a", { href: address(opens.name, run.name) }, run.name) : run.name;
    const drawn = state.runs.has(run.name), mark = drawn ? dot(colour(run.name), name) : el("span", { class: "undrawn" }, name);
    const live = run.live ? el("span", { class: "live" }, `${t("live")} ${Math.round(100 * run.progress)} %`) : null;
    const open = !run.live && run.progress < 1
      ? el("a", { class: "open", href: address("train", run.name) }, `${t("runs_open")} ${Math.round(100 * run.progress)} %`) : null;
    const notes = run.notes ? el("small", { class: "note" }, run.notes.split("\n")[0].slice(0, 80)) : null;
    return el("tr", { "data-run": run.name }, el("td", {}, box), el("td", {}, mark, live, open, notes),
      el("td", { class: "optional" }, run.task), el("td", { class: "optional" }, run.architecture),
      el("td", { class: "optional" }, size(run)), el("td", { class: "number step" }, number(run.step)),
      el("td", { class: "number optional" }, duration(run.seconds)), el("td", { class: "number optional loss" }, number(run.train_loss)),
      el("td", { class: "number" }, number(run.best), el("small", {}, metricLabel(run.metric))),
      el("td", { class: "number" }, number(run.baseline?.value), el("small", {}, run.baseline?.name ?? "")),
      el("td", { class: "number optional" }, when.format(run.changed * 1000)));
  }

  const broken = (run) => el("tr", { class: "error" }, el("td"), el("td", {}, run.name),
    el("td", { colspan: String(Object.keys(COLUMNS).length - 1) }, `${t("error")}: ${run.error}`));

  function draw(now) {
    list = now;
    drawFilters();
    const whole = sorted(), shown = state.every ? whole : whole.slice(0, SHOWN);
    const when = times(), pending = list.filter((run) => run.pending).length;
    const left = [
      whole.length > shown.length && el("button", { type: "button", "data-key": "every", onclick: () => { state.every = true; draw(list); } },
        t("runs_more", { n: whole.length - shown.length })),
      pending ? el("span", { class: "lead" }, t("runs_pending", { n: pending })) : null,
      !whole.length && !pending ? el("span", { class: "lead" }, t("runs_no_fit")) : null,
    ].filter(Boolean);
    place.setAttribute("aria-label", t("view_runs"));
    keepFocus(place, () => place.replaceChildren(
      el("table", {}, el("thead", {}, el("tr", {}, el("td"), heads())),
        el("tbody", {}, shown.map((run) => row(run, when)), list.filter((run) => run.error).map(broken))),
      el("div", { class: "row foot" }, left)));
  }

  // One run has changed: its row alone is drawn again.
  function update(run) {
    const old = place.querySelector(`tr[data-run="${CSS.escape(run.name)}"]`);
    if (old) keepFocus(old, () => old.replaceChildren(...row(run, times()).childNodes));
  }

  return { filters, place, draw, update };
}
