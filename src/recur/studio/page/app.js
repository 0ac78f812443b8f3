// The frame: views by address, the run that is looked at, language and theme.

import { askJson, el, notice, picker } from "./dom.js";
import { language, languages, speak, t } from "./words.js";
import { runs } from "./runs.js";
import { write } from "./write.js";
import { see } from "./see.js";
import { gradients } from "./gradients.js";
import { unfold } from "./unfold.js";

const VIEWS = { runs: ["Runs", runs], write: ["Write", write], see: ["See", see], gradients: ["Gradients", gradients], unfold: ["Unfold", unfold] };
const main = document.getElementById("main");
let leave = () => {};
let shown = 0;

function place() {
  const [, view = "runs", name = ""] = location.hash.split("/");
  return { view: view in VIEWS ? view : "runs", name: decodeURIComponent(name) };
}

function frame({ view, name }) {
  document.getElementById("views").replaceChildren(...Object.entries(VIEWS).map(([key, [label]]) =>
    el("a", { href: `#/${key}/${encodeURIComponent(name)}`, "aria-current": key === view ? "page" : null }, t(label))));
  const theme = document.documentElement.dataset.theme;
  const other = theme === "dark" ? "light" : "dark";
  const themes = document.getElementById("theme"), words = document.getElementById("language");
  themes.textContent = `${other === "dark" ? "◐" : "◑"} ${t(other)}`;
  themes.onclick = () => { localStorage.setItem("theme", other); document.documentElement.dataset.theme = other; frame(place()); };
  const next = language() === "en" ? "zh" : "en";
  words.textContent = languages[next];
  words.onclick = () => { speak(next); show(); };
}

async function show() {
  leave();
  leave = () => {};
  const mine = ++shown;
  const at = place();
  frame(at);
  try {
    const { runs: found } = await askJson("/api/runs");
    if (mine !== shown) return;
    const usable = found.filter((run) => !run.broken);
    const lead = [el("h1", {}, t(VIEWS[at.view][0])), el("p", { class: "lead" }, t(`lead_${at.view}`))];
    const body = el("div");
    if (!found.length) {
      main.replaceChildren(...lead, el("div", { class: "card empty" }, el("p", {}, t("empty")), el("code", {}, "recur train --out runs/first")));
      return;
    }
    const name = usable.some((run) => run.name === at.name) ? at.name : usable.length ? usable[0].name : "";
    if (at.view !== "runs") lead.push(el("div", { class: "row" },
      picker(t("run"), usable.map((run) => run.name), name, (chosen) => { location.hash = `#/${at.view}/${encodeURIComponent(chosen)}`; })));
    main.replaceChildren(...lead, body);
    if (at.view === "runs" || name) leave = VIEWS[at.view][1](body, { name, runs: found }) || (() => {});
  } catch (error) {
    notice(error.message);
  }
}

document.documentElement.dataset.theme = localStorage.getItem("theme")
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
speak(language());
addEventListener("hashchange", show);
show();
