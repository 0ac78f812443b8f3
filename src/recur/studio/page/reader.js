// A text that the server reads along: of each request, only what changed is sent (see studio/reading.py).

import { fetchJson, runPath } from "./dom.js";

const PIECE = 3000;  // characters of one request

const points = (text) => (/[\ud800-\udfff]/.test(text) ? [...text].length : text.length);

function commonPrefix(a, b) {
  const most = Math.min(a.length, b.length);
  if (a.startsWith(b.slice(0, most)) || b.startsWith(a.slice(0, most))) return whole(b, most);
  let low = 0, high = most;
  while (low < high) {  // the longest k for which both begin alike
    const k = (low + high + 1) >> 1;
    if (a.slice(0, k) === b.slice(0, k)) low = k;
    else high = k - 1;
  }
  return whole(b, low);
}

// Not between the halves of one character.
const whole = (text, k) => (k > 0 && k < text.length && /[\ud800-\udbff]/.test(text[k - 1]) ? k - 1 : k);

export function reader(name) {
  let key = "", known = "", counted = { length: 0, points: 0 };  // of a prefix of what is known, so that a key counts a key

  function pointsBefore(text, keep) {
    const base = counted.length <= keep ? counted : { length: 0, points: 0 };
    counted = { length: keep, points: base.points + points(text.slice(base.length, keep)) };
    return counted.points;
  }

  async function send(view, text, more, signal) {
    let keep = key ? commonPrefix(known, text) : 0;
    for (;;) {
      const piece = text.slice(keep, whole(text, Math.min(text.length, keep + PIECE)));
      const last = keep + piece.length >= text.length;
      const request = { text: piece, ...(key ? { base: key, keep: pointsBefore(text, keep) } : {}), ...(last ? more : {}) };
      const found = await fetchJson(runPath(name, last ? view : "next"), request, signal);
      if (found.key) [key, known] = [found.key, text.slice(0, keep + piece.length)];
      if (last) return found;
      keep += piece.length;
    }
  }

  // What a view says of a text.
  return async (view, text, more, signal) => {
    try {
      return await send(view, text, more, signal);
    } catch (error) {
      if (error.status !== 410) throw error;
      key = known = "";  // the server has forgotten it
      counted = { length: 0, points: 0 };
      return send(view, text, more, signal);
    }
  };
}
