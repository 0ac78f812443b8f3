"""Writing in C: choosing the next token, what follows a prompt, what is written for a source."""

from __future__ import annotations

from recur.export.c_core import Core
from recur.export.graphs import Portable

CHOOSE = """\
/* The next token, drawn from logits, which are changed: by a temperature (0 takes the likeliest), among the top_k
   likeliest (0 is all) and among those that together have probability top_p (1 is all). `seed` goes on with each. */
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
    if (top_k > 0 || top_p < 1.0f) { /* down from the likeliest, until there are enough */
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
"""

NEVER = """\
/* Tokens that stand for something else are never written. */
static void @_never(float *logits) {
    %s
}
"""

_LANGUAGE = """\
/* What follows a prompt (both end with a 0): so many tokens at most, drawn by a temperature (0 takes the likeliest).
   The state is begun anew, and stays behind the last token read. How many bytes were written, or -1 of a prompt with a
   token that was never seen, or that is longer than LONGEST tokens. */
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
"""

_FORWARD = """\
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
"""

_BACKWARD = """\
    (void)before;
    for (count = 0; count < length && count < @@_LONGEST; ++count) {
        @_never(work->logits);
        token = @_choose(work->logits, temperature, 0, 1.0f, &seed);
        work->ids[count] = token;
        if (count + 1 < length) @_step(state, work, token, work->logits);
    }
    for (int32_t k = count; k-- > 0;) { /* the last one written stands first */
        const int32_t added = @_text(k + 1 < count ? work->ids[k + 1] : -1, work->ids[k], text + made, size - 1 - made);
        if (added < 0) break;
        made += added;
    }
"""


def language_body(first: int, turned: bool, any_text: bool) -> str:
    """What a language model writes behind a prompt; before it, if it is turned."""
    known = "" if any_text else "    for (int32_t k = 0; k < count; ++k)\n        if (work->ids[k] == 0) return -1;\n"
    write = _BACKWARD if turned else _FORWARD
    return _LANGUAGE % {"known": known, "first": first, "turn": "count - 1 - k" if turned else "k", "write": write}


_WRITER = """\
/* What is written for %(what)s, with an end of 0: the likeliest symbol at each step, or drawn by a temperature above 0.
   How many bytes, or -1 of %(none)s. */
@@_API int32_t @_predict(
    @_work *work, const char *%(name)s, char *text, int32_t size, float temperature, uint64_t seed) {
%(body)s
}
"""


def writer_text(p: Portable, core: Core, longest: int) -> str:
    pairs = p.task == "seq2seq"
    words = {"what": "a source", "none": "one without a symbol, or with too many", "name": "source"}
    if not pairs:
        words = {"what": "a label", "none": "an unknown one", "name": "label"}
    return _WRITER % {**words, "body": _writer_body(p, core, pairs, longest)}


def _writer_body(p: Portable, core: Core, pairs: bool, longest: int) -> str:
    encode, step, s = p.graphs["encode"], p.graphs["step"], p.settings
    made = [f"work->made_{value.name}" for value in encode.outputs]
    lines = [f"int32_t made = 0, before = -1, count = 0, most = {longest}, token = {int(s['first'])};"]
    if pairs:
        lines += [
            "const int32_t S = @_encode_source(source, (int32_t)strlen(source), work->ids, @@_LONGEST);",
            "if (S < 1 || S == @@_LONGEST || size < 1) return -1;",
            core.printers["encode"].call(["work->ids"], made, ["S"]),
        ]
    else:
        lines += [
            "const int32_t id = @_find_labels(label, (int32_t)strlen(label));",
            "if (id < 4 || size < 1) return -1;",
            core.printers["encode"].call(["&id"], made, []),
        ]
    for value in step.inputs:
        if value.name in ("t", "fed"):
            lines.append(f"memset(work->made_{value.name}, 0, sizeof work->made_{value.name});")
    if s["stop"] == "length":
        lines += [
            "{",
            "    int32_t best = 1;",
            f"    for (int32_t k = 2; k <= {int(s['longest'])}; ++k)",
            "        if (work->made_log_length[k] > work->made_log_length[best]) best = k;",
            "    work->made_left[0] = best;",
            "}",
        ]
    elif s["stop"] == "source":
        lines += ["work->made_left[0] = S;", "most = S;"]
    inputs = ["&token" if value.name == "token" else f"work->made_{value.name}" for value in step.inputs]
    outputs = [f"work->next_{value.name}" for value in step.outputs]
    letters = ["S"] if core.functions["step"].letters else []
    carried = step.carried
    lines += [
        "for (count = 0; count <= most; ++count) {",
        f"    {core.printers['step'].call(inputs, outputs, letters)}",
        *(f"    memcpy(work->made_{name}, work->next_{name}, sizeof work->made_{name});" for name in carried),
        "    @_never(work->next_logp);",
        "    token = @_choose(work->next_logp, temperature, 0, 1.0f, &seed);",
        f"    if (token == {int(s['end'])} || count == most) break;",
        "    work->ids[count] = token;",
        "}",
        "for (int32_t k = 0; k < count; ++k) {",
        f"    const int32_t id_ = work->ids[{'count - 1 - k' if s['backward'] else 'k'}];",
        "    const int32_t added = @_text(before, id_, text + made, size - 1 - made);",
        "    if (added < 0) break;",
        "    made += added;",
        "    before = id_;",
        "}",
        "text[made] = 0;",
        "return made;",
    ]
    return "\n".join(f"    {line}" for line in lines)
