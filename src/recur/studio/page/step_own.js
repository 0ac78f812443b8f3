// A cell of one's own: its equations in a field, what cannot be read of them, and the same as Python to take along.

import { card, el, picker } from "./dom.js";
import { language, t } from "./words.js";

const WAIT = 350;

// `change(text)` is told what was typed, once nothing has been for a moment.
export function equationsCard(text, change) {
  const area = el("textarea", { class: "own", id: "step-equations", rows: "4", spellcheck: "false", autocapitalize: "off", "aria-label": t("step_equations"),
    "aria-describedby": "step-equations-hint step-mistake" });
  area.value = text;
  const mistake = el("div", { id: "step-mistake", class: "mistake", role: "status" });
  let waiting = null;
  area.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => change(area.value), WAIT);
  });
  const choice = el("span");
  return {
    // To begin with, by name.
    examples(found) {
      if (choice.firstChild) return;
      choice.append(picker(t("step_example"), [{ value: "", label: "–" }, ...Object.keys(found).map((name) => ({ value: name, label: t(name) }))], "",
        (name) => { if (name) { area.value = found[name].trimEnd(); change(area.value); } }));
    },
    node: card("equations-card", el("div", { class: "row" }, el("h2", {}, t("step_equations")), choice),
      area, mistake, el("p", { class: "hint", id: "step-equations-hint" }, t("step_equations_hint"))),
    mistake(found) {
      area.setAttribute("aria-invalid", String(Boolean(found)));
      if (!found) return mistake.replaceChildren();
      const line = area.value.split("\n")[found.line - 1] ?? "";
      mistake.replaceChildren(el("p", {}, `${t("step_mistake")} ${found[language()] ?? found.en}`),
        el("pre", { "aria-hidden": "true" }, `${line}\n${" ".repeat(Math.max(0, found.column - 1))}^`));
    },
  };
}

export function takeAlong(found, open) {
  if (!found.python) return card("", el("p", { class: "hint" }, found.no_python));
  const name = /class (\w+)/.exec(found.python)[1];
  const save = () => {
    const link = el("a", { href: URL.createObjectURL(new Blob([found.python], { type: "text/x-python" })), download: "typed.py" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  return el("details", { class: "card take", open }, el("summary", {}, t("step_take")), el("p", { class: "hint" }, t("step_take_hint")),
    el("pre", { class: "equations", id: "step-python", tabindex: "0", "aria-label": "typed.py" }, found.python),
    el("div", { class: "row" }, el("button", { type: "button", onclick: save }, t("step_download")),
      el("code", {}, `recur train book.txt --cell typed.py:${name}`)));
}
