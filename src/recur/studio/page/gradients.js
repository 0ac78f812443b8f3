// Gradients: how far the last token's loss reaches back, with truncation to try, and how training clipped.

import { askJson, el, example, latest, number, runPath, slider, visible } from "./dom.js";
import { chart, COLOURS } from "./chart.js";
import { t } from "./words.js";

const kept = { text: null, tau: 0 };

export function gradients(body, { name }) {
  const area = el("textarea", { "aria-label": t("text"), spellcheck: "false" });
  area.value = kept.text ?? "";
  const heat = el("div", { class: "heat", id: "heat" }), curve = el("div"), legend = el("div", { class: "legend" }), facts = el("div", { class: "scroll" }), control = el("div"), clips = el("div", { class: "card" });
  let bound = 0;

  const look = latest(async (signal) => {
    kept.text = area.value;
    const found = await askJson(runPath(name, "gradients"), { text: kept.text, tau: kept.tau }, signal).catch((error) => {
      if (error.name === "AbortError" || !kept.tau) throw error;
      kept.tau = 0;  // the text became shorter than the window
      return askJson(runPath(name, "gradients"), { text: kept.text, tau: 0 }, signal);
    });
    if (bound !== found.steps) {
      bound = found.steps;
      control.replaceChildren(slider(t("window"), { min: 0, max: bound - 1, step: 1, value: kept.tau, show: (v) => (v ? String(v) : t("full")), oninput: (v) => { kept.tau = v; look(); } }));
    }
    draw(found);
  });

  function draw(found) {
    for (const row of found.rows) row.name = row.name.replace("layer", t("layer"));
    const top = Math.max(...found.rows.flatMap((row) => row.norms), 1e-30);
    const shade = (v) => (v > 0 ? Math.max(0, 1 + Math.log10(v / top) / 6) : 0);  // six powers of ten
    heat.replaceChildren(...found.rows.map((row) => el("div", { class: "line" }, el("span", { class: "name" }, row.name),
      row.norms.map((v, k) => el("span", { class: "cell", title: `${visible(found.tokens[k])}  ${v.toExponential(2)}`,
        style: { background: v > 0 ? `rgba(var(--warm), ${(0.05 + 0.95 * shade(v)).toFixed(3)})` : "var(--soft)" } })))),
    el("div", { class: "line", "aria-hidden": "true" }, el("span", { class: "name" }), found.tokens.map((token) => el("span", { class: "tok" }, visible(token)))));
    heat.scrollLeft = heat.scrollWidth;  // the end, where the loss is
    curve.replaceChildren(chart(found.rows.map((row, k) => ({ name: row.name, colour: COLOURS[k], points: row.norms.map((v, i) => [row.norms.length - 1 - i, v]) })),
      { log: true, x: t("steps_back"), label: "‖∂L/∂s‖" }));
    legend.replaceChildren(...found.rows.map((row, k) => el("span", {}, el("span", { class: "dot", style: { background: COLOURS[k] } }), row.name)), `${t("predicts")} ${visible(found.target)}`);
    facts.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, el("th"), el("th", { class: "number" }, t("decay")), el("th", { class: "number" }, t("memory")))),
      el("tbody", {}, found.rows.map((row) => el("tr", {}, el("td", {}, row.name), el("td", { class: "number" }, `× ${row.decay.toFixed(3)}`), el("td", { class: "number" }, row.memory === null ? t("beyond") : String(row.memory)))))));
    const known = found.clips.filter((c) => c.step !== null && c.norm !== null && c.norm !== undefined);
    clips.replaceChildren(el("h2", {}, t("clips")), ...(known.length ? [chart([
      { name: t("share clipped"), colour: COLOURS[1], points: known.map((c) => [c.step, c.clipped]) },
      { name: t("gradient norm"), colour: COLOURS[0], points: known.map((c) => [c.step, c.norm]) }], { x: t("step"), label: t("clips") }),
    el("div", { class: "legend" }, el("span", {}, el("span", { class: "dot", style: { background: COLOURS[1] } }), t("share clipped")), el("span", {}, el("span", { class: "dot", style: { background: COLOURS[0] } }), t("gradient norm")))]
      : [el("p", { class: "lead" }, t("no clips"))]));
  }

  area.addEventListener("input", () => look());
  body.append(el("div", { class: "card" }, control, heat), el("div", { class: "grid" },
    el("div", { class: "card" }, curve, legend), el("div", { class: "stack" }, el("div", { class: "card" }, facts), el("div", { class: "card" }, el("h2", {}, t("text")), area), clips)));
  if (kept.text === null) example(name).then((text) => { area.value ||= text.trim(); look(); }, look);
  else look();
}
