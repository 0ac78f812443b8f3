"""Taggers of words in C: a line's words, spelled in tokens, what they look like, and their tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.export.c_characters import bit
from recur.export.lowered import largest

if TYPE_CHECKING:
    from recur.export.c_drivers import Driver

LONGEST_WORD = 32
"""Characters that are read of a word: of a longer one its beginning and its end."""

CASING = """\
/* How a word is written, as recur.data.text.tokenizers has it. */
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
/* The characters of a word, and how many they are; of a long one those at its ends. */
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

PREDICT = """\
/* Tags of the words of a line, which stand between spaces: how many words there are, or -1 of none, of more than
   `most`, or of a line of more than LONGEST tokens. */
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
%(run)s    for (int32_t k = 0; k < found; ++k) /* a word's scores stand at its last token */
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


def words(driver: Driver) -> None:
    """The interface of a tagger of texts."""
    p, texts, longest = driver.portable, driver.texts, driver.longest
    texts.encoder("vocab", p.vocabs["vocab"])
    driver.work += [f"int32_t ids[{longest}];", f"int32_t ends[{longest}];", "char line[1024];"]
    look, init, inputs = "", "", ["work->ids"]
    if "word" in p.graphs:
        texts.table("characters", p.vocabs["characters"].tokens)
        texts.asked |= {"alpha", "digit", "upper", "lower", "title"}
        names = {name: bit(name) for name in ("alpha", "digit", "upper", "lower", "title")}
        texts.parts += [CASING % names, SPELLED % {"longest": LONGEST_WORD, "half": LONGEST_WORD // 2}]
        width = largest(driver.core.functions["word"].outputs[0].size, {})
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
    else:  # one step after the other, each behind the tag before
        driver.work += [f"float scores[{longest * len(p.labels)}];", "@_state own;"]
        init = "    @_init(&work->own);\n"
        run = (
            "    for (int32_t k = 0; k < count; ++k)\n"
            "        @_step(&work->own, work, work->ids[k], work->scores + k * @@_CLASSES);\n"
        )
        driver.step("int32_t token", ["&token"], "scores", "One token more: the scores of its tag.")
    choose = "    @_viterbi(work, found, tags);\n" if p.settings.get("crf") else ARGMAX
    driver.parts.append(PREDICT % {"init": init, "spell": SPELL, "look": look, "run": run, "choose": choose})
    if "sequence" in p.graphs and "step" in p.graphs:
        if "word" in p.graphs:
            driver.step(
                "int32_t token, const float *look", ["&token", "look"], "scores", "One token more: its tag's scores."
            )
        else:
            driver.step("int32_t token", ["&token"], "scores", "One token more: the scores of its tag.")
    driver.use = f'{driver.prefix}_predict(&work, "a line of words", tags, most)'
