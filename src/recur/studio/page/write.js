// Write: the next token while one types, branches to pick, and text that streams in.

import { el, example, fetchJson, latest, post, runPath, slider, visible } from "./dom.js";
import { t } from "./words.js";
import "./write_words.js";

const settings = { text: null, temperature: 0.8, top_k: 0, top_p: 1, length: 200 };
const CONTEXT = 2000;

export function write(body, { name }) {
  let stream = null, backward = false;
  const area = el("textarea", { class: "tall", "aria-label": t("text"), spellcheck: "false" });
  area.value = settings.text ?? "";
  const bars = el("div", { class: "bars", id: "bars" }), entropy = el("span", { class: "legend" });

  const request = () => {
    const { temperature, top_k, top_p } = settings;
    const text = backward ? area.value.slice(0, CONTEXT) : area.value.slice(-CONTEXT);
    return { text, temperature, top_k, top_p };
  };

  function place(before, written) {
    area.value = backward ? written + before : before + written;
    area.scrollTop = backward ? 0 : area.scrollHeight;
  }

  function append(token, space) {
    const joined = (backward ? /^\s/ : /\s$/).test(area.value);
    const separator = space && area.value && !joined ? " " : "";
    place(area.value, backward ? token + separator : separator + token);
    update();
  }

  const percent = (p) => `${p * 100}%`;
  const drawBar = (bar, space) => el("button",
    { type: "button", title: bar.token, onclick: () => append(bar.text, space) },
    el("code", {}, visible(bar.text)),
    el("span", { class: "track" }, el("span", { class: "p", style: { width: percent(bar.p) } }),
      el("span", { class: "drawn", style: { width: percent(bar.drawn) } })),
    el("span", { class: "share" }, `${(bar.p * 100).toFixed(1)} %`));

  const update = latest(async (signal) => {
    settings.text = area.value;
    const found = await fetchJson(runPath(name, "next"), request(), signal);
    backward = found.backward;
    title.firstChild.textContent = t(backward ? "token before" : "next token");
    entropy.textContent = `${t("entropy")} ${found.entropy.toFixed(2)} ${t("nats")}`;
    bars.replaceChildren(...found.bars.map((bar) => drawBar(bar, found.space)));
  });

  const button = el("button", { type: "button", class: "main", onclick: () => (stream ? stream.abort() : start()) },
    t("generate"));

  async function start() {
    stream = new AbortController();
    button.textContent = t("stop");
    await latest(async () => {
      const response = await post(runPath(name, "generate"), { ...request(), length: settings.length }, stream.signal);
      const before = area.value;
      let written = "";
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        written += value;
        place(before, written);
      }
    })();
    stream = null;
    button.textContent = t("generate");
    update();
  }

  const set = (key) => (value) => { settings[key] = value; update(); };
  const fixed = (value) => value.toFixed(2);
  const controls = el("div", { class: "stack" },
    slider(t("temperature"),
      { min: 0.1, max: 2, step: 0.05, value: settings.temperature, show: fixed, oninput: set("temperature") }),
    slider(t("top-k"),
      { min: 0, max: 50, step: 1, value: settings.top_k, show: (v) => String(v || t("all")), oninput: set("top_k") }),
    slider(t("top-p"), { min: 0.05, max: 1, step: 0.05, value: settings.top_p, show: fixed, oninput: set("top_p") }),
    slider(t("length"),
      { min: 20, max: 1000, step: 20, value: settings.length, oninput: (value) => { settings.length = value; } }));
  area.addEventListener("input", () => update());
  const title = el("div", { class: "row" }, el("h2", { style: { margin: 0 } }, t("next token")), entropy);
  body.append(el("div", { class: "grid" },
    el("div", { class: "card" }, area, el("div", { class: "row", style: { margin: ".7rem 0 0" } }, button)),
    el("div", { class: "stack" },
      el("div", { class: "card" }, title, bars, el("p", { class: "legend" }, t("bars_hint"))),
      el("div", { class: "card" }, controls))));
  if (settings.text !== null) update();
  else example(name).then((text) => { area.value ||= text.split(/(?<=\s)/).slice(0, 3).join(""); update(); }, update);
  return () => stream?.abort();
}
