/* Functions that a program calls: prediction, sampling, Viterbi. c_header.py fills in the `%` fields. */

/// label
/* Return the name of class k, 0 to CLASSES - 1; an empty string for any other number, such as -1 from predict. */
@@_API const char *@_label(int32_t k) {
    if (k < 0 || k >= @@_CLASSES) return "";
    return (const char *)@_label_bytes + @_label_at[k];
}

/// likeliest
    {
        int32_t best = 0;
        for (int32_t k = 0; k < @@_CLASSES; ++k)
            if (probabilities[k] > probabilities[best]) best = k;
        for (int32_t k = 0; k < @@_CLASSES; ++k) probabilities[k] = expf(probabilities[k]);
        return best;
    }

/// classify_text
/* Classify a null-terminated text: return the most likely class and write the probability of each. Return -1 if the
   text has no token. Only the first LONGEST tokens are read. */
@@_API int32_t @_predict(@_work *work, const char *text, float *probabilities) {
    const int32_t length = (int32_t)strlen(text), count = @_encode_vocab(text, length, work->ids, @@_LONGEST);
    if (count < 1) return -1;
%(ngrams)s    %(call)s
%(likeliest)s}

/// label_text
/* Find the labels of a null-terminated text: write the probability of each label, and 1 to `chosen` where it reaches the
   label's threshold, else 0. Return the number of chosen labels, or -1 if the text has no token. Only the first LONGEST
   tokens are read. */
@@_API int32_t @_predict(@_work *work, const char *text, float *probabilities, unsigned char *chosen) {
    static const float thresholds[@@_CLASSES] = {%(thresholds)s};
    const int32_t length = (int32_t)strlen(text), count = @_encode_vocab(text, length, work->ids, @@_LONGEST);
    int32_t made = 0;
    if (count < 1) return -1;
    %(call)s
    for (int32_t k = 0; k < @@_CLASSES; ++k) {
        probabilities[k] = expf(probabilities[k]);
        chosen[k] = probabilities[k] >= thresholds[k];
        made += chosen[k];
    }
    return made;
}

/// stack_steps
/* Stack every STACK steps of FEATURES numbers to one, padding with the last step; return the number of steps. */
static int32_t @_stacked(@_work *work, const float *x, int32_t steps) {
    const int32_t count = steps < 1 || steps > @@_LONGEST * @@_STACK ? -1 : (steps - 1) / @@_STACK + 1;
    for (int32_t k = 0; k < count * @@_STACK; ++k)
        memcpy(work->x + k * @@_FEATURES, x + (k < steps ? k : steps - 1) * @@_FEATURES, @@_FEATURES * sizeof(float));
    return count;
}

/// classify_numbers
/* Classify steps of FEATURES numbers: return the most likely class and write the probabilities; -1: bad length. */
@@_API int32_t @_predict(@_work *work, const float *x, int32_t steps, float *probabilities) {
    const int32_t count = @_stacked(work, x, steps);
    if (count < 1) return -1;
    %(call)s
%(likeliest)s}

/// tag_numbers
/* Write the most likely label of every STACK steps; return their number, or -1 if there are none or too many. */
@@_API int32_t @_predict(@_work *work, const float *x, int32_t steps, int32_t *labels) {
    const int32_t count = @_stacked(work, x, steps);
    if (count < 1) return -1;
    %(call)s
    for (int32_t t = 0; t < count; ++t) {
        const float *const scores = work->scores + t * @@_CLASSES;
        labels[t] = 0;
        for (int32_t k = 1; k < @@_CLASSES; ++k)
            if (scores[k] > scores[labels[t]]) labels[t] = k;
    }
    return count;
}

/// tag_tokens
/* Write the most likely label of every token; return their number, or -1 if there are none, too many, or an id is out of range. */
@@_API int32_t @_predict(@_work *work, const int32_t *tokens, int32_t count, int32_t *labels) {
    if (count < 1 || count > @@_LONGEST) return -1;
    for (int32_t t = 0; t < count; ++t)
        if (tokens[t] < 0 || tokens[t] >= %(below)d) return -1;
    %(call)s
    for (int32_t t = 0; t < count; ++t) {
        const float *const scores = work->scores + t * @@_CLASSES;
        labels[t] = 0;
        for (int32_t k = 1; k < @@_CLASSES; ++k)
            if (scores[k] > scores[labels[t]]) labels[t] = k;
    }
    return count;
}

/// transcribe
/* Write the labels of the most likely path without blanks and repeats (CTC); return their number, at most the number
   of steps, or -1 if there are no steps or too many. */
@@_API int32_t @_predict(@_work *work, const float *x, int32_t steps, int32_t *labels) {
    const int32_t count = @_stacked(work, x, steps);
    int32_t made = 0, before = @@_CLASSES;
    if (count < 1) return -1;
    %(call)s
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

/// viterbi
/* Viterbi: find the most likely tags from the scores of words and the transition scores between tags. */
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

/// tag_words
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

/// encode_word
        work->line[0] = ' ';
        if (end - at > (int32_t)sizeof work->line - 2) return -1;
        memcpy(work->line + 1, text + at, (size_t)(end - at));
        added = count ? @_encode_vocab(work->line, end - at + 1, work->ids + count, @@_LONGEST - count)
                      : @_encode_vocab(work->line + 1, end - at, work->ids, @@_LONGEST);
        if (!added) work->ids[count + added++] = 0;
        (void)begin;

/// look_at_word
        {
            const int32_t casing = @_casing(text + begin, end - begin);
            const int32_t spelled = @_spelled(text + begin, end - begin, work->characters);
            %(call)s
            for (int32_t k = count; k < count + added; ++k)
                memcpy(work->looks + k * %(width)d, work->look, sizeof work->look);
        }

/// likeliest_tags
    for (int32_t k = 0; k < found; ++k) {
        const float *const scores = work->scores + k * @@_CLASSES;
        tags[k] = 0;
        for (int32_t j = 1; j < @@_CLASSES; ++j)
            if (scores[j] > scores[tags[k]]) tags[k] = j;
    }

/// positive
static int32_t @_positive(const double *values, int32_t count) {
    for (int32_t k = 0; k < count; ++k)
        if (!(values[k] > 0.0)) return 0;
    return 1;
}

/// forecast
/* Forecast: write quantiles (HORIZON, VARIABLES, QUANTILES) after T steps of VARIABLES values without gaps, in the
   units of the values. Return 0, or -1 if T or another argument is out of range. */
@@_API int32_t @_predict(@_work *work, %(arguments)s, double *quantiles) {
    if (%(checks)s) return -1;
    %(call)s
    return 0;
}

/// predict_number
/* Predict a number from steps of FEATURES numbers; NaN if there are none or too many. */
@@_API float @_predict(@_work *work, const float *x, int32_t steps) {
    float value = (float)NAN;
    if (steps < 1 || steps > @@_LONGEST) return value;
    %(call)s
    return value;
}

/// choose
/* Sample the next token from logits, which are overwritten. temperature 0: the most likely token; top_k 0: all tokens;
   top_p 1: all tokens. `seed` is the state of the random number generator and is advanced. */
@@_API int32_t @_choose(float *logits, float temperature, int32_t top_k, float top_p, uint64_t *seed) {
    int32_t best = 0, last = -1, kept = 0;
    double total = 0.0, whole = 0.0, draw, least = 0.0;
    for (int32_t k = 1; k < @@_VOCABULARY; ++k)
        if (logits[k] > logits[best]) best = k;
    if (!(temperature > 0.0f)) return best;
    {
        const float most = logits[best];
        for (int32_t k = 0; k < @@_VOCABULARY; ++k) {
            logits[k] = expf((logits[k] - most) / temperature);
            whole += (double)logits[k];
        }
    }
    if (top_k > 0 || top_p < 1.0f) { /* lower the threshold until enough tokens are kept */
        double level = 2.0;
        for (;;) {
            double next = 0.0;
            int32_t equal = 0;
            for (int32_t k = 0; k < @@_VOCABULARY; ++k)
                if ((double)logits[k] < level && (double)logits[k] > next) next = (double)logits[k];
            for (int32_t k = 0; k < @@_VOCABULARY; ++k) equal += (double)logits[k] >= next && (double)logits[k] < level;
            if (next <= 0.0) break;
            least = level = next;
            kept += equal;
            total += next * equal;
            if ((top_k > 0 && kept >= top_k) || (top_p < 1.0f && total >= (double)top_p * whole)) break;
        }
        whole = 0.0;
        for (int32_t k = 0; k < @@_VOCABULARY; ++k)
            if ((double)logits[k] >= least) whole += (double)logits[k];
    }
    *seed += 0x9E3779B97F4A7C15u;
    {
        uint64_t z = *seed;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        draw = (double)(z >> 11) / 9007199254740992.0 * whole;
    }
    for (int32_t k = 0; k < @@_VOCABULARY; ++k) {
        if (!((double)logits[k] > 0.0) || (double)logits[k] < least) continue;
        last = k;
        draw -= (double)logits[k];
        if (draw < 0.0) return k;
    }
    return last < 0 ? best : last;
}

/// exclude_tokens
/* Exclude special tokens from sampling. */
static void @_never(float *logits) {
    %(never)s
}

/// continue_prompt
/* Continue a prompt with at most `length` tokens, sampled with a temperature (0: most likely). Both strings are
   null-terminated. The state is reset first and afterwards includes the last token read. Return the number of bytes
   written; -1 if the prompt has an unknown token or more than LONGEST tokens. */
@@_API int32_t @_predict(
    @_state *state, @_work *work, const char *prompt, char *text, int32_t size, int32_t length, float temperature,
    uint64_t seed) {
    const int32_t bytes = (int32_t)strlen(prompt);
    int32_t count = @_encode_vocab(prompt, bytes, work->ids, @@_LONGEST), made = 0, before = -1, token;
    if (count == @@_LONGEST || size < 1) return -1;
%(known)s    @_init(state);
    @_step(state, work, %(first)d, work->logits);
    for (int32_t k = 0; k < count; ++k) @_step(state, work, work->ids[%(turn)s], work->logits);
    if (count) before = work->ids[count - 1];
%(write)s    text[made] = 0;
    return made;
}

/// generate_forward
    for (int32_t k = 0; k < length; ++k) {
        int32_t added;
        @_never(work->logits);
        token = @_choose(work->logits, temperature, 0, 1.0f, &seed);
        added = @_text(before, token, text + made, size - 1 - made);
        if (added < 0) break;
        made += added;
        before = token;
        if (k + 1 < length) @_step(state, work, token, work->logits);
    }

/// generate_backward
    (void)before;
    for (count = 0; count < length && count < @@_LONGEST; ++count) {
        @_never(work->logits);
        token = @_choose(work->logits, temperature, 0, 1.0f, &seed);
        work->ids[count] = token;
        if (count + 1 < length) @_step(state, work, token, work->logits);
    }
    for (int32_t k = count; k-- > 0;) { /* the text is generated from its end */
        const int32_t added = @_text(k + 1 < count ? work->ids[k + 1] : -1, work->ids[k], text + made, size - 1 - made);
        if (added < 0) break;
        made += added;
    }

/// write_text
/* Write a null-terminated text for %(what)s: the most likely symbol at each step (temperature 0) or a sample. Return
   the number of bytes, or -1 for %(none)s. */
@@_API int32_t @_predict(
    @_work *work, const char *%(name)s, char *text, int32_t size, float temperature, uint64_t seed) {
    int32_t made = 0, before = -1, count = 0, most = %(most)d, token = %(first)d;
%(read)s%(start)s    for (count = 0; count <= most; ++count) {
%(step)s        @_never(work->next_logp);
        token = @_choose(work->next_logp, temperature, 0, 1.0f, &seed);
        if (token == %(end)d || count == most) break;
        work->ids[count] = token;
    }
    for (int32_t k = 0; k < count; ++k) {
        const int32_t id_ = work->ids[%(turn)s];
        const int32_t added = @_text(before, id_, text + made, size - 1 - made);
        if (added < 0) break;
        made += added;
        before = id_;
    }
    text[made] = 0;
    return made;
}

/// read_source
    const int32_t S = @_encode_source(source, (int32_t)strlen(source), work->ids, @@_LONGEST);
    if (S < 1 || S == @@_LONGEST || size < 1) return -1;
    %(call)s

/// read_label
    const int32_t id = @_find_labels(label, (int32_t)strlen(label));
    if (id < 4 || size < 1) return -1;
    %(call)s

/// length_of_source
    work->made_left[0] = S;
    most = S;

/// likeliest_length
    {
        int32_t best = 1;
        for (int32_t k = 2; k <= %(longest)d; ++k)
            if (work->made_log_length[k] > work->made_log_length[best]) best = k;
        work->made_left[0] = best;
    }

/// self_test
#ifdef RECUR_SELFTEST
#include <stdio.h>
%(arrays)s
static double @_worse(double worst, double a, double b) {
    const double size = fabs(b) > 1.0 ? fabs(b) : 1.0;
    if (a == b || (a != a && b != b)) return worst;
    return fabs(a - b) / size <= worst ? worst : fabs(a - b) / size;
}
int main(void) {
    double worst = 0.0;
    int32_t k;
%(lines)s
    printf("@: largest difference %%.3g\n", worst);
    return worst <= %(tolerance)s ? 0 : 1;
}
#endif
