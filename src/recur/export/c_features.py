"""Text features in C: n-gram counts of classifiers (recur.baselines), and words, characters and casing of taggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.data.text import SPECIALS, Vocab
from recur.export.c_text import flag_bit
from recur.export.loop_ir import max_size

if TYPE_CHECKING:
    from recur.export.c_header import InterfacePrinter

LOWERCASE_TEXT = """\
/* Convert a text to lower case into `room` bytes; return the length. */
static int32_t @_lowered(const char *text, int32_t length, char *to, int32_t room) {
    int32_t made = 0;
    uint32_t c, before = 0;
    for (int32_t at = 0; at < length && made + 8 <= room;) {
        const int32_t bytes = @_character(text, length, at, &c);
        uint32_t behind = 0, small = @_lower(c);
        if (c == 0x3A3) { /* final sigma */
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

COUNT_NGRAM = """\
/* Count one n-gram if the vocabulary has it; return the number of distinct n-grams. */
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

CHARACTER_NGRAMS = """\
static int32_t @_grams(@_work *work, const char *text, int32_t length) {
    int32_t found = 0, made = 1, own = @_lowered(text, length, work->small, (int32_t)sizeof work->small), space = 0;
    uint32_t c;
    work->line[0] = ' ';
    for (int32_t at = 0; at < own && made + 8 < (int32_t)sizeof work->line;) { /* collapse white space */
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

WORD_NGRAMS = """\
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

CALL_NGRAMS = """\
    int32_t found = @_grams(work, text, length);
    if (found == 0) { /* the graph needs at least one n-gram: one with count 0 */
        work->grams[0] = 0;
        work->counts[0] = 0.0f;
        found = 1;
    }
"""


def print_ngram_counter(driver: InterfacePrinter, vocab: Vocab, longest: int) -> str:
    """Print the function that counts the n-grams of a text; return the lines that call it."""
    texts = driver.texts
    texts.lower = True
    texts.asked |= {"word", "alpha"}
    texts.table("ngrams", vocab.tokens)
    assert vocab.tokens[: len(SPECIALS)] == SPECIALS
    bits = {name: flag_bit(name) for name in ("word", "alpha")}
    driver.work += [f"int32_t grams[{longest}];", f"float counts[{longest}];"]
    driver.work += [f"char small[{8 * longest}];", f"char line[{8 * longest + 16}];"]
    body = WORD_NGRAMS % bits if vocab.tokenizer.kind == "word" else CHARACTER_NGRAMS
    driver.parts += [LOWERCASE_TEXT % bits, COUNT_NGRAM, body]
    return CALL_NGRAMS


LONGEST_WORD = 32
"""Maximum number of characters of a word; the middle of a longer word is skipped."""

CASING = """\
/* Casing class of a word, as in recur.data.text.tokenizers. */
static int32_t @_casing(const char *text, int32_t length) {
    int32_t letters = 0, digits = 0, count = 0, upper = 0, lower = 0, title = 0;
    int32_t first_upper = 0, later_other = 0, later_lower = 0;
    uint32_t c;
    for (int32_t at = 0; at < length; ++count) {
        uint32_t flags;
        at += @_character(text, length, at, &c);
        flags = @_flags(c);
        digits += (flags & %(digit)du) != 0;
        upper += (flags & %(upper)du) != 0;
        lower += (flags & %(lower)du) != 0;
        title += (flags & %(title)du) != 0;
        if (flags & %(alpha)du) {
            if (!letters) first_upper = (flags & %(upper)du) != 0;
            else if (flags & (%(upper)du | %(title)du)) later_other = 1;
            else if (flags & %(lower)du) later_lower = 1;
            ++letters;
        }
    }
    if (digits) return letters ? 6 : digits == count ? 4 : 5;
    if (!letters) return 7;
    if (lower && !upper && !title) return 0;
    if (upper && !lower && !title) return letters > 1 ? 2 : 1;
    if (first_upper && later_lower && !later_other) return 1;
    return upper ? 3 : 8;
}
"""

SPELLED = """\
/* Write the character ids of a word and return their number; the middle of a long word is skipped. */
static int32_t @_spelled(const char *text, int32_t length, int32_t *ids) {
    int32_t count = 0, skip = 0, made = 0;
    uint32_t c;
    for (int32_t at = 0; at < length; ++count) at += @_character(text, length, at, &c);
    skip = count > %(longest)d ? count - %(longest)d : 0;
    for (int32_t at = 0, k = 0; at < length; ++k) {
        const int32_t bytes = @_character(text, length, at, &c);
        if (!skip || k < %(half)d || k >= %(half)d + skip) ids[made++] = @_find_characters(text + at, bytes);
        at += bytes;
    }
    return made;
}
"""

TAG_WORDS = """\
/* Tag the words of a line, which are separated by spaces. Return the number of words; -1 if there is none, more than
   `most`, or more than LONGEST tokens. */
@@_API int32_t @_predict(@_work *work, const char *text, int32_t *tags, int32_t most) {
    const int32_t length = (int32_t)strlen(text);
    int32_t count = 0, found = 0, at = 0;
    uint32_t c;
%(init)s    while (at < length) {
        int32_t bytes = @_character(text, length, at, &c), begin, end, added;
        if (@_is_space(c)) {
            at += bytes;
            continue;
        }
        for (end = at; end < length; end += bytes) {
            bytes = @_character(text, length, end, &c);
            if (@_is_space(c)) break;
        }
        begin = at;
        if (found >= most || count >= @@_LONGEST) return -1;
%(spell)s        if (count + added > @@_LONGEST) return -1;
%(look)s        count += added;
        work->ends[found++] = count - 1;
        at = end;
    }
    if (!found) return -1;
%(run)s    for (int32_t k = 0; k < found; ++k) /* the scores of a word are those of its last token */
        memmove(work->scores + k * @@_CLASSES, work->scores + work->ends[k] * @@_CLASSES, @@_CLASSES * sizeof(float));
%(choose)s    return found;
}
"""

SPELL = """\
        work->line[0] = ' ';
        if (end - at > (int32_t)sizeof work->line - 2) return -1;
        memcpy(work->line + 1, text + at, (size_t)(end - at));
        added = count ? @_encode_vocab(work->line, end - at + 1, work->ids + count, @@_LONGEST - count)
                      : @_encode_vocab(work->line + 1, end - at, work->ids, @@_LONGEST);
        if (!added) work->ids[count + added++] = 0;
        (void)begin;
"""

ARGMAX = """\
    for (int32_t k = 0; k < found; ++k) {
        const float *const scores = work->scores + k * @@_CLASSES;
        tags[k] = 0;
        for (int32_t j = 1; j < @@_CLASSES; ++j)
            if (scores[j] > scores[tags[k]]) tags[k] = j;
    }
"""


def print_word_tagger(driver: InterfacePrinter) -> None:
    """Print the interface of a tagger of words."""
    p, texts, longest = driver.portable, driver.texts, driver.longest
    texts.encoder("vocab", p.vocabs["vocab"])
    driver.work += [f"int32_t ids[{longest}];", f"int32_t ends[{longest}];", "char line[1024];"]
    look, init, inputs = "", "", ["work->ids"]
    if "word" in p.graphs:
        texts.table("characters", p.vocabs["characters"].tokens)
        texts.asked |= {"alpha", "digit", "upper", "lower", "title"}
        names = {name: flag_bit(name) for name in ("alpha", "digit", "upper", "lower", "title")}
        texts.parts += [CASING % names, SPELLED % {"longest": LONGEST_WORD, "half": LONGEST_WORD // 2}]
        width = max_size(driver.core.functions["word"].outputs[0].size, {})
        driver.work += [
            f"int32_t characters[{LONGEST_WORD}];",
            f"float look[{width}];",
            f"float looks[{longest * width}];",
        ]
        call = driver.core.printers["word"].call(["work->characters", "&casing"], ["work->look"], ["spelled"])
        look = "\n".join(
            [
                "        {",
                "            const int32_t casing = @_casing(text + begin, end - begin);",
                "            const int32_t spelled = @_spelled(text + begin, end - begin, work->characters);",
                f"            {call}",
                "            for (int32_t k = count; k < count + added; ++k)",
                f"                memcpy(work->looks + k * {width}, work->look, sizeof work->look);",
                "        }\n",
            ]
        )
        inputs.append("work->looks")
    if "sequence" in p.graphs:
        run = f"    {driver.core.printers['sequence'].call(inputs, ['work->scores'], ['count'])}\n"
    else:  # step by step: each step reads the previous tag
        driver.work += [f"float scores[{longest * len(p.labels)}];", "@_state own;"]
        init = "    @_init(&work->own);\n"
        run = (
            "    for (int32_t k = 0; k < count; ++k)\n"
            "        @_step(&work->own, work, work->ids[k], work->scores + k * @@_CLASSES);\n"
        )
        driver.step("int32_t token", ["&token"], "scores", "Read one token; write the scores of its tags.")
    choose = "    @_viterbi(work, found, tags);\n" if p.settings.get("crf") else ARGMAX
    driver.parts.append(TAG_WORDS % {"init": init, "spell": SPELL, "look": look, "run": run, "choose": choose})
    if "sequence" in p.graphs and "step" in p.graphs:
        if "word" in p.graphs:
            driver.step(
                "int32_t token, const float *look",
                ["&token", "look"],
                "scores",
                "Read one token; write the scores of its tags.",
            )
        else:
            driver.step("int32_t token", ["&token"], "scores", "Read one token; write the scores of its tags.")
    driver.use = f'{driver.prefix}_predict(&work, "a line of words", tags, most)'
