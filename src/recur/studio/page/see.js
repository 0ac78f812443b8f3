// See: all units × time as a map; text coloured by one unit or gate; a span, dragged or by keyboard, and where the state is similar.

import { card, el, fetchJson, latest, number, picker, runPath, slider, visible } from "./dom.js";
import { remember } from "./link.js";
import { heatMap } from "./see_map.js";
import { lastOf, prefill, startText, typed } from "./state.js";
import { t } from "./words.js";
import "./see_words.js";

export function see(body, { name, params, run }) {
  const settings = { layer: Number(params.get("layer")) || 0, signal: params.get("signal") ?? "", unit: Number(params.get("unit")) || 0 };
  const area = el("textarea", { "aria-label": t("text"), spellcheck: "false", class: "short" });
  const controls = el("div", { class: "row" }), units = el("div"), features = el("div", { class: "chips" });
  const text = el("div", { class: "text", tabindex: "0", id: "coloured", "aria-label": t("drag_hint"), role: "group" });
  const places = el("ol", { class: "list", id: "similar" }), learned = el("ol", { class: "list", id: "similar-training" });
  const legend = el("div", { class: "legend" });
  const map = heatMap((unit) => { units.replaceChildren(); set("unit")(unit); });
  let spans = [], cursor = 0, anchor = null, found = null;

  const update = latest(async (signal) => {
    const request = { text: lastOf(area.value), layer: settings.layer, unit: settings.unit };
    if (settings.signal) request.signal = settings.signal;
    try {
      found = await fetchJson(runPath(name, "activations"), request, signal);
    } catch (error) {  // another run may have other gates and fewer units
      if (error.name === "AbortError" || (!settings.signal && !settings.unit && !settings.layer)) throw error;
      Object.assign(settings, { signal: "", unit: 0, layer: 0 });
      found = await fetchJson(runPath(name, "activations"), { text: request.text }, signal);
    }
    settings.signal ||= found.signals[0];
    remember("see", name, { text: area.value, ...settings });
    draw();
    map.draw(await fetchJson(runPath(name, "map"), { ...request, signal: settings.signal }, signal), settings.unit);
  });

  const set = (key) => (value) => { settings[key] = value; update(); };

  function draw() {
    const layers = found.layers.map((layer, k) => ({ value: k, label: layer.replace("layer", t("layer")).replace("backward", t("backward")) }));
    const signals = found.signals.map((value) => ({ value, label: value.replace(/^\w+/, (kind) => t(kind)) }));
    if (!controls.contains(document.activeElement)) controls.replaceChildren(
      picker(t("layer"), layers, settings.layer, (value) => set("layer")(Number(value))),
      picker(t("colour"), signals, settings.signal, set("signal")));
    if (!units.contains(document.activeElement)) units.replaceChildren(
      slider(t("unit"), { min: 0, max: found.units - 1, step: 1, value: found.unit, oninput: set("unit") }));
    spans = found.tokens.map((token, k) => {
      const value = found.values[k] ?? 0, hue = value > 0 ? "--warm" : "--cold";
      const opacity = Math.min(Math.abs(value), 1).toFixed(3);
      return el("span", { "data-k": String(k), class: token === "\n" ? "end" : null,
        title: `${visible(token)} ${number(value * found.scale)}`, style: { background: `rgba(var(${hue}), calc(${opacity} * var(--strong)))` } }, token,
      found.words && token !== "\n" ? " " : "");
    });
    text.replaceChildren(...spans);
    legend.replaceChildren(map.scale(found.scale));
    features.replaceChildren(...Object.entries(found.features).map(([feature, { unit, r }]) => el("button",
      { type: "button", onclick: () => { units.replaceChildren(); set("unit")(unit); } },
      `${t(feature.replace(/ \d+$/, ""))}${/ \d+$/.exec(feature) ?? ""} → ${unit} (${r.toFixed(2)})`)));
    places.replaceChildren(el("li", { class: "legend" }, t("drag_hint")));
    learned.replaceChildren();
  }

  function mark(begin, end) {
    spans.forEach((span, k) => {
      span.classList.toggle("span", k >= begin && k < end);
      span.classList.remove("similar");
      span.classList.toggle("cursor", document.activeElement === text && k === cursor);
    });
  }

  const find = latest(async (signal, begin, end) => {
    if (!spans.length) return;
    const request = { text: lastOf(area.value), layer: settings.layer, begin, end };
    const answer = await fetchJson(runPath(name, "similar"), request, signal), similar = answer.spans;
    for (const place of similar) for (let k = place.begin; k < place.end; k++) spans[k].classList.add("similar");
    if (!similar.length) places.replaceChildren(el("li", { class: "legend" }, t("none similar")));
    else places.replaceChildren(...similar.map((place) => el("li", {}, `${place.similarity.toFixed(2)}  `,
      el("code", {}, found.tokens.slice(place.begin, place.end).map(visible).join("")))));
    drawTraining(answer);
  });

  function drawTraining({ training, searched }) {
    if (!training) learned.replaceChildren(el("li", { class: "legend" }, t("no training text")));
    else if (!training.length) learned.replaceChildren(el("li", { class: "legend" }, t("none similar")));
    else learned.replaceChildren(el("li", { class: "legend" }, t("searched", { n: searched.toLocaleString() })), ...training.map((place) => el("li", {},
      `${place.similarity.toFixed(2)}  `, el("code", {}, el("span", { class: "dim" }, visible(place.before)), el("b", {}, visible(place.text)), el("span", { class: "dim" }, visible(place.after))))));
  }

  const range = () => [Math.min(anchor, cursor), Math.max(anchor, cursor) + 1];
  const at = (event) => {
    const k = document.elementFromPoint(event.clientX, event.clientY)?.dataset?.k;
    return k === undefined ? null : Number(k);
  };
  text.addEventListener("pointerdown", (event) => {
    const k = at(event);
    if (k === null) return;
    anchor = cursor = k;
    mark(...range());
  });
  text.addEventListener("pointermove", (event) => {
    const k = at(event);
    if (!event.buttons || anchor === null || k === null) return;
    cursor = k;
    mark(...range());
  });
  text.addEventListener("pointerup", () => { if (anchor !== null) find(...range()); });
  text.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 20, ArrowUp: -20 }[event.key];
    if (step) {
      cursor = Math.max(0, Math.min(spans.length - 1, cursor + step));
      if (!event.shiftKey || anchor === null) anchor = cursor;
      mark(...range());
    } else if (event.key === "Enter" && anchor !== null) find(...range());
    else return;
    event.preventDefault();
  });
  area.addEventListener("input", () => { if (run.task === "language") typed(area.value); update(); });
  const titled = (title, ...content) => card("", el("h2", {}, t(title)), ...content);
  body.append(card("", area), el("div", { class: "grid" },
    el("div", { class: "stack" }, card("", controls, units, text, legend), titled("units_time", el("p", { class: "lead" }, t("lead_map")), map.place)),
    el("div", { class: "stack" }, titled("features", features), titled("similar", places),
      run.task === "language" ? titled("similar_training", learned) : null)));
  const start = run.task === "language" ? startText(name, params)
    : fetchJson(runPath(name, "samples"), {}).then((given) => params.get("text") ?? given.examples[0].input);
  start.then((drawn) => prefill(area, drawn, update), update);
}
