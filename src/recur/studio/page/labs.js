// Labs: the textbook's arguments, measured while one moves their numbers.

import { card, el, fetchJson, latest, picker, slider } from "./dom.js";
import { remember } from "./link.js";
import { language, t } from "./words.js";
import "./labs_words.js";

export function labs(body, { params }) {
  const controls = el("div", { class: "stack" }), figure = el("img", { class: "lab", id: "lab", alt: "", hidden: true }), paragraph = el("p", { id: "paragraph" });
  const busy = el("p", { class: "legend", role: "status" }), about = el("p", { class: "lead" });
  let offered = {}, chosen = params.get("lab") ?? "vanishing";
  const values = Object.fromEntries([...params].filter(([key]) => key !== "lab").map(([key, value]) => [key, Number(value)]));

  const update = latest(async (signal) => {
    busy.textContent = t("lab_busy");
    remember("labs", "", { lab: chosen, ...values });
    const theme = document.documentElement.dataset.theme;
    try {
      const found = await fetchJson("/api/lab", { name: chosen, ...values, theme, language: language() }, signal);
      figure.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(found.figure)}`;
      figure.alt = t(`lab_${chosen}`);
      figure.hidden = false;
      paragraph.textContent = found.paragraph;
    } finally {
      if (!signal.aborted) busy.textContent = "";
    }
  });

  function show(name) {
    chosen = offered[name] ? name : "vanishing";
    about.textContent = t(`lab_${chosen}`);
    for (const key of Object.keys(values)) if (!offered[chosen].some((one) => one.name === key)) delete values[key];
    controls.replaceChildren(...offered[chosen].map((one) => slider(t(`set_${one.name}`), { min: one.low, max: one.high, step: one.step,
      value: values[one.name] ?? one.value, oninput: (value) => { values[one.name] = value; update(); } })));
    update();
  }

  const watch = new MutationObserver(() => update());
  latest(async (signal) => {
    offered = (await fetchJson("/api/labs", {}, signal)).labs;
    const options = Object.keys(offered).map((value) => ({ value, label: t(`name_${value}`) }));
    head.replaceChildren(picker(t("experiment"), options, chosen, show));
    show(chosen);
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  })();
  const head = el("div", { class: "row" });
  body.append(head, about, el("div", { class: "grid" }, card("", el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("experiment") }, figure), busy), el("div", { class: "stack" }, card("", controls), card("", paragraph))));
  return () => watch.disconnect();
}
