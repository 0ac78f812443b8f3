// A text that the server reads along: of each request, only what changed is sent (see studio/reading.py).

import { fetchJson, runPath } from "./dom.js";

const PIECE = 3000;  // characters of one request

const points = (text) => (/[\ud800-\udfff]/.test(text) ? [...text].length : text.length);

// Lengths are counted in the order of reading: from the beginning of a text, or from its end.
const part = (text, from, to, backward) => (backward ? text.slice(text.length - to, text.length - from) : text.slice(from, to));

// Not between the halves of one character.
function whole(text, length, backward) {
  const at = backward ? text.length - length : length;
  return at > 0 && at < text.length && /[\ud800-\udbff]/.test(text[at - 1]) ? length - 1 : length;
}

// How long two texts are the same.
function common(a, b, backward) {
  const same = (length) => part(a, 0, length, backward) === part(b, 0, length, backward);
  let high = Math.min(a.length, b.length), low = same(high) ? high : 0;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (same(middle)) low = middle;
    else high = middle - 1;
  }
  return whole(b, low, backward);
}

export function reader(name) {
  let key = "", known = "", backward = false;
  let counted = { length: 0, points: 0 };  // of what is known, so that a key counts a key

  function pointsOf(text, length) {
    const base = counted.length <= length ? counted : { length: 0, points: 0 };
    counted = { length, points: base.points + points(part(text, base.length, length, backward)) };
    return counted.points;
  }

  function forget() {
    key = known = "";
    counted = { length: 0, points: 0 };
  }

  async function send(view, text, more, signal) {
    let keep = key ? common(known, text, backward) : 0;
    for (;;) {
      const end = whole(text, Math.min(text.length, keep + PIECE), backward), last = end >= text.length;
      const request = { text: part(text, keep, end, backward), ...(key ? { base: key, keep: pointsOf(text, keep) } : {}), ...(last ? more : {}) };
      const found = await fetchJson(runPath(name, last ? view : "next"), request, signal);
      if (found.key && found.backward !== backward) {  // as the first answer says
        forget();
        backward = found.backward;
        return send(view, text, more, signal);
      }
      if (found.key) [key, known] = [found.key, part(text, 0, end, backward)];
      if (last) return found;
      keep = end;
    }
  }

  // What a view says of a text.
  return async (view, text, more, signal) => {
    try {
      return await send(view, text, more, signal);
    } catch (error) {
      if (error.status !== 410) throw error;
      forget();  // as the server has
      return send(view, text, more, signal);
    }
  };
}
