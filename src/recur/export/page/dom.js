// DOM helpers. User input and model output are inserted as text nodes, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, own] of Object.entries(value)) node.style.setProperty(key, own);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const card = (title, attributes, ...children) => el("section", { class: "card", ...attributes, "aria-label": t(title) }, el("h2", {}, t(title)), ...children);

function slider(name, { min, max, step, value, show = String, oninput }) {
  const output = el("output", {}, show(value));
  const input = el("input", { type: "range", min, max, step, name });
  input.value = value;
  input.addEventListener("input", () => {
    output.textContent = show(Number(input.value));
    oninput(Number(input.value));
  });
  return el("label", { class: "slider" }, el("span", {}, t(name)), input, output);
}

function picker(name, options, value, onchange) {
  const select = el("select", { name, onchange: () => onchange(select.value) },
    options.map(([own, label]) => el("option", { value: own, selected: own === value }, label)));
  return el("label", { class: "picker" }, el("span", {}, t(name)), select);
}

const percent = (p) => p >= 0.9995 ? "100 %" : p >= 0.1 ? `${(100 * p).toFixed(1)} %` : p >= 0.0005 ? `${(100 * p).toFixed(2)} %` : "< 0.05 %";
const figure = (value) => Number.isFinite(value) ? Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2)
  : String(Number(value.toPrecision(5))) : "–";

const signed = (value, digits) => value.toFixed(digits).replace("-", "−");

// Visible form of a token: spaces, line ends and special tokens are shown as symbols.
const SIGNS = { "\n": "⏎", "\t": "⇥", " ": "␣", "\u00a0": "⍽", "\u3000": "□" };
function visible(token) {
  if (token === "<eos>") return "⏎";
  return token.replaceAll(SPACE_SIGN, "␣").replace(/[\n\t \u00a0\u3000]/g, (sign) => SIGNS[sign]) || "∅";
}

// Bar chart of {name, p}; with `onpick` each bar is a button.
function bars(rows, onpick) {
  return rows.map((row) => el(onpick ? "button" : "div", {
    class: row.strong ? "bar strong" : "bar", type: onpick ? "button" : null, disabled: row.fixed, role: onpick ? null : "listitem",
    "aria-label": `${row.name}: ${percent(row.p)}`, onclick: onpick ? () => onpick(row) : null,
  },
  el("span", { class: "name", title: row.name }, row.name),
  el("span", { class: "track" }, el("span", { class: "fill", style: { width: `${100 * row.p}%` } })),
  el("span", { class: "share" }, percent(row.p))));
}

// Note that lists tokens outside of the vocabulary.
function showUnknown(place, tokens) {
  place.replaceChildren(...(tokens.length ? [
    el("strong", {}, t("unknown")), " ",
    ...tokens.slice(0, 12).map((token) => el("code", {}, visible(token))),
    tokens.length > 12 ? ` + ${tokens.length - 12}` : "", " ", el("span", {}, t("unknown_read")),
  ] : []));
}

// Debounced work: waits until typing pauses; only the newest call counts.
function calmly(work, wait = 60) {
  let timer = 0;
  const calm = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
  calm.cancel = () => clearTimeout(timer);
  return calm;
}

const nextFrame = () => new Promise((resolve) => { setTimeout(resolve, 0); });
