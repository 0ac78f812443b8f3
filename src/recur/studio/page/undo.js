// Undo for a text area that a program writes into too: browsers forget theirs then. Ctrl-Z and Ctrl-Y (or Ctrl-Shift-Z), and
// two buttons.

import { el } from "./dom.js";
import { t } from "./words.js";

const MOST = 200, LARGEST = 2e7;  // changes, and characters of all of them
const PAUSE = 700;  // milliseconds after which typing is a new change

export function undoable(area, onchange) {
  const past = [], future = [];
  let last = area.value, time = 0;
  const button = (label, sign, move) => el("button", { type: "button", "aria-label": t(label), title: t(label), disabled: true,
    onclick: move }, sign);
  const back = button("undo", "↶", () => move(past, future)), forth = button("redo", "↷", () => move(future, past));

  function show() {
    back.disabled = !past.length;
    forth.disabled = !future.length;
  }

  // What the area holds now is a change; one that follows soon belongs to it, if it was typed.
  function changed(isTyped = false) {
    const value = area.value, now = performance.now();  // read once: a browser puts it together each time
    if (value === last) return;
    if (!isTyped || now - time > PAUSE || !past.length) past.push(last);
    while (past.length > 1 && past.length > Math.min(MOST, LARGEST / value.length)) past.shift();
    time = isTyped ? now : 0;
    future.length = 0;
    last = value;
    show();
  }

  function move(from, to) {
    if (!from.length) return;
    to.push(area.value);
    area.value = last = from.pop();
    time = 0;
    show();
    onchange();
  }

  area.addEventListener("input", () => changed(true));
  area.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) move(future, past);
    else move(past, future);
  });
  return { buttons: [back, forth], changed, start: () => { last = area.value; } };
}
