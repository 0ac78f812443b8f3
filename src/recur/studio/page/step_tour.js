// Guided tour of Step: each stop moves the view, points at a part of it and explains it.

import { card, el } from "./dom.js";
import { t } from "./words.js";

// Where a stop moves to, from the current answer (null: nowhere), and what it points at.
const STOPS = [
  { name: "text", to: () => ({ back: false, t: 0, k: 0 }), at: ".strip" },
  { name: "cell", to: (found) => ({ back: false, t: 0, k: rowOf(found) }), at: ".step-row.now" },
  { name: "shared", to: () => ({ back: false, t: 1 }), at: ".step-weights" },
  { name: "output", to: (found) => ({ back: false, t: 1, k: found.rows.length - 1 }), at: ".step-row.now" },
  { name: "edit", to: (found) => ({ back: false, t: 0, k: rowOf(found) }), at: ".step-row.now .numbers" },
  { name: "back", to: (found) => ({ back: true, t: found.inputs.length - 1, k: found.rows.length - 1 }), at: ".step-row.now" },
  { name: "state", to: (found) => ({ back: true, t: Math.max(0, found.inputs.length - 2), k: rowOf(found) }), at: ".step-row.now" },
  { name: "sums", to: () => ({ back: true, t: 0, k: 0 }), at: ".step-weights" },
  { name: "update", to: () => null, at: ".update" },
];
const rowOf = (found) => found.rows.findIndex((row) => row.node === found.states[0].node);

// `view` is the element of Step, `move(place)` its own. Returns the button that starts the tour, and the card of a stop.
export function tour(view, found, move) {
  const place = el("div", { id: "step-tour", "aria-live": "polite" });
  const start = el("button", { type: "button", "data-key": "tour", onclick: () => go(0) }, t("tour_start"));

  function leave() {
    for (const one of view.querySelectorAll(".toured")) one.classList.remove("toured");
    place.replaceChildren();
  }

  function go(k) {
    leave();
    const now = found(), stop = STOPS[k];
    if (!now) return;
    const to = stop.to(now);
    if (to) move(to);
    const target = view.querySelector(stop.at);
    target?.classList.add("toured");
    const button = (key, act, kind = "") => el("button", { type: "button", class: kind, onclick: act }, t(key));
    const next = k + 1 < STOPS.length ? button("tour_next", () => go(k + 1), "main") : null;
    place.replaceChildren(card("tour", el("p", {}, el("b", {}, `${k + 1} / ${STOPS.length}  `), t(`tour_${stop.name}`)),
      el("div", { class: "row tight" }, k ? button("tour_previous", () => go(k - 1)) : null, next, button("tour_end", () => { leave(); start.focus(); }))));
    (next ?? place.querySelector("button:last-of-type")).focus({ preventScroll: true });
    target?.scrollIntoView({ block: "nearest" });
  }

  return { start, place, leave };
}
