// Train: start a training from a text, watch it as it goes, stop it, go on with it; others wait in a queue.

import { card, el, fetchJson, keepFocus, notice, picker, runPath } from "./dom.js";
import { colours } from "./colours.js";
import { curves, duration } from "./curves.js";
import { address } from "./link.js";
import { extend, points } from "./runs.js";
import { sample } from "./runs_panels.js";
import { form } from "./train_form.js";
import { viewFor } from "./views.js";
import { watch } from "./watch.js";
import { metricLabel, t } from "./words.js";
import "./train_words.js";

const AT_WORK = ["running", "stopping"], LOSS = "train_loss", SAMPLES = 3;
const trainPath = (name, verb) => `/api/train/${encodeURIComponent(name)}/${verb}`;

export function train(body, { runs: first, name: named }) {
  let list = first, jobs = [], shown = named || "", run = null, closed = false, unwatch = () => {}, entry = null, readOnly = false;
  const left = el("div"), monitor = card("monitor"), queue = card("queue"), goOn = card("go-on");
  body.append(el("div", { class: "grid train" }, left, el("div", { class: "stack" }, monitor, queue, goOn)));

  async function ask(name, verb, given = {}) {
    try {
      ({ jobs } = await fetchJson(trainPath(name, verb), given));
      drawJobs();
      if (verb === "resume") look(name);
    } catch (error) {
      notice(error.message);
    }
  }

  const button = (label, name, verb, given, kind = "") => readOnly ? null : el("button", { type: "button", class: kind,
    "data-key": `${verb} ${name}`, onclick: () => ask(name, verb, given) }, t(label));

  // Watching one -----------------------------------------------------------------------------------------------

  const loss = { chart: null, node: null }, judged = { chart: null, node: null, metric: "" };
  const head = el("div", { class: "row between" }), bar = el("progress", { max: "1" }), facts = el("dl", { class: "facts" });
  const said = el("p", { class: "said" }), pair = el("div", { class: "charts" }), made = el("div", { class: "made" });
  monitor.append(head, bar, facts, said, pair, made);

  const job = () => jobs.find((one) => one.name === shown);
  const working = () => (jobs.find((one) => AT_WORK.includes(one.state)) ?? jobs.at(-1))?.name ?? "";
  const summary = () => list.find((one) => one.name === shown);

  function drawMonitor() {
    const own = job(), about = summary(), live = about?.live || AT_WORK.includes(own?.state);
    monitor.hidden = !own && !about;
    if (monitor.hidden) return;
    const state = own && !(own.state === "stopped" && about?.progress >= 1) ? own.state
      : about?.live ? "running" : about?.progress >= 1 ? "done" : "stopped";
    const opens = about && !about.error && viewFor(about);
    keepFocus(head, () => head.replaceChildren(
      el("div", {}, el("h2", { id: "watched", tabindex: "-1" }, shown), el("span", { class: `state ${state}` }, t(`train_state_${state}`))),
      el("div", { class: "row" }, own?.state === "running" ? button("train_stop", shown, "stop") : null,
        own?.state === "stopping" ? button("train_stop_now", shown, "stop") : null,
        !live && about && about.progress < 1 && state !== "waiting" ? button("train_resume", shown, "resume", {}, "main") : null,
        opens && about.best !== null ? el("a", { href: address(opens.name, shown) }, t(`view_${opens.name}`)) : null,
        about ? el("a", { href: address("runs", "", { runs: shown }) }, t("view_runs")) : null)));
    bar.value = about?.progress ?? 0;
    bar.setAttribute("aria-label", t("train_progress"));
    const fact = (label, value) => value === null || value === undefined || value === "" ? [] : [el("div", {}, el("dt", {}, label), el("dd", {}, value))];
    facts.replaceChildren(...(about && !about.error ? [
      fact(t("train_progress"), `${Math.round(100 * about.progress)} %`), fact(t("step"), about.step.toLocaleString()),
      fact(t("train_time"), duration(about.seconds)), fact(t("train_left"), live && about.left !== null ? duration(about.left) : null),
      fact(metricLabel(LOSS), about.train_loss?.toFixed(3)),
      fact(metricLabel(about.metric), about.best === null ? null : about.best.toFixed(3)),
      fact(t("baseline"), about.baseline ? `${about.baseline.value.toFixed(3)} ${about.baseline.name}` : null)].flat() : []));
    said.textContent = own?.error || (live ? own?.said ?? "" : "");
    said.classList.toggle("fault", Boolean(own?.error));
  }

  function drawCurves() {
    if (!run || run.name !== shown) { pair.replaceChildren(); made.replaceChildren(); judged.metric = ""; return; }
    if (judged.metric !== run.metric || !pair.children.length) {
      judged.metric = run.metric;
      for (const [one, name] of [[loss, LOSS], [judged, run.metric]]) {
        one.chart = curves(metricLabel(name), `watched ${name}`);
        one.node = el("div", { "data-measure": name }, el("h3", {}, metricLabel(name)), one.chart.node);
      }
      pair.replaceChildren(loss.node, judged.node);
    }
    const colour = colours([run.name]).get(run.name);
    const one = (name, baseline) => [{ name: run.name, colour, points: points(run, name, "step"), baseline }];
    loss.chart.draw(one(LOSS, null));
    judged.chart.draw(one(run.metric, run.baseline), { log: /perplexity|mse/.test(run.metric) });
    judged.node.hidden = !points(run, run.metric, "step").length;
    const samples = run.samples.slice(-SAMPLES).reverse();
    made.replaceChildren(...(samples.length ? [el("h3", {}, t(run.task === "language" ? "train_samples" : "train_examples")), ...samples.map(sample)] : []));
  }

  async function load() {
    const name = shown;
    const found = name && summary() ? await fetchJson(runPath(name)).catch(() => null) : null;
    if (closed || name !== shown) return;
    run = found && !found.error ? found : null;
    drawCurves();
  }

  function look(name) {
    if (name === shown && run) { unwatch(); unwatch = watch([name], tell); return; }
    shown = name;
    run = null;
    drawMonitor();
    drawCurves();
    unwatch();
    unwatch = watch(name ? [name] : [], tell);
    load();
    refresh();
  }

  // The queue, and runs to go on with --------------------------------------------------------------------------

  let drawn = "";
  function drawJobs() {
    const waiting = jobs.filter((one) => one.state === "waiting");
    const line = (one) => el("li", { "data-job": one.name, class: one.state }, el("div", { class: "between" },
      el("button", { type: "button", class: "link", "data-key": `look ${one.name}`, "aria-current": one.name === shown ? "true" : null,
        onclick: () => look(one.name) }, one.name),
      el("span", { class: `state ${one.state}` }, one.state === "waiting" ? t("train_place", { n: waiting.indexOf(one) + 1 }) : t(`train_state_${one.state}`)),
      el("span", { class: "row" }, ["held", "failed"].includes(one.state) ? button("train_begin", one.name, "resume") : null,
        AT_WORK.includes(one.state) ? null : button("train_remove", one.name, "remove"))),
    one.error ? el("p", { class: "fault" }, one.error) : null);
    if (shown && !job() && !summary()) look(working());
    queue.hidden = !jobs.length;
    // A button that is replaced while it is pressed is not clicked: drawn again only where something differs.
    const now = JSON.stringify([jobs.map(({ name, state, error }) => [name, state, error]), shown, readOnly]);
    if (now !== drawn) keepFocus(queue, () => queue.replaceChildren(el("h2", {}, t("train_jobs")), el("ol", { class: "jobs" }, jobs.map(line))));
    drawn = now;
    entry?.busy(jobs.some((one) => [...AT_WORK, "waiting"].includes(one.state)));
    drawGoOn();
  }

  const further = { name: "", minutes: "" };
  function drawGoOn() {
    const able = list.filter((one) => !one.error && !one.pending && !one.live && !jobs.some((other) => other.name === one.name && [...AT_WORK, "waiting"].includes(other.state)));
    const open = able.filter((one) => one.progress < 1).sort((a, b) => b.changed - a.changed), ended = able.filter((one) => one.progress >= 1);
    goOn.hidden = !able.length || readOnly;
    if (goOn.hidden) return;
    const interrupted = el("ul", { class: "jobs" }, open.slice(0, 5).map((one) => el("li", { "data-open": one.name }, el("div", { class: "between" },
      el("button", { type: "button", class: "link", "data-key": `see ${one.name}`, onclick: () => look(one.name) }, one.name),
      el("span", { class: "state" }, `${Math.round(100 * one.progress)} %`), button("train_resume", one.name, "resume")))));
    const options = [...open.slice(5), ...ended].map((one) => one.name);
    if (!options.includes(further.name)) further.name = options[0] ?? "";
    const minutes = el("input", { type: "text", inputmode: "decimal", id: "further", "data-key": "further", oninput: () => { further.minutes = minutes.value; } });
    minutes.value = further.minutes;
    const again = options.length ? el("form", { class: "row", onsubmit: (event) => {
      event.preventDefault();
      const n = Number(further.minutes || 1);
      ask(further.name, "resume", { minutes: Number.isFinite(n) ? n : 0 });
    } }, picker(t("run"), options, further.name, (value) => { further.name = value; }),
    el("label", { for: "further" }, el("span", {}, t("train_further")), minutes), el("button", { type: "submit" }, t("train_resume"))) : null;
    minutes.placeholder = "1";
    keepFocus(goOn, () => goOn.replaceChildren(el("h2", {}, t("train_go_on")), open.length ? interrupted : "", again ?? ""));
  }

  // News -------------------------------------------------------------------------------------------------------

  // All that is known, anew: of runs that were not watched, what became of them was not told.
  const refresh = () => Promise.all([fetchJson("/api/runs"), fetchJson("/api/train")]).then(([{ runs }, { jobs: now }]) => {
    if (closed) return;
    [list, jobs] = [runs, now];
    drawMonitor();
    drawJobs();
  }).catch(() => {});

  function tell(news) {
    if (closed) return;
    if (news.fresh) refresh().then(load);
    if (news.jobs) {
      const before = jobs;
      jobs = news.jobs;
      const begun = jobs.find((one) => AT_WORK.includes(one.state) && !before.some((old) => old.name === one.name && AT_WORK.includes(old.state)));
      if (begun && begun.name !== shown && !AT_WORK.includes(job()?.state)) look(begun.name);
      drawJobs();
    }
    for (const changed of news.runs ?? []) {
      const k = list.findIndex((one) => one.name === changed.name), before = list[k];
      if (k < 0) list = [...list, changed];
      else list[k] = changed;
      if (changed.name === shown && (!before || before.changed !== changed.changed || before.live !== changed.live)) load();
      if (!before || before.live !== changed.live) drawGoOn();
    }
    if (news.gone) list = list.filter((one) => !news.gone.includes(one.name));
    const fresh = news.points?.[shown];
    if (fresh && run && LOSS in run.curves) { extend(run, fresh); drawCurves(); }
    else if (fresh || news.again?.includes(shown)) load();
    if (news.jobs || news.runs || news.gone) drawMonitor();
  }

  monitor.hidden = queue.hidden = goOn.hidden = true;
  Promise.all([fetchJson("/api/train"), fetchJson("/api/tasks")]).then(([about, { tasks }]) => {
    if (closed) return;
    jobs = about.jobs;
    readOnly = about.read_only;
    entry = form(about, tasks, (name) => {
      if (jobs.some((one) => AT_WORK.includes(one.state))) return;  // it waits: what trains stays in view
      look(name);
      if (innerWidth <= 760) setTimeout(() => document.getElementById("watched")?.scrollIntoView({ block: "start" }), 100);
    });
    left.append(entry.node);
    drawJobs();
    look(named || working());
  }).catch((error) => notice(error.message));
  const resized = () => drawCurves();
  addEventListener("resize", resized);
  return () => { closed = true; unwatch(); removeEventListener("resize", resized); };
}
