// Colours that stay with their run: assigned once, to the one that is used least, and kept by the browser.

import { COLOURS } from "./chart.js";

const KEPT = 400;  // runs whose colour is remembered

function read() {
  try {
    return Object.entries(JSON.parse(localStorage.getItem("colours") ?? "{}"));
  } catch {
    return [];
  }
}

const known = new Map(read().filter(([, k]) => Number.isInteger(k) && k >= 0 && k < COLOURS.length));

// The colours of runs that are drawn together: those without one get the ones that the others leave.
export function colours(names) {
  const used = names.filter((name) => known.has(name)).map((name) => known.get(name));
  const fresh = names.filter((name) => !known.has(name));
  for (const name of fresh) {
    const counts = COLOURS.map((_, k) => used.filter((other) => other === k).length);
    const k = counts.indexOf(Math.min(...counts));
    known.set(name, k);
    used.push(k);
  }
  if (fresh.length) {
    for (const name of [...known.keys()].slice(0, Math.max(0, known.size - KEPT))) known.delete(name);
    localStorage.setItem("colours", JSON.stringify(Object.fromEntries(known)));
  }
  return new Map(names.map((name) => [name, COLOURS[known.get(name)]]));
}
