"""The interface of a header, by what a model does: the functions a program calls.

language      init, step(token), encode, text, choose, predict: a prompt and what follows it
writer        predict: a source (or a label) to what is written for it
classifier    predict: a text, steps of numbers or a row to probabilities; init and step where it reads forward
tagger        predict: a tag for each word or step; init and step likewise
transcriber   predict: labels of the best path
forecaster    predict: values to the quantiles of what follows
numbers       predict: numbers to a number
"""

from __future__ import annotations

import torch

from recur.errors import OptionError
from recur.export.c_core import Core
from recur.export.c_grams import grams
from recur.export.c_interface import (
    ADD,
    CLASSIFY_NUMBERS,
    CLASSIFY_TEXT,
    FORECAST,
    LABEL,
    LIKELIEST,
    POSITIVE,
    ROW,
    STACK,
    TAG_NUMBERS,
    TAG_TOKENS,
    TRANSCRIBE,
    VITERBI,
)
from recur.export.c_layout import TYPES
from recur.export.c_text import Texts, decoder
from recur.export.c_words import words
from recur.export.c_writing import CHOOSE, NEVER, language_body, writer_text
from recur.export.graphs import Graph, Portable
from recur.export.lowered import largest


class Driver:
    """The text of one, piece by piece."""

    def __init__(self, portable: Portable, core: Core, longest: int) -> None:
        self.portable, self.core, self.longest = portable, core, longest
        self.prefix = core.prefix
        self.texts = Texts(core.prefix)
        self.state: list[str] = []
        """Members of the struct of state."""
        self.work: list[str] = []
        """Members of the struct of work memory, beside those of the graphs."""
        self.parts: list[str] = []
        self.defines: dict[str, int] = {"LONGEST": longest}
        self.use = ""

    # Pieces -----------------------------------------------------------------------------------------------------

    def labels(self, labels: tuple[str, ...]) -> None:
        spelled = [label.encode() + b"\0" for label in labels]
        at = [0]
        for one in spelled:
            at.append(at[-1] + len(one))
        self.texts.parts.append(self.texts.array("unsigned char @_label_bytes", list(b"".join(spelled))))
        self.texts.parts.append(self.texts.array("int32_t @_label_at", at))
        self.texts.parts.append(LABEL)
        self.defines["CLASSES"] = len(labels)

    def carries(self, graph: Graph) -> None:
        """A state, its beginning, and the buffers into which a step writes the next one."""
        function, lines = self.core.functions[graph.name], list[str]()
        for name in graph.carried:
            buffer = next(b for b in function.inputs if b.name == name)
            size, kind = largest(buffer.size, {}), TYPES[buffer.kind]
            self.state.append(f"{kind} {name}[{size}];")
            self.work.append(f"{kind} next_{name}[{size}];")
            begin = self.portable.start.get(name)
            if begin is None or not bool((begin != 0).any()):
                lines.append(f"    memset(state->{name}, 0, sizeof state->{name});")
            else:
                array = f"@_start_{name}"
                self.texts.parts.append(self.texts.array(f"{kind} {array}", begin.reshape(-1).tolist(), begin.dtype))
                lines.append(f"    memcpy(state->{name}, {array}, sizeof state->{name});")
        body = lines or ["    (void)state;", "    state->none = 0;"]
        if not lines:
            self.state.append("char none;")
        text = ["/* The state before the first step. */", "@@_API void @_init(@_state *state) {", *body, "}"]
        self.parts.append("\n".join(text))

    def step(self, given: str, passed: list[str], output: str, returns: str) -> None:
        """`step(state, work, given…, output)`, by the graph of that name."""
        graph = self.portable.graphs["step"]
        carried = list(graph.carried)
        rest = iter(passed)
        inputs = [f"state->{v.name}" if v.name in carried else next(rest) for v in graph.inputs]
        outputs = [f"work->next_{v.name}" if v.name in carried else output for v in graph.outputs]
        # A token that there is not is read as <unk>: no number given from outside is a place in memory.
        known = [f"    if (token < 0 || token >= {v.below}) token = 0;" for v in graph.inputs if v.name == "token"]
        lines = [f"    {self.core.printers['step'].call(inputs, outputs, [])}"]
        lines += [f"    memcpy(state->{name}, work->next_{name}, sizeof state->{name});" for name in carried]
        if not carried:
            lines.append("    (void)state;")
            if "work)" not in lines[0]:
                lines.append("    (void)work;")
        lines = known + lines
        sizes = ", ".join([given, f"float *{output}"])
        text = [f"/* {returns} */", f"@@_API void @_step(@_state *state, @_work *work, {sizes}) {{", *lines, "}"]
        self.parts.append("\n".join(text))

    # By kind ----------------------------------------------------------------------------------------------------

    def language(self) -> None:
        p, graph = self.portable, self.portable.graphs["step"]
        vocab = p.vocabs["vocab"]
        self.defines["VOCABULARY"] = len(vocab)
        self.texts.encoder("vocab", vocab)
        decoder(self.texts, "vocab", vocab)
        self.carries(graph)
        self.work += [f"float logits[{len(vocab)}];", f"int32_t ids[{self.longest}];"]
        self.step("int32_t token", ["&token"], "logits", "One token in; the logits of the next.")
        self.parts += [CHOOSE, NEVER % self._never()]
        known = vocab.tokenizer.kind == "subword"
        turned = bool(p.settings["backward"])
        self.parts.append(language_body(int(p.settings["first"]), turned, known))
        self.use = f'{self.prefix}_predict(&state, &work, "prompt", text, sizeof text, 200, 0.8f, 42)'

    def _never(self) -> str:
        return " ".join(f"logits[{k}] = -(float)INFINITY;" for k in self.portable.settings["never"])

    def writer(self) -> None:
        p = self.portable
        source, target = p.vocabs[str(p.settings["source"])], p.vocabs[str(p.settings["target"])]
        pairs = p.task == "seq2seq"
        self.defines["VOCABULARY"] = len(target)
        if pairs:
            self.texts.encoder("source", source)
        else:
            self.texts.table("labels", source.tokens)
        self.texts.table("target", target.tokens)
        decoder(self.texts, "target", target)
        self.parts += [CHOOSE, NEVER % self._never()]
        encode, step = p.graphs["encode"], p.graphs["step"]
        for graph, outputs in ((encode, "made"), (step, "next")):
            function = self.core.functions[graph.name]
            for value, buffer in zip(graph.outputs, function.outputs, strict=True):
                size = max(largest(buffer.size, function.letters), 1)
                self.work.append(f"{TYPES[buffer.kind]} {outputs}_{value.name}[{size}];")
        made = {value.name for value in encode.outputs}
        for value in step.inputs:
            if value.name not in made and value.name != "token":
                size = largest(next(b for b in self.core.functions["step"].inputs if b.name == value.name).size, {})
                self.work.append(f"{TYPES_OF[value.dtype]} made_{value.name}[{size}];")
        longest = min(int(p.settings["longest"]), self.longest) if p.settings["stop"] != "source" else self.longest
        self.work.append(f"int32_t ids[{max(longest, self.longest) + 1}];")
        self.parts.append(writer_text(p, self.core, longest))
        given = '"a source"' if pairs else f'"{p.vocabs["labels"].tokens[4]}"'
        self.use = f"{self.prefix}_predict(&work, {given}, text, sizeof text, 0.0f, 1)"

    def classifier(self) -> None:
        p = self.portable
        self.labels(p.labels)
        if "row" in p.graphs:
            self._row("float *probabilities", "probabilities")
            return
        if "step" in p.graphs:
            self.carries(p.graphs["step"])
        call = self.core.printers["sequence"].call
        if p.settings["reads"] == "tokens":
            vocab = p.vocabs["vocab"]
            self.texts.encoder("vocab", vocab)
            self.work.append(f"int32_t ids[{self.longest}];")
            inputs, letters, more = ["work->ids"], ["count"], ""
            if "grams" in p.settings:
                more = grams(self, p.vocabs["ngrams"], self.longest)
                inputs, letters = [*inputs, "work->grams", "work->counts"], ["found", "count"]
            self.parts.append(CLASSIFY_TEXT % (more, call(inputs, ["probabilities"], letters)))
            self.use = f'{self.prefix}_label({self.prefix}_predict(&work, "a text", probabilities))'
            if "step" in p.graphs:
                self.step(
                    "int32_t token", ["&token"], "log_p", "One token more: log-probabilities of the classes so far."
                )
        else:
            self._signals(CLASSIFY_NUMBERS % call(["work->x"], ["probabilities"], ["count"]))
            self.use = f"{self.prefix}_label({self.prefix}_predict(&work, x, steps, probabilities))"
            if "step" in p.graphs:
                self.step("const float *x", ["x"], "log_p", "One step more: log-probabilities of the classes so far.")

    def _signals(self, text: str) -> None:
        """What reads steps of numbers, several of them stacked to one."""
        D, stack = int(self.portable.settings["features"]), int(self.portable.settings["stack"])
        self.defines |= {"FEATURES": D, "STACK": stack}
        self.work.append(f"float x[{self.longest * D * stack}];")
        self.parts += [STACK, text]

    def tagger(self) -> None:
        p = self.portable
        self.labels(p.labels)
        K = len(p.labels)
        if "step" in p.graphs:
            self.carries(p.graphs["step"])
        if "sequence" in p.graphs:
            self.work.append(f"float scores[{self.longest * (K + (p.kind == 'transcriber'))}];")
        if p.settings.get("crf"):
            for name, table in p.tables.items():
                self.texts.parts.append(self.texts.array(f"float @_{name}", table.reshape(-1).tolist(), torch.float32))
            self.work += [f"double path[{self.longest * K}];", f"int32_t back[{self.longest * K}];"]
            self.parts.append(VITERBI)
        if p.settings.get("words"):
            words(self)
        elif p.settings["reads"] == "tokens":
            self._tokens()
        else:
            call = self.core.printers["sequence"].call(["work->x"], ["work->scores"], ["count"])
            body = TRANSCRIBE if p.kind == "transcriber" else TAG_NUMBERS
            self._signals(body % call)
            self.use = f"{self.prefix}_predict(&work, x, steps, labels)"
            if "step" in p.graphs:
                self.step("const float *x", ["x"], "scores", "One step more: the scores of its labels.")

    def _tokens(self) -> None:
        """Of tokens that are numbers."""
        if "sequence" in self.portable.graphs:
            call = self.core.printers["sequence"].call(["tokens"], ["work->scores"], ["count"])
            self.parts.append(TAG_TOKENS % (self.portable.graphs["sequence"].inputs[0].below, call))
        if "step" in self.portable.graphs:
            self.step("int32_t token", ["&token"], "scores", "One token more: the scores of its label.")
        self.use = f"{self.prefix}_predict(&work, tokens, count, labels)"

    def forecaster(self) -> None:
        p, graph = self.portable, self.portable.graphs["forecast"]
        s, function = p.settings, self.core.functions["forecast"]
        self.defines |= {"HORIZON": int(s["horizon"]), "QUANTILES": len(s["quantiles"]), "SEASON": int(s["season"])}
        self.defines |= {"LEAST": max(graph.least.get("T", 1), 1), "VARIABLES": int(graph.outputs[0].shape[2])}
        arguments, inputs = ["const double *values, int32_t T"], ["values"]
        for value in graph.inputs[1:]:
            one = len(value.shape) == 1
            arguments.append(f"int32_t {value.name}" if one else f"const double *{value.name}_")
            inputs.append(f"&{value.name}" if one else f"{value.name}_")
        call = self.core.printers["forecast"].call(inputs, ["quantiles"], list(function.letters))
        checks = "T < @@_LEAST || T > @@_LONGEST"
        for value in graph.inputs[1:]:
            if value.below and len(value.shape) == 1:
                checks += f" || {value.name} < 0 || {value.name} >= {value.below}"
        if s.get("positive"):
            checks += " || !@_positive(values, T * @@_VARIABLES)"
            self.parts.append(POSITIVE)
        self.parts.append(FORECAST % (", ".join(arguments), checks, call))
        more = "".join(f", {value.name}" for value in graph.inputs[1:])
        self.use = f"{self.prefix}_predict(&work, values, steps{more}, quantiles)"

    def numbers(self) -> None:
        if "row" in self.portable.graphs:
            self._row("double *value", "value")
            return
        self.defines["FEATURES"] = int(self.portable.settings["features"])
        call = self.core.printers["sequence"].call(["x"], ["&value"], ["steps"])
        self.parts.append(ADD % call)
        self.use = f"{self.prefix}_predict(&work, x, steps)"

    def _row(self, output: str, name: str) -> None:
        s = self.portable.settings
        self.defines |= {"NUMBERS": len(s["numbers"]), "WORDS": len(s["words"])}
        self.parts.append(
            ROW
            % (
                output,
                self.core.printers["row"].call(["numbers", "words"], [name], []),
                LIKELIEST % () if name == "probabilities" else "    return 0;",
            )
        )
        self.use = f"{self.prefix}_predict(&work, numbers, words, {name})"

    def write(self) -> None:
        kinds = {
            "language": self.language, "writer": self.writer, "classifier": self.classifier, "tagger": self.tagger,
            "transcriber": self.tagger, "forecaster": self.forecaster, "numbers": self.numbers,
        }  # fmt: skip
        if self.portable.kind not in kinds:
            raise OptionError(f"models of the kind {self.portable.kind} are not written in C")
        kinds[self.portable.kind]()


TYPES_OF = {torch.float32: "float", torch.float64: "double", torch.int64: "int32_t"}
