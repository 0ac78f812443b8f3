// Tokenizers as in recur.data.text: characters, words, space-separated symbols, lines.

const UNK = 0, PAD = 1, BOS = 2, EOS = 3;
const SPECIALS = ["<unk>", "<pad>", "<bos>", "<eos>"];

const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";  // Python's, not JavaScript's
const HAN = "[\\u3040-\\u30ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{3ffff}]";
const MARK = "(?:(?![\\u{e0100}-\\u{e01ef}])\\p{M}|[\\u200c\\u200d])";

const strip = (text) => text.replace(new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "gu"), "");
const splitSpaces = (text) => text.match(new RegExp(`[^${SPACE}]+`, "gu")) || [];

// Normalises line ends and composes characters (NFC), as for files.
const normalised = (text) => text.replace(/\r\n?/g, "\n").normalize("NFC");

// Words with combining marks, inner apostrophes and hyphens; single Han or Kana characters; other symbols with marks.
function markedPattern() {
  const letter = `(?!${HAN})[\\p{L}\\p{N}_]${MARK}*`;
  const sign = `(?!${MARK})[^\\p{L}\\p{N}_${SPACE}]${MARK}*`;
  return new RegExp(`\\n|<(?:unk|pad|bos|eos)>|${HAN}${MARK}*|(?:${letter})+(?:['’\\-](?:${letter})+)*`
    + `|${sign}(?:(?<=\\u200d)${sign})*|${MARK}+`, "gu");
}

const RESERVED = { "\n": "<eos>", "<bos>": "<unk>", "<pad>": "<unk>" };

class Characters {
  split(text) { return Array.from(text); }
  join(tokens) { return tokens.join(""); }
}

class Words {
  constructor({ punctuation, lower }) {
    this.lower = lower;
    this.pattern = punctuation ? markedPattern() : new RegExp(`\\n|[^${SPACE}]+`, "gu");
  }
  split(text) {
    const found = (this.lower ? text.toLowerCase() : text).match(this.pattern) || [];
    return found.map((token) => Object.hasOwn(RESERVED, token) ? RESERVED[token] : token);
  }
  join(tokens) {
    const text = tokens.map((token) => token === "<eos>" ? "\n" : token).join(" ");
    return text.replaceAll(" \n ", "\n").replaceAll("\n ", "\n").replaceAll(" \n", "\n");
  }
}

const unreserved = (token) => SPECIALS.includes(token) ? "<unk>" : token;

class Spaced {
  split(text) { return splitSpaces(text).map(unreserved); }
  join(tokens) { return tokens.join(" "); }
}

class Lines {
  split(text) { return text.split("\n").map(unreserved); }
  join(tokens) { return tokens.join("\n"); }
}

function makeTokenizer(about) {
  if (about.kind === "subword") return new Subwords(about);
  if (about.kind === "word") return new Words(about);
  return new { char: Characters, space: Spaced, line: Lines }[about.kind]();
}

// Tokens by id; any other token is <unk> and listed by `unknown`.
class Vocab {
  constructor({ tokenizer, tokens }) {
    this.kind = tokenizer.kind;
    this.tokens = tokens;
    this.ids = new Map(tokens.map((token, k) => [token, k]));
    this.tokenizer = makeTokenizer({ ...tokenizer, tokens });
  }
  // The first four ids are special tokens.
  id(token) { return this.ids.get(token) ?? UNK; }
  encode(text) { return this.tokenizer.split(text).map((token) => this.id(token)); }
  decode(ids) { return this.tokenizer.join(ids.map((k) => this.tokens[k])); }
  unknown(text) { return [...new Set(this.tokenizer.split(text).filter((token) => !this.ids.has(token)))]; }
}

// Code points that combine with the previous one: accents, vowel signs, joiners, Hangul finals.
const JOINS = /[\p{M}\u200c\u200d\u1160-\u11ff]/u;

function withoutLeadingMarks(text) {
  const letters = Array.from(text);
  const first = letters.findIndex((letter) => !JOINS.test(letter));
  return first < 0 ? "" : letters.slice(first).join("");
}

// Casing class of a word, as in recur/data/text/tokenizers.py: an index into
// lower, title, upper, mixed, digits, number, digit inside, sign, other.
const DIGIT = new RegExp("[\\p{Nd}\\xb2\\xb3\\xb9\\u1369-\\u1371\\u19da\\u2070\\u2074-\\u2079\\u2080-\\u2089\\u2460-\\u2468\\u2474-\\u247c"
  + "\\u2488-\\u2490\\u24ea\\u24f5-\\u24fd\\u24ff\\u2776-\\u277e\\u2780-\\u2788\\u278a-\\u2792\\u{10a40}-\\u{10a43}"
  + "\\u{10e60}-\\u{10e68}\\u{11052}-\\u{1105a}\\u{1f100}-\\u{1f10a}]", "u");

const isLower = (text) => /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text);
const isUpper = (text) => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text);

function casingOf(word) {
  const signs = Array.from(word), letters = signs.filter((sign) => /\p{L}/u.test(sign));
  if (signs.some((sign) => DIGIT.test(sign))) return letters.length ? 6 : signs.every((sign) => DIGIT.test(sign)) ? 4 : 5;
  if (!letters.length) return 7;
  if (isLower(word)) return 0;
  if (isUpper(word)) return letters.length > 1 ? 2 : 1;
  if (/\p{Uppercase}/u.test(letters[0]) && isLower(letters.slice(1).join(""))) return 1;
  return letters.some((letter) => /\p{Uppercase}/u.test(letter)) ? 3 : 8;
}
