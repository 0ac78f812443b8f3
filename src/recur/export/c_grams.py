"""C code for the n-grams of a text: features of the baselines in recur.baselines.text_classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.data.text import SPECIALS, Vocab
from recur.export.c_characters import bit

if TYPE_CHECKING:
    from recur.export.c_drivers import Driver

LOWERED = """\
/* A text in lower case, into so much room: how many bytes. */
static int32_t @_lowered(const char *text, int32_t length, char *to, int32_t room) {
    int32_t made = 0;
    uint32_t c, before = 0;
    for (int32_t at = 0; at < length && made + 8 <= room;) {
        const int32_t bytes = @_character(text, length, at, &c);
        uint32_t behind = 0, small = @_lower(c);
        if (c == 0x3A3) { /* at the end of a word */
            if (at + bytes < length) @_character(text, length, at + bytes, &behind);
            if (@_flags(before) & %(alpha)du && !(@_flags(behind) & %(alpha)du)) small = 0x3C2;
        }
        if (c == 0x130) {
            to[made++] = 'i';
            small = 0x307;
        }
        made += @_write_character(small, to + made);
        before = c;
        at += bytes;
    }
    return made;
}
"""

COUNT = """\
/* One n-gram more, among those that are known. */
static int32_t @_gram(@_work *work, int32_t found, const char *bytes, int32_t length) {
    const int32_t id = @_find_ngrams(bytes, length);
    if (id < 4) return found;
    for (int32_t k = 0; k < found; ++k)
        if (work->grams[k] == id - 4) {
            work->counts[k] += 1.0f;
            return found;
        }
    if (found == @@_LONGEST) return found;
    work->grams[found] = id - 4;
    work->counts[found] = 1.0f;
    return found + 1;
}
"""

CHARACTERS = """\
static int32_t @_grams(@_work *work, const char *text, int32_t length) {
    int32_t found = 0, made = 1, own = @_lowered(text, length, work->small, (int32_t)sizeof work->small), space = 0;
    uint32_t c;
    work->line[0] = ' ';
    for (int32_t at = 0; at < own && made + 8 < (int32_t)sizeof work->line;) { /* one space between words */
        const int32_t bytes = @_character(work->small, own, at, &c);
        if (@_is_space(c)) {
            space = 1;
        } else {
            if (space && made > 1) work->line[made++] = ' ';
            memcpy(work->line + made, work->small + at, (size_t)bytes);
            made += bytes;
            space = 0;
        }
        at += bytes;
    }
    work->line[made++] = ' ';
    for (int32_t at = 0; at < made;) {
        int32_t end = at;
        const int32_t first = @_character(work->line, made, at, &c);
        for (int32_t n = 0; n < 5 && end < made; ++n) {
            end += @_character(work->line, made, end, &c);
            found = @_gram(work, found, work->line + at, end - at);
        }
        at += first;
    }
    return found;
}
"""

WORDS = """\
static int32_t @_grams(@_work *work, const char *text, int32_t length) {
    int32_t found = 0, own = @_lowered(text, length, work->small, (int32_t)sizeof work->small), before = -1, behind = 0;
    uint32_t c;
    for (int32_t at = 0; at < own;) {
        int32_t end = at + @_character(work->small, own, at, &c);
        if (@_is_space(c)) {
            at = end;
            continue;
        }
        if (@_flags(c) & %(word)du)
            while (end < own) {
                const int32_t bytes = @_character(work->small, own, end, &c);
                if (!(@_flags(c) & %(word)du)) break;
                end += bytes;
            }
        found = @_gram(work, found, work->small + at, end - at);
        if (before >= 0 && behind - before + 1 + end - at < (int32_t)sizeof work->line) {
            memcpy(work->line, work->small + before, (size_t)(behind - before));
            work->line[behind - before] = ' ';
            memcpy(work->line + behind - before + 1, work->small + at, (size_t)(end - at));
            found = @_gram(work, found, work->line, behind - before + 1 + end - at);
        }
        before = at;
        behind = end;
        at = end;
    }
    return found;
}
"""

USED = """\
    int32_t found = @_grams(work, text, length);
    if (found == 0) { /* none is one that was not counted */
        work->grams[0] = 0;
        work->counts[0] = 0.0f;
        found = 1;
    }
"""


def grams(driver: Driver, vocab: Vocab, longest: int) -> str:
    """What counts the n-grams of a text, and the lines that call it."""
    texts = driver.texts
    texts.lower = True
    texts.asked |= {"word", "alpha"}
    texts.table("ngrams", vocab.tokens)
    assert vocab.tokens[: len(SPECIALS)] == SPECIALS
    bits = {name: bit(name) for name in ("word", "alpha")}
    driver.work += [f"int32_t grams[{longest}];", f"float counts[{longest}];"]
    driver.work += [f"char small[{8 * longest}];", f"char line[{8 * longest + 16}];"]
    body = WORDS % bits if vocab.tokenizer.kind == "word" else CHARACTERS
    driver.parts += [LOWERED % bits, COUNT, body]
    return USED
