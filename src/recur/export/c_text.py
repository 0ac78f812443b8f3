"""Vocabularies and tokenizers in C: UTF-8 text to token ids and back, as in recur.data.text.

The facts come from `tokenizers.TokenizerSpec`. Character tables contain only the properties that the tokenizer tests.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence

import torch

from recur.data.text import EOS, Vocab
from recur.errors import OptionError
from recur.export.c_graphs import c_array as array_of
from recur.export.escaping import c_bytes
from recur.export.tokenizers import SubwordPieces, describe_vocabulary

FLAGS = ("word", "mark", "han", "alpha", "digit", "upper", "lower", "title")
"""Properties of a character, one bit each. White space is tested without a table."""

HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
JOINERS = "\u200c\u200d"

UTF8 = """\
/* Decode the UTF-8 character at an offset; return its length in bytes. An invalid byte is one character, U+FFFD. */
static int32_t @_character(const char *text, int32_t length, int32_t at, uint32_t *code) {
    const unsigned char *const t = (const unsigned char *)text + at;
    const int32_t left = length - at;
    int32_t bytes = t[0] < 0x80 ? 1 : t[0] >= 0xF0 ? 4 : t[0] >= 0xE0 ? 3 : t[0] >= 0xC2 ? 2 : 0;
    uint32_t found = bytes == 1 ? t[0] : bytes == 2 ? t[0] & 0x1Fu : bytes == 3 ? t[0] & 0x0Fu : t[0] & 0x07u;
    if (bytes == 0 || bytes > left || t[0] > 0xF4) {
        *code = 0xFFFD;
        return 1;
    }
    for (int32_t k = 1; k < bytes; ++k) {
        if ((t[k] & 0xC0) != 0x80) {
            *code = 0xFFFD;
            return 1;
        }
        found = found << 6 | (t[k] & 0x3Fu);
    }
    *code = found;
    return bytes;
}

static int32_t @_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
"""

WRITE_CHARACTER = """\
static int32_t @_write_character(uint32_t c, char *to) {
    unsigned char *const t = (unsigned char *)to;
    if (c < 0x80) {
        t[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        t[0] = (unsigned char)(0xC0 | c >> 6);
        t[1] = (unsigned char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        t[0] = (unsigned char)(0xE0 | c >> 12);
        t[1] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
        t[2] = (unsigned char)(0x80 | (c & 0x3F));
        return 3;
    }
    t[0] = (unsigned char)(0xF0 | c >> 18);
    t[1] = (unsigned char)(0x80 | (c >> 12 & 0x3F));
    t[2] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
    t[3] = (unsigned char)(0x80 | (c & 0x3F));
    return 4;
}
"""

FIND_FLAGS = """\
static uint32_t @_flags(uint32_t c) {
    int32_t low = 0, high = %d;
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (@_flag_from[middle] <= c)
            low = middle;
        else
            high = middle;
    }
    return @_flag[low];
}
"""

LOWERCASE = """\
/* Lower case of a character. The caller handles two special cases: İ has two characters, and final Σ is ς. */
static uint32_t @_lower(uint32_t c) {
    int32_t low = 0, high = %d;
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (@_lower_from[middle] <= c)
            low = middle;
        else
            high = middle;
    }
    if (c < @_lower_from[low] || c > @_lower_to[low] || (c - @_lower_from[low]) %% @_lower_step[low]) return c;
    return (uint32_t)((int32_t)c + @_lower_by[low]);
}
"""


@functools.cache
def _flag_ranges(asked: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Return the first code points of ranges with equal flags, and the flags."""
    han, starts, values = re.compile(f"[{HAN}]"), list[int](), list[int]()
    tests = {
        "word": lambda c: c.isalnum() or c == "_",
        "mark": lambda c: (0x300 <= ord(c) < 0x20000 and unicodedata.category(c)[0] == "M") or c in JOINERS,
        "han": lambda c: bool(han.match(c)),
        "alpha": str.isalpha,
        "digit": str.isdigit,
        "upper": str.isupper,
        "lower": str.islower,
        "title": lambda c: unicodedata.category(c) == "Lt",
    }
    bits = [(1 << FLAGS.index(name), tests[name]) for name in asked]
    for code in range(sys.maxunicode + 1):
        c = chr(code)
        value = sum(bit for bit, test in bits if test(c))
        if not values or values[-1] != value:
            starts.append(code)
            values.append(value)
    return starts, values


@functools.cache
def _lowercase_ranges() -> list[tuple[int, int, int, int]]:
    """Return ranges (first, last, step, offset) of characters with a lower case of one character."""
    runs: list[tuple[int, int, int, int]] = []
    for code in range(sys.maxunicode + 1):
        lower = chr(code).lower()
        if len(lower) != 1 or ord(lower) == code:
            continue
        by = ord(lower) - code
        if runs:
            first, last, step, before = runs[-1]
            apart = code - last
            if before == by and apart <= 2 and (first == last or step == apart):
                runs[-1] = (first, code, apart, by)
                continue
        runs.append((code, code, 1, by))
    return runs


def print_character_functions(asked: set[str], lower: bool, array: object) -> Iterator[str]:
    """Yield the functions and tables for the requested properties.

    array: makes an array of C from a declaration and numbers.
    """
    make = array
    assert callable(make)
    yield UTF8
    if lower:
        yield WRITE_CHARACTER
        runs = _lowercase_ranges()
        for k, name in enumerate(("from", "to", "step", "by")):
            kind = "int32_t" if name == "by" else "uint32_t"
            yield make(f"{kind} @_lower_{name}", [run[k] for run in runs])
        yield LOWERCASE % len(runs)
    if asked:
        starts, values = _flag_ranges(tuple(name for name in FLAGS if name in asked))
        yield make("uint32_t @_flag_from", starts)
        yield make("unsigned char @_flag", values)
        yield FIND_FLAGS % len(starts)


def flag_bit(name: str) -> int:
    return 1 << FLAGS.index(name)


FIND_TOKEN = """\
/* Return the id of a token by binary search, or 0, which is <unk>. */
static int32_t @_find_%(v)s(const char *bytes, int32_t length) {
    int32_t low = 0, high = %(n)d;
    while (low < high) {
        const int32_t middle = (low + high) / 2, id = @_%(v)s_sorted[middle];
        const int32_t own = @_%(v)s_at[id + 1] - @_%(v)s_at[id], common = own < length ? own : length;
        int order = common ? memcmp(@_%(v)s_bytes + @_%(v)s_at[id], bytes, (size_t)common) : 0;
        if (order == 0) order = own < length ? -1 : own > length;
        if (order == 0) return id;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}
"""

TOKEN_TEXT = """\
/* Return the bytes of a token, not null-terminated, and their number; empty for an id outside of the vocabulary. */
@@_API const char *@_token(int32_t id, int32_t *length) {
    *length = 0;
    if (id < 0 || id >= @@_VOCABULARY) return "";
    *length = @_%(v)s_at[id + 1] - @_%(v)s_at[id];
    return (const char *)@_%(v)s_bytes + @_%(v)s_at[id];
}
"""

ENCODE_TEXT = """\
/* Encode a text of `length` bytes as at most `most` token ids; return their number. */
@@_API int32_t @_encode_%(v)s(const char *text, int32_t length, int32_t *ids, int32_t most) {
    int32_t count = 0, at = 0;
    uint32_t c;
%(body)s
    return count;
}
"""

ENCODE_CHARACTERS = """\
    while (at < length && count < most) {
        const int32_t bytes = @_character(text, length, at, &c);
        ids[count++] = @_find_%(v)s(text + at, bytes);
        at += bytes;
    }"""

ENCODE_WORDS = """\
    while (at < length && count < most) {
        int32_t bytes = @_character(text, length, at, &c), end = at, id;
%(newline)s        if (@_is_space(c)) {
            at += bytes;
            continue;
        }
        while (end < length) {
            bytes = @_character(text, length, end, &c);
            if (@_is_space(c)) break;
            end += bytes;
        }
        id = %(find)s;
        ids[count++] = %(reserved)s ? 0 : id;
        at = end;
    }"""

ENCODE_NEWLINE = """\
        if (c == 10) {
            ids[count++] = %d;
            at += bytes;
            continue;
        }
"""

ENCODE_LINES = """\
    for (; count < most && at <= length; ++count) {
        int32_t end = at;
        while (end < length && text[end] != '\\n') ++end;
        ids[count] = @_find_%(v)s(text + at, end - at);
        if (ids[count] < 4) ids[count] = 0;
        at = end + 1;
    }
    (void)c;"""

FIND_LOWERCASE_TOKEN = """\
/* Return the id of a token in lower case. */
static int32_t @_find_lower_%(v)s(const char *text, int32_t length) {
    char own[%(size)d];
    int32_t at = 0, made = 0;
    uint32_t c, before = 0;
    while (at < length) {
        const int32_t bytes = @_character(text, length, at, &c);
        const int32_t last = at && at + bytes == length;
        const uint32_t small = c == 0x3A3 && last && @_lower(before) != before ? 0x3C2 : @_lower(c);
        if (made + 8 > %(size)d) return 0;
        if (c == 0x130) {
            own[made++] = 'i';
            made += @_write_character(0x307, own + made);
        } else {
            made += @_write_character(small, own + made);
        }
        before = c;
        at += bytes;
    }
    return @_find_%(v)s(own, made);
}
"""

ENCODE_PUNCTUATED = """\
    while (at < length && count < most) {
        int32_t bytes = @_character(text, length, at, &c), end = at + bytes, id, joined = c == 0x200D;
        uint32_t flags = @_flags(c);
        if (c == 10) {
            ids[count++] = %(eos)d;
            at = end;
            continue;
        }
        if (@_is_space(c)) {
            at = end;
            continue;
        }
        if (c == '<' && end + 4 <= length && text[end + 3] == '>' &&
            (!memcmp(text + end, "unk", 3) || !memcmp(text + end, "pad", 3) || !memcmp(text + end, "bos", 3) ||
             !memcmp(text + end, "eos", 3))) {
            id = @_find_%(v)s(text + at, 5);
            ids[count++] = id == 1 || id == 2 ? 0 : id;
            at = end + 4;
            continue;
        }
        if (flags & %(mark)du) { /* combining marks without a base character */
            while (end < length) {
                bytes = @_character(text, length, end, &c);
                if (!(@_flags(c) & %(mark)du)) break;
                end += bytes;
            }
        } else if (flags & %(han)du) {
            end = @_behind_marks(text, length, end, &joined);
        } else if (flags & %(word)du) {
            end = @_behind_marks(text, length, end, &joined);
            while (end < length) {
                int32_t behind;
                bytes = @_character(text, length, end, &c);
                behind = end + bytes;
                if (c == '\\'' || c == 0x2019 || c == '-') { /* inside a word, if a letter follows */
                    if (behind >= length) break;
                    bytes = @_character(text, length, behind, &c);
                    behind += bytes;
                }
                flags = @_flags(c);
                if (!(flags & %(word)du) || flags & %(han)du || flags & %(mark)du) break;
                end = @_behind_marks(text, length, behind, &joined);
            }
        } else { /* a symbol with its marks, and symbols joined by U+200D */
            end = @_behind_marks(text, length, end, &joined);
            while (joined && end < length) {
                bytes = @_character(text, length, end, &c);
                if (@_is_space(c) || @_flags(c) & %(letter)du) break;
                end = @_behind_marks(text, length, end + bytes, &joined);
            }
        }
        id = %(find)s;
        ids[count++] = id == 1 || id == 2 ? 0 : id;
        at = end;
    }"""

SKIP_MARKS = """\
static int32_t @_behind_marks(const char *text, int32_t length, int32_t at, int32_t *joined) {
    uint32_t c;
    *joined = 0;
    while (at < length) {
        const int32_t bytes = @_character(text, length, at, &c);
        if (!(@_flags(c) & %(mark)du)) break;
        *joined = c == 0x200D;
        at += bytes;
    }
    return at;
}
"""

ENCODE_SUBWORDS = """\
    while (at <= length && count < most) { /* Viterbi search for the most likely pieces of each line */
        int32_t end = at, n, back;
        while (end < length && text[end] != '\\n' && end - at < %(longest)d) ++end;
        n = end - at;
        best[0] = 0.0f;
        for (int32_t k = 1; k <= n; ++k) best[k] = -1e30f;
        for (int32_t k = 0; k < n;) {
            const int32_t one = @_character(text, end, at + k, &c);
            char own[%(size)d];
            int32_t made = 0, j = k, whole = 0;
            while (j < n && made + 4 <= %(size)d) {
                const int32_t bytes = @_character(text, end, at + j, &c);
                int32_t id;
                if (c == ' ') {
                    memcpy(own + made, "\\xE2\\x96\\x81", 3);
                    made += 3;
                } else {
                    memcpy(own + made, text + at + j, (size_t)bytes);
                    made += bytes;
                }
                j += bytes;
                id = @_find_%(v)s(own, made);
                if (id > 3 && @_%(v)s_score[id] < 1e29f) {
                    const float score = best[k] + @_%(v)s_score[id];
                    if (j == k + one) whole = 1;
                    if (score > best[j]) {
                        best[j] = score;
                        from[j] = k;
                        piece[j] = id;
                    }
                }
            }
            if (!whole && best[k] + %(unknown)s > best[k + one]) {
                best[k + one] = best[k] + %(unknown)s;
                from[k + one] = k;
                piece[k + one] = 0;
            }
            k += one;
        }
        back = 0;
        for (int32_t k = n; k > 0; k = from[k]) back += piece[k] ? 1 : k - from[k];
        if (count + back > most) back = most - count;
        {
            int32_t place = count + back;
            for (int32_t k = n; k > 0 && place > count; k = from[k]) {
                if (piece[k])
                    ids[--place] = piece[k];
                else
                    for (int32_t b = k; b-- > from[k] && place > count;)
                        ids[--place] = @_%(v)s_byte[(unsigned char)text[at + b]];
            }
        }
        count += back;
        if (end >= length) break;
        if (text[end] == '\\n') {
            if (count < most) ids[count++] = %(eos)d;
            ++end;
        }
        at = end;
    }"""

DECODE_BODIES = {
    "char": """\
    int32_t length;
    const char *const bytes = @_token(id, &length);
    (void)before;
    if (length > room) return -1;
    memcpy(to, bytes, (size_t)length);
    return length;""",
    "word": """\
    int32_t length, space;
    const char *const bytes = id == %(eos)d ? "\\n" : @_token(id, &length);
    if (id == %(eos)d) length = 1;
    space = before >= 0 && before != %(eos)d && id != %(eos)d;
    if (length + space > room) return -1;
    if (space) to[0] = ' ';
    memcpy(to + space, bytes, (size_t)length);
    return length + space;""",
    "space": """\
    int32_t length;
    const char *const bytes = @_token(id, &length);
    const int32_t space = before >= 0;
    if (length + space > room) return -1;
    if (space) to[0] = ' ';
    memcpy(to + space, bytes, (size_t)length);
    return length + space;""",
    "subword": """\
    int32_t length, made = 0;
    const char *const bytes = @_token(id, &length);
    (void)before;
    if (id == %(eos)d) {
        if (room < 1) return -1;
        to[0] = '\\n';
        return 1;
    }
    if (length == 6 && bytes[0] == '<' && bytes[1] == '0' && bytes[2] == 'x') {
        int32_t value = 0;
        for (int32_t k = 3; k < 5; ++k) value = value * 16 + (bytes[k] <= '9' ? bytes[k] - '0' : bytes[k] - 'A' + 10);
        if (room < 1) return -1;
        to[0] = (char)(unsigned char)value;
        return 1;
    }
    for (int32_t k = 0; k < length; ++k) {
        const int32_t blank = k + 3 <= length && !memcmp(bytes + k, "\\xE2\\x96\\x81", 3);
        if (made >= room) return -1;
        to[made++] = blank ? ' ' : bytes[k];
        if (blank) k += 2;
    }
    return made;""",
}

DECODE_TOKEN = """\
/* Write the text of a token that follows token `before` (or -1) into `room` bytes; return its length, -1: no room. */
@@_API int32_t @_text(int32_t before, int32_t id, char *to, int32_t room) {
%s
}
"""


LONGEST_LINE = 4096
"""Maximum number of bytes that are split into subwords at once."""


class VocabularyPrinter:
    """Tables and functions of a model's vocabularies."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.asked: set[str] = set()
        self.lower = False
        self.parts: list[str] = []

    def array(self, declared: str, numbers: Sequence[float], dtype: torch.dtype = torch.int64) -> str:
        return array_of(declared, torch.tensor(list(numbers), dtype=dtype), self.prefix)

    def table(self, name: str, vocab: Sequence[str]) -> None:
        """Print the tokens by id, and the sorted ids for the search of a token."""
        spelled = [c_bytes(token) for token in vocab]
        at = [0]
        for token in spelled:
            at.append(at[-1] + len(token))
        order = sorted(range(len(spelled)), key=spelled.__getitem__)
        self.parts.append(self.array(f"unsigned char @_{name}_bytes", list(b"".join(spelled))))
        self.parts.append(self.array(f"int32_t @_{name}_at", at))
        self.parts.append(self.array(f"int32_t @_{name}_sorted", order))
        self.parts.append(FIND_TOKEN % {"v": name, "n": len(spelled)})

    def encoder(self, name: str, vocab: Vocab) -> None:
        """Print the table of a vocabulary and the function that encodes a text."""
        spec = describe_vocabulary(vocab)
        self.table(name, spec.tokens)
        find = f"@_find_{name}(text + at, end - at)"
        if spec.lower:
            self.lower = True
            size = 8 + 8 * (1 + max(len(token) for token in spec.tokens))
            self.parts.append(FIND_LOWERCASE_TOKEN % {"v": name, "size": size})
            find = f"@_find_lower_{name}(text + at, end - at)"
        if spec.kind == "char":
            body = ENCODE_CHARACTERS % {"v": name}
        elif spec.kind == "word" and spec.punctuation:
            self.asked |= {"word", "mark", "han"}
            bits = {kind: flag_bit(kind) for kind in ("word", "mark", "han")}
            letter = bits["word"] | bits["mark"]
            self.parts.append(SKIP_MARKS % bits)
            body = ENCODE_PUNCTUATED % {"v": name, "find": find, "eos": EOS, "letter": letter, **bits}
        elif spec.kind == "word":
            body = ENCODE_WORDS % {"find": find, "newline": ENCODE_NEWLINE % EOS, "reserved": "id == 1 || id == 2"}
        elif spec.kind == "line":
            body = ENCODE_LINES % {"v": name}
        elif spec.kind == "space":
            body = ENCODE_WORDS % {"find": find, "newline": "", "reserved": "id < 4"}
        else:
            assert spec.pieces is not None
            body = self._subwords(name, spec.tokens, spec.pieces)
        self.parts.append(ENCODE_TEXT % {"v": name, "body": body})

    def _subwords(self, name: str, tokens: Sequence[str], pieces: SubwordPieces) -> str:
        """Print the tables of a sentencepiece model; return the body of its encoder."""
        if pieces.algorithm != "unigram" or not pieces.byte_ids:
            raise OptionError(
                f"only unigram subwords with byte fallback are written in C, this model has {pieces.algorithm} pieces"
                f"{'' if pieces.byte_ids else ' without byte fallback'}"
            )
        plain = set(pieces.plain)
        # 1e30 marks pieces that the encoder must not choose; it tests for scores below 1e29.
        scores = [score if k in plain else 1e30 for k, score in enumerate(pieces.scores)]
        lowest = min(0.0, *(pieces.scores[k] for k in pieces.plain))
        self.parts.append(self.array(f"float @_{name}_score", scores, torch.float32))
        self.parts.append(self.array(f"int32_t @_{name}_byte", pieces.byte_ids))
        size = 4 + max(len(c_bytes(token)) for token in tokens)
        room = (
            f"    float best[{LONGEST_LINE + 1}];\n    int32_t from[{LONGEST_LINE + 1}], piece[{LONGEST_LINE + 1}];\n"
        )
        # sentencepiece scores an unknown character 10 below the lowest score of a piece.
        unknown = f"({lowest - 10:.9g}f)"
        return room + ENCODE_SUBWORDS % {
            "v": name, "longest": LONGEST_LINE - 4, "size": size, "unknown": unknown, "eos": EOS,
        }  # fmt: skip

    def text(self) -> Iterator[str]:
        if any("@_character(" in part for part in self.parts) or self.asked or self.lower:
            yield from print_character_functions(self.asked, self.lower, self.array)
        yield from self.parts


def print_decoder(texts: VocabularyPrinter, name: str, vocab: Vocab) -> None:
    """Print the function that converts a token id to text; the table of the vocabulary must exist."""
    kind = {"line": "space"}.get(vocab.tokenizer.kind, vocab.tokenizer.kind)
    texts.parts.append(TOKEN_TEXT % {"v": name})
    texts.parts.append(DECODE_TOKEN % (DECODE_BODIES[kind].replace("%(eos)d", str(EOS))))
