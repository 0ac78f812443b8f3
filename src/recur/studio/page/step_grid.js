// A vector or a matrix of numbers, each of which can be typed over: arrows move, Enter takes, Escape gives back.

import { el } from "./dom.js";
import { exact, short, typed } from "./step_formula.js";

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// rows and columns are labels; a vector has rows [""] . `edit(place, number)` is told what was typed, null for nothing;
// `look(place)` which number is looked at. Returns its element and a function that fills it.
export function grid({ label, rows, columns, edit, look, guess = () => {}, corner = "" }) {
  const cells = rows.flatMap((row, r) => columns.map((column, c) => cell(label, row, column, r * columns.length + c)));
  let values = [], current = 0, secret = false;

  function cell(name, row, column, place) {
    const input = el("input", { class: "n", type: "text", inputmode: "text", autocomplete: "off", spellcheck: "false",
      tabindex: place ? "-1" : "0", "aria-label": [name, row, column].filter(Boolean).join(", "),
      "aria-describedby": "step-exact", "data-place": String(place) });
    const under = [el("span", { class: "g" }), el("span", { class: "g sum" })];
    return { input, under, td: el("td", {}, input, ...under) };
  }

  const shown = (place) => (secret ? "" : short(values[place]));
  const whole = (place) => (secret ? "" : exact(values[place]));
  const dirty = (input, place) => (secret ? input.value.trim() !== "" : ![whole(place), shown(place)].includes(input.value) && typed(input.value) !== values[place]);

  function focus(place) {
    cells[current].input.tabIndex = -1;
    current = place;
    cells[place].input.tabIndex = 0;
  }

  function take(place) {
    const { input } = cells[place];
    if (!dirty(input, place)) return;
    const number = typed(input.value);
    if (secret && typeof number === "number" && !Number.isNaN(number)) guess(place, number);
    else if (secret) input.value = "";
    else if (Number.isNaN(number)) {
      input.value = document.activeElement === input ? whole(place) : shown(place);
      edit(place, NaN);
    } else edit(place, number);
  }

  const table = el("table", { class: "numbers" });
  const head = columns.some(Boolean) || rows.some(Boolean), foot = el("tfoot");
  if (head) table.append(el("thead", {}, el("tr", {}, rows.some(Boolean) ? el("td", { class: "corner" }, corner) : null,
    columns.map((column) => el("th", { scope: "col" }, column)))));
  table.append(el("tbody", {}, rows.map((row, r) => el("tr", {}, rows.some(Boolean) ? el("th", { scope: "row" }, row) : null,
    columns.map((_, c) => cells[r * columns.length + c].td)))), foot);

  const placeOf = (event) => Number(event.target.dataset.place);
  table.addEventListener("focusin", (event) => {
    if (!event.target.dataset.place) return;
    const place = placeOf(event);
    focus(place);
    event.target.value = whole(place);
    event.target.select();
    look(place);
  });
  table.addEventListener("focusout", (event) => {
    const place = placeOf(event);
    take(place);
    event.target.value = shown(place);
  });
  table.addEventListener("pointerover", (event) => { if (event.target.dataset.place) look(placeOf(event)); });
  table.addEventListener("keydown", (event) => {
    const place = placeOf(event), { input } = cells[place];
    if (event.key === "Enter") {
      take(place);
      input.select();
    } else if (event.key === "Escape") {
      input.value = whole(place);
      input.select();
    } else if (event.key in MOVES && !dirty(input, place) && !event.shiftKey && !event.ctrlKey && !event.altKey) {
      const [down, right] = MOVES[event.key], width = columns.length;
      const r = Math.floor(place / width) + down, c = (place % width) + right;
      if (r < 0 || r >= rows.length || c < 0 || c >= width) return;
      event.preventDefault();
      cells[r * width + c].input.focus();
    } else return;
    if (event.key in MOVES || event.key === "Enter") event.preventDefault();
  });

  // numbers; under: up to two numbers below each, null for none; marks: "held" or "edited" by place; scale of colours.
  // lines: { name, numbers, slope } to be read below, in the same columns. hidden: no number is shown, and a typed one is a guess.
  function fill({ numbers, under = [], marks = {}, scale = 1, column = "", lines = [], hidden = false }) {
    const typing = cells.map(({ input }, place) => document.activeElement === input && dirty(input, place));
    values = numbers;
    secret = hidden;
    foot.replaceChildren(...lines.flatMap(({ name, numbers: own, slope }) => [
      el("tr", {}, el("td", { colspan: String(columns.length), class: "name" }, name)),
      own ? el("tr", { class: slope ? "slope" : "other" }, own.map((value) => el("td", { title: exact(value) }, short(value)))) : null,
    ]).filter(Boolean));
    cells.forEach(({ input, under: below, td }, place) => {
      const value = numbers[place], focused = document.activeElement === input;
      if (!typing[place] || !dirty(input, place)) input.value = focused ? whole(place) : shown(place);
      input.title = hidden ? "" : exact(value);
      input.placeholder = hidden ? "?" : "";
      const size = !hidden && typeof value === "number" ? Math.min(Math.abs(value) / scale, 1) : 0;
      td.style.setProperty("--v", size.toFixed(3));
      td.className = [hidden ? "secret" : value > 0 ? "plus" : "minus", marks[place] ?? "", columns[place % columns.length] === column && column ? "on" : ""].join(" ");
      below.forEach((line, k) => {
        const own = under[k]?.[place];
        line.textContent = own === undefined || own === null ? "" : short(own);
        line.title = own === undefined || own === null ? "" : exact(own);
      });
    });
  }

  return { node: el("div", { class: "scroll" }, table), fill, cells };
}
