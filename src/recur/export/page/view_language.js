// View of language models and conditional models: type, see the next token, generate.

const FRAME = 40;      // milliseconds of work between two looks at the screen
const COLOURED = 1200; // tokens whose surprise is shown

function languageView(model, about) {
  const lines = model instanceof ConditionalModel, { vocab, backward } = model;
  const options = { temperature: 0.8, topp: 0.95, length: lines ? model.longest : 400, seed: 1 };
  let label = lines ? model.names[0] : null, follower = new Follower(model, label), turn = 0, writing = false, ended = false;

  const area = el("textarea", {
    id: "text", spellcheck: "false", autocapitalize: "off", autocomplete: "off", class: lines ? "short" : null, "aria-label": t("text"),
    placeholder: t(lines ? "placeholder_line" : backward ? "placeholder_backward" : "placeholder_language"),
  });
  const unknown = el("p", { class: "unknown", role: "status" });
  const note = el("p", { class: "note", role: "status", "aria-live": "polite" });
  const doubt = el("small"), list = el("div", { class: "bars", id: "next", role: "group", "aria-label": t(backward ? "before" : "next") });
  const start = el("button", { class: "main", type: "button", id: "write" }, t("write"));
  const heat = el("p", { class: "heat", id: "heat" }), heatNote = el("p", { class: "note" });

  const show = () => {
    const p = softmax(follower.now.logits), best = top(p, lines ? 8 : 10);
    let bits = 0;
    for (const value of p) if (value > 0) bits -= value * Math.log2(value);
    doubt.textContent = ended ? t("ended") : t("entropy", { bits: bits.toFixed(2) });
    list.replaceChildren(...(ended ? [] : bars(best.map((k, place) => ({
      k, name: visible(vocab.tokens[k]), p: p[k], strong: !place, fixed: model.never.includes(k) || (lines && k === EOS),
    })), take)));
  };

  const colour = () => {
    const first = Math.max(0, follower.ids.length - COLOURED), spans = [];
    for (let k = first; k < follower.ids.length; k++) {
      const token = vocab.tokens[follower.ids[k]], known = !Number.isNaN(follower.surprise[k]), bits = known ? follower.surprise[k] / Math.LN2 : 0;
      const text = token === "\n" || token === "<eos>" ? "⏎\n" : vocab.kind === "char" ? token : vocab.kind === "subword" ? token.replaceAll(SPACE_SIGN, " ") : `${token} `;
      spans.push(el("span", {
        title: known ? `${visible(token)}  ${percent(Math.exp(-follower.surprise[k]))}` : visible(token),
        style: { "background-color": `rgba(var(--warm), ${(0.8 * Math.min(bits / 9, 1) ** 1.3).toFixed(3)})` },
      }, text));
    }
    heat.replaceChildren(...(backward ? spans.reverse() : spans));
    const scored = follower.surprise.filter((value) => !Number.isNaN(value));
    const mean = scored.reduce((sum, value) => sum + value, 0) / (scored.length || 1);
    heatNote.textContent = follower.ids.length ? t("surprise_lead", { bits: (mean / Math.LN2).toFixed(2), perplexity: Math.exp(mean).toFixed(2) }) : t("empty");
  };

  // Reads the text in pieces; a later call cancels an earlier one.
  async function read() {
    const mine = ++turn, text = normalised(area.value);
    ended = false;
    showUnknown(unknown, vocab.unknown(text));
    const left = follower.rewind(model.encode(text)), count = left.length;
    for (let at = 0; at < count;) {
      for (const until = performance.now() + FRAME; at < count && performance.now() < until; at++) follower.push(left[at]);
      if (at < count) {
        note.textContent = t("reading", { share: `${Math.round((100 * at) / count)} %` });
        await nextFrame();
        if (mine !== turn) return;
      }
    }
    note.textContent = "";
    show();
    colour();
  }

  const joined = (text, more) => {
    if (backward) return /^\s/.test(text) && more.endsWith(" ") ? more.slice(0, -1) + text : more + text;
    return /\s$/.test(text) && more.startsWith(" ") && vocab.kind === "word" ? text + more.slice(1) : text + more;
  };

  function take({ k }) {
    area.value = joined(area.value, model.continued(follower.ids, [k]));
    area.focus({ preventScroll: true });
    read();
  }

  async function write() {
    reading.cancel();  // what was typed a moment ago is read now, and not while it writes
    await read();
    const mine = ++turn, choice = new Choice({ temperature: options.temperature, topP: options.topp }), random = makeRandom(options.seed);
    const context = [...follower.ids], text = area.value, made = [], begun = performance.now();
    const most = lines ? model.longest - context.length : options.length;
    writing = true;
    start.textContent = t("stop");
    while (made.length < most && !ended && mine === turn) {
      for (const until = performance.now() + FRAME; made.length < most && performance.now() < until;) {
        const token = choice.draw(without(follower.now.logits, model.never), random);
        ended = model.ends && token === EOS;
        if (ended) break;
        follower.push(token);
        made.push(token);
      }
      area.value = joined(text, model.continued(context, made));
      if (!backward) area.scrollTop = area.scrollHeight;
      show();
      await nextFrame();
    }
    writing = false;
    start.textContent = t("write");
    note.textContent = made.length ? t("speed", { rate: Math.round((1000 * made.length) / (performance.now() - begun)).toLocaleString("en") }) : "";
    if (lines && !ended && made.length === most) note.textContent = t("cut");
    show();
    colour();
  }

  const stop = () => { turn++; };
  const reading = calmly(read, 30);
  area.addEventListener("input", reading);
  if (lines) {
    area.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();  // a line has no other line in it
      if (!writing) write();
    });
  }
  start.addEventListener("click", () => (writing ? stop() : write()));
  const clear = el("button", { type: "button", class: "quiet", onclick: () => { stop(); area.value = ""; read(); area.focus(); } }, t("clear"));
  const seed = el("input", { type: "number", name: "seed", min: 0, max: 4294967295, step: 1, value: options.seed });
  seed.addEventListener("input", () => { options.seed = Number(seed.value) || 0; });
  const dial = (name, settings) => slider(name, { value: options[name], oninput: (value) => { options[name] = value; }, ...settings });
  const dials = el("div", { class: "dials" },
    dial("temperature", { min: 0.1, max: 2, step: 0.05, show: (value) => value.toFixed(2) }),
    dial("topp", { min: 0.05, max: 1, step: 0.01, show: (value) => value.toFixed(2) }),
    lines ? null : dial("length", { min: 50, max: 5000, step: 50 }),
    el("label", { class: "slider" }, el("span", {}, t("seed")), seed));
  const choose = !lines ? null : picker("label", model.names.map((name) => [name, name]), label, (value) => {
    label = value;
    turn++;
    follower = new Follower(model, label);
    read();
  });
  read();
  const next = card(backward ? "before" : "next", {}, list);
  next.querySelector("h2").append(doubt);
  return el("div", { class: "grid" },
    el("div", { class: "stack" },
      card("text", {}, choose ? el("p", { class: "choose" }, choose) : null, area, unknown,
        el("div", { class: "tools" }, start, clear, note), dials),
      card("surprise", { class: "card later" }, heat, heatNote)),
    el("div", { class: "stack" }, next, lines ? linesCard(model, () => label, options) : null));
}

// Generates ten lines of a label.
function linesCard(model, label, options) {
  const list = el("ol", { class: "nbest", "aria-live": "polite" });
  const draw = () => {
    const writer = model.writer(label()), choice = new Choice({ temperature: options.temperature, topP: options.topp }), random = makeRandom(options.seed);
    list.replaceChildren(...Array.from({ length: 10 }, () => {
      const made = finish(written(writer, (logp) => choice.draw(logp, random)));
      return el("li", {}, el("span", { class: "out" }, model.decode(made.ids) || "∅"), el("small", {}, t("score", { score: signed(made.score, 1) })));
    }));
    options.seed++;
  };
  return card("lines", { class: "card later" }, list, el("div", { class: "tools" }, el("button", { type: "button", onclick: draw }, t("draw_lines"))));
}
