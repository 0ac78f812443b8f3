// What the parts of Predict take from elsewhere.

export { card, dot, el, fetchJson, latest, number, picker, runPath, svg, visible } from "./dom.js";
export { remember } from "./link.js";
