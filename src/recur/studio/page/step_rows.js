// The rows of a step: an equation, its line of code, its numbers; and the weights that they read.

import { el, visible } from "./dom.js";
import { formula, short, spoken } from "./step_formula.js";
import { grid } from "./step_grid.js";
import { t } from "./words.js";

const equation = (symbol, right) => el("span", { class: "math" }, formula(symbol), right ? [" = ", ...formula(right)] : null);

// Quantities that have a name in every book.
const NAMED = new Set(["elman_h", "lstm_f", "lstm_i", "lstm_g", "lstm_o", "lstm_c", "lstm_h", "gru_r", "gru_z", "gru_h̃", "gru_h"]);
const labelOf = (label) => (label === "" ? "" : visible(label));

function codeLine(line) {
  if (!line) return "";
  const place = line.line ? `${line.file}:${line.line}` : line.file;
  return el("code", { class: "line", title: `${place}  ${line.text}`, tabindex: "0", role: "note", "aria-label": `${place}: ${line.text}` },
    el("span", { class: "place" }, place), el("span", {}, line.text));
}

// `edit(place among all numbers, k, number)`, `look(…)`: see step.js.
export function rowsOf(found, { edit, look, go, guess }) {
  const made = found.rows.map((row, k) => {
    const numbers = grid({ label: spoken(row.symbol), rows: [""], columns: row.labels.map(labelOf),
      edit: (place, value) => edit(row, place, value), look: (place) => look(row, place), guess: (place, value) => guess(row, place, value) });
    const math = el("div"), code = el("div");
    const node = el("section", { class: "step-row", "data-node": String(row.node), "aria-label": spoken(row.symbol),
      onclick: (event) => { if (event.target === event.currentTarget || event.target.closest(".math")) go(k); } },
      el("div", { class: "words" }, math, code), numbers.node);
    if (row.name && row.op !== "before" && row.op !== "input") node.classList.add("named");
    return { row, numbers, math, code, node };
  });

  // What is seen at a moment: step, row, direction.
  function fill(at, marks, hidden) {
    made.forEach(({ row, numbers, math, code, node }, k) => {
      const reached = at.back && (at.all || k >= at.k);
      const values = found.values[at.t][k], slopes = found.gradients[at.t][k];
      const state = found.states.find((one) => one.node === row.node);
      numbers.fill({ numbers: values, under: reached ? [slopes] : [], marks: marks(row), hidden: hidden(k),
        lines: hidden(k) ? [] : [...(reached && state ? parts(at, state) : []), ...others(at, k, row)],
        scale: row.kind === "one" ? 3 : row.op === "sum" || row.op === "product" ? 2 : 1 });
      node.classList.toggle("now", k === at.k);
      node.classList.toggle("later", at.back ? !reached : k > at.k);
      node.classList.toggle("back", at.back);
      if (k === at.k) node.setAttribute("aria-current", "true"); else node.removeAttribute("aria-current");
      const symbol = at.back ? `∂${/[\s(]/.test(row.symbol) ? `(${row.symbol})` : row.symbol}` : row.symbol;
      const right = at.back ? row.slope : row.formula === row.symbol ? "" : row.formula;
      math.replaceChildren(equation(symbol, right), at.back && state ? nextTerm(at, state) : "", about(row, at));
      code.replaceChildren(codeLine(at.back ? row.back : row.code));
    });
  }

  const nextTerm = (at, state) => el("span", { class: "math" }, at.t + 1 < found.inputs.length
    ? [" + ", el("span", { class: "hint" }, t("step_from_next", { t: at.t + 2 }))] : "");

  function about(row, at) {
    const hint = row.op === "input" ? t("step_input") : row.op === "before" ? t(at.t ? "step_state_before" : "step_start")
      : NAMED.has(`${found.cell}_${row.name}`) ? t(`step_${found.cell}_${row.name}`) : "";
    return hint && !at.back ? el("span", { class: "hint" }, ` ${hint}`) : "";
  }

  // The two parts of a state's gradient.
  function parts(at, state) {
    const last = at.t + 1 === found.inputs.length;
    return [{ name: t("step_from_output"), numbers: found.within[at.t][state.name], slope: true },
      last ? { name: t("step_no_next") } : { name: t("step_from_next", { t: at.t + 2 }), numbers: found.from_next[at.t][state.name], slope: true }];
  }

  // What is not shown of a larger network.
  function others(at, k, row) {
    const numbers = found.others[at.t][k];
    if (!numbers) return [];
    return [{ numbers, name: row.op === "softmax" ? t("step_other_symbols", { count: found.symbols_of - found.symbols.length })
      : t("step_others", { count: found.units_of - found.units.length }) }];
  }

  const cell = made.filter(({ row }) => row.part === "cell"), output = made.filter(({ row }) => row.part === "output");
  const block = (name, some) => el("div", { class: "block" }, el("h3", {}, name), some.map(({ node }) => node));
  return { node: el("div", {}, block(t("step_in_step"), cell), block(t("step_output"), output)), fill, made };
}

export function weightsOf(found, { edit, look }) {
  const made = found.weights.map((weight) => {
    const vector = !weight.columns.length;
    const numbers = grid({ label: spoken(weight.symbol), rows: vector ? [""] : weight.rows.map(labelOf),
      columns: (vector ? weight.rows : weight.columns).map(labelOf),
      edit: (place, value) => edit(weight.name, place, value), look: (place) => look(weight.name, place) });
    const math = el("div", {}), code = el("div");
    const node = el("section", { class: "weight", "data-weight": weight.name, "aria-label": spoken(weight.symbol) }, math, numbers.node, code);
    return { weight, numbers, math, code, node };
  });

  function fill(at, marks) {
    const steps = found.inputs.length, row = found.rows[at.k];
    const reading = new Set(row.reads.map((one) => one.weight));
    made.forEach(({ weight, numbers, math, code, node }) => {
      const readers = found.rows.map((one, k) => (one.reads.some((part) => part.weight === weight.name) ? k : -1)).filter((k) => k >= 0);
      const reached = at.back && (at.all || readers.every((k) => k >= at.k));
      const last = at.t + 1 === steps;
      const sums = reached ? found.sums[at.t] : last ? null : found.sums[at.t + 1];
      const under = at.back ? [reached ? found.terms[at.t][weight.name] : null, sums?.[weight.name]] : [];
      numbers.fill({ numbers: found.numbers[weight.name], under: under.map((one) => one ?? undefined), marks: marks(weight.name), scale: 1.5,
        column: weight.columns.length && weight.columns[0] === found.symbols[0] ? visible(found.inputs[at.t]) : "" });
      node.classList.toggle("now", reading.has(weight.name));
      math.replaceChildren(el("h3", {}, el("span", { class: "math" }, formula(weight.symbol))),
        at.back ? el("span", { class: "math hint" }, formula(`∇${weight.symbol}`), " += ", formula(weight.slope)) : "");
      code.replaceChildren(...(at.back && weight.back ? [codeLine(weight.back)] : []));
    });
  }
  return { node: el("div", { class: "weights" }, made.map(({ node }) => node)), fill };
}

// How one number was made, with numbers in place of letters.
export function worked(found, row, place, t0) {
  const value = (read, k) => {
    if ("number" in read) return read.number;
    if ("weight" in read) return found.numbers[read.weight][k];
    const numbers = found.values[t0][found.rows.findIndex((one) => one.node === read.node)];
    return numbers.length === 1 ? numbers[0] : numbers[k];
  };
  const [a, b] = row.reads, show = (number) => (Number(number) < 0 ? `(${short(number)})` : short(number));
  switch (row.op) {
    case "product": {
      const vector = found.values[t0][found.rows.findIndex((one) => one.node === b.node)], matrix = found.numbers[a.weight];
      return vector.map((number, j) => `${show(matrix[place * vector.length + j])} · ${show(number)}`).join(" + ");
    }
    case "sum": return row.reads.map((read, k) => `${k || row.signs[k] < 0 ? (row.signs[k] < 0 ? " − " : " + ") : ""}${show(value(read, place))}`).join("");
    case "times": return `${show(value(a, place))} · ${show(value(b, place))}`;
    case "quotient": return `${show(value(a, place))} / ${show(value(b, place))}`;
    case "softmax": return `exp(${short(value(a, place))}) / Σ exp`;
    case "loss": return `−log ${short(found.values[t0][found.rows.findIndex((one) => one.node === a.node)][found.symbols.indexOf(found.targets[t0])])}`;
    case "input": case "before": case "beside": case "same": return "";
    case "power": return "";
    default: return `${row.op}(${short(value(a, place))})`;
  }
}
