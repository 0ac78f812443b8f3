// News from the server while the page is looked at: the queue, summaries of runs, points of curves.

import { language } from "./words.js";

// Watch these runs; `tell` is called with each piece of news, and with { fresh: true } whenever some may have been missed.
export function watch(names, tell) {
  let source = null;

  function open() {
    const query = new URLSearchParams([["language", language()], ...names.map((name) => ["run", name])]);
    source = new EventSource(`/api/watch?${query}`);
    source.onopen = () => tell({ fresh: true });
    source.onmessage = (event) => tell(JSON.parse(event.data));
  }

  function shut() {
    source?.close();
    source = null;
  }

  const turn = () => (document.hidden ? shut() : source ?? open());  // a browser has six connections for all its tabs
  document.addEventListener("visibilitychange", turn);
  turn();
  return () => {
    document.removeEventListener("visibilitychange", turn);
    shut();
  };
}
