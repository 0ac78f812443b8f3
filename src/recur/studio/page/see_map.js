// All units × time as a picture, with its legend: a row a unit, a column a token. Drawn again when the theme changes.

import { el, number, visible } from "./dom.js";
import { t } from "./words.js";

const CELL = 6, MARGIN = 16;

const rgb = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(Number);

function paper() {
  const probe = el("span", { style: { color: "var(--card)", display: "none" } });
  document.body.append(probe);
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return found;
}

export function heatMap(onUnit) {
  const canvas = el("canvas", { id: "map", tabindex: "0", role: "img", "aria-label": t("units_time") }), readout = el("p", { class: "legend", id: "map-readout" });
  const legend = el("div", { class: "legend" });
  const place = el("div", {}, el("div", { class: "scroll" }, canvas), readout, legend);
  let found = null, cells = null, chosen = 0, column = 0;

  const value = (unit, k) => cells[unit * found.tokens.length + k] / 127;

  function paint() {
    if (!found) return;
    const [rows, columns] = [found.units, found.tokens.length], warm = rgb("--warm"), cold = rgb("--cold"), blank = paper();
    const w = Math.max(CELL, Math.min(14, Math.floor(640 / columns))), h = Math.max(2, Math.min(CELL, Math.floor(420 / rows)));
    canvas.width = columns * w;
    canvas.height = rows * h + MARGIN;
    const context = canvas.getContext("2d");
    for (let unit = 0; unit < rows; unit++) for (let k = 0; k < columns; k++) {
      const v = value(unit, k), hue = v > 0 ? warm : cold, share = Math.abs(v);
      context.fillStyle = `rgb(${hue.map((one, i) => Math.round(blank[i] + (one - blank[i]) * share)).join()})`;
      context.fillRect(k * w, unit * h, w, h);
    }
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink");
    if (chosen < rows) context.strokeRect(0.5, chosen * h + 0.5, columns * w - 1, Math.max(1, h - 1));
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--dim");
    context.font = "10px ui-monospace, monospace";
    context.textAlign = "center";
    const room = Math.floor(w / 6);  // letters below a column; what does not fit is read on the way over the map
    if (w >= 7 && found.tokens.every((token) => visible(token).length <= room))
      found.tokens.forEach((token, k) => context.fillText(visible(token), (k + 0.5) * w, rows * h + 12));
    canvas.dataset.cell = `${w},${h}`;
  }

  function tell(unit, k) {
    if (!found || unit < 0 || unit >= found.units || k < 0 || k >= found.tokens.length) return;
    readout.textContent = t("map_about", { unit, token: visible(found.tokens[k]), value: number(value(unit, k) * found.scale) });
  }

  const at = (event) => {
    const [w, h] = canvas.dataset.cell.split(",").map(Number), box = canvas.getBoundingClientRect(), zoom = canvas.width / box.width;
    return [Math.floor((event.clientY - box.top) * zoom / h), Math.floor((event.clientX - box.left) * zoom / w)];
  };
  canvas.addEventListener("pointermove", (event) => tell(...at(event)));
  canvas.addEventListener("click", (event) => {
    const [unit] = at(event);
    if (unit < found.units) onUnit(unit);
  });
  canvas.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    column = Math.max(0, Math.min(found.tokens.length - 1, column + right));
    chosen = Math.max(0, Math.min(found.units - 1, chosen + down));
    tell(chosen, column);
    paint();
    if (down) onUnit(chosen);
  });
  new MutationObserver(paint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

  // What the colours mean.
  function scale(most) {
    return el("span", { class: "scale" }, number(-most), el("span", { class: "ramp", "aria-hidden": "true" }), number(most));
  }

  return {
    place, scale,
    draw(now, unit) {
      [found, chosen] = [now, unit];
      cells = Int8Array.from(atob(now.cells), (letter) => letter.charCodeAt(0));
      canvas.setAttribute("aria-label", t("map_label", { units: now.units, steps: now.tokens.length }));
      legend.replaceChildren(scale(now.scale), now.all_units > now.units ? t("first_units", { n: now.units, all: now.all_units }) : "");
      paint();
      tell(Math.min(unit, now.units - 1), now.tokens.length - 1);
    },
  };
}
