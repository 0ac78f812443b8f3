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
    network        init, step(x, output): a bare network, step by step
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

from recur.data.text import SPECIALS, Vocab
from recur.errors import OptionError, RecurError
from recur.export import ExportOptions, ExportResult
from recur.export.artifacts import keep_files
from recur.export.c_graphs import (
    CGraphs,
    c_sections,
    insert_prefix,
    print_graphs,
    print_includes,
    print_self_test,
    print_work_struct,
)
from recur.export.c_printer import C_KINDS
from recur.export.escaping import c_bytes, c_comment, c_string
from recur.export.graphs import Graph, PortableModel
from recur.export.loop_ir import max_size
from recur.export.tokenizers import VocabularyPrinter

LONGEST_WORD = 32
"""Maximum number of characters of a word; the middle of a longer word is skipped."""

ZEROS = ("t", "fed")
"""Inputs of a decoder's step that begin with zeros."""


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

    def add(self, section: str, **fields: object) -> None:
        """Print a section of c/interface.c with its fields filled in."""
        text = c_sections("interface")[section]
        self.parts.append(text % fields if fields else text)

    def labels(self, labels: tuple[str, ...]) -> None:
        self.texts.strings("label", [c_bytes(label) + b"\0" for label in labels])
        self.texts.parts.append(c_sections("interface")["label"])
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
        vocab, backward = p.vocabs["vocab"], bool(p.settings["backward"])
        self.texts.encoder("vocab", vocab)
        self.texts.decoder("vocab", vocab)
        self.carries(graph)
        self.work += [f"float logits[{len(vocab)}];", f"int32_t ids[{self.longest}];"]
        self.step("int32_t token", ["&token"], "logits", "Read one token; write the logits of the next token.")
        self._sampling(len(vocab))
        known = "    for (int32_t k = 0; k < count; ++k)\n        if (work->ids[k] == 0) return -1;\n"
        self.add(
            "continue_prompt",
            known="" if vocab.tokenizer.kind == "subword" else known,
            first=int(p.settings["first"]),
            turn="count - 1 - k" if backward else "k",
            write=c_sections("interface")["generate_backward" if backward else "generate_forward"],
        )
        self.use = f'{self.prefix}_predict(&state, &work, "prompt", text, sizeof text, 200, 0.8f, 42)'

    def _sampling(self, size: int) -> None:
        """Print the functions that choose the next token of a vocabulary of this size."""
        self.defines["VOCABULARY"] = size
        self.add("choose")
        never = self.portable.settings["never"]
        self.add("exclude_tokens", never=" ".join(f"logits[{k}] = -(float)INFINITY;" for k in never))

    def writer(self) -> None:
        p, s = self.portable, self.portable.settings
        source, target = p.vocabs[str(s["source"])], p.vocabs[str(s["target"])]
        pairs = p.task == "seq2seq"
        if pairs:
            self.texts.encoder("source", source)
        else:
            self.texts.table("labels", source.tokens)
        self.texts.table("target", target.tokens)
        self.texts.decoder("target", target)
        self._sampling(len(target))
        encode, step = p.graphs["encode"], p.graphs["step"]
        for graph, outputs in ((encode, "made"), (step, "next")):
            function = self.core.functions[graph.name]
            for value, buffer in zip(graph.outputs, function.outputs, strict=True):
                size = max(max_size(buffer.size, function.letters), 1)
                self.work.append(f"{C_KINDS[buffer.kind]} {outputs}_{value.name}[{size}];")
        made = {"token", *(value.name for value in encode.outputs)}
        for buffer in self.core.functions["step"].inputs:
            if buffer.name not in made:
                self.work.append(f"{C_KINDS[buffer.kind]} made_{buffer.name}[{max_size(buffer.size, {})}];")
        longest = min(int(s["longest"]), self.longest) if s["stop"] != "source" else self.longest
        self.work.append(f"int32_t ids[{max(longest, self.longest) + 1}];")
        words = {"what": "a label", "none": "an unknown label", "name": "label"}
        if pairs:
            words = {"what": "a source", "none": "a source without symbols or with too many", "name": "source"}
        self.add("write_text", **words, **self._writer_fields(pairs, longest))
        given = '"a source"' if pairs else c_string(source.tokens[4])
        self.use = f"{self.prefix}_predict(&work, {given}, text, sizeof text, 0.0f, 1)"

    def _writer_fields(self, pairs: bool, longest: int) -> dict[str, object]:
        """Return the fields of the section `write_text`."""
        sections, s = c_sections("interface"), self.portable.settings
        encode, step = self.portable.graphs["encode"], self.portable.graphs["step"]
        made = [f"work->made_{value.name}" for value in encode.outputs]
        given, letters = (["work->ids"], ["S"]) if pairs else (["&id"], [])
        call = self.core.printers["encode"].call(given, made, letters)
        start = [f"memset(work->made_{v.name}, 0, sizeof work->made_{v.name});" for v in step.inputs if v.name in ZEROS]
        begin = "".join(f"    {line}\n" for line in start)
        if s["stop"] == "length":
            begin += sections["likeliest_length"] % {"longest": int(s["longest"])}
        elif s["stop"] == "source":
            begin += sections["length_of_source"]
        inputs = ["&token" if value.name == "token" else f"work->made_{value.name}" for value in step.inputs]
        outputs = [f"work->next_{value.name}" for value in step.outputs]
        letters = ["S"] if self.core.functions["step"].letters else []
        lines = [self.core.printers["step"].call(inputs, outputs, letters)]
        lines += [f"memcpy(work->made_{name}, work->next_{name}, sizeof work->made_{name});" for name in step.carried]
        return {
            "read": sections["read_source" if pairs else "read_label"] % {"call": call},
            "start": begin,
            "step": "".join(f"        {line}\n" for line in lines),
            "turn": "count - 1 - k" if s["backward"] else "k",
            "most": longest,
            "first": int(s["first"]),
            "end": int(s["end"]),
        }

    def classifier(self) -> None:
        p = self.portable
        self.labels(p.labels)
        streams = "step" in p.graphs
        if streams:
            self.carries(p.graphs["step"])
        call, likeliest = self.core.printers["sequence"].call, c_sections("interface")["likeliest"]
        if p.settings["reads"] == "tokens":
            self.texts.encoder("vocab", p.vocabs["vocab"])
            self.work.append(f"int32_t ids[{self.longest}];")
            inputs, letters, ngrams = ["work->ids"], ["count"], ""
            if "grams" in p.settings:
                ngrams = self._ngrams(p.vocabs["ngrams"])
                inputs, letters = [*inputs, "work->grams", "work->counts"], ["found", "count"]
            written = call(inputs, ["probabilities"], letters)
            if "thresholds" in p.settings:
                thresholds = ", ".join(f"{float(value):.9g}f" for value in p.settings["thresholds"])
                self.add("label_text", call=written, thresholds=thresholds)
            else:
                self.add("classify_text", ngrams=ngrams, call=written, likeliest=likeliest)
            given, argument, read = '"a text"', "int32_t token", "token"
        else:
            self._signals("classify_numbers", call=call(["work->x"], ["probabilities"], ["count"]), likeliest=likeliest)
            given, argument, read = "x, steps", "const float *x", "step"
        self.use = f"{self.prefix}_label({self.prefix}_predict(&work, {given}, probabilities))"
        if "thresholds" in p.settings:
            self.use = f"{self.prefix}_predict(&work, {given}, probabilities, chosen)"
        if streams:
            passed = ["&token"] if read == "token" else ["x"]
            said = f"Read one {read}; write the log-probabilities of the classes so far."
            self.step(argument, passed, "log_p", said)

    def _ngrams(self, vocab: Vocab) -> str:
        """Print the function that counts the n-grams of a text; return the lines that call it."""
        texts, longest = self.texts, self.longest
        texts.flags.add("word")
        texts.table("ngrams", vocab.tokens)
        assert vocab.tokens[: len(SPECIALS)] == SPECIALS
        self.work += [f"int32_t grams[{longest}];", f"float counts[{longest}];"]
        self.work += [f"char small[{8 * longest}];", f"char line[{8 * longest + 16}];"]
        counter = "word_ngrams" if vocab.tokenizer.kind == "word" else "character_ngrams"
        self.parts += [texts.code(section) for section in ("lowercase_text", "count_ngram", counter)]
        return texts.code("call_ngrams")

    def _signals(self, section: str, **fields: object) -> None:
        """Print an interface that reads steps of numbers, several of them stacked to one."""
        D, stack = int(self.portable.settings["features"]), int(self.portable.settings["stack"])
        self.defines |= {"FEATURES": D, "STACK": stack}
        self.work.append(f"float x[{self.longest * D * stack}];")
        self.add("stack_steps")
        self.add(section, **fields)

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
            self.add("viterbi")
        if p.settings.get("words"):
            self._words()
        elif p.settings["reads"] == "tokens":
            if "sequence" in p.graphs:
                call = self.core.printers["sequence"].call(["tokens"], ["work->scores"], ["count"])
                self.add("tag_tokens", below=p.graphs["sequence"].inputs[0].below, call=call)
            if "step" in p.graphs:
                self.step("int32_t token", ["&token"], "scores", "Read one token; write the scores of its labels.")
            self.use = f"{self.prefix}_predict(&work, tokens, count, labels)"
        else:
            call = self.core.printers["sequence"].call(["work->x"], ["work->scores"], ["count"])
            self._signals("transcribe" if p.kind == "transcriber" else "tag_numbers", call=call)
            self.use = f"{self.prefix}_predict(&work, x, steps, labels)"
            if "step" in p.graphs:
                self.step("const float *x", ["x"], "scores", "Read one step; write the scores of its labels.")

    def _words(self) -> None:
        """Print the interface of a tagger of words."""
        p, longest = self.portable, self.longest
        self.texts.encoder("vocab", p.vocabs["vocab"])
        self.work += [f"int32_t ids[{longest}];", f"int32_t ends[{longest}];", "char line[1024];"]
        look = self._word_features() if "word" in p.graphs else ""
        said, sections = "Read one token; write the scores of its tags.", c_sections("interface")
        init = ""
        if "sequence" in p.graphs:
            inputs = ["work->ids", "work->looks"] if look else ["work->ids"]
            run = f"    {self.core.printers['sequence'].call(inputs, ['work->scores'], ['count'])}\n"
        else:  # step by step: each step reads the previous tag
            self.work += [f"float scores[{longest * len(p.labels)}];", "@_state own;"]
            init = "    @_init(&work->own);\n"
            run = (
                "    for (int32_t k = 0; k < count; ++k)\n"
                "        @_step(&work->own, work, work->ids[k], work->scores + k * @@_CLASSES);\n"
            )
            self.step("int32_t token", ["&token"], "scores", said)
        choose = "    @_viterbi(work, found, tags);\n" if p.settings.get("crf") else sections["likeliest_tags"]
        self.add("tag_words", init=init, spell=sections["encode_word"], look=look, run=run, choose=choose)
        if "sequence" in p.graphs and "step" in p.graphs:
            more = ", const float *look" if look else ""
            self.step(f"int32_t token{more}", ["&token", "look"] if look else ["&token"], "scores", said)
        self.use = f'{self.prefix}_predict(&work, "a line of words", tags, most)'

    def _word_features(self) -> str:
        """Print the functions for characters and casing of a word; return the lines that call them."""
        texts = self.texts
        texts.table("characters", self.portable.vocabs["characters"].tokens)
        texts.parts += [texts.code("casing"), texts.code("spell_word", longest=LONGEST_WORD, half=LONGEST_WORD // 2)]
        width = max_size(self.core.functions["word"].outputs[0].size, {})
        self.work += [f"int32_t characters[{LONGEST_WORD}];", f"float look[{width}];"]
        self.work.append(f"float looks[{self.longest * width}];")
        call = self.core.printers["word"].call(["work->characters", "&casing"], ["work->look"], ["spelled"])
        return c_sections("interface")["look_at_word"] % {"call": call, "width": width}

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
            self.add("positive")
        self.add("forecast", arguments=", ".join(arguments), checks=checks, call=call)
        more = "".join(f", {value.name}" for value in graph.inputs[1:])
        self.use = f"{self.prefix}_predict(&work, values, steps{more}, quantiles)"

    def numbers(self) -> None:
        self.defines["FEATURES"] = int(self.portable.settings["features"])
        call = self.core.printers["sequence"].call(["x"], ["&value"], ["steps"])
        self.add("predict_number", call=call)
        self.use = f"{self.prefix}_predict(&work, x, steps)"

    def network(self) -> None:
        graph = self.portable.graphs["step"]
        inputs = {value.name: value.shape[-1] for value in graph.inputs}
        self.defines = {"INPUTS": int(inputs["x"]), "OUTPUTS": int(graph.outputs[0].shape[-1])}
        self.carries(graph)
        self.step("const float *x", ["x"], "output", "Read one step of @@_INPUTS numbers; write @@_OUTPUTS numbers.")
        self.use = f"{self.prefix}_step(&state, &work, x, output)"

    def write(self) -> None:
        kinds = {
            "language": self.language, "writer": self.writer, "classifier": self.classifier, "tagger": self.tagger,
            "transcriber": self.tagger, "forecaster": self.forecaster, "numbers": self.numbers,
            "network": self.network,
        }  # fmt: skip
        if self.portable.kind not in kinds:
            raise OptionError(f"models of the kind {self.portable.kind} cannot be exported to C")
        kinds[self.portable.kind]()


COMPILERS = ("cc", "gcc", "clang")
"""C compilers for the self-test, in order of preference."""

MAX_LONGEST = 1 << 20
"""Maximum of --max-length: offsets are 32-bit integers."""

KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while main
    class new delete this namespace template operator private public protected virtual bool true false""".split()  # noqa: SIM905
)
"""Keywords of C and C++, and main: not allowed as a prefix."""


def write(portable: PortableModel, path: Path, options: ExportOptions) -> ExportResult:
    """Write the header after its self-test passes, if a compiler is installed."""
    prefix = check_name(options.name)
    if not 1 <= options.max_length <= MAX_LONGEST:
        raise OptionError(f"--max-length must be a whole number, 1 to {MAX_LONGEST:,}, got {options.max_length}")
    made, use, text = header(portable, prefix, options.max_length, bool(options.quantize))
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
        raise OptionError(f"--max-length must be at least {least} for this model, got {longest}")
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
