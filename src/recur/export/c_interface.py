"""The functions that a program calls, as text: see c_drivers.py, which fills them in."""

from __future__ import annotations

LABEL = """\
/* The name of a class. */
@@_API const char *@_label(int32_t k) {
    return (const char *)@_label_bytes + @_label_at[k];
}
"""

LIKELIEST = """\
    {
        int32_t best = 0;
        for (int32_t k = 0; k < @@_CLASSES; ++k)
            if (probabilities[k] > probabilities[best]) best = k;
        for (int32_t k = 0; k < @@_CLASSES; ++k) probabilities[k] = expf(probabilities[k]);
        return best;
    }"""

CLASSIFY_TEXT = f"""\
/* The likeliest class of a text, which ends with a 0, and the probability of each; -1 of a text without a token. Of a
   longer text, the first LONGEST tokens are read. */
@@_API int32_t @_predict(@_work *work, const char *text, float *probabilities) {{
    const int32_t length = (int32_t)strlen(text), count = @_encode_vocab(text, length, work->ids, @@_LONGEST);
    if (count < 1) return -1;
%s    %s
{LIKELIEST}
}}
"""

STACK = """\
/* Steps of FEATURES numbers, every STACK of them as one, the last repeated where it must be: how many there are. */
static int32_t @_stacked(@_work *work, const float *x, int32_t steps) {
    const int32_t count = steps < 1 || steps > @@_LONGEST * @@_STACK ? -1 : (steps - 1) / @@_STACK + 1;
    for (int32_t k = 0; k < count * @@_STACK; ++k)
        memcpy(work->x + k * @@_FEATURES, x + (k < steps ? k : steps - 1) * @@_FEATURES, @@_FEATURES * sizeof(float));
    return count;
}
"""

CLASSIFY_NUMBERS = f"""\
/* The likeliest class of steps of FEATURES numbers each, and the probability of each class; -1 of none, or too many. */
@@_API int32_t @_predict(@_work *work, const float *x, int32_t steps, float *probabilities) {{
    const int32_t count = @_stacked(work, x, steps);
    if (count < 1) return -1;
    %s
{LIKELIEST}
}}
"""

TAG_NUMBERS = """\
/* The likeliest label of every step, or of every STACK of them: how many there are, or -1 of none, or too many. */
@@_API int32_t @_predict(@_work *work, const float *x, int32_t steps, int32_t *labels) {
    const int32_t count = @_stacked(work, x, steps);
    if (count < 1) return -1;
    %s
    for (int32_t t = 0; t < count; ++t) {
        const float *const scores = work->scores + t * @@_CLASSES;
        labels[t] = 0;
        for (int32_t k = 1; k < @@_CLASSES; ++k)
            if (scores[k] > scores[labels[t]]) labels[t] = k;
    }
    return count;
}
"""

TAG_TOKENS = (
    TAG_NUMBERS.replace("const float *x, int32_t steps,", "const int32_t *tokens, int32_t count,")
    .replace(
        "    const int32_t count = @_stacked(work, x, steps);\n    if (count < 1) return -1;",
        "    if (count < 1 || count > @@_LONGEST) return -1;\n"
        "    for (int32_t t = 0; t < count; ++t)\n"
        "        if (tokens[t] < 0 || tokens[t] >= %d) return -1;",
    )
    .replace("every step, or of every STACK of them", "every token")
    .replace("of none, or too many", "of none, too many, or one that there is not")
)

TRANSCRIBE = """\
/* The labels of the likeliest path, blanks and repeats taken out: how many there are, at most as many as steps; -1 of
   no steps, or too many. */
@@_API int32_t @_predict(@_work *work, const float *x, int32_t steps, int32_t *labels) {
    const int32_t count = @_stacked(work, x, steps);
    int32_t made = 0, before = @@_CLASSES;
    if (count < 1) return -1;
    %s
    for (int32_t t = 0; t < count; ++t) {
        const float *const scores = work->scores + t * (@@_CLASSES + 1);
        int32_t best = 0;
        for (int32_t k = 1; k <= @@_CLASSES; ++k)
            if (scores[k] > scores[best]) best = k;
        if (best != before && best != @@_CLASSES) labels[made++] = best;
        before = best;
    }
    return made;
}
"""

VITERBI = """\
/* The likeliest tags of words whose scores lie in `scores`, by what moves between tags are worth. */
static void @_viterbi(@_work *work, int32_t count, int32_t *tags) {
    double *const path = work->path;
    int32_t best = 0;
    for (int32_t k = 0; k < @@_CLASSES; ++k) path[k] = (double)@_moves_start[k] + (double)work->scores[k];
    for (int32_t t = 1; t < count; ++t)
        for (int32_t k = 0; k < @@_CLASSES; ++k) {
            const double *const before = path + (t - 1) * @@_CLASSES;
            int32_t from = 0;
            double most = before[0] + (double)@_moves_between[k];
            for (int32_t j = 1; j < @@_CLASSES; ++j) {
                const double score = before[j] + (double)@_moves_between[j * @@_CLASSES + k];
                if (score > most) {
                    most = score;
                    from = j;
                }
            }
            path[t * @@_CLASSES + k] = most + (double)work->scores[t * @@_CLASSES + k];
            work->back[t * @@_CLASSES + k] = from;
        }
    for (int32_t k = 0; k < @@_CLASSES; ++k) path[(count - 1) * @@_CLASSES + k] += (double)@_moves_end[k];
    for (int32_t k = 1; k < @@_CLASSES; ++k)
        if (path[(count - 1) * @@_CLASSES + k] > path[(count - 1) * @@_CLASSES + best]) best = k;
    for (int32_t t = count - 1; t >= 0; --t) {
        tags[t] = best;
        if (t) best = work->back[t * @@_CLASSES + best];
    }
}
"""

POSITIVE = """\
static int32_t @_positive(const double *values, int32_t count) {
    for (int32_t k = 0; k < count; ++k)
        if (!(values[k] > 0.0)) return 0;
    return 1;
}
"""

FORECAST = """\
/* Quantiles (HORIZON, VARIABLES, QUANTILES) of what follows T steps of VARIABLES values without gaps, in their units;
   0, or -1 where T or another number is none that was learned from. */
@@_API int32_t @_predict(@_work *work, %s, double *quantiles) {
    if (%s) return -1;
    %s
    return 0;
}
"""

ADD = """\
/* The number for steps of FEATURES numbers each; not a number, for none or too many. */
@@_API float @_predict(@_work *work, const float *x, int32_t steps) {
    float value = (float)NAN;
    if (steps < 1 || steps > @@_LONGEST) return value;
    %s
    return value;
}
"""

ROW = """\
/* A row of a table: its NUMBERS, NAN where one is missing, and its WORDS as ones and zeros. */
@@_API int32_t @_predict(@_work *work, const double *numbers, const float *words, %s) {
    %s
%s
}
"""
