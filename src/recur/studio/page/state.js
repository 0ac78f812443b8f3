// What views share: the text, which stays when one goes from view to view or from run to run, if it was typed.

import { fetchJson, runPath } from "./dom.js";

export const LONGEST = 4000;  // characters that a view other than Write is sent

const shared = { text: null };

export const typed = (text) => { shared.text = text; };
export const isTyped = () => shared.text !== null;
export const lastOf = (text) => [...text].slice(-LONGEST).join("");

// Put a text into an empty text box and call `begin`. A box that has text or the focus is left to its user: text that appears
// between a selection and the first key would be mixed with what is typed. A box left empty gets the text when it loses focus.
export function prefill(area, text, begin) {
  const typing = new AbortController();
  const put = () => {
    typing.abort();
    area.value = text;
    begin();
  };
  if (area.value) return;
  if (document.activeElement !== area) { put(); return; }
  area.addEventListener("input", () => typing.abort(), { signal: typing.signal });
  area.addEventListener("blur", put, { signal: typing.signal });
}

// The text to start from: the link's, what was typed last, or the beginning of the run's own validation text.
export async function startText(name, params) {
  if (params.get("text")) typed(params.get("text"));
  return shared.text ?? (await fetchJson(runPath(name, "example"), {})).text;
}
