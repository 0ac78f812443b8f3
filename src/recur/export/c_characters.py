"""What a header has to know of characters: UTF-8, and of Unicode only what its tokenizer asks."""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Iterator

FLAGS = ("word", "mark", "han", "alpha", "digit", "upper", "lower", "title")
"""What may be asked of a character, a bit each. Whether it is a space is asked without a table."""

HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
JOINERS = "\u200c\u200d"

UTF8 = """\
/* The character of a text at a place: how many bytes it has, and its number; a byte that is none is one of its own. */
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

WRITE = """\
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

FLAGS_OF = """\
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

LOWER = """\
/* A character in lower case; of İ that is two. Behind a letter at the end of a word, Σ is ς. */
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
def _flags(asked: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Where runs of characters with the same answers begin, and the answers."""
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
def _lowered() -> list[tuple[int, int, int, int]]:
    """Runs (first, last, step, by how much) of characters that have a lower case of one character."""
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


def characters(asked: set[str], lower: bool, array: object) -> Iterator[str]:
    """The text of all that is asked. `array(declared, numbers)` makes one of C."""
    make = array
    assert callable(make)
    yield UTF8
    if lower:
        yield WRITE
        runs = _lowered()
        for k, name in enumerate(("from", "to", "step", "by")):
            kind = "int32_t" if name == "by" else "uint32_t"
            yield make(f"{kind} @_lower_{name}", [run[k] for run in runs])
        yield LOWER % len(runs)
    if asked:
        starts, values = _flags(tuple(name for name in FLAGS if name in asked))
        yield make("uint32_t @_flag_from", starts)
        yield make("unsigned char @_flag", values)
        yield FLAGS_OF % len(starts)


def bit(name: str) -> int:
    return 1 << FLAGS.index(name)
