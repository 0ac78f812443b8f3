// The fields of a task's options: few first, the others behind "more options", each with its help, as the schema has them.

import { el, keepFocus } from "./dom.js";
import { t } from "./words.js";

// What was typed in a field, as JSON; undefined where nothing was.
function read(option, value) {
  const text = value.trim();
  if (!text) return undefined;
  const plain = (kind, word) => (["int", "float"].includes(kind) && Number.isFinite(Number(word)) ? Number(word) : word);
  if (option.kind === "bool") return text === "on";
  if (option.kind === "list") return text.split(",").map((word) => plain(option.of, word.trim())).filter((word) => word !== "");
  if (option.kind === "choice") return option.choices.find((choice) => String(choice) === text);
  return plain(option.kind, text);
}

// A default as the schema has it, in the page's language: 320 (words: 256, subwords: 256).
const spelled = (text) => text.replace(/(, )?with --from: [^,)]+/, "").replace(" ()", "")
  .replace(/\b(on|off)\b(?! a GPU)/g, (word) => t(`train_${word}`)).replace("on a GPU", t("train_gpu"))
  .replace(/\bwords:/, `${t("train_words")}:`).replace(/\bsubwords:/, `${t("train_subwords")}:`).replace(", if no budget is given", "");

// A control for one option; `typed` holds what was typed, by name.
export function control(option, typed, changed, id) {
  const given = typed[option.name] ?? "";
  const keep = (value) => { typed[option.name] = value; changed?.(); };
  if (option.kind === "choice" || option.kind === "bool") {
    const choices = option.kind === "bool" ? ["on", "off"] : option.choices.map(String);
    const label = (value) => (option.kind === "bool" ? t(`train_${value}`) : value);
    const first = option.default ? t("train_default", { value: spelled(option.default) }) : t("train_auto");
    const select = el("select", { id, "data-key": id, onchange: () => keep(select.value) },
      el("option", { value: "" }, first), choices.map((value) => el("option", { value, selected: value === given }, label(value))));
    return select;
  }
  const numeric = option.kind === "int" || option.kind === "float";
  const input = el("input", { id, "data-key": id, type: "text", inputmode: numeric ? "decimal" : "text", autocomplete: "off",
    spellcheck: "false", placeholder: spelled(option.default) || t("train_auto"), oninput: () => keep(input.value) });
  input.value = given;
  return input;
}

// The options that were set, as the server takes them.
export function chosen(task, typed) {
  const found = {};
  for (const option of task.options) {
    const value = read(option, typed[option.name] ?? "");
    if (value !== undefined) found[option.name] = value;
  }
  return found;
}

// All other options, by group, with a field to find one.
export function more(task, typed, changed) {
  const options = task.options.filter((option) => !option.main), list = el("div", { class: "options" });
  const search = el("input", { type: "search", placeholder: t("train_find"), "aria-label": t("train_find"), oninput: () => fill() });
  const count = el("output", { class: "lead" });
  function fill() {
    const words = search.value.toLowerCase().split(/\s+/);
    const fitting = options.filter((option) => words.every((word) => `${option.name} ${option.help}`.toLowerCase().includes(word)));
    const groups = [...new Set(fitting.map((option) => option.group))];
    count.textContent = t("train_count", { n: fitting.length });
    keepFocus(list, () => list.replaceChildren(...groups.map((group) => el("fieldset", {},
      el("legend", {}, group ? t(`options_${group}`) : t("train_own", { task: task.name })),
      fitting.filter((option) => option.group === group).map((option) => {
        const id = `option-${option.name}`;
        return el("div", { class: "option" }, el("label", { for: id }, el("code", {}, option.name)),
          control(option, typed, changed, id), el("p", { class: "help" }, option.help));
      })))));
  }
  fill();
  return el("div", {}, el("div", { class: "row" }, search, count), list);
}
