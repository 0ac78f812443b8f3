// Write: the next token while one types, what it hangs on, branches to pick, and text that streams in.

import { card, el, latest, number, post, runPath, slider, visible } from "./dom.js";
import { remember } from "./link.js";
import { reader } from "./reader.js";
import { saliencyStrip } from "./saliency.js";
import { isTyped, prefill, startText, typed } from "./state.js";
import { undoable } from "./undo.js";
import { language, t } from "./words.js";
import "./write_words.js";

const settings = { temperature: 0.8, top_k: 0, top_p: 1, length: 200 };

export function write(body, { name, params }) {
  for (const key of ["temperature", "top_k", "top_p"]) if (params.has(key)) settings[key] = Number(params.get(key));
  let example = null, stream = null, backward = false, read = { key: "", characters: 0 };
  const area = el("textarea", { class: "tall", id: "written", "aria-label": t("text"), spellcheck: "false" });
  const bars = el("div", { class: "bars", id: "bars" }), entropy = el("span", { class: "legend" });
  const from = el("p", { class: "legend" });
  const unknown = el("p", { class: "unknown", id: "unknown" }), title = el("h2", {}, t("next token"));
  const strip = saliencyStrip(), ask = reader(name), undo = undoable(area, () => update());

  const choice = () => {
    const { temperature, top_k, top_p } = settings;
    return { temperature, top_k, top_p };
  };

  function place(before, written) {
    area.value = backward ? written + before : before + written;
    area.scrollTop = backward ? 0 : area.scrollHeight;
  }

  function pick(bar) {
    place(area.value, bar.insert);
    undo.changed();
    update();
  }

  const percent = (p) => `${p * 100}%`;
  const drawBar = (bar) => el("button",
    { type: "button", title: bar.token, "data-key": bar.token, "data-p": String(bar.p), onclick: () => pick(bar) },
    el("code", {}, visible(bar.text)),
    el("span", { class: "track" }, el("span", { class: "p", style: { width: percent(bar.p) } }),
      el("span", { class: "drawn", style: { width: percent(bar.drawn) } })),
    el("span", { class: "share" }, `${(bar.p * 100).toFixed(1)} %`));

  // <unk> is never silent: what was read as it, what it stands for, and how likely it comes next.
  function drawUnknown({ tokens, count, seen, of, p }) {
    const parts = [];
    if (count) parts.push(t("unknown_read", { tokens: tokens.map(visible).join("  ") }));
    if (count || p >= 0.01) parts.push(seen ? t("unknown_seen", { seen: seen.toLocaleString(), of: of.toLocaleString() }) : t("unknown_never"));
    if (p >= 0.01) parts.push(t("unknown_next", { p: (100 * p).toFixed(1) }));
    unknown.textContent = parts.join(language() === "zh" ? "" : " ");
  }

  const hangsOn = latest(async (signal, text) => strip.draw(await ask("saliency", text, {}, signal)));

  const update = latest(async (signal) => {
    const text = area.value;  // once: a browser puts it together each time
    if (text !== example) typed(text);  // which other views open with
    remember("write", name, { text, ...choice() });
    const found = await ask("next", text, choice(), signal);
    if (found.backward && !backward && document.activeElement !== area) area.setSelectionRange(0, 0);
    [backward, read] = [found.backward, found];
    from.textContent = backward ? t("backward_hint") : "";
    title.textContent = found.half ? t("completions", { letters: found.half }) : t(backward ? "token before" : "next token");
    entropy.textContent = `${t("entropy")} ${found.entropy.toFixed(2)} ${t("nats")} · ${t("tokens_read", { n: found.tokens.toLocaleString() })}`;
    const focused = bars.contains(document.activeElement);
    bars.replaceChildren(...found.bars.map(drawBar));
    if (focused) bars.firstChild?.focus();
    drawUnknown(found.unknown);
    hangsOn(text);
  });

  const button = el("button", { type: "button", class: "main", onclick: () => (stream ? stream.abort() : start()) },
    t("generate"));

  async function start() {
    stream = new AbortController();
    button.textContent = t("stop");
    await latest(async () => {
      await ask("next", area.value, choice(), stream.signal).then((found) => { read = found; });
      const request = { ...choice(), text: "", base: read.key, keep: read.characters, length: settings.length };
      const response = await post(runPath(name, "generate"), request, stream.signal);
      const before = area.value;
      let written = "";
      const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await pieces.read();
        if (done) break;
        written += value;
        place(before, written);
      }
    })();
    stream = null;
    button.textContent = t("generate");
    undo.changed();
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
  body.append(el("div", { class: "grid" },
    card("", area, from, el("div", { class: "row tight" }, button, undo.buttons), strip.place),
    el("div", { class: "stack" },
      card("", el("div", { class: "row" }, title, entropy), bars, unknown, el("p", { class: "legend" }, t("bars_hint"))),
      card("", controls))));
  startText(name, params).then((text) => prefill(area, isTyped() ? text : text.split(/(?<=\s)/).slice(0, 3).join(""), () => {
    if (!isTyped()) example = area.value;
    undo.start();
    update();
  }), update);
  return () => stream?.abort();
}
