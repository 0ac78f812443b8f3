// Formulas as elements: subscripts low, matrices upright, everything else as a book sets it.

import { el } from "./dom.js";

const PART = /_\{([^}]*)\}|_([^\s{}()[\],+⊙·ᵀ²³/|^])|\^(−?[\d.]+)|([\p{L}\p{M}]+)|([^_^\p{L}]+|[_^])/gu;
const UPRIGHT = new Set(["tanh", "softmax", "log", "exp", "sin", "cos", "softplus", "ReLU", "sign"]);

// The nodes of a formula, such as h_t = tanh(a_{h,t}).
export function formula(text) {
  return [...text.matchAll(PART)].map(([whole, braced, single, power, letters]) => {
    if (braced !== undefined || single !== undefined) return el("sub", {}, braced ?? single);
    if (power !== undefined) return el("sup", {}, power);
    if (letters === undefined) return whole;
    return UPRIGHT.has(letters) || letters === "σ" || letters === "T" ? el("span", { class: "fn" }, letters) : el("i", {}, letters);
  });
}

// The same as plain text, for labels that are read aloud.
export const spoken = (text) => text.replace(/_\{([^}]*)\}/g, " $1").replace(/_(.)/g, " $1").replaceAll("−", "-");

// A number in a few signs.
export function short(value) {
  if (typeof value !== "number") return value ?? "";
  const size = Math.abs(value);
  const text = value === 0 ? "0" : size < 5e-4 || size >= 1e4 ? value.toExponential(0)
    : size >= 100 ? value.toFixed(0) : String(Number(value.toFixed(size >= 10 ? 1 : 3)));
  return text.replace("-", "−").replace("e+", "e").replace("e−", "e−").replace("e-", "e−");
}

// All of it.
export const exact = (value) => (typeof value === "number" ? String(value) : value ?? "").replaceAll("-", "−");

// What a person typed as a number; null for nothing, NaN for what is none.
export function typed(text) {
  const plain = text.trim().replaceAll("−", "-").replaceAll("，", ".").replace(/^([+-]?\d+),(\d+)$/, "$1.$2");
  return plain === "" ? null : /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) ? Number(plain) : NaN;
}
