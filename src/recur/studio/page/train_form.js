// The form of Train: what to learn from, the task, a few options, and the rest.

import { card, el, fetchJson, keepFocus, notice } from "./dom.js";
import { chosen, control, more } from "./train_options.js";
import { source } from "./train_source.js";
import { t } from "./words.js";

const BUDGETS = ["minutes", "steps", "epochs"];
const kept = { task: "", typed: {}, budget: "minutes", keep: false, open: false };  // while the page is open

const brief = (option) => ({ ...option, default: option.default.split(/,| \(/)[0] });  // its field is small

export function form(about, tasks, started) {
  let seen = null;
  const name = el("input", { id: "run-name", type: "text", autocomplete: "off", spellcheck: "false", placeholder: t("train_auto"), maxlength: "60" });
  const told = el("div", { class: "told", role: "status" }), fields = el("div", { class: "fields" }), rest = el("div");
  const from = source(about, (answer) => {
    seen = answer;
    if (answer) kept.task = answer.task;
    draw();
  });
  const keep = el("input", { type: "checkbox", id: "keep", checked: kept.keep, onchange: () => { kept.keep = keep.checked; } });
  const start = el("button", { type: "submit", class: "main" }, t("train_start"));
  const error = el("p", { class: "fault", role: "alert" });
  const node = el("form", { class: "card train-form", onsubmit: (event) => { event.preventDefault(); submit(); } },
    el("h2", {}, t("train_new")), from.node, el("p", { class: "lead small" }, t("train_limit", { most: from.limit })), told, fields, rest,
    el("div", { class: "row go" }, start, el("label", { for: "keep" }, keep, el("span", {}, t("train_keep")))), error);

  const current = () => tasks.find((task) => task.name === kept.task) ?? tasks.find((task) => task.name === "language");

  function drawTold() {
    const choose = el("select", { id: "task", "data-key": "task", onchange: () => { kept.task = choose.value; draw(); } },
      tasks.map((task) => el("option", { value: task.name, selected: task === current() }, task.name)));
    const why = seen?.why ? t(seen.sure ? "train_holds" : "train_looks", { why: seen.why }) : "";
    const chips = (seen?.choices ?? []).length > 1 ? el("div", { class: "chips" }, seen.choices.map(({ task, what }) =>
      el("button", { type: "button", "aria-pressed": String(task === current().name), "data-key": `choice ${task}`,
        onclick: () => { kept.task = task; draw(); } }, el("b", {}, task), ` ${what}`))) : null;
    keepFocus(told, () => told.replaceChildren(why ? el("p", { class: "why" }, why) : "", chips ?? "",
      el("div", { class: "field wide" }, el("label", { for: "task" }, t("task")), choose, el("p", { class: "help" }, current().about.replaceAll("`", "")))));
  }

  function drawFields() {
    const task = current(), of = (name) => task.options.find((option) => option.name === name);
    const field = (name, label = t(`train_${name}`)) => {
      const option = of(name);
      return option ? el("div", { class: "field" }, el("label", { for: `main-${name}` }, label),
        control(brief(option), kept.typed, null, `main-${name}`)) : null;
    };
    const unit = el("select", { "aria-label": t("train_budget"), "data-key": "unit", onchange: () => {
      for (const other of BUDGETS) delete kept.typed[other];
      kept.budget = unit.value;
      drawFields();
    } }, BUDGETS.map((one) => el("option", { value: one, selected: one === kept.budget }, t(`train_${one}`))));
    const budget = of(kept.budget);
    keepFocus(fields, () => fields.replaceChildren(...[field("cell"), field("hidden_size"), field("num_layers"),
      el("div", { class: "field" }, el("label", { for: "main-budget" }, t("train_budget")),
        el("div", { class: "both" }, control(brief(budget), kept.typed, null, "main-budget"), unit)),
      field("lr"), el("div", { class: "field" }, el("label", { for: "run-name" }, t("train_name")), name)].filter(Boolean)));
  }

  function drawRest() {
    const details = el("details", { ontoggle: () => { kept.open = details.open; fill(); } }, el("summary", { "data-key": "more" },
      t("train_more", { task: current().name })));
    const fill = () => { if (details.open && details.children.length < 2) details.append(more(current(), kept.typed)); };
    details.open = kept.open;
    keepFocus(rest, () => rest.replaceChildren(details));
    fill();
  }

  function draw() {
    drawTold();
    drawFields();
    drawRest();
    from.node.classList.toggle("unused", !current().text);
  }

  async function submit() {
    error.textContent = "";
    const task = current();
    if (task.text && !from.has()) { error.textContent = t("train_no_text"); return; }
    const typed = name.value;
    start.disabled = true;
    try {
      const text = task.text ? await from.text(typed) : "";
      const { name: made } = await fetchJson("/api/train", { task: task.name, text, options: chosen(task, kept.typed), name: typed,
        keep: kept.keep });
      if (name.value === typed) name.value = "";  // the next name may be typed before the answer arrives
      notice("");
      started(made);
    } catch (failed) {
      error.textContent = failed.message;
    }
    start.disabled = false;
  }

  draw();
  const busy = (many) => { start.textContent = t(many ? "train_queue" : "train_start"); };
  return { node: about.read_only ? card("empty", el("p", {}, t("train_read_only"))) : node, busy };
}
