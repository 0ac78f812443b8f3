// ∂L/∂W = Σ_t G_t: a bar a term, the full gradient's behind it; click between two steps to detach. With all losses, which
// loss (a row) has which term at which step (a column).

import { el, number, picker, svg, visible, choice } from "./dom.js";
import { t } from "./words.js";

const DECADES = 6;  // powers of ten of the logarithmic scale

export function steps({ onCut }) {
  const settings = { matrix: 0, scale: "linear", at: 0 };
  const pickers = el("div", { class: "row plain" }), facts = el("p", { id: "sum-facts" }), readout = el("p", { class: "legend", id: "readout" });
  const bars = el("div", { class: "sum", id: "sum", role: "group", "aria-label": t("sum_label") });
  const triangle = el("div", { id: "triangle" });
  const place = el("div", {}, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("sum_label") }, bars), readout, facts, triangle);
  let found = null, asked = null, offered = "";

  const term = () => found.terms[Math.min(settings.matrix, found.terms.length - 1)];
  const height = (value, top) => (value > 0 ? (settings.scale === "log" ? 1 + Math.log10(value / top) / DECADES : value / top) : 0);
  const percent = (share) => `${(100 * Math.max(0, Math.min(1, share))).toFixed(2)}%`;

  function toggle(cut) {
    if (cut < 1 || cut >= found.steps) return;
    onCut(asked.cuts.includes(cut) ? asked.cuts.filter((one) => one !== cut) : [...asked.cuts, cut].sort((a, b) => a - b));
  }

  function tell(k) {
    const { norms, full } = term();
    readout.textContent = t("step_about", { k: k + 1, token: visible(found.tokens[k]), target: visible(found.targets[k]),
      back: found.steps - 1 - k, norm: number(norms[k]), full: number(full[k]) });
  }

  function focus(k) {
    settings.at = Math.max(0, Math.min(found.steps - 1, k));
    [...bars.children].forEach((column, i) => { column.tabIndex = i === settings.at ? 0 : -1; });
    bars.children[settings.at].focus();
  }

  function column(k, top) {
    const { norms, full } = term(), cut = asked.cuts.includes(k);
    const button = el("button", { type: "button", class: `step${cut ? " cut" : ""}`, "aria-pressed": k ? String(cut) : null,
      "data-norm": String(norms[k]), "aria-label": t("cut_label", { k: k + 1, token: visible(found.tokens[k]), norm: number(norms[k]) }),
      tabindex: k === settings.at ? "0" : "-1",
      onfocus: () => { settings.at = k; tell(k); }, onpointerenter: () => tell(k),
      onclick: (event) => {  // by pointer: the nearer edge; by keyboard: the edge before
        const box = button.getBoundingClientRect();
        toggle(event.detail && event.clientX > box.left + box.width / 2 ? k + 1 : k);
      },
      onkeydown: (event) => {
        const to = { ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: found.steps - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        focus(to);
      } },
    el("span", { class: "well" }, el("span", { class: "ghost", style: { height: percent(height(full[k], top)) } }),
      el("span", { class: "term", style: { height: percent(height(norms[k], top)) } })),
    el("span", { class: "token" }, visible(found.tokens[k])));
    return button;
  }

  function drawPickers() {
    const offer = JSON.stringify(found.terms.map((one) => one.name));
    if (offer === offered) return;
    offered = offer;
    const matrices = found.terms.map((one, k) => ({ value: k, label: `∂L/∂${one.name}` }));
    pickers.replaceChildren(
      picker(t("matrix"), matrices, Math.min(settings.matrix, matrices.length - 1), (value) => { settings.matrix = Number(value); redraw(); }),
      choice(t("scale"), ["linear", "log"].map((value) => ({ value, label: t(`scale_${value}`) })), settings.scale,
        (value) => { settings.scale = value; redraw(); }));
  }

  function drawFacts() {
    const { whole, whole_full, cosine, largest, share, needed, name } = term();
    const left = whole_full ? Math.round(100 * whole / whole_full) : 0;
    const cutting = asked.cuts.length || asked.mode !== "full";
    facts.replaceChildren(el("b", {}, `‖∂L/∂${name}‖ = ${number(whole)}`), " · ",
      cutting ? t("sum_cut", { full: number(whole_full), left, cosine: cosine === null ? "–" : cosine.toFixed(3) })
        : t("sum_full", { largest, share: Math.round(100 * (share ?? 0)), needed }), " ",
      asked.cuts.length ? el("button", { type: "button", onclick: () => onCut([]) }, t("uncut")) : "");
  }

  function drawTriangle() {
    const rows = term().by_loss;
    triangle.replaceChildren();
    if (!rows) return;
    const n = rows.length, size = 10, top = Math.max(...rows.flat(), 1e-30);
    const shade = (norm) => (norm > 0 ? Math.max(0.02, 1 + Math.log10(norm / top) / DECADES) : 0);
    const picture = svg("svg", { class: "triangle", viewBox: `0 0 ${n * size + 40} ${n * size + 18}`, role: "img",
      "aria-label": t("triangle") });
    rows.forEach((row, r) => {
      picture.append(svg("text", { x: n * size + 4, y: r * size + 8 }, visible(found.targets[r])));
      row.forEach((norm, k) => picture.append(svg("rect", { class: "warm", x: k * size, y: r * size, width: size - 1, height: size - 1,
        "fill-opacity": shade(norm).toFixed(3) }, svg("title", {}, t("triangle_cell",
        { target: visible(found.targets[r]), token: visible(found.tokens[k]), norm: number(norm) })))));
    });
    found.tokens.forEach((token, k) => picture.append(svg("text", { x: k * size + size / 2, y: n * size + 12, "text-anchor": "middle" },
      visible(token))));
    triangle.append(el("h3", {}, t("triangle")), el("p", { class: "lead" }, t("lead_triangle")), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("triangle") }, picture));
  }

  function redraw() {
    const top = Math.max(...term().full, 1e-30) * 1.08;
    const focused = bars.contains(document.activeElement);
    settings.at = Math.min(settings.at, found.steps - 1);
    bars.replaceChildren(...found.tokens.map((_, k) => column(k, top)));
    if (focused) bars.children[settings.at].focus();
    else if (!found.scrolled) bars.parentElement.scrollLeft = bars.parentElement.scrollWidth;  // the end, where the loss is
    tell(focused ? settings.at : found.steps - 1);
    drawFacts();
    drawTriangle();
  }

  function draw(now, request) {
    const before = found;
    [found, asked] = [{ ...now, scrolled: before?.steps === now.steps }, request];
    if (!before || before.steps !== now.steps) settings.at = found.steps - 1;
    drawPickers();
    redraw();
  }

  return { place, pickers, draw };
}
