// Gradients: ∂L/∂W as the sum over steps, what cuts do to it, how far gradients flow, eigenvalues, and clipping.

import { card, choice, dot, el, fetchJson, latest, number, picker, runPath, slider, visible } from "./dom.js";
import { chart, COLOURS } from "./chart.js";
import { eigenvalues } from "./gradients_eigen.js";
import { steps } from "./gradients_steps.js";
import { reader } from "./reader.js";
import { remember } from "./link.js";
import { saliencyStrip } from "./saliency.js";
import { isTyped, lastOf, prefill, startText, typed } from "./state.js";
import { metricLabel, t } from "./words.js";
import "./gradients_words.js";

const MODES = ["full", "truncated", "sliding", "randomized"];
const EXAMPLE = 64;  // characters
const DECADES = 8;  // powers of ten below the full curve's top that its axis shows

// An example of so many steps that each has room; what somebody typed stays as it is.
const shortened = (text) => (isTyped() || text.length <= EXAMPLE ? text : text.slice(0, EXAMPLE).replace(/\s+\S*$/, ""));

export function gradients(body, { name, params }) {
  const asked = {
    losses: params.get("losses") === "all" ? "all" : "last",
    mode: MODES.includes(params.get("mode")) ? params.get("mode") : "full",
    tau: Math.max(1, Number(params.get("tau")) || 8), keep: 0.9, seed: 0,
    cuts: (params.get("cuts") ?? "").split(",").map(Number).filter((cut) => cut > 0),
  };
  const area = el("textarea", { "aria-label": t("text"), spellcheck: "false", rows: "3", class: "short" });
  const strip = saliencyStrip(), ask = reader(name);
  const terms = steps({ onCut: (cuts) => { asked.cuts = cuts; update(); } });
  const spectrum = eigenvalues(name);
  const control = el("div", { class: "row" }), curve = el("div", { id: "flow" }), legend = el("div", { class: "legend" });
  const facts = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("flow") }), clips = el("div", { class: "card" });
  let found = null;

  const hangsOn = latest(async (signal) => {
    const text = area.value.replace(/\n$/, "");  // what comes next is more than an empty line
    const { key } = await ask("next", text, {}, signal);
    if (key) strip.draw(await ask("saliency", text, {}, signal));
  });

  const update = latest(async (signal) => {
    const request = { ...asked, text: lastOf(area.value) };
    remember("gradients", name, { text: area.value, losses: asked.losses, mode: asked.mode,
      tau: asked.mode === "full" ? "" : asked.tau, cuts: asked.cuts.join(",") });
    found = await fetchJson(runPath(name, "gradients"), request, signal).catch((error) => {
      if (error.name === "AbortError" || !asked.cuts.length) throw error;
      asked.cuts = [];  // the text became shorter
      return fetchJson(runPath(name, "gradients"), { ...request, cuts: [] }, signal);
    });
    for (const row of [...found.rows, ...found.terms]) row.name = row.name.replace("layer", t("layer"));
    terms.draw(found, asked);
    drawCurves();
    drawFacts();
    drawClips();
    spectrum.update(request.text, found);
  });

  function drawControl() {
    const set = (key) => (value) => { asked[key] = value; update(); };
    const modes = MODES.map((value) => ({ value, label: t(`mode_${value}`) }));
    const more = {
      full: [],
      truncated: [slider("τ", { min: 1, max: 60, step: 1, value: asked.tau, oninput: set("tau") })],
      sliding: [slider("τ", { min: 1, max: 60, step: 1, value: asked.tau, oninput: set("tau") })],
      randomized: [
        slider("π", { min: 0.5, max: 1, step: 0.05, value: asked.keep, show: (v) => v.toFixed(2), oninput: set("keep") }),
        el("button", { type: "button", onclick: () => { asked.seed += 1; update(); } }, t("draw_again"))],
    }[asked.mode];
    control.replaceChildren(...more);
    lead.textContent = t(`about_${asked.mode}`);
    return modes;
  }

  const lead = el("p", { class: "lead" });
  const modes = choice(t("crosses_time"), drawControl(), asked.mode, (value) => {
    asked.mode = value;
    drawControl();
    update();
  });

  // The axes are those of the full curves, whatever is cut.
  function drawCurves() {
    const by = (norms) => norms.map((norm, k) => [norms.length - 1 - k, norm]);
    const colour = (k) => COLOURS[k % COLOURS.length];
    const full = found.rows.flatMap((row) => row.full).filter((norm) => norm > 0);
    const top = Math.max(...full, 1e-30) * 3, bottom = Math.max(Math.min(...full, top / 10), top / 10 ** DECADES) / 2;
    const ghosts = found.rows.map((row, k) => ({ name: t("ghost", row), colour: colour(k), points: by(row.full), ghost: true }));
    const series = found.rows.map((row, k) => ({ name: row.name, colour: colour(k), points: by(row.norms) }));
    const furthest = Math.max(10, ...ghosts.flatMap((one) => one.points.filter(([, norm]) => norm > bottom).map(([lag]) => lag)));
    curve.replaceChildren(chart([...ghosts, ...series], { log: true, x: t("steps_back"), label: "‖∂L/∂s‖",
      range: [0, Math.min(furthest, Math.max(1, found.steps - 1)), bottom, top] }));
    legend.replaceChildren(...series.map((one) => dot(one.colour, `‖∂L/∂${one.name}‖`)), t("dotted_is_full"));
  }

  function drawFacts() {
    const heads = ["", "decay", "memory"].map((key) => el(key ? "th" : "td", { class: "number", scope: key ? "col" : null },
      key && t(key)));
    const line = (row) => el("tr", {}, el("th", { scope: "row" }, row.name),
      el("td", { class: "number" }, row.decay === null ? "–" : `× ${row.decay.toFixed(3)}`),
      el("td", { class: "number" }, row.memory === null ? t("beyond") : String(row.memory)));
    facts.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, found.rows.map(line))));
  }

  function drawClips() {
    const known = found.clips.filter((entry) => entry.step !== null && entry.norm !== null);
    const { theta, norm } = found, factor = theta && norm ? Math.min(1, theta / norm) : 1;
    const own = theta ? t("clip_here", { norm: number(norm), theta, factor: number(factor) })
      : t("clip_none", { norm: number(norm) });
    clips.replaceChildren(el("h2", {}, t("clips")), el("p", { class: "lead", id: "clip-here" }, own));
    if (!known.length) {
      clips.append(el("p", { class: "lead" }, t("no clips")));
      return;
    }
    const points = known.map((entry) => [entry.step, entry.norm]);
    const clipped = known.at(-1).clipped;
    clips.append(chart([{ name: metricLabel("grad_norm"), colour: COLOURS[0], points }], { log: true, x: t("step"),
      label: t("clips"), lines: theta ? [{ y: theta, colour: COLOURS[1], label: `θ = ${theta}` }] : [] }),
    el("div", { class: "legend" }, dot(COLOURS[0], metricLabel("grad_norm")),
      clipped === null ? "" : t("clip_share", { share: Math.round(100 * clipped) })));
  }

  area.addEventListener("input", () => { typed(area.value); update(); hangsOn(); });
  const losses = choice(t("loss"), ["last", "all"].map((value) => ({ value, label: t(`loss_${value}`) })), asked.losses,
    (value) => { asked.losses = value; asked.cuts = []; update(); });
  body.append(
    card("", area, strip.place),
    card("", el("h2", {}, t("terms")), el("p", { class: "lead" }, t("lead_terms")), el("div", { class: "row" }, losses, terms.pickers),
      terms.place),
    card("", el("h2", {}, t("flow")), el("div", { class: "row" }, modes, control), lead,
      el("div", { class: "grid" }, el("div", {}, curve, legend), facts)),
    card("", el("h2", {}, t("eigenvalues")), el("p", { class: "lead" }, t("lead_eigenvalues")), spectrum.place),
    clips);
  startText(name, params).then((text) => prefill(area, shortened(text.trimEnd()), () => {
    update();
    hangsOn();
  }), update);
}
