// Eigenvalues in the unit circle, of W and of a step's Jacobian; and how the gradient follows when W is rescaled.

import { dot, el, fetchJson, latest, number, picker, runPath, slider, svg } from "./dom.js";
import { chart, COLOURS } from "./chart.js";
import { t } from "./words.js";

const MOST = 2, SIZE = 300, DECADES = 10;

export function eigenvalues(name) {
  const settings = { layer: 0, radius: 0 };
  const circle = el("div", { id: "circle" }), legend = el("div", { class: "legend" }), curve = el("div", { id: "rescaled" });
  const about = el("p", { id: "radius-about" }), controls = el("div", { class: "row" }), curves = el("div", { class: "legend" });
  const reset = el("button", { type: "button", onclick: () => { settings.radius = 0; control(); update(); } }, t("as_trained"));
  const place = el("div", {}, controls, el("div", { class: "grid even" }, el("div", {}, circle, legend), el("div", {}, curve, curves)), about);
  let text = "", base = null, offered = "";

  function control() {
    const show = (value) => value.toFixed(2);
    controls.replaceChildren(layers, slider(t("radius"), { min: 0.05, max: Math.max(MOST, Math.ceil(base.radius)), step: 0.05, value: settings.radius || base.radius,
      show, oninput: (value) => { settings.radius = value; update(); } }), reset);
  }
  let layers = el("span");

  const update = latest(async (signal) => {
    const request = { text, layer: settings.layer, radius: settings.radius };
    const found = await fetchJson(runPath(name, "eigenvalues"), request, signal);
    const flow = settings.radius ? await fetchJson(runPath(name, "gradients"), { text, radius: settings.radius }, signal) : base.last;
    drawCircle(found.blocks);
    drawCurve(flow);
    if (JSON.stringify(found.layers) !== offered) {
      offered = JSON.stringify(found.layers);
      const names = found.layers.map((layer, k) => ({ value: k, label: layer.replace("layer", t("layer")) }));
      layers = found.layers.length > 1 ? picker(t("layer"), names, settings.layer, (value) => { settings.layer = Number(value); update(); }) : el("span");
      control();
    }
  });

  function drawCircle(blocks) {
    const extent = Math.max(1.25, ...blocks.map((block) => 1.1 * block.radius)), scale = SIZE / 2 / extent;
    const at = (value) => SIZE / 2 + value * scale;
    const picture = svg("svg", { class: "circle", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": t("eigenvalues") },
      svg("line", { class: "axis", x1: 0, x2: SIZE, y1: SIZE / 2, y2: SIZE / 2 }),
      svg("line", { class: "axis", x1: SIZE / 2, x2: SIZE / 2, y1: 0, y2: SIZE }),
      svg("circle", { class: "unit", cx: SIZE / 2, cy: SIZE / 2, r: scale }),
      svg("text", { x: at(1) + 4, y: SIZE / 2 - 4 }, "1"));
    blocks.forEach((block, k) => block.values.forEach(([re, im]) => picture.append(svg("circle",
      { cx: at(re), cy: at(-im), r: block.name === "J" ? 2.5 : 3.5, fill: COLOURS[k % COLOURS.length], "fill-opacity": 0.75,
        "data-block": block.name }, svg("title", {}, `${block.name}: ${number(re)} ${im < 0 ? "−" : "+"} ${number(Math.abs(im))}i`)))));
    circle.replaceChildren(picture);
    const label = (block) => (block.name === "J" ? t("jacobian") : block.name);
    legend.replaceChildren(...blocks.map((block, k) => dot(COLOURS[k % COLOURS.length], `${label(block)}: |λ| ≤ ${number(block.radius)}`)));
  }

  function drawCurve(flow) {
    const by = (norms) => norms.map((norm, k) => [norms.length - 1 - k, norm]);
    const full = flow.rows.flatMap((row) => row.full).filter((norm) => norm > 0), colour = (k) => COLOURS[k % COLOURS.length];
    const top = Math.max(...full, 1e-30) * 100, bottom = top / 10 ** DECADES;
    const furthest = Math.max(10, ...flow.rows.flatMap((row) => by(row.full).filter(([, norm]) => norm > bottom).map(([lag]) => lag)));
    const series = flow.rows.flatMap((row, k) => [{ name: t("ghost", row), colour: colour(k), points: by(row.full), ghost: true },
      { name: row.name, colour: colour(k), points: by(row.norms) }]);
    curve.replaceChildren(chart(series, { log: true, x: t("steps_back"), label: t("rescaled"), range: [0, Math.min(furthest, Math.max(1, flow.steps - 1)), bottom, top] }));
    curves.replaceChildren(...flow.rows.map((row, k) => dot(colour(k), `‖∂L_T/∂${row.name.replace("layer", t("layer"))}‖`)), t("dotted_is_trained"));
    const [{ decay: after, name: state }] = flow.rows;
    about.textContent = t("radius_about", { radius: number(settings.radius || base.radius), own: number(base.radius),
      state: state.replace("layer", t("layer")), decay: after === null ? "–" : after.toFixed(3) });
  }

  return {
    place,
    async update(now, found) {
      if (now === text && base) return;
      text = now;
      base = { radius: found.radius, last: await fetchJson(runPath(name, "gradients"), { text }).catch(() => found) };
      if (!controls.contains(document.activeElement)) control();
      update();
    },
  };
}
