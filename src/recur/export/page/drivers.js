// What is done around a model's graphs, as its task does it in Python. A model has run(graph, inputs) → outputs, arrays
// by name; `about` says what it is.

const names = (about, graph) => about.graphs[graph];

// What a graph hands on to its next call.
function carriedBy(about, graph) {
  const { inputs, outputs } = names(about, graph);
  return inputs.filter((name) => outputs.includes(name));
}

const pick = (from, keys) => Object.fromEntries(keys.map((key) => [key, from[key]]));

const startOf = (about) => Object.fromEntries(Object.entries(about.start).map(([name, values]) => [name, Float32Array.from(values)]));

// A language model: one token in, logits of the next and what is carried out.
class LanguageModel {
  constructor(model, about) {
    this.model = model;
    this.vocab = new Vocab(about.vocabs.vocab);
    this.first = about.settings.first;
    this.backward = about.settings.backward;
    this.carried = carriedBy(about, "step");
    this.start = startOf(about);
    this.never = NEVER_WRITTEN;
    this.ends = false;
  }
  begin() { return this.start; }
  step(token, carried) {
    const found = this.model.run("step", { token: [token], ...carried });
    return { logits: found.logits, carried: pick(found, this.carried) };
  }
  // Ids in the order of reading; what stands before them is `first`.
  encode(text) {
    const ids = this.vocab.encode(normalised(text));
    return this.backward ? ids.reverse() : ids;
  }
  // The text that follows another (or, read from the end, stands before it) once these ids are written.
  continued(context, ids) {
    const { vocab } = this;
    if (this.backward) {
      const whole = vocab.decode([...ids].reverse().concat([...context].reverse()));
      return whole.slice(0, whole.length - vocab.decode([...context].reverse()).length);
    }
    return vocab.decode([...context, ...ids]).slice(vocab.decode(context).length);
  }
}

// A decoder behind a source or a label: what decode.js drives, and what a page reads step by step.
class LineWriter {
  constructor(model, about, source) {
    const { settings } = about;
    this.model = model;
    this.settings = settings;
    this.carried = carriedBy(about, "step");
    const found = model.run("encode", { [names(about, "encode").inputs[0]]: source });
    this.lengths = found.log_length ?? null;
    const inputs = names(about, "step").inputs.slice(1);
    this.context = pick(found, inputs.filter((name) => !this.carried.includes(name)));
    this.start = { ...startOf(about), ...pick(found, this.carried.filter((name) => name in found)) };
    this.counts = this.carried.includes("left");
    this.longest = settings.stop === "source" ? source.length : settings.longest;
    this.source = source;
  }
  // log P of every length, where that is settled first.
  lengthTable() {
    if (this.settings.stop === "source") return Float64Array.from({ length: this.longest + 1 }, (_, k) => (k === this.source.length ? 0 : -Infinity));
    return without(this.lengths, [0]);
  }
  begin(choose) {
    if (!this.counts) return [this.start, 0];
    const table = this.lengthTable(), left = choose(table);
    return [{ ...this.start, left: [left] }, table[left]];
  }
  hypotheses(width) {
    if (!this.counts) return [{ score: 0, carried: this.start }];
    const table = this.lengthTable();
    return top(table, width).filter((k) => table[k] > -Infinity).map((k) => ({ score: table[k], carried: { ...this.start, left: [k] } }));
  }
  step(token, carried) {
    const found = this.model.run("step", { token: [token], ...carried, ...this.context });
    return { logp: found.logp, carried: pick(found, this.carried), weights: found.looked ?? null };
  }
}

// Lines of a label, seen as a language model is.
class ConditionalModel {
  constructor(model, about) {
    this.model = model;
    this.about = about;
    this.vocab = new Vocab(about.vocabs.vocab);
    this.labels = new Vocab(about.vocabs.labels);
    this.names = about.vocabs.labels.tokens.slice(SPECIALS.length);
    this.first = BOS;
    this.backward = about.settings.backward;
    this.never = NEVER_WRITTEN;
    this.ends = true;
    this.longest = about.settings.longest;
  }
  writer(label) { return new LineWriter(this.model, this.about, [this.labels.id(label)]); }
  begin(label) {
    this.current = this.writer(label);
    return this.current.begin(largest)[0];
  }
  step(token, carried) {
    const { logp, carried: next } = this.current.step(token, carried);
    return { logits: logp, carried: next };
  }
  encode(text) {
    const ids = this.vocab.encode(normalised(text).replaceAll("\n", " "));
    return this.backward ? ids.reverse() : ids;
  }
  decode(ids) { return this.backward ? withoutLeadingMarks(this.vocab.decode([...ids].reverse())) : this.vocab.decode(ids); }
}
ConditionalModel.prototype.continued = LanguageModel.prototype.continued;

class PairsModel {
  constructor(model, about) {
    this.model = model;
    this.about = about;
    this.source = new Vocab(about.vocabs.source);
    this.target = new Vocab(about.vocabs.target);
    this.attends = names(about, "step").outputs.includes("looked");
  }
  // {input, unknown, nbest: [{output, score, cut, tokens, looked}]}; null of nothing.
  write(text, width = 1, nbest = 1) {
    const line = normalised(text), ids = this.source.encode(line);
    if (!ids.length) return null;
    const writer = new LineWriter(this.model, this.about, ids);
    const found = width === 1 ? [greedy(writer)] : search(writer, width, nbest);
    const nbestFound = found.map((made) => ({
      ...made,
      output: this.target.decode(made.ids),
      tokens: [...made.ids.map((k) => this.target.tokens[k]), ...(made.looked.length > made.ids.length ? ["<eos>"] : [])],
    }));
    return { tokens: this.source.tokenizer.split(line), unknown: this.source.unknown(line), nbest: nbestFound };
  }
}

// The n-grams of a text, each as often as it stands there.
function grams(text, unit) {
  const lower = text.toLowerCase();
  if (unit === "word") {
    const words = lower.match(new RegExp(`[\\p{L}\\p{N}_]+|[^\\p{L}\\p{N}_${SPACE}]`, "gu")) || [];
    return [...words, ...words.slice(1).map((word, k) => `${words[k]} ${word}`)];
  }
  const line = Array.from(` ${splitSpaces(lower).join(" ")} `), found = [];
  for (let n = 1; n <= 5; n++) for (let k = 0; k + n <= line.length; k++) found.push(line.slice(k, k + n).join(""));
  return found;
}

class TextClassifier {
  constructor(model, about) {
    this.model = model;
    this.vocab = new Vocab(about.vocabs.vocab);
    this.labels = about.labels;
    this.unit = about.settings.mixed ? about.settings.grams : null;
    this.ngrams = this.unit ? new Map(about.vocabs.ngrams.tokens.map((gram, k) => [gram, k - SPECIALS.length])) : null;
  }
  // {p, unknown}; null of a text without a token.
  classify(text) {
    const line = strip(normalised(text)), ids = this.vocab.encode(line);
    if (!ids.length) return null;
    const inputs = { tokens: ids };
    if (this.ngrams) {
      const counts = new Map();
      for (const gram of grams(line, this.unit)) {
        const k = this.ngrams.get(gram);
        if (k !== undefined && k >= 0) counts.set(k, (counts.get(k) ?? 0) + 1);
      }
      inputs.grams = counts.size ? [...counts.keys()] : [0];
      inputs.counts = counts.size ? [...counts.values()] : [0];
    }
    const { log_p: logp } = this.model.run("sequence", inputs);
    return { p: Float64Array.from(logp, Math.exp), unknown: this.vocab.unknown(line) };
  }
}

const LONGEST_WORD = 32;

class WordTagger {
  constructor(model, about) {
    this.model = model;
    this.vocab = new Vocab(about.vocabs.vocab);
    this.characters = about.vocabs.characters ? new Vocab(about.vocabs.characters) : null;
    this.labels = about.labels;
    const { moves_start: start, moves_between: between, moves_end: end } = about.tables;
    this.moves = about.settings.crf ? { start, between, end } : null;
    this.looks = names(about, "sequence").inputs.includes("looks");
    this.seen = new Map();
  }
  look(word) {
    if (!this.seen.has(word)) {
      const signs = Array.from(word), half = LONGEST_WORD / 2;
      const short = signs.length <= LONGEST_WORD ? signs : [...signs.slice(0, half), ...signs.slice(-half)];
      const characters = this.characters.encode(short.join(""));
      const found = this.model.run("word", { characters: characters.length ? characters : [PAD], casing: [casingOf(word)] });
      this.seen.set(word, found.looks);
    }
    return this.seen.get(word);
  }
  // {words, tags, p: rows of probabilities, unknown}; null of no word.
  tag(text) {
    const words = splitSpaces(normalised(text));
    if (!words.length) return null;
    const ids = [], ends = [], looks = [], unknown = [];
    for (const word of words) {
      let own = this.vocab.encode(ids.length ? ` ${word}` : word);
      if (!own.length) own = [UNK];
      if (own.includes(UNK)) unknown.push(word);
      ids.push(...own);
      ends.push(ids.length - 1);
      if (this.looks) for (let k = 0; k < own.length; k++) looks.push(...this.look(word));
    }
    const { scores } = this.model.run("sequence", { tokens: ids, ...(this.looks ? { looks } : {}) });
    const K = this.labels.length, x = ends.map((end) => Float64Array.from(scores.subarray(end * K, (end + 1) * K)));
    return { words, tags: viterbi(x, this.moves), p: marginals(x, this.moves), unknown: [...new Set(unknown)] };
  }
}

// A language model along a text that changes under it: what is read again is what changed, from the nearest place whose
// state was kept. All of the last ones are kept, and of those before them one in 32.
class Follower {
  constructor(model, label) {
    this.model = model;
    this.ids = [];
    this.surprise = [];
    this.kept = new Map([[0, model.step(model.first, model.begin(label))]]);
  }
  // Logits of the next token, and what is carried.
  get now() { return this.kept.get(this.ids.length); }
  push(token) {
    const { logits, carried } = this.now, place = this.ids.push(token);
    this.surprise.push(logSumExp(logits) - logits[token]);
    this.kept.set(place, this.model.step(token, carried));
    if ((place - 256) % 32) this.kept.delete(place - 256);
  }
  // The tokens that are still to be pushed so that these have been read.
  rewind(ids) {
    let same = 0;
    while (same < ids.length && ids[same] === this.ids[same]) same++;
    while (!this.kept.has(same)) same--;
    for (let place = this.ids.length; place > same; place--) this.kept.delete(place);
    this.ids.length = this.surprise.length = same;
    return ids.slice(same);
  }
}
