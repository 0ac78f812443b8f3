"""Export to C: a trained model as one C99 header without dependencies and without allocation.

    #include "model.h"

    static model_work work;         scratch memory: one per thread
    model_state state;              state of a model that reads step by step: one per sequence

Tables, weights and functions are static and start with the model's prefix, so that several headers can be included in
one program. With -DRECUR_SELFTEST the header is a program that compares its graphs with vectors from Python.

The interface depends on the kind of model:

    language       init, step(token), encode, text, choose, predict: continue a prompt
    writer         predict: a source or a label to a text
    classifier     predict: a text or steps of numbers to probabilities; init and step if it reads forward
    tagger         predict: one tag per word or step; init and step if it reads forward
    transcriber    predict: labels of the best path
    forecaster     predict: values to quantiles of the forecast
    numbers        predict: numbers to a number
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from recur.errors import OptionError, RecurError
from recur.export import ExportOptions, ExportResult
from recur.export.artifacts import keep_files
from recur.export.c_features import print_ngram_counter, print_word_tagger
from recur.export.c_graphs import (
    CGraphs,
    insert_prefix,
    print_graphs,
    print_includes,
    print_self_test,
    print_work_struct,
)
from recur.export.c_interface import (
    CHOOSE,
    CLASSIFY_NUMBERS,
    CLASSIFY_TEXT,
    EXCLUDE_TOKENS,
    LABEL,
    POSITIVE,
    PREDICT_FORECAST,
    PREDICT_NUMBER,
    STACK_STEPS,
    TAG_NUMBERS,
    TAG_TOKENS,
    TRANSCRIBE,
    VITERBI,
    print_language_model,
    print_writer,
)
from recur.export.c_printer import C_KINDS
from recur.export.c_text import VocabularyPrinter, print_decoder
from recur.export.escaping import c_bytes, c_comment, c_string
from recur.export.graphs import Graph, PortableModel
from recur.export.loop_ir import max_size


class InterfacePrinter:
    """Printer of a header's interface."""

    def __init__(self, portable: PortableModel, core: CGraphs, longest: int) -> None:
        self.portable, self.core, self.longest = portable, core, longest
        self.prefix = core.prefix
        self.texts = VocabularyPrinter(core.prefix)
        self.state: list[str] = []
        """Members of the state struct."""
        self.work: list[str] = []
        """Members of the work struct beside those of the graphs."""
        self.parts: list[str] = []
        self.defines: dict[str, int] = {"LONGEST": longest}
        self.use = ""

    # Pieces -----------------------------------------------------------------------------------------------------

    def labels(self, labels: tuple[str, ...]) -> None:
        spelled = [c_bytes(label) + b"\0" for label in labels]
        at = [0]
        for one in spelled:
            at.append(at[-1] + len(one))
        self.texts.parts.append(self.texts.array("unsigned char @_label_bytes", list(b"".join(spelled))))
        self.texts.parts.append(self.texts.array("int32_t @_label_at", at))
        self.texts.parts.append(LABEL)
        self.defines["CLASSES"] = len(labels)

    def carries(self, graph: Graph) -> None:
        """Print the state, its initial value, and buffers for the next state."""
        function, lines = self.core.functions[graph.name], list[str]()
        for name in graph.carried:
            buffer = next(b for b in function.inputs if b.name == name)
            size, kind = max_size(buffer.size, {}), C_KINDS[buffer.kind]
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
        text = ["/* Initialise the state before the first step. */", "@@_API void @_init(@_state *state) {", *body, "}"]
        self.parts.append("\n".join(text))

    def step(self, given: str, passed: list[str], output: str, returns: str) -> None:
        """Print `step(state, work, given…, output)`, which calls the graph `step`."""
        graph = self.portable.graphs["step"]
        carried = list(graph.carried)
        rest = iter(passed)
        inputs = [f"state->{v.name}" if v.name in carried else next(rest) for v in graph.inputs]
        outputs = [f"work->next_{v.name}" if v.name in carried else output for v in graph.outputs]
        # An id outside of the vocabulary is read as <unk>, so that no caller can index outside of an array.
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
        print_decoder(self.texts, "vocab", vocab)
        self.carries(graph)
        self.work += [f"float logits[{len(vocab)}];", f"int32_t ids[{self.longest}];"]
        self.step("int32_t token", ["&token"], "logits", "Read one token; write the logits of the next token.")
        self.parts += [CHOOSE, EXCLUDE_TOKENS % self._never()]
        known = vocab.tokenizer.kind == "subword"
        turned = bool(p.settings["backward"])
        self.parts.append(print_language_model(int(p.settings["first"]), turned, known))
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
        print_decoder(self.texts, "target", target)
        self.parts += [CHOOSE, EXCLUDE_TOKENS % self._never()]
        encode, step = p.graphs["encode"], p.graphs["step"]
        for graph, outputs in ((encode, "made"), (step, "next")):
            function = self.core.functions[graph.name]
            for value, buffer in zip(graph.outputs, function.outputs, strict=True):
                size = max(max_size(buffer.size, function.letters), 1)
                self.work.append(f"{C_KINDS[buffer.kind]} {outputs}_{value.name}[{size}];")
        made = {value.name for value in encode.outputs}
        for value in step.inputs:
            if value.name not in made and value.name != "token":
                size = max_size(next(b for b in self.core.functions["step"].inputs if b.name == value.name).size, {})
                self.work.append(f"{C_TYPES[value.dtype]} made_{value.name}[{size}];")
        longest = min(int(p.settings["longest"]), self.longest) if p.settings["stop"] != "source" else self.longest
        self.work.append(f"int32_t ids[{max(longest, self.longest) + 1}];")
        self.parts.append(print_writer(p, self.core, longest))
        given = '"a source"' if pairs else c_string(p.vocabs["labels"].tokens[4])
        self.use = f"{self.prefix}_predict(&work, {given}, text, sizeof text, 0.0f, 1)"

    def classifier(self) -> None:
        p = self.portable
        self.labels(p.labels)
        if "step" in p.graphs:
            self.carries(p.graphs["step"])
        call = self.core.printers["sequence"].call
        if p.settings["reads"] == "tokens":
            vocab = p.vocabs["vocab"]
            self.texts.encoder("vocab", vocab)
            self.work.append(f"int32_t ids[{self.longest}];")
            inputs, letters, more = ["work->ids"], ["count"], ""
            if "grams" in p.settings:
                more = print_ngram_counter(self, p.vocabs["ngrams"], self.longest)
                inputs, letters = [*inputs, "work->grams", "work->counts"], ["found", "count"]
            self.parts.append(CLASSIFY_TEXT % (more, call(inputs, ["probabilities"], letters)))
            self.use = f'{self.prefix}_label({self.prefix}_predict(&work, "a text", probabilities))'
            if "step" in p.graphs:
                self.step(
                    "int32_t token",
                    ["&token"],
                    "log_p",
                    "Read one token; write the log-probabilities of the classes so far.",
                )
        else:
            self._signals(CLASSIFY_NUMBERS % call(["work->x"], ["probabilities"], ["count"]))
            self.use = f"{self.prefix}_label({self.prefix}_predict(&work, x, steps, probabilities))"
            if "step" in p.graphs:
                self.step(
                    "const float *x",
                    ["x"],
                    "log_p",
                    "Read one step; write the log-probabilities of the classes so far.",
                )

    def _signals(self, text: str) -> None:
        """Print an interface that reads steps of numbers, several of them stacked to one."""
        D, stack = int(self.portable.settings["features"]), int(self.portable.settings["stack"])
        self.defines |= {"FEATURES": D, "STACK": stack}
        self.work.append(f"float x[{self.longest * D * stack}];")
        self.parts += [STACK_STEPS, text]

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
            print_word_tagger(self)
        elif p.settings["reads"] == "tokens":
            self._tokens()
        else:
            call = self.core.printers["sequence"].call(["work->x"], ["work->scores"], ["count"])
            body = TRANSCRIBE if p.kind == "transcriber" else TAG_NUMBERS
            self._signals(body % call)
            self.use = f"{self.prefix}_predict(&work, x, steps, labels)"
            if "step" in p.graphs:
                self.step("const float *x", ["x"], "scores", "Read one step; write the scores of its labels.")

    def _tokens(self) -> None:
        """Print an interface that tags token ids."""
        if "sequence" in self.portable.graphs:
            call = self.core.printers["sequence"].call(["tokens"], ["work->scores"], ["count"])
            self.parts.append(TAG_TOKENS % (self.portable.graphs["sequence"].inputs[0].below, call))
        if "step" in self.portable.graphs:
            self.step("int32_t token", ["&token"], "scores", "Read one token; write the scores of its labels.")
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
        self.parts.append(PREDICT_FORECAST % (", ".join(arguments), checks, call))
        more = "".join(f", {value.name}" for value in graph.inputs[1:])
        self.use = f"{self.prefix}_predict(&work, values, steps{more}, quantiles)"

    def numbers(self) -> None:
        self.defines["FEATURES"] = int(self.portable.settings["features"])
        call = self.core.printers["sequence"].call(["x"], ["&value"], ["steps"])
        self.parts.append(PREDICT_NUMBER % call)
        self.use = f"{self.prefix}_predict(&work, x, steps)"

    def write(self) -> None:
        kinds = {
            "language": self.language, "writer": self.writer, "classifier": self.classifier, "tagger": self.tagger,
            "transcriber": self.tagger, "forecaster": self.forecaster, "numbers": self.numbers,
        }  # fmt: skip
        if self.portable.kind not in kinds:
            raise OptionError(f"models of the kind {self.portable.kind} cannot be exported to C")
        kinds[self.portable.kind]()


C_TYPES = {torch.float32: "float", torch.float64: "double", torch.int64: "int32_t"}


TAKES = {"quantize", "longest", "name"}

COMPILERS = ("cc", "gcc", "clang")
"""C compilers for the self-test, in order of preference."""

MAX_LONGEST = 1 << 20
"""Maximum of --longest: offsets are 32-bit integers."""

KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while main
    class new delete this namespace template operator private public protected virtual bool true false""".split()  # noqa: SIM905
)
"""Keywords of C and C++, and main: not allowed as a prefix."""


def write(portable: PortableModel, path: Path, options: ExportOptions) -> ExportResult:
    """Write the header after its self-test passes, if a compiler is installed."""
    prefix = check_name(options.name)
    if not 1 <= options.longest <= MAX_LONGEST:
        raise OptionError(f"--longest must be a whole number, 1 to {MAX_LONGEST:,}, got {options.longest}")
    made, use, text = header(portable, prefix, options.longest, bool(options.quantize))
    difference = run_self_test(text)
    data = text.encode()
    keep_files({path: data})
    floats = "8-bit" if options.quantize else "float32"
    holds = f"{portable.task}: {made.weight_bytes:,} bytes of {floats} weights and tables, {len(data):,} of text"
    missing = ("no C compiler was found, so the self-test was not run: cc -DRECUR_SELFTEST -x c FILE -lm",)
    notes = (*portable.notes, *(missing if difference is None else ()))
    return ExportResult((path,), len(data), difference, holds, use, notes)


def check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,40}", name) or name in KEYWORDS:
        raise OptionError(f"--name must be a C identifier of letters, digits and _, got {name!r}")
    return name


class Header(NamedTuple):
    """Text of a header with what it was printed from."""

    graphs: CGraphs
    use: str
    """Call of the interface, as a line of C."""
    text: str


def header(portable: PortableModel, prefix: str, longest: int, quantize: bool = False) -> Header:
    """Return the text of a header."""
    least = max((graph.least.get("T", 1) for graph in portable.graphs.values()), default=1)
    if longest < least:
        raise OptionError(f"--longest must be at least {least} for this model, got {longest}")
    if portable.kind == "language":  # reads text step by step, in constant memory
        portable = replace(portable, graphs={"step": portable.graphs["step"]})
    made = print_graphs(portable, prefix, longest, quantize)
    driver = InterfacePrinter(portable, made, longest)
    driver.write()
    state = [f"typedef struct {{\n{_members(driver.state)}\n}} @_state;"] if driver.state else []
    defines = [f"#define @@_{name} {value}" for name, value in driver.defines.items()]
    parts = [
        _opening_comment(portable, prefix, driver.use, quantize),
        "#ifndef @@_H\n#define @@_H",
        print_includes(prefix),
        "\n".join(defines),
        *state,
        print_work_struct(made, driver.work),
        made.text,
        *driver.texts.text(),
        *driver.parts,
        print_self_test(made, portable.graphs, quantize, bool(portable.settings.get("positive"))),
        "#endif",
    ]
    text = insert_prefix("\n\n".join(part.rstrip() for part in parts), prefix) + "\n"
    # Functions that a program does not call must not cause warnings: they are marked as unused.
    text = re.sub(r"^static (?=(?:const )?\w+ \*?\w+\()", f"{prefix.upper()}_API ", text, flags=re.MULTILINE)
    return Header(made, f"{driver.use};", text)


def _members(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _opening_comment(portable: PortableModel, prefix: str, use: str, quantize: bool) -> str:
    """Return the comment at the top of a header."""
    facts = "; ".join(f"{name} {value}" for name, value in portable.facts.items() if name != "run")
    weights = "8 bits with one scale per row" if quantize else "float32"
    lines = [
        f"Trained model, exported by recur: {c_comment(facts)}.",
        f"Weights: {weights}. Needs a C99 compiler and its math library; allocates no memory.",
        "",
        f"    static {prefix}_work work;",
        f"    {c_comment(use)};",
        "",
        f"Test it: cc -O3 -DRECUR_SELFTEST -x c {prefix}.h -lm && ./a.out",
    ]
    return "/* " + "\n   ".join(lines) + " */"


def run_self_test(text: str) -> float | None:
    """Compile and run the self-test; return the largest difference, or None without a compiler. A failure raises
    RecurError."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="recur-") as folder:
        source, program = Path(folder) / "model.h", Path(folder) / "test"
        source.write_text(text, encoding="utf-8")
        command = [compiler, "-std=c99", "-O1", "-DRECUR_SELFTEST", "-x", "c", str(source), "-o", str(program), "-lm"]
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if built.returncode:
            lines = built.stderr.strip().splitlines() or ["no message"]
            said = next((line for line in lines if "error" in line), lines[-1]).removeprefix(f"{source}:")
            raise RecurError(f"{compiler} cannot compile the header: {said}; no file was written")
        ran = subprocess.run([str(program)], cwd=folder, capture_output=True, text=True)
    found = re.search(r"difference (\S+)", ran.stdout)
    if ran.returncode or found is None:
        raise RecurError(f"the header's self-test failed: {ran.stdout.strip() or ran.returncode}; no file was written")
    return float(found[1])
