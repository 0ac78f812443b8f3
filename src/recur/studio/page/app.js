// The frame: views by address, the selected run, language and theme.

import { card, el, emptyCard, fetchJson, keepFocus, notice, picker } from "./dom.js";
import { address, forget, place } from "./link.js";
import { opener, VIEWS } from "./views.js";
import { language, languages, setLanguage, t } from "./words.js";

const main = document.getElementById("main"), menu = document.getElementById("views");
let leave = () => {};
let visits = 0;

const viewOf = (name) => VIEWS.find((view) => view.name === name) ?? VIEWS[0];

// The menu has the views that read the run of the address, and those that need none.
function frame(view, name, run = null) {
  document.title = `${t(`view_${view.name}`)} · recur studio`;
  document.getElementById("skip").textContent = t("skip");
  const shown = VIEWS.filter((one) => one === view || !run || !one.reads || one.reads(run));
  const groups = [...new Set(shown.map((one) => one.group))];
  const link = (one) => el("a", { href: address(one.name, name), "data-key": one.name,
    "aria-current": one === view ? "page" : null }, t(`view_${one.name}`));
  keepFocus(menu, () => menu.replaceChildren(...groups.map((group) => el("div", { class: "group", role: "group",
    "aria-label": t(`group_${group}`) }, shown.filter((one) => one.group === group).map(link)))));
  menu.setAttribute("aria-label", t("views"));
  const current = menu.querySelector("[aria-current]");
  menu.scrollLeft = current.offsetLeft - (menu.clientWidth - current.offsetWidth) / 2;
  const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  const themeButton = document.getElementById("theme"), languageButton = document.getElementById("language");
  themeButton.textContent = `${other === "dark" ? "◐" : "◑"} ${t(other)}`;
  themeButton.onclick = () => {
    localStorage.setItem("theme", other);
    document.documentElement.dataset.theme = other;
    frame(view, name, run);
  };
  const next = language() === "en" ? "zh" : "en";
  languageButton.textContent = languages[next];
  languageButton.lang = next;
  languageButton.onclick = () => { setLanguage(next); show(); };
}

// The body of a view of one run: it says so where it does not read the run of the address, and what does.
function runView(view, open, name, params, found) {
  const fitting = found.filter((run) => !run.error && view.reads(run));
  const named = found.find((run) => run.name === name && !run.error);
  const other = named && !view.reads(named) ? named : null;
  if (!other && !fitting.length) return [emptyCard(t("no_run_fits"), "recur train book.txt --out runs/book")];
  const chosen = other ?? fitting.find((run) => run.name === name) ?? fitting[0];
  const names = [...(other ? [other] : []), ...fitting].map((run) => run.name);
  const choose = picker(t("run"), names, chosen.name, (value) => { location.hash = address(view.name, value); });
  const body = el("div");
  if (other) body.append(otherTask(view, other));
  else leave = open(body, { runs: found, run: chosen, name: chosen.name, params }) || (() => {});
  return [el("div", { class: "row" }, choose), body];
}

function otherTask(view, run) {
  const links = VIEWS.filter((view) => view.reads?.(run)).map((view) =>
    el("a", { href: address(view.name, run.name) }, t(`view_${view.name}`)));
  return card("empty", el("p", {}, t("other_task", run), t(`instead_${view.name}`)), links.length ? el("p", { class: "links" }, links) : null);
}

async function show() {
  leave();
  leave = () => {};
  forget();
  const mine = ++visits;
  const { view: wanted, name, params } = place(), view = viewOf(wanted);
  frame(view, name);
  try {
    const [{ runs }, open] = await Promise.all([fetchJson(`/api/runs?run=${encodeURIComponent(name)}`), opener(view)]);
    if (mine !== visits) return;
    frame(view, name, runs.find((run) => run.name === name && !run.error));
    main.dataset.place = `${view.name}/${name}`;
    main.replaceChildren(el("h1", {}, t(`view_${view.name}`)), el("p", { class: "lead" }, t(`lead_${view.name}`)));
    if (view.reads) main.append(...runView(view, open, name, params, runs));
    else {
      const body = el("div");
      main.append(body);
      leave = open(body, { runs, run: null, name, params }) || (() => {});
    }
  } catch (error) {
    notice(error.message);
  }
}

document.documentElement.dataset.theme = localStorage.getItem("theme")
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
setLanguage(language());
document.getElementById("skip").addEventListener("click", (event) => {  // its # is no view's address
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
show();
