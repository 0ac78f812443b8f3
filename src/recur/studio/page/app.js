// The frame: views by address, the selected run, language and theme.

import { el, fetchJson, notice, picker } from "./dom.js";
import { language, languages, setLanguage, t } from "./words.js";
import { runs } from "./runs.js";
import { generate } from "./generate.js";
import { activations } from "./activations.js";
import { gradients } from "./gradients.js";
import { unfold } from "./unfold.js";

const VIEWS = {
  runs: ["Runs", runs], generate: ["Generate", generate], activations: ["Activations", activations],
  gradients: ["Gradients", gradients], unfold: ["Unfold", unfold],
};
const main = document.getElementById("main");
let leave = () => {};
let visits = 0;

function place() {
  const [, view = "runs", name = ""] = location.hash.split("/");
  return { view: view in VIEWS ? view : "runs", name: decodeURIComponent(name) };
}

const address = (view, name) => `#/${view}/${encodeURIComponent(name)}`;

function frame({ view, name }) {
  document.getElementById("views").replaceChildren(...Object.entries(VIEWS).map(([key, [label]]) =>
    el("a", { href: address(key, name), "aria-current": key === view ? "page" : null }, t(label))));
  const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  const themeButton = document.getElementById("theme"), languageButton = document.getElementById("language");
  themeButton.textContent = `${other === "dark" ? "◐" : "◑"} ${t(other)}`;
  themeButton.onclick = () => {
    localStorage.setItem("theme", other);
    document.documentElement.dataset.theme = other;
    frame(place());
  };
  const next = language() === "en" ? "zh" : "en";
  languageButton.textContent = languages[next];
  languageButton.onclick = () => { setLanguage(next); show(); };
}

const emptyCard = (message, command) =>
  el("div", { class: "card empty" }, el("p", {}, message), command ? el("code", {}, command) : null);

// The body of a view of one model: it reads language models, and says so where the run is another one.
function modelView(view, name, found) {
  const models = found.filter((run) => run.task === "language");
  const named = found.find((run) => run.name === name && !run.error);
  const other = named && named.task !== "language" ? named : null;
  if (!other && !models.length) return [emptyCard(t("no_language"), "recur train book.txt --out runs/book")];
  const chosen = other ?? models.find((run) => run.name === name) ?? models[0];
  const names = [...(other ? [other] : []), ...models].map((run) => run.name);
  const choose = picker(t("run"), names, chosen.name, (value) => { location.hash = address(view, value); });
  const body = el("div");
  if (other) body.append(emptyCard(t("other_task", other)));
  else leave = VIEWS[view][1](body, { name: chosen.name }) || (() => {});
  return [el("div", { class: "row" }, choose), body];
}

async function show() {
  leave();
  leave = () => {};
  const mine = ++visits;
  const { view, name } = place();
  frame({ view, name });
  try {
    const { runs: found } = await fetchJson("/api/runs");
    if (mine !== visits) return;
    main.replaceChildren(el("h1", {}, t(VIEWS[view][0])), el("p", { class: "lead" }, t(`lead_${view}`)));
    if (!found.length) main.append(emptyCard(t("empty"), "recur train --out runs/first"));
    else if (view !== "runs") main.append(...modelView(view, name, found));
    else {
      const body = el("div");
      main.append(body);
      leave = runs(body, { runs: found });
    }
  } catch (error) {
    notice(error.message);
  }
}

document.documentElement.dataset.theme = localStorage.getItem("theme")
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
setLanguage(language());
addEventListener("hashchange", show);
show();
