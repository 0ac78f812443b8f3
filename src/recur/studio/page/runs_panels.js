// Beside the curves of runs: in which options they differ, what their user wrote down, what they made on the way.

import { card, dot, el, keepFocus, notice, picker, post, runPath } from "./dom.js";
import { metricLabel, t } from "./words.js";

const SAMPLES = 4, COLUMNS = 8;
const shown = (value) => (value === undefined ? "–" : Array.isArray(value) ? value.join(", ") || "–" : String(value));

// Only options that differ between the runs that are drawn; those of one task beside each other.
export function differences(place, found, colour) {
  const tasks = [...new Set(found.map((run) => run.task))].map((task) => found.filter((run) => run.task === task).slice(0, COLUMNS));
  const several = tasks.filter((runs) => runs.length > 1);
  place.replaceChildren(el("h2", {}, t("runs_differences")), ...several.map((runs) => compared(runs, colour)),
    several.length ? "" : el("p", { class: "lead" }, t("runs_two")));
}

function compared(runs, colour) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.config)))];
  const differing = names.filter((name) => new Set(runs.map((run) => JSON.stringify(run.config[name]))).size > 1);
  if (!differing.length) return el("p", { class: "lead" }, t("runs_same", { names: runs.map((run) => run.name).join(", ") }));
  const heads = runs.map((run) => el("th", { scope: "col" }, dot(colour(run.name), run.name)));
  const rows = differing.map((name) => el("tr", { "data-option": name }, el("th", { scope: "row" }, el("code", {}, name)),
    runs.map((run) => el("td", {}, shown(run.config[name])))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${t("runs_differences")} ${runs[0].task}` },
    el("table", { class: "differences" }, el("thead", {}, el("tr", {}, el("td"), heads)), el("tbody", {}, rows)));
}

// A field a run, kept when it is left.
export function notes(place, found, colour, readOnly) {
  const names = found.map((run) => run.name).join("\n");
  if (place.dataset.names === names && place.contains(document.activeElement)) return;  // somebody is writing
  place.dataset.names = names;
  const one = (run) => {
    const status = el("output", { class: "saved" });
    const area = el("textarea", { rows: "2", "aria-label": t("runs_notes_of", run), "data-key": `notes ${run.name}`, maxlength: "4000",
      readonly: readOnly ? "" : null, placeholder: t("runs_notes_hint"), onchange: async () => {
        try {
          await post(runPath(run.name, "notes"), { text: area.value });
          run.notes = area.value;
          status.textContent = t("runs_saved");
          setTimeout(() => { status.textContent = ""; }, 2000);
        } catch (error) {
          notice(error.message);
        }
      } });
    area.value = run.notes ?? "";
    return el("div", { class: "notes" }, el("div", { class: "head" }, dot(colour(run.name), run.name), status), area);
  };
  keepFocus(place, () => place.replaceChildren(el("h2", {}, t("runs_notes")), ...found.map(one)));
}

// What one of them made at its last measurements.
export function samples(place, found, state) {
  const having = found.filter((run) => run.samples.length);
  const chosen = having.find((run) => run.name === state.sampled) ?? having[0];
  const choose = having.length > 1
    ? picker(t("run"), having.map((run) => run.name), chosen.name, (name) => { state.sampled = name; samples(place, found, state); }) : null;
  keepFocus(place, () => place.replaceChildren(
    el("div", { class: "row" }, el("h2", {}, chosen && !choose ? `${t("samples")} · ${chosen.name}` : t("samples")), choose),
    ...(chosen ? chosen.samples.slice(-SAMPLES).reverse().map(sample) : [el("p", { class: "lead" }, t("no samples"))])));
}

export const sample = ({ step, text }) => el("div", {}, el("span", { class: "legend" }, `${t("step")} ${step}`),
  el("div", { class: "sample" }, text.trim()));

// All metrics of some runs: what their task is judged by first, then others of the validation part, then the rest.
export function metricsOf(runs) {
  const own = runs.map((run) => run.metric), all = runs.flatMap((run) => Object.keys(run.curves));
  const of = (part) => all.filter((name) => name.startsWith(part));
  return [...new Set([...own, ...of("valid_"), ...of("train_"), ...all])].filter((name) => all.includes(name));
}

export const metricOptions = (names) => names.map((name) => ({ value: name, label: metricLabel(name) }));
export const panel = (name) => card(name);
