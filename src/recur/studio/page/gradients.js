// Gradients: how far the last token's loss flows back, with truncation to try; which steps W and U learn from; and how
// training clipped.

import { dot, el, example, fetchJson, latest, runPath, slider, visible } from "./dom.js";
import { chart, COLOURS } from "./chart.js";
import { metricLabel, t } from "./words.js";
import "./gradients_words.js";

const settings = { text: null, tau: 0 };
const DECADES = 6;  // powers of ten that the heat map shows

export function gradients(body, { name }) {
  const area = el("textarea", { "aria-label": t("text"), spellcheck: "false" });
  area.value = settings.text ?? "";
  const heat = el("div", { class: "heat", id: "heat" }), control = el("div"), curve = el("div");
  const legend = el("div", { class: "legend" }), facts = el("div", { class: "scroll" });
  const terms = el("div", { class: "heat", id: "terms" }), termFacts = el("div", { class: "scroll" });
  const clips = el("div", { class: "card" });
  let steps = 0;

  const update = latest(async (signal) => {
    settings.text = area.value;
    const request = (tau) => fetchJson(runPath(name, "gradients"), { text: settings.text, tau }, signal);
    const found = await request(settings.tau).catch((error) => {
      if (error.name === "AbortError" || !settings.tau) throw error;
      settings.tau = 0;  // the text became shorter than the window
      return request(0);
    });
    if (steps !== found.steps) {
      steps = found.steps;
      control.replaceChildren(slider(t("window"), { min: 0, max: steps - 1, step: 1, value: settings.tau,
        show: (value) => String(value || t("full")), oninput: (value) => { settings.tau = value; update(); } }));
    }
    for (const row of [...found.rows, ...found.terms]) row.name = row.name.replace("layer", t("layer"));
    drawHeat(heat, found.rows, found.tokens);
    drawHeat(terms, found.terms, found.tokens);
    drawCurves(found);
    drawFacts(found.rows);
    drawTermFacts(found.terms);
    drawClips(found.clips);
  });

  function drawHeat(place, rows, tokens) {
    const top = Math.max(...rows.flatMap((row) => row.norms), 1e-30);
    const shade = (norm) => Math.max(0, 1 + Math.log10(norm / top) / DECADES);
    const warm = (norm) => `rgba(var(--warm), ${(0.05 + 0.95 * shade(norm)).toFixed(3)})`;
    const cell = (norm, k) => el("span", { class: "cell", style: { background: norm > 0 ? warm(norm) : "var(--soft)" },
      title: `${visible(tokens[k])}  ${norm?.toExponential(2) ?? "∞"}` });
    const line = (row) => el("div", { class: "line" }, el("span", { class: "name" }, row.name), row.norms.map(cell));
    const labels = tokens.map((token) => el("span", { class: "token" }, visible(token)));
    place.replaceChildren(...rows.map(line),
      el("div", { class: "line", "aria-hidden": "true" }, el("span", { class: "name" }), labels));
    place.scrollLeft = place.scrollWidth;  // the end, where the loss is
  }

  function drawCurves({ rows, target }) {
    const series = rows.map(({ name: label, norms }, k) => ({ name: label, colour: COLOURS[k % COLOURS.length],
      points: norms.map((norm, i) => [norms.length - 1 - i, norm]) }));
    curve.replaceChildren(chart(series, { log: true, x: t("steps_back"), label: "‖∂L/∂s‖" }));
    legend.replaceChildren(...series.map((one) => dot(one.colour, one.name)), `${t("predicts")} ${visible(target)}`);
  }

  function drawFacts(rows) {
    const heads = ["", "decay", "memory"].map((key) => el("th", { class: "number" }, key && t(key)));
    const line = (row) => el("tr", {}, el("td", {}, row.name),
      el("td", { class: "number" }, row.decay === null ? "–" : `× ${row.decay.toFixed(3)}`),
      el("td", { class: "number" }, row.memory === null ? t("beyond") : String(row.memory)));
    facts.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows.map(line))));
  }

  function drawTermFacts(rows) {
    const heads = ["", "largest", "share", "needed"].map((key) => el("th", { class: "number" }, key && t(key)));
    const line = (row) => el("tr", {}, el("td", {}, row.name), el("td", { class: "number" }, String(row.largest)),
      el("td", { class: "number" }, row.share === null ? "–" : `${Math.round(100 * row.share)} %`),
      el("td", { class: "number" }, String(row.needed)));
    termFacts.replaceChildren(
      el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows.map(line))));
  }

  function drawClips(entries) {
    const known = entries.filter((entry) => entry.step !== null && entry.norm !== null);
    clips.replaceChildren(el("h2", {}, t("clips")));
    if (!known.length) {
      clips.append(el("p", { class: "lead" }, t("no clips")));
      return;
    }
    const series = [["clipped", "clipped", 1], ["norm", "grad_norm", 0]].map(([key, metric, k]) => ({
      name: metricLabel(metric), colour: COLOURS[k], points: known.map((entry) => [entry.step, entry[key]]) }));
    clips.append(chart(series, { x: t("step"), label: t("clips") }),
      el("div", { class: "legend" }, series.map((one) => dot(one.colour, one.name))));
  }

  area.addEventListener("input", () => update());
  const card = (...content) => el("div", { class: "card" }, ...content);
  const sum = card(el("h2", {}, t("terms")), el("p", { class: "lead" }, t("lead_terms")), terms, termFacts);
  body.append(card(control, heat), sum, el("div", { class: "grid" },
    card(curve, legend), el("div", { class: "stack" }, card(facts), card(el("h2", {}, t("text")), area), clips)));
  if (settings.text !== null) update();
  else example(name).then((text) => { area.value ||= text.trim(); update(); }, update);
}
