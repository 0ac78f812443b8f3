// Step: one step of a cell with all its numbers, forward and back; any of them can be changed.

import { card, el, fetchJson, keepFocus, latest, notice, picker, runPath, visible } from "./dom.js";
import { address, remember } from "./link.js";
import { t, language } from "./words.js";
import { exact, formula } from "./step_formula.js";
import { rowsOf, weightsOf, worked } from "./step_rows.js";
import { strip } from "./step_strip.js";
import { equationsCard, takeAlong } from "./step_own.js";
import { icon } from "./step_icons.js";
import { picture } from "./step_picture.js";
import { tour } from "./step_tour.js";
import "./step_words.js";

const CELLS = [["elman", "Elman"], ["lstm", "LSTM"], ["gru", "GRU"]];
const FIRST = { cell: "elman", text: "machine", units: 4, seed: 0, run: "", shown: [], edits: {}, updates: 0, rate: 0.1,
  equations: "z = σ(U_z x + W_z h + b_z)\nh' = (1 − z) ⊙ h + z ⊙ tanh(U x + W h + b)" };
const KINDS = ["weights", "x", "start", "held"];
const UPDATES = 100;  // at most, as the server has it
const CLOSE = 0.05;  // a guess is right within 5 % of the number, or 0.01

// A run that can be stepped through, as far as its summary tells; the server says more.
const fits = (run) => !run.error && run.task === "language" && /^(elman|lstm|gru)(-relu|-sigmoid)?$/.test(run.architecture)
  && run.options?.num_layers === 1 && (run.options?.token ?? "char") === "char";

export function step(body, { runs, name, params }) {
  let asked = fromLink(params), found = null, drawn = null, rows = null, weights = null;
  let at = { t: 0, k: 0, back: false, all: false };
  const past = [], future = [];
  const setup = el("div", { class: "row setup" }), own = el("div"), unrolled = el("div"), stepper = el("div", { class: "stepper" });
  const left = card("step-rows"), right = card("step-weights"), changes = el("div"), checked = el("p", { class: "hint" });
  const look = el("p", { class: "look", id: "step-exact" }), take = el("div"), updates = el("div", { class: "update" });
  const cellPicture = picture((part) => move({ k: found.rows.findIndex((row) => row.name === part && row.op !== "before") }));
  const guide = tour(body, () => found, (to) => move(to));
  const revealed = new Set();  // rows whose numbers were guessed: "t.k"
  let quiz = false;
  cellPicture.node.addEventListener("toggle", () => { if (found) cellPicture.fill(found, at, hidden); });
  body.classList.add("step-view");
  body.replaceChildren(setup, guide.place, own, card("unrolled", unrolled, stepper, look), changes, cellPicture.node,
    el("div", { class: "grid step-grid" }, left, right), checked, take, el("p", { class: "hint" }, t("step_keys")));

  // Asking ---------------------------------------------------------------------------------------------

  const ask = latest(async (signal) => {
    const { cell, text, units, seed, run, equations, shown, edits, updates: count, rate } = asked;
    const request = { text, ...edits, ...(count ? { updates: count, rate } : {}), ...(run ? { shown } : { cell, units, seed, ...(cell === "own" ? { equations } : {}) }) };
    const answer = await fetchJson(run ? runPath(run, "step") : "/api/step", request, signal);
    ownCard?.examples(answer.examples);
    if (answer.mistake) return ownCard?.mistake(answer.mistake);
    ownCard?.mistake(null);
    draw(answer);
  });

  function change(changed, keep = true) {
    if (keep) {
      past.push(JSON.stringify(asked));
      if (past.length > 200) past.shift();
      future.length = 0;
    }
    asked = { ...asked, ...changed };
    controls();
    ask();
  }

  function travel(from, to) {
    if (!from.length) return;
    to.push(JSON.stringify(asked));
    asked = JSON.parse(from.pop());
    ownCard = null;
    controls();
    ask();
  }

  // What numbers stand for is another thing after these: what was changed by hand goes.
  const restart = (changed) => {
    at = { ...at, t: 0, k: 0, back: false };
    revealed.clear();
    change({ ...changed, edits: {}, updates: 0 });
  };

  function edit(kind, key, place, value) {
    if (Number.isNaN(value)) return notice(t("step_no_number"));
    const edits = structuredClone(asked.edits), inside = ((edits[kind] ??= {})[key] ??= {});
    if (value === null) delete inside[place]; else inside[place] = value;
    if (!Object.keys(inside).length) delete edits[kind][key];
    if (!Object.keys(edits[kind]).length) delete edits[kind];
    if (JSON.stringify(edits) !== JSON.stringify(asked.edits)) change({ edits });
  }

  // A number of a row: of the input and of the first state it is changed, of all others held.
  function placeOf(row) {
    if (row.op === "input") return ["x", String(at.t)];
    if (row.op === "before" && at.t === 0) return ["start", row.name];
    return ["held", `${at.t}.${row.node}`];
  }

  // Controls -------------------------------------------------------------------------------------------

  let ownCard = null;
  function controls() {
    keepFocus(setup, () => {
      const fitting = runs.filter(fits);
      const cell = el("div", { class: "choice", role: "group", "aria-label": t("step_cell") }, [...CELLS, ["own", t("step_own")]].map(([key, label]) =>
        el("button", { type: "button", "aria-pressed": String((asked.run ? found?.cell : asked.cell) === key), "data-key": `cell-${key}`,
          onclick: () => restart({ cell: key, run: "", equations: key === "own" ? asked.equations || found?.equations || "" : asked.equations }) }, label)));
      const text = el("input", { type: "text", class: "short", maxlength: "13", "aria-label": t("step_text"), "data-key": "text",
        onchange: () => { if (text.value !== asked.text) restart({ text: text.value }); } });
      text.value = asked.text;
      const units = el("input", { type: "number", min: "1", max: "8", "aria-label": t("step_units"), "data-key": "units",
        onchange: () => restart({ units: Math.min(8, Math.max(1, Math.round(Number(units.value)) || 4)) }) });
      units.value = asked.units;
      const seed = el("input", { type: "number", min: "0", max: "999999", "aria-label": t("step_seed"), "data-key": "seed",
        onchange: () => restart({ seed: Math.min(999999, Math.max(0, Math.round(Number(seed.value)) || 0)) }) });
      seed.value = asked.seed;
      const shown = el("input", { type: "text", class: "short", "aria-label": t("step_shown"), "data-key": "shown",
        onchange: () => change({ shown: (shown.value.match(/\d+/g) ?? []).map(Number).slice(0, 8), edits: {} }) });
      shown.value = (asked.shown.length ? asked.shown : found?.units_of ? found.units : []).join(" ");
      const labelled = (words, input) => el("label", {}, el("span", {}, words), input);
      const weights_ = fitting.length ? picker(t("step_weights"), [{ value: "", label: t("step_toy") },
        ...fitting.map((run) => ({ value: run.name, label: t("step_run", { name: run.name }) }))], asked.run,
        (value) => restart({ run: value, shown: [] })) : null;
      weights_?.querySelector("select").setAttribute("data-key", "weights");
      const button = (key, act, enabled, sign) => el("button", { type: "button", "data-key": key, disabled: !enabled, onclick: act,
        title: t(`step_${key}`), "aria-label": t(`step_${key}`) }, sign);
      setup.replaceChildren(cell, labelled(t("step_text"), text), ...(asked.run ? (found?.units_of > 8 ? [labelled(t("step_shown"), shown)] : [])
        : [labelled(t("step_units"), units), labelled(t("step_seed"), seed)]), weights_ ?? "",
        guide.start, el("label", { class: "quiz-choice" }, el("input", { type: "checkbox", "data-key": "quiz", checked: quiz, onchange: (event) => {
          quiz = event.target.checked;
          revealed.clear();
          if (quiz) move({ back: false, t: 0, k: Math.max(0, found.rows.findIndex(({ op }) => op !== "input" && op !== "before")) });
          else if (found) show();
        } }), el("span", {}, t("step_quiz"))),
        el("span", { class: "tools" }, button("undo", () => travel(past, future), past.length, icon("undo")), button("redo", () => travel(future, past), future.length, icon("redo")),
          button("copy", copyLink, true, icon("link"))));
    });
    if (asked.cell === "own" && !asked.run) {
      if (!ownCard) {
        ownCard = equationsCard(asked.equations, (equations) => { at = { ...at, t: 0, k: 0, back: false }; change({ equations, edits: {} }); });
        own.replaceChildren(ownCard.node);
      }
    } else {
      ownCard = null;
      own.replaceChildren();
    }
  }

  async function copyLink() {
    const link = location.href.replace(/#.*/s, "") + address("step", name, values());
    history.replaceState(null, "", address("step", name, values()));
    try {
      await navigator.clipboard.writeText(link);
      notice(t("step_copied"));
    } catch {  // not allowed here: the address has it
      notice(location.href);
    }
  }

  // Drawing --------------------------------------------------------------------------------------------

  function draw(answer) {
    const form = JSON.stringify([answer.rows, answer.weights, language()]), again = form === drawn;
    // Where numbers have changed and nothing else, the fields stay, with the caret in one of them.
    found = again ? Object.assign(found, { ...answer, rows: found.rows, weights: found.weights }) : answer;
    at.t = Math.min(at.t, found.inputs.length - 1);
    at.k = Math.min(at.k, found.rows.length - 1);
    if (!again) {
      drawn = form;
      rows = rowsOf(found, { go: (k) => move({ k }), look: inspect, guess, edit: (row, place, value) => edit(...placeOf(row), place, value) });
      weights = weightsOf(found, { edit: (weight, place, value) => edit("weights", weight, place, value), look: inspectWeight });
      left.replaceChildren(el("h2", { id: "step-title" }), rows.node);
      right.replaceChildren(el("h2", {}, t("step_of_weights")), el("p", { class: "hint" }), updates, weights.node);
    }
    show();
    take.replaceChildren(takeAlong(found, asked.cell === "own" && !asked.run));
    controls();
  }

  function show() {
    const T = found.inputs.length;
    const kept = unrolled.firstChild?.scrollLeft ?? 0;
    keepFocus(unrolled, () => unrolled.replaceChildren(strip(found, at, (k) => move({ t: k }))));
    reveal(unrolled.firstChild, unrolled.querySelector("[aria-current]"), kept);
    left.firstChild.textContent = t("step_numbers", { t: at.t + 1 });
    right.querySelector("p").textContent = t(at.back ? "step_legend" : "step_shared");
    body.classList.toggle("quiz", quiz);
    rows.fill(at, marks, hidden);
    keepFocus(updates, () => updates.replaceChildren(...updating()));
    cellPicture.fill(found, at, hidden);
    weights.fill(at, (weight) => marksOf(asked.edits.weights?.[weight], "edited"));
    revealWeight();
    keepFocus(stepper, () => stepper.replaceChildren(...buttons(T)));
    changes.replaceChildren(...changed());
    checked.textContent = verdict();
    look.replaceChildren(...(at.back ? [t("step_legend_rows")] : ["\u00a0"]));
    remember("step", name, values());
  }

  // Scroll a row of tiles, or the weights, so far that one of them is seen, and no further.
  function reveal(place, inside, kept) {
    place.scrollLeft = kept;
    const edge = inside.offsetLeft - place.offsetLeft, space = place.clientWidth - inside.offsetWidth;
    if (edge < place.scrollLeft || edge > place.scrollLeft + space) place.scrollLeft = edge - space / 2;
  }

  function revealWeight() {
    const used = right.querySelector(".weight.now");
    if (!used || right.scrollHeight <= right.clientHeight) return;
    const top = used.offsetTop - right.offsetTop;
    if (top < right.scrollTop || top + used.offsetHeight > right.scrollTop + right.clientHeight) right.scrollTop = top - 12;
  }

  function buttons(T) {
    const row = found.rows[at.k], button = (key, sign, act) => el("button", { type: "button", "data-key": key, class: "move",
      title: t(`step_${key}`), "aria-label": t(`step_${key}`), onclick: act }, sign);
    const direction = (back) => el("button", { type: "button", "data-key": back ? "backward" : "forward", "aria-pressed": String(at.back === back),
      onclick: () => move(back ? { back, t: T - 1, k: found.rows.length - 1 } : { back, t: 0, k: 0 }) },
      back ? `← ${t("step_backward")}` : `${t("step_forward")} →`);
    const all = el("input", { type: "checkbox", "data-key": "all", checked: at.all, onchange: () => move({ all: all.checked }) });
    return [
      el("div", { class: "moves" }, button("first", icon("first"), () => leap(-1)), button("back", icon("back"), () => walk(-1)),
        button("next", icon("next"), () => walk(1)), button("last", icon("last"), () => leap(1))),
      el("div", { class: "choice", role: "group" }, direction(false), direction(true)),
      el("div", { class: "where", role: "status" }, el("span", {}, `${t("step_position", { t: at.t + 1, T })} · `),
        el("span", { class: "math" }, formula(at.back ? `∂${row.symbol}` : row.symbol)), " ",
        el("span", { class: "hint" }, atEnd() ? t("step_at_end") : "")),
      el("div", { class: "losses" }, el("span", {}, `${t("step_here")} `, el("b", { id: "step-loss" }, exactShort(found.values[at.t].at(-1)[0]))),
        el("span", {}, `${t("step_loss")} `, el("b", { id: "whole-loss", title: exact(found.loss) }, exactShort(found.loss)))),
      at.back ? el("label", {}, all, el("span", {}, t("step_all"))) : "",
    ];
  }

  // Predict first ---------------------------------------------------------------------------------------

  // The numbers of the current row and of all later ones are hidden until they are guessed or passed.
  const hidden = (k) => quiz && !at.back && k >= at.k && !revealed.has(`${at.t}.${k}`)
    && !["input", "before"].includes(found.rows[k].op);

  function guess(row, place, number) {
    const k = found.rows.indexOf(row), value = found.values[at.t][k][place];
    const right = typeof value === "number" && Math.abs(number - value) <= Math.max(0.01, CLOSE * Math.abs(value));
    revealed.add(`${at.t}.${k}`);
    show();
    look.replaceChildren(el("b", { class: right ? "right" : "fault" }, t(right ? "step_right" : "step_wrong")), ` ${exact(number)} · `);
    const before = [...look.childNodes];
    inspect(row, place);
    look.prepend(...before);
  }

  // Gradient descent --------------------------------------------------------------------------------------

  function updating() {
    const rate = el("input", { type: "text", inputmode: "decimal", class: "rate", "data-key": "rate", "aria-label": t("step_rate"), onchange: () => {
      const given = Number(rate.value.replace(",", "."));
      if (given >= 0 && given <= 10 && given !== asked.rate) change({ rate: given }); else rate.value = String(asked.rate);
    } });
    rate.value = String(asked.rate);
    const made = asked.updates, losses = found.losses ?? [found.loss];
    const one = el("button", { type: "button", class: "main", "data-key": "update", disabled: made >= UPDATES,
      onclick: () => change({ updates: asked.updates + 1 }) }, "W ← W − η ∇W");
    const ten = el("button", { type: "button", "data-key": "update-10", disabled: made + 10 > UPDATES, onclick: () => change({ updates: asked.updates + 10 }) }, "× 10");
    return [el("div", { class: "row tight" }, one, ten, el("label", {}, el("span", {}, "η"), rate),
      made ? el("button", { type: "button", "data-key": "untrain", onclick: () => change({ updates: 0 }) }, t("step_untrain")) : ""),
    el("p", { class: "hint", id: "step-updates", role: "status" }, made ? t("step_updated", { n: made, before: exactShort(losses[0]), after: exactShort(losses.at(-1)) })
      : t("step_update_hint"))];
  }

  const exactShort = (value) => (typeof value === "number" ? value.toFixed(4) : String(value));
  const atEnd = () => at.back && at.t === 0 && at.k === 0;

  // Moving ---------------------------------------------------------------------------------------------

  function move(to) {
    at = { ...at, ...to };
    if (found) show();
  }

  // One quantity on: forward through all steps, then back through all of them.
  function walk(by) {
    const R = found.rows.length, T = found.inputs.length, last = 2 * T * R - 1;
    const now = at.back ? T * R + (T - 1 - at.t) * R + (R - 1 - at.k) : at.t * R + at.k;
    const next = Math.min(Math.max(now + by, 0), last), back = next >= T * R, rest = next % (T * R);
    move(back ? { back, t: T - 1 - Math.floor(rest / R), k: R - 1 - (rest % R) } : { back, t: Math.floor(rest / R), k: rest % R });
    rows.made[at.k].node.scrollIntoView({ block: "nearest", behavior: "auto" });
  }

  // One step on.
  function leap(by) {
    const T = found.inputs.length, R = found.rows.length, now = at.back ? 2 * T - 1 - at.t : at.t;
    const next = Math.min(Math.max(now + by, 0), 2 * T - 1), back = next >= T;
    move({ back, t: back ? 2 * T - 1 - next : next, k: back ? (by > 0 && next === now ? 0 : R - 1) : by < 0 && next === now ? 0 : at.back === back ? at.k : R - 1 });
  }

  function keys(event) {
    if (!found || event.altKey) return;
    const field = event.target.closest?.("input, textarea, select"), control = event.ctrlKey || event.metaKey;
    if (control && ["z", "y"].includes(event.key.toLowerCase())) {
      if (field?.matches("textarea, input:not(.n)") || (field?.matches(".n") && field.value !== field.title)) return;  // its own
      event.preventDefault();
      return event.key.toLowerCase() === "y" || event.shiftKey ? travel(future, past) : travel(past, future);
    }
    if (field || control || event.defaultPrevented) return;
    const acts = { ArrowRight: () => (event.shiftKey ? leap(1) : walk(1)), ArrowLeft: () => (event.shiftKey ? leap(-1) : walk(-1)),
      Home: () => walk(-Infinity), End: () => walk(Infinity) };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }
  addEventListener("keydown", keys);

  // Looking at one number ------------------------------------------------------------------------------

  function inspect(row, place) {
    const k = found.rows.indexOf(row), value = found.values[at.t][k][place], slope = found.gradients[at.t][k][place];
    if (hidden(k)) return look.replaceChildren(el("span", { class: "math" }, formula(row.symbol)), ` = ${t("step_guess")} `, worked(found, row, place, at.t));
    const label = row.labels[place], how = marks(row)[place] === "held" ? t("step_held") : worked(found, row, place, at.t);
    say(row.symbol, label, value, how, at.back ? slope : null);
  }

  function inspectWeight(weight, place) {
    const one = found.weights.find((w) => w.name === weight), width = one.columns.length || 1;
    const label = one.columns.length ? `${one.rows[Math.floor(place / width)]}, ${one.columns[place % width]}` : one.rows[place];
    say(one.symbol, label, found.numbers[weight][place], "", at.back ? found.sums[at.t][weight][place] : null);
  }

  function say(symbol, label, value, how, slope) {
    const place = label === "" ? [] : ["[", el("b", {}, label.split(", ").map(visible).join(", ")), "]"];
    look.replaceChildren(el("span", { class: "math" }, formula(symbol)), ...place, how ? ` = ${how}` : "", " = ",
      el("b", {}, exact(value)), ...(slope === null ? [] : [`   ∂L/∂ = ${exact(slope)}`]));
  }

  // What was changed -----------------------------------------------------------------------------------

  const marksOf = (inside, mark) => Object.fromEntries(Object.keys(inside ?? {}).map((place) => [place, mark]));
  function marks(row) {
    const [kind, key] = placeOf(row);
    return marksOf(asked.edits[kind]?.[key], kind === "held" ? "held" : "edited");
  }

  function changed() {
    const chips = KINDS.flatMap((kind) => Object.entries(asked.edits[kind] ?? {}).flatMap(([key, inside]) =>
      Object.entries(inside).map(([place, value]) => chip(kind, key, Number(place), value))));
    if (!chips.length) return [];
    return [card("changes", el("h2", {}, t("step_changes")), el("div", { class: "chips" }, chips,
      el("button", { type: "button", onclick: () => change({ edits: {} }) }, t("step_reset"))),
    asked.edits.held ? el("p", { class: "hint" }, t("step_held_hint")) : "")];
  }

  function chip(kind, key, place, value) {
    let symbol, label, when = "";
    if (kind === "weights") {
      const one = found.weights.find((w) => w.name === key), width = one?.columns.length || 1;
      symbol = one?.symbol ?? key;
      label = one?.columns.length ? `${one.rows[Math.floor(place / width)]},${one.columns[place % width]}` : one?.rows[place];
    } else {
      const [t0, node] = key.split(".");
      const row = kind === "x" ? found.rows.find((r) => r.op === "input") : kind === "start" ? found.rows.find((r) => r.op === "before" && r.name === key)
        : found.rows.find((r) => r.node === Number(node));
      symbol = row?.symbol ?? key;
      label = row?.labels[place] ?? "";
      when = kind === "start" ? "" : `t = ${Number(t0) + 1}: `;
    }
    return el("button", { type: "button", class: kind === "held" ? "chip held" : "chip edited", title: t("step_let_go"), onclick: () => edit(kind, key, place, null) },
      when, el("span", { class: "math" }, formula(symbol)), label ? `[${visible(label)}]` : "", ` = ${exact(value)} ✕`, el("span", { class: "aside" }, t("step_let_go")));
  }

  function verdict() {
    const parts = [];
    if (asked.run) parts.push(t("step_of_run", { name: asked.run, H: found.units_of, K: found.symbols_of, difference: found.difference.toExponential(0) }));
    if (found.units_of > found.units.length) parts.push(t("step_of_many", { count: found.units.length }));
    parts.push(asked.cell === "own" && !asked.run ? t("step_unchecked_own") : asked.edits.held ? t("step_unchecked_held")
      : t("step_checked", { difference: found.reference === 0 ? "0" : Number(found.reference).toExponential(0) }));
    return parts.join(" ");
  }

  // The link -------------------------------------------------------------------------------------------

  function values() {
    const { cell, text, units, seed, run, equations, shown, edits, updates: count, rate } = asked;
    return { updates: count || "", rate: count ? rate : "", cell: run ? "" : cell, text, units: run ? "" : units, seed: run ? "" : seed, run, equations: cell === "own" && !run ? equations : "",
      shown: run ? shown.join(" ") : "", at: `${at.back ? "b" : "f"}${at.t}.${at.k}${at.all ? "a" : ""}`,
      edits: Object.keys(edits).length ? JSON.stringify(edits) : "" };
  }

  function fromLink(link) {
    const whole = (key, low, high, other) => (link.has(key) ? Math.min(high, Math.max(low, Math.round(Number(link.get(key))) || low)) : other);
    const cell = ["elman", "lstm", "gru", "own"].includes(link.get("cell")) ? link.get("cell") : FIRST.cell;
    const spot = /^([fb])(\d+)\.(\d+)(a?)$/.exec(link.get("at") ?? "");
    if (spot) queueMicrotask(() => { at = { back: spot[1] === "b", t: Number(spot[2]), k: Number(spot[3]), all: spot[4] === "a" }; });
    let edits = {};
    try {
      const given = JSON.parse(link.get("edits") ?? "{}");
      if (given && typeof given === "object") edits = Object.fromEntries(KINDS.filter((kind) => given[kind]).map((kind) => [kind, given[kind]]));
    } catch { /* somebody's own: without */ }
    return { cell, text: link.get("text") ?? FIRST.text, units: whole("units", 1, 8, FIRST.units), seed: whole("seed", 0, 999999, FIRST.seed),
      run: link.get("run") ?? "", equations: link.get("equations") ?? (cell === "own" ? FIRST.equations : ""), shown: (link.get("shown")?.match(/\d+/g) ?? []).map(Number), edits,
      updates: whole("updates", 0, UPDATES, 0), rate: Math.min(10, Math.max(0, Number(link.get("rate") ?? FIRST.rate) || FIRST.rate)) };
  }

  controls();
  ask();
  return () => removeEventListener("keydown", keys);
}
