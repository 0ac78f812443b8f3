// Subword tokenizer like sentencepiece: Viterbi search of a unigram model, or merges of byte-pair encoding.
// Characters that no piece spells become byte tokens.

const SPACE_SIGN = "\u2581", UNKNOWN_PENALTY = 10;
const byteName = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;

class Subwords {
  // `scores` of all pieces; `plain`: ids of pieces for text, without bytes and special tokens.
  constructor({ model, tokens, scores, plain }) {
    this.tokens = tokens;
    this.scores = Float32Array.from(scores);
    this.model = model;
    this.trie = new Map();
    this.pieces = new Map();
    this.lowest = Infinity;
    for (const id of plain) {
      let node = this.trie;
      for (const letter of tokens[id]) {
        if (!node.has(letter)) node.set(letter, new Map());
        node = node.get(letter);
      }
      node.id = id;
      this.pieces.set(tokens[id], id);
      this.lowest = Math.min(this.lowest, this.scores[id]);
    }
  }

  split(text) {
    return text.split("\n").flatMap((line, k) => [...(k ? ["<eos>"] : []), ...this.cut(line)]);
  }

  cut(line) {
    const letters = Array.from(line.replaceAll(" ", SPACE_SIGN));
    const ids = this.model === "bpe" ? this.merged(letters) : this.likeliest(letters);
    return ids.flatMap(([id, surface]) => id === UNK ? this.inBytes(surface) : [this.tokens[id]]);
  }

  inBytes(surface) { return Array.from(new TextEncoder().encode(surface), byteName); }

  // Viterbi search in float32 and in the order of sentencepiece, so that ties are broken in the same way.
  likeliest(letters) {
    const n = letters.length, best = new Float32Array(n + 1), from = new Int32Array(n + 1).fill(-1), by = new Int32Array(n + 1);
    const unknown = Math.fround(Math.fround(this.lowest) - UNKNOWN_PENALTY);
    const arrive = (end, score, start, id) => {
      if (from[end] < 0 || score > best[end]) {
        best[end] = score;
        from[end] = start;
        by[end] = id;
      }
    };
    for (let start = 0; start < n; start++) {
      let node = this.trie, single = false;
      for (let end = start; end < n && (node = node.get(letters[end])); end++) {
        if (node.id === undefined) continue;
        arrive(end + 1, this.scores[node.id] + best[start], start, node.id);
        single ||= end === start;
      }
      if (!single) arrive(start + 1, unknown + best[start], start, UNK);
    }
    const found = [];
    for (let end = n; end > 0; end = from[end]) found.push([by[end], letters.slice(from[end], end).join("")]);
    return found.reverse();
  }

  // Applies the best merge first, the leftmost of equal ones, until none is left.
  merged(letters) {
    const parts = letters.map((text, k) => ({ text, before: k - 1, after: k + 1 < letters.length ? k + 1 : -1 }));
    const heap = new Heap((a, b) => b.score - a.score || a.left - b.left);
    const offer = (left, right) => {
      if (left < 0 || right < 0) return;
      const text = parts[left].text + parts[right].text, id = this.pieces.get(text);
      if (id !== undefined) heap.push({ score: this.scores[id], left, right, text });
    };
    for (let k = 1; k < parts.length; k++) offer(k - 1, k);
    for (let best; (best = heap.pop());) {
      const { left, right, text } = best, a = parts[left], b = parts[right];
      if (!a.text || !b.text || a.text + b.text !== text) continue;
      a.text = text;
      a.after = b.after;
      if (b.after >= 0) parts[b.after].before = left;
      b.text = "";
      offer(a.before, left);
      offer(left, a.after);
    }
    const found = [];
    for (let k = parts.length ? 0 : -1; k >= 0; k = parts[k].after) found.push([this.pieces.get(parts[k].text) ?? UNK, parts[k].text]);
    return found;
  }

  join(tokens) {
    let text = "", bytes = [];
    const flush = () => {
      text += decodeBytes(bytes);
      bytes = [];
    };
    for (const token of tokens) {
      const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
      if (byte) {
        bytes.push(parseInt(byte[1], 16));
        continue;
      }
      flush();
      if (token === "<eos>") text += "\n";
      else if (token === "<unk>") text += " \u2047 ";
      else if (!SPECIALS.includes(token)) text += token.replaceAll(SPACE_SIGN, " ");
    }
    flush();
    return text;
  }
}

// Decodes UTF-8 with U+FFFD for each invalid byte.
function decodeBytes(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const first = bytes[at];
    const length = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
    let letter = null;
    if (length && at + length <= bytes.length) {
      try {
        letter = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes.slice(at, at + length)));
      } catch { /* no character */ }
    }
    text += letter ?? "\ufffd";
    at += letter === null ? 1 : length;
  }
  return text;
}

class Heap {
  constructor(order) {
    this.order = order;
    this.items = [];
  }
  push(item) {
    const { items, order } = this;
    let k = items.push(item) - 1;
    for (let up; k && order(item, items[(up = (k - 1) >> 1)]) < 0; k = up) items[k] = items[up];
    items[k] = item;
  }
  pop() {
    const { items, order } = this, first = items[0], last = items.pop();
    if (items.length) {
      let k = 0;
      for (let down; (down = 2 * k + 1) < items.length; k = down) {
        if (down + 1 < items.length && order(items[down + 1], items[down]) < 0) down++;
        if (order(items[down], last) >= 0) break;
        items[k] = items[down];
      }
      items[k] = last;
    }
    return first;
  }
}
