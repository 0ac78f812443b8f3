// Elements, requests and small helpers.

import { language } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name in node && !(node instanceof SVGElement) && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

// Render a part again, and keep the focus and the caret where they were: on what has the same data-key, id or label.
export function keepFocus(place, render) {
  const focused = document.activeElement, inside = place.contains(focused);
  const keys = ["data-key", "id", "aria-label"], key = inside && keys.find((one) => focused.getAttribute(one));
  const value = key && focused.getAttribute(key), { selectionStart: begin, selectionEnd: end } = focused ?? {};
  render();
  if (!key || place.contains(document.activeElement)) return;
  const again = place.querySelector(`[${key}="${CSS.escape(value)}"]`);
  again?.focus();
  if (again && typeof begin === "number") again.setSelectionRange(begin, end);
}

export const card = (kind, ...content) => el("div", { class: `card ${kind}`.trim() }, ...content);
export const emptyCard = (message, command) =>
  card("empty", el("p", {}, message), command ? el("code", {}, command) : null);

export function notice(message) {
  const place = document.getElementById("notice");
  place.textContent = message;
  clearTimeout(notice.timer);
  if (message) notice.timer = setTimeout(() => { place.textContent = ""; }, 6000);
}

export async function post(path, body, signal) {
  const headers = { "Accept-Language": language() };  // of errors
  const options = body === undefined ? { headers, signal } : {
    method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  };
  const response = await fetch(path, options);
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({ error: response.statusText }));
  throw Object.assign(new Error(error), { status: response.status });
}

// Without a body it is a GET.
export const fetchJson = async (...request) => (await post(...request)).json();
export const runPath = (name, view = "") => `/api/runs/${encodeURIComponent(name)}${view ? `/${view}` : ""}`;

// The newest call wins: late responses are dropped, and errors are shown.
export function latest(work) {
  let running = null;
  return async (...given) => {
    running?.abort();
    const mine = (running = new AbortController());
    try {
      await work(mine.signal, ...given);
      if (mine === running) notice("");
    } catch (error) {
      if (error.name !== "AbortError") notice(error.message);
    }
  };
}

export function slider(label, { min, max, step, value, show = String, oninput }) {
  const output = el("output", {}, show(value));
  const input = el("input", { type: "range", min: String(min), max: String(max), step: String(step) });
  input.value = value;
  input.setAttribute("aria-valuetext", show(value));
  input.addEventListener("input", () => {
    input.setAttribute("aria-valuetext", show(Number(input.value)));
    output.textContent = show(Number(input.value));
    oninput(Number(input.value));
  });
  return el("label", { class: "slider" }, el("span", {}, label), input, output);
}

export function picker(label, options, value, onchange) {
  const select = el("select", { onchange: () => onchange(select.value) }, options.map((option) => {
    const own = String(option.value ?? option);
    return el("option", { value: own, selected: own === String(value) }, option.label ?? option);
  }));
  return el("label", {}, el("span", {}, label), select);
}

// One of a few, all in view.
export function choice(label, options, value, onchange) {
  const name = `choice-${++choice.made}`;
  const one = ({ value: own, label: words }) => {
    const box = el("input", { type: "radio", name, value: own, checked: own === value, onchange: () => onchange(own) });
    return el("label", {}, box, el("span", {}, words));
  };
  return el("fieldset", { class: "choice" }, el("legend", {}, label), el("div", {}, options.map(one)));
}
choice.made = 0;

export const dot = (colour, label) =>
  el("span", {}, el("span", { class: "dot", style: { background: colour } }), label);

export const number = (value) => value === null || value === undefined ? "–"
  : value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(0)
  : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString() : String(Number(value.toPrecision(4)));
export const visible = (text) => text.replace(/\n/g, "⏎").replace(/ /g, "␣").replace(/\t/g, "⇥") || "∅";
