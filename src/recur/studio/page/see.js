// See: text coloured by a unit or gate; a span, dragged or by keyboard, and where the state is like it.

import { askJson, el, example, latest, number, picker, runPath, slider, visible } from "./dom.js";
import { t } from "./words.js";

const kept = { text: null, layer: 0, what: "", unit: 0 };

export function see(body, { name }) {
  const area = el("textarea", { "aria-label": t("text"), spellcheck: "false" });
  area.value = kept.text ?? "";
  const controls = el("div", { class: "row" }), text = el("div", { class: "text", tabindex: "0", id: "coloured", "aria-label": t("drag_hint"), role: "group" });
  const units = el("div"), follow = el("div", { class: "chips" }), places = el("ol", { class: "list", id: "alike" });
  let spans = [], cursor = 0, anchor = null, found = null;

  const look = latest(async (signal) => {
    kept.text = area.value;
    const asked = { text: kept.text, layer: kept.layer, unit: kept.unit };
    if (kept.what) asked.what = kept.what;
    try {
      found = await askJson(runPath(name, "see"), asked, signal);
    } catch (error) {  // another run may have other gates and fewer units
      if (error.name === "AbortError" || (!kept.what && !kept.unit && !kept.layer)) throw error;
      Object.assign(kept, { what: "", unit: 0, layer: 0 });
      found = await askJson(runPath(name, "see"), { text: kept.text }, signal);
    }
    kept.what ||= found.what[0];
    draw();
  });

  function draw() {
    controls.replaceChildren(
      picker(t("layer"), found.layers.map((_, k) => ({ value: k, label: String(k + 1) })), kept.layer, (v) => { kept.layer = Number(v); look(); }),
      picker(t("colour"), found.what.map((what) => ({ value: what, label: what.replace(/^\w+/, (w) => t(w)) })), kept.what, (v) => { kept.what = v; look(); }));
    if (!units.contains(document.activeElement)) units.replaceChildren(slider(t("unit"), { min: 0, max: found.units - 1, step: 1, value: found.unit, oninput: (v) => { kept.unit = v; look(); } }));
    spans = found.tokens.map((token, k) => {
      const v = found.values[k], hue = v > 0 ? "--warm" : "--cold";
      return el("span", { "data-k": String(k), class: token === "\n" ? "end" : null, title: `${visible(token)} ${number(v)}`,
        style: { background: `rgba(var(${hue}), ${(Math.min(Math.abs(v), 1) * 0.65).toFixed(3)})` } }, token);
    });
    text.replaceChildren(...spans);
    follow.replaceChildren(...Object.entries(found.follow).map(([feature, { unit, r }]) =>
      el("button", { type: "button", onclick: () => { kept.unit = unit; units.replaceChildren(); look(); } }, `${t(feature)} → ${unit} (${r.toFixed(2)})`)));
    places.replaceChildren(el("li", { class: "legend" }, t("drag_hint")));
  }

  function mark(begin, end) {
    spans.forEach((span, k) => { span.classList.toggle("span", k >= begin && k < end); span.classList.remove("like"); span.classList.toggle("cursor", document.activeElement === text && k === cursor); });
  }

  const find = latest(async (signal, begin, end) => {
    const { spans: alike } = await askJson(runPath(name, "alike"), { text: kept.text, layer: kept.layer, begin, end }, signal);
    for (const place of alike) for (let k = place.begin; k < place.end; k++) spans[k].classList.add("like");
    places.replaceChildren(...alike.map((place) => el("li", {}, `${place.likeness.toFixed(2)}  `, el("code", {}, found.tokens.slice(place.begin, place.end).map(visible).join("")))));
  });

  const at = (event) => { const k = document.elementFromPoint(event.clientX, event.clientY)?.dataset?.k; return k === undefined ? null : Number(k); };
  const range = () => [Math.min(anchor, cursor), Math.max(anchor, cursor) + 1];
  text.addEventListener("pointerdown", (event) => { const k = at(event); if (k !== null) { anchor = cursor = k; mark(...range()); } });
  text.addEventListener("pointermove", (event) => { const k = at(event); if (event.buttons && anchor !== null && k !== null) { cursor = k; mark(...range()); } });
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
  area.addEventListener("input", () => look());
  body.append(el("div", { class: "grid" },
    el("div", { class: "stack" }, el("div", { class: "card" }, controls, units, text), el("div", { class: "card" }, el("h2", {}, t("text")), area)),
    el("div", { class: "stack" }, el("div", { class: "card" }, el("h2", {}, t("follows")), follow), el("div", { class: "card" }, el("h2", {}, t("similar")), places))));
  if (kept.text === null) example(name).then((text) => { area.value ||= text; look(); }, look);
  else look();
}
