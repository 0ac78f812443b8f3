// Views of text classifiers, taggers and seq2seq models.

const CLASSES = 12;

function textArea(attributes) {
  return el("textarea", { id: "text", spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-label": t("text"), ...attributes });
}

function classRows(labels, p) {
  const best = top(p, CLASSES), rest = labels.length - best.length;
  const rows = bars(best.map((k, place) => ({ name: labels[k], p: p[k], strong: !place })));
  if (rest > 0) {
    const share = Math.max(0, 1 - best.reduce((sum, k) => sum + p[k], 0));
    rows.push(el("p", { class: "note" }, t("more_classes", { count: rest, share: percent(share) })));
  }
  return rows;
}

function classifierView(model, about) {
  const area = textArea({ class: "plain", placeholder: t("placeholder_classify") });
  const unknown = el("p", { class: "unknown", role: "status" });
  const verdict = el("p", { class: "verdict", id: "verdict", role: "status", "aria-live": "polite" }), list = el("div", { class: "bars wide", id: "classes", role: "list" });
  const show = () => {
    const found = model.classify(area.value);
    showUnknown(unknown, found ? found.unknown : []);
    const several = found && model.thresholds && model.labels.filter((_, k) => found.p[k] >= model.thresholds[k]);
    const best = several ? [several.join(" | ") || "—"] : found && [model.labels[largest(found.p)], " ", el("small", {}, percent(Math.max(...found.p)))];
    verdict.replaceChildren(...(found ? best : [el("small", {}, t("empty"))]));
    list.replaceChildren(...(found ? classRows(model.labels, found.p) : []));
  };
  area.addEventListener("input", calmly(show));
  area.value = about.example ?? "";
  show();
  return el("div", { class: "grid" }, card("text", {}, area, unknown), card("classes", {}, verdict, list));
}

// One colour per tag type; B-, I-, E- and S- share a type, O has none.
const tagKind = (tag) => tag.replace(/^[BIESLU]-/, "");
function tagColours(labels) {
  const kinds = [...new Set(labels.map(tagKind))].filter((kind) => kind !== "O" && kind !== "_");
  return new Map(kinds.map((kind, k) => {
    const hue = Math.round((k * 360 * 0.381966 + 215) % 360);
    return [kind, { "--hue": hue, "--colour": "100%" }];
  }));
}

function taggerView(model, about) {
  const colours = tagColours(model.labels);
  const area = textArea({ class: "short plain", placeholder: t("placeholder_tag") }), unknown = el("p", { class: "unknown", role: "status" });
  const tagged = el("div", { class: "tagged", id: "tagged", role: "group", "aria-label": t("words"), "aria-live": "polite" });
  const legend = el("ul", { class: "legend", "aria-label": t("legend") });
  const title = el("h2", {}, t("probability")), list = el("div", { class: "bars wide", role: "list" });
  let picked = 0;
  const badge = (tag) => el("span", { class: "tag", style: colours.get(tagKind(tag)) ?? {} }, tag);
  const show = () => {
    const found = model.tag(area.value);
    showUnknown(unknown, found ? found.unknown : []);
    if (!found) {
      tagged.replaceChildren(el("p", { class: "empty" }, t("empty")));
      list.replaceChildren();
      legend.replaceChildren();
      return;
    }
    picked = Math.min(picked, found.words.length - 1);
    const choose = (k) => {
      picked = k;
      tagged.querySelectorAll("button").forEach((button, at) => button.setAttribute("aria-pressed", String(at === k)));
      title.replaceChildren(t("probability"), el("small", {}, t("word_picked", { word: found.words[k] })));
      list.replaceChildren(...classRows(model.labels, found.p[k]));
    };
    tagged.replaceChildren(...found.words.map((word, k) => {
      const tag = model.labels[found.tags[k]];
      return el("button", {
        type: "button", class: found.unknown.includes(word) ? "unseen" : null, "aria-pressed": "false", onclick: () => choose(k),
        title: percent(found.p[k][found.tags[k]]), "data-tag": tag,
      }, el("span", { class: "word" }, word), badge(tag));
    }));
    const there = [...new Set(found.tags.map((k) => tagKind(model.labels[k])))].filter((kind) => colours.has(kind));
    legend.replaceChildren(...there.map((kind) => el("li", {}, badge(kind), ` ${found.tags.filter((k) => tagKind(model.labels[k]) === kind).length}`)));
    choose(picked);
  };
  area.addEventListener("input", calmly(show));
  area.value = about.example ?? "";
  show();
  return el("div", { class: "grid" },
    el("div", { class: "stack" }, card("text", {}, area, unknown), card("words", {}, tagged, legend)),
    el("section", { class: "card", "aria-label": t("probability") }, title, list));
}

function pairsView(model, about) {
  const area = textArea({ class: "short", placeholder: t("placeholder_pairs") }), unknown = el("p", { class: "unknown", role: "status" });
  const output = el("p", { class: "result", id: "output", role: "status", "aria-live": "polite" }), note = el("p", { class: "note" });
  const others = el("ol", { class: "nbest", id: "nbest" }), map = el("div", { class: "map", tabindex: 0, role: "region", "aria-label": t("attention") });
  let width = 4;
  const show = () => {
    const found = model.write(area.value, width, Math.min(width, 5));
    showUnknown(unknown, found ? found.unknown : []);
    if (!found) {
      output.replaceChildren(el("span", { class: "empty" }, t("empty")));
      [others, map].forEach((place) => place.replaceChildren());
      note.textContent = "";
      return;
    }
    const [best] = found.nbest;
    output.textContent = best.output || "∅";
    note.textContent = `${t("score", { score: signed(best.score, 2) })}${best.cut ? ` · ${t("cut")}` : ""}`;
    others.replaceChildren(...found.nbest.map((made) => el("li", {}, el("span", { class: "out" }, made.output || "∅"), el("small", {}, percent(Math.exp(made.score))))));
    map.replaceChildren(...(best.looked.length ? [attentionMap(found.tokens, best)] : []));
  };
  area.addEventListener("input", calmly(show));
  area.value = about.example ?? "";
  const beam = slider("beam", { min: 1, max: 10, step: 1, value: width, oninput: (value) => { width = value; show(); } });
  show();
  return el("div", { class: "grid" },
    el("div", { class: "stack" },
      card("text", {}, area, unknown, el("div", { class: "dials" }, beam)),
      card("output", {}, output, note),
      model.attends ? card("attention", { class: "card later" }, map, el("p", { class: "note" }, t("attention_lead"))) : null),
    card("alternatives", {}, others));
}

function attentionMap(source, { tokens, looked }) {
  const cell = (weight, row, column) => el("td", {
    title: `${visible(tokens[row])} ← ${visible(source[column])}  ${percent(weight)}`,
    style: { "background-color": `color-mix(in srgb, var(--accent) ${Math.round(100 * Math.min(weight, 1))}%, var(--soft))` },
  });
  return el("table", {},
    el("thead", {}, el("tr", {}, el("td", { style: { background: "none" } }), source.map((token) => el("th", { scope: "col" }, visible(token))))),
    el("tbody", {}, looked.slice(0, tokens.length).map((weights, row) => el("tr", {},
      el("th", { scope: "row" }, visible(tokens[row])), Array.from(weights, (weight, column) => cell(weight, row, column))))));
}
