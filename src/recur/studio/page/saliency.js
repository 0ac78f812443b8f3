// Which earlier tokens a prediction hangs on, under each keystroke: the last tokens, coloured by gradient × input.

import { el, number, visible } from "./dom.js";
import { t } from "./words.js";
import "./saliency_words.js";

export function saliencyStrip() {
  const line = el("div", { class: "hangs", id: "hangs" }), about = el("p", { class: "legend" });
  const place = el("div", { class: "saliency", role: "group", "aria-label": t("hangs_on") }, line, about);

  function draw(found) {
    const most = Math.max(...found.values.map(Math.abs), Math.abs(found.before), 1e-12);
    const shade = (value) => `rgba(var(${value > 0 ? "--warm" : "--cold"}), calc(${(Math.abs(value) / most).toFixed(3)} * var(--strong)))`;
    const piece = (token, value, label) => el("span", { title: `${label} ${value > 0 ? "+" : ""}${number(value)}`,
      "data-value": String(value), style: { background: shade(value) } }, visible(token));
    const before = found.tokens.length && found.before ? [piece("…", found.before, t("hangs_before"))] : [];
    line.classList.toggle("words", found.words);
    const read = [...before, ...found.tokens.map((token, k) => piece(token, found.values[k], visible(token))),
      el("span", { class: "arrow", "aria-hidden": "true" }, found.backward ? "←" : "→"), el("b", {}, visible(found.target))];
    line.replaceChildren(...(found.backward ? read.reverse() : read));  // in the order of the text
    about.textContent = t(found.backward ? "hangs_about_before" : "hangs_about", { token: visible(found.target), p: (100 * found.p).toFixed(1) });
  }

  return { place, draw };
}
