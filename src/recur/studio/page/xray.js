// X-ray: the verdict on a run, and the whole report below it.

import { card, el, fetchJson, latest, runPath } from "./dom.js";
import { language, t } from "./words.js";
import "./xray_words.js";

export function xray(body, { name }) {
  const verdict = card("", el("p", { class: "lead busy", role: "status" }, t("xray_measuring")));
  const frame = el("iframe", { class: "report", id: "report", title: t("xray_report", { name }), hidden: true });
  const watch = new MutationObserver(tint);

  function tint() {  // a document in a frame takes its colours from the frame's
    frame.style.colorScheme = document.documentElement.dataset.theme;
  }

  function grow() {
    const page = frame.contentDocument?.documentElement;
    if (page) frame.style.height = `${page.scrollHeight + 8}px`;
  }

  function show({ diagnosis, findings }) {
    const level = { fault: "fault", warning: "warning", ok: "ok", unknown: "unknown" };
    const worst = diagnosis?.level ?? findings[0]?.level ?? "unknown";
    verdict.className = `card verdict ${level[worst] ?? ""}`;
    verdict.replaceChildren(el("h2", { id: "verdict" }, diagnosis?.name ?? findings[0]?.verdict ?? ""),
      ...(diagnosis ? [el("p", {}, diagnosis.standing), el("p", {}, diagnosis.reason)] : []),
      el("ul", { class: "levels" }, findings.map((one) => el("li", { class: one.level, title: one.verdict }, `${one.name}: ${t(`level_${one.level}`)}`))));
  }

  latest(async (signal) => {
    show(await fetchJson(runPath(name, "diagnosis"), { language: language() }, signal));
    tint();
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    frame.hidden = false;
    frame.addEventListener("load", () => { grow(); waiting.remove(); });
    frame.src = `${runPath(name, "xray")}?language=${language()}`;
    addEventListener("resize", grow);
  })().then(() => {
    verdict.querySelector(".busy")?.remove();
    if (frame.hidden) waiting.remove();  // refused: the notice says why
  });
  const waiting = el("p", { class: "lead", role: "status" }, t("xray_drawing"));
  body.append(verdict, frame, waiting);
  return () => { watch.disconnect(); removeEventListener("resize", grow); };
}
