// Interfaces of the tasks around a model's graphs, as in Python. A model has run(graph, inputs) → outputs, arrays by
// name; `about` describes the model.

const names = (about, graph) => about.graphs[graph];

// State that a graph carries to its next call.
function carriedBy(about, graph) {
  const { inputs, outputs } = names(about, graph);
  return inputs.filter((name) => outputs.includes(name));
}

const pick = (from, keys) => Object.fromEntries(keys.map((key) => [key, from[key]]));

const startOf = (about) => Object.fromEntries(Object.entries(about.start).map(([name, values]) => [name, Float32Array.from(values)]));

// Language model: reads one token, returns the logits of the next token and the state.
class LanguageModel {
  constructor(model, about) {
    this.model = model;
    this.vocab = new Vocab(about.vocabs.vocab);
    this.first = about.settings.first;
    this.backward = about.settings.backward;
    this.carried = carriedBy(about, "step");
    this.start = startOf(about);
    this.never = about.settings.never;
    this.ends = false;
  }
  begin() { return this.start; }
  step(token, carried) {
    const found = this.model.run("step", { token: [token], ...carried });
    return { logits: found.logits, carried: pick(found, this.carried) };
  }
  // Reads ids in reading order, after the token `first`.
  encode(text) {
    const ids = this.vocab.encode(normalised(text));
    return this.backward ? ids.reverse() : ids;
  }
  // Text that these ids add after another text (before it, for a backward model).
  continued(context, ids) {
    const { vocab } = this;
    if (this.backward) {
      const whole = vocab.decode([...ids].reverse().concat([...context].reverse()));
      return whole.slice(0, whole.length - vocab.decode([...context].reverse()).length);
    }
    return vocab.decode([...context, ...ids]).slice(vocab.decode(context).length);
  }
}

// Decoder of a source or a label, for decode.js and for step-by-step views.
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
  // log P of every length, if the length is predicted first.
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

// Conditional model with the interface of a language model.
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
  // {input, unknown, nbest: [{output, score, cut, tokens, looked}]}; null for empty input.
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

// n-grams of a text with repetitions.
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
    this.thresholds = about.settings.thresholds ?? null; // of a classifier with several labels per text
    this.unit = about.settings.mixed ? about.settings.grams : null;
    this.ngrams = this.unit ? new Map(about.vocabs.ngrams.tokens.map((gram, k) => [gram, k - SPECIALS.length])) : null;
  }
  // {p, unknown}; null for a text without tokens.
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
  // {words, tags, p: rows of probabilities, unknown}; null for a text without words.
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

// Language model along a text that is being edited. It rereads only from the nearest saved state before the change.
// The states of the last tokens are all saved, earlier ones every 32 tokens.
const IMPOSSIBLE = 5000; // nats: the logits of such symbols are 10,000 lower
class Follower {
  constructor(model, label) {
    this.model = model;
    this.ids = [];
    this.surprise = [];
    this.kept = new Map([[0, model.step(model.first, model.begin(label))]]);
  }
  // Logits of the next token, and the state.
  get now() { return this.kept.get(this.ids.length); }
  push(token) {
    const { logits, carried } = this.now, place = this.ids.push(token);
    const surprise = logSumExp(logits) - logits[token], possible = surprise < IMPOSSIBLE;
    this.surprise.push(possible ? surprise : NaN);  // a symbol that no training text had is neither read nor scored
    this.kept.set(place, possible ? this.model.step(token, carried) : { logits, carried });
    if ((place - 256) % 32) this.kept.delete(place - 256);
  }
  // Tokens that remain to be read.
  rewind(ids) {
    let same = 0;
    while (same < ids.length && ids[same] === this.ids[same]) same++;
    while (!this.kept.has(same)) same--;
    for (let place = this.ids.length; place > same; place--) this.kept.delete(place);
    this.ids.length = this.surprise.length = same;
    return ids.slice(same);
  }
}
