// What to learn from: a text that is pasted, a file, or one that is here already; and which task the server takes it for.

import { el, notice, picker } from "./dom.js";
import { language, t } from "./words.js";

const HEAD = 200_000;  // characters of a pasted text that are enough to recognise it
const WAIT = 500;

const bytes = (n) => (n >= 1 << 20 ? `${Number((n / (1 << 20)).toFixed(1))} MiB` : n >= 1024 ? `${Math.round(n / 1024)} KiB` : `${n} B`);

// Send a text as it is; `tell` is called with the share that has arrived.
function send(name, content, { keep = true, tell = () => {} } = {}) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/api/texts/${encodeURIComponent(name)}${keep ? "" : "?keep=0"}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("Accept-Language", language());
    request.upload.onprogress = (event) => tell(event.loaded / (event.total || 1));
    request.onerror = () => reject(new Error(t("train_lost")));
    request.onload = () => {
      let answer = {};
      try { answer = JSON.parse(request.responseText); } catch { /* of no server of ours */ }
      request.status === 200 ? resolve(answer) : reject(new Error(answer.error ?? request.statusText));
    };
    request.send(content);
  });
}

// `found` is called with what the server says of a text, or with null while there is none.
export function source({ texts, built_in: builtIn, limits }, found) {
  const state = { pasted: "", text: "" };
  let timer = null, asked = 0;
  const status = el("p", { class: "lead status", role: "status" });
  const area = el("textarea", { id: "paste", placeholder: t("train_paste"), "aria-label": t("train_paste"), spellcheck: "false",
    oninput: () => {
      state.pasted = area.value;
      clearTimeout(timer);
      if (area.value) { state.text = ""; select.value = ""; }
      timer = setTimeout(look, WAIT);
    } });
  const file = el("input", { type: "file", id: "file", class: "file", onchange: () => file.files[0] && upload(file.files[0]) });
  const button = el("label", { class: "button", for: "file" }, t("train_file"));
  const known = [{ value: "", label: t("train_here") }, ...texts.map((text) => ({ value: text.name, label: `${text.name} · ${bytes(text.bytes)}` })),
    ...builtIn.map((name) => ({ value: name, label: t(`train_${name}`) }))];
  const choose = picker(t("train_or"), known, "", (name) => use(name)), select = choose.querySelector("select");
  const node = el("div", { class: "source", ondragover: (event) => { event.preventDefault(); node.classList.add("over"); },
    ondragleave: () => node.classList.remove("over"), ondrop: (event) => {
      event.preventDefault();
      node.classList.remove("over");
      if (event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
    } }, area, el("div", { class: "row" }, file, button, choose), status);

  const say = (message) => { status.textContent = message; };

  async function ask(work) {
    const mine = ++asked;
    try {
      const answer = await work();
      if (mine === asked) { say(""); found(answer); }
    } catch (error) {
      if (mine !== asked) return;
      say("");
      notice(error.message);
      found(null);
    }
  }

  function look() {
    if (!state.pasted.trim()) { asked++; found(null); return; }
    ask(() => send("pasted.txt", state.pasted.slice(0, HEAD), { keep: false }));
  }

  function upload(one) {
    if (one.size > limits.text) { notice(t("train_too_large", { most: bytes(limits.text) })); return; }
    clear();
    ask(async () => {
      const answer = await send(one.name, one, { tell: (share) => say(t("train_sending", { name: one.name, share: Math.round(100 * share) })) });
      state.text = answer.text;
      offer(answer.text, one.size);
      return answer;
    });
  }

  function offer(name, size) {
    if (![...select.options].some((option) => option.value === name))
      select.append(el("option", { value: name }, `${name} · ${bytes(size)}`));
    select.value = name;
  }

  function clear() {
    area.value = state.pasted = "";
    file.value = "";
  }

  function use(name) {
    clear();
    state.text = name;
    if (!name) { asked++; found(null); return; }
    ask(async () => {
      const response = await fetch(`/api/texts/${encodeURIComponent(name)}`, { method: "POST",
        headers: { "Accept-Language": language() } });
      const answer = await response.json();
      if (!response.ok) throw new Error(answer.error);
      return answer;
    });
  }

  // The name of the text on the server: a pasted one is kept now, under the run's name.
  async function text(name) {
    if (!state.pasted.trim()) return state.text;
    const answer = await send(`${name || "pasted"}.txt`, state.pasted);
    state.text = answer.text;
    offer(answer.text, new Blob([state.pasted]).size);
    return answer.text;
  }

  return { node, text, limit: bytes(limits.text), has: () => Boolean(state.pasted.trim() || state.text) };
}
