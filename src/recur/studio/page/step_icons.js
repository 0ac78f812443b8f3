// Icons, drawn: not every font has them.

import { svg } from "./dom.js";

const PATHS = {
  first: "M5 4v12M16 4L8 10l8 6z", back: "M14 4L6 10l8 6z", next: "M6 4l8 6-8 6z", last: "M15 4v12M4 4l8 6-8 6z",
  undo: "M7 4L3 8l4 4M3 8h8a5 5 0 0 1 0 10H8", redo: "M13 4l4 4-4 4M17 8H9a5 5 0 0 0 0 10h3",
  link: "M8 12l4-4M7 9l-2 2a3 3 0 0 0 4 4l2-2M13 11l2-2a3 3 0 0 0-4-4L9 7",
};
const FILLED = new Set(["first", "back", "next", "last"]);

export const icon = (name) => svg("svg", { viewBox: "0 0 20 20", width: "18", height: "18", class: "icon", "aria-hidden": "true" },
  svg("path", { d: PATHS[name], fill: FILLED.has(name) ? "currentColor" : "none", stroke: "currentColor", "stroke-width": "1.8",
    "stroke-linecap": "round", "stroke-linejoin": "round" }));
