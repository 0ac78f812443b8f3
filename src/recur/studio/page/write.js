// Write: what comes next as one types, branches to pick, and text that streams in.

import { ask, askJson, el, example, latest, runPath, slider, visible } from "./dom.js";
import { t } from "./words.js";

const kept = { text: null, temperature: 0.8, top_k: 0, top_p: 1, length: 200 };
const CONTEXT = 2000;

export function write(body, { name }) {
  let writing = null;
  const area = el("textarea", { class: "tall", "aria-label": t("text"), spellcheck: "false" });
  area.value = kept.text ?? "";
  const bars = el("div", { class: "bars", id: "bars" }), entropy = el("span", { class: "legend" });
  const asked = () => ({ text: area.value.slice(-CONTEXT), temperature: kept.temperature, top_k: kept.top_k, top_p: kept.top_p });
  const look = latest(async (signal) => {
    kept.text = area.value;
    const found = await askJson(runPath(name, "next"), asked(), signal);
    entropy.textContent = `${t("entropy")} ${found.entropy.toFixed(2)} ${t("nats")}`;
    bars.replaceChildren(...found.bars.map((bar) => el("button", { type: "button", title: bar.token,
      onclick: () => { area.value += (found.space && area.value && !/\s$/.test(area.value) ? " " : "") + bar.text; area.scrollTop = area.scrollHeight; look(); } },
    el("code", {}, visible(bar.text)),
    el("span", { class: "track" }, el("span", { class: "p", style: { width: `${bar.p * 100}%` } }), el("span", { class: "drawn", style: { width: `${bar.drawn * 100}%` } })),
    el("span", { class: "share" }, `${(bar.p * 100).toFixed(1)} %`))));
  });
  const go = el("button", { type: "button", class: "main", onclick: () => (writing ? writing.abort() : stream()) }, t("write on"));

  async function stream() {
    writing = new AbortController();
    go.textContent = t("stop");
    await latest(async (signal) => {
      const stop = writing.signal;
      stop.addEventListener("abort", () => signal.dispatchEvent(new Event("abort")));
      const response = await ask(runPath(name, "write"), { ...asked(), length: kept.length }, stop);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        area.value += value;
        area.scrollTop = area.scrollHeight;
      }
    })();
    writing = null;
    go.textContent = t("write on");
    look();
  }

  const set = (key) => (value) => { kept[key] = value; look(); };
  const controls = el("div", { class: "stack" },
    slider(t("temperature"), { min: 0.1, max: 2, step: 0.05, value: kept.temperature, show: (v) => v.toFixed(2), oninput: set("temperature") }),
    slider(t("top-k"), { min: 0, max: 50, step: 1, value: kept.top_k, show: (v) => (v ? String(v) : t("all")), oninput: set("top_k") }),
    slider(t("top-p"), { min: 0.05, max: 1, step: 0.05, value: kept.top_p, show: (v) => v.toFixed(2), oninput: set("top_p") }),
    slider(t("length"), { min: 20, max: 1000, step: 20, value: kept.length, oninput: (value) => { kept.length = value; } }));
  area.addEventListener("input", () => look());
  body.append(el("div", { class: "grid" },
    el("div", { class: "card" }, area, el("div", { class: "row", style: { margin: ".7rem 0 0" } }, go)),
    el("div", { class: "stack" }, el("div", { class: "card" }, el("div", { class: "row" }, el("h2", { style: { margin: 0 } }, t("next token")), entropy), bars,
      el("p", { class: "legend", style: { margin: ".6rem 0 0" } }, t("bars_hint"))), el("div", { class: "card" }, controls))));
  if (kept.text === null) example(name).then((text) => { area.value ||= text.split(/(?<=\s)/).slice(0, 3).join(""); look(); }, look);
  else look();
  return () => writing?.abort();
}
