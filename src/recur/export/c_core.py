"""A model's graphs as C: weights, work memory, a function for each graph, and vectors from Python to test them with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from recur.export.c_layout import TYPES, Layout
from recur.export.c_prelude import FUNCTIONS, HEAD, prelude
from recur.export.c_printer import Printer
from recur.export.c_weights import array, arrays, weight_bytes
from recur.export.compare import examples
from recur.export.graphs import Graph, Portable
from recur.export.lowered import Function
from recur.export.lowered_values import Buffer
from recur.export.lowering import lowered
from recur.export.quantise import is_eight_bit

TESTED = {"T": 5, "S": 4, "N": 3}
"""Sizes of what a self-test reads, or the least that a graph reads."""


@dataclass
class Core:
    """The text of all that is behind a model's own interface."""

    prefix: str
    functions: dict[str, Function]
    printers: dict[str, Printer]
    layout: Layout
    text: str
    """Weights and functions; the struct of work memory stands before it."""
    work: dict[str, int]
    """How many numbers of each kind the work memory has."""

    @property
    def weight_bytes(self) -> int:
        return weight_bytes(self.layout)


def core(portable: Portable, prefix: str, longest: int, quantize: bool) -> Core:
    graphs = portable.graphs
    functions, _ = lowered(graphs, longest, quantize)

    def narrow(buffer: Buffer) -> bool:
        return quantize and buffer.value is not None and is_eight_bit(buffer.value)

    layout = Layout(prefix, functions.values(), narrow)
    printers = {name: Printer(function, layout) for name, function in functions.items()}
    bodies = {name: printer.text() for name, printer in printers.items()}
    needed = {f"{op}_{kind[0]}" for printer in printers.values() for op, kind in printer.used}
    parts = [*arrays(layout)]
    text = "\n\n".join([*(cell for p in printers.values() for cell in p.cells), *bodies.values()])
    needed |= {name for name in FUNCTIONS if f"{prefix}_{name}(" in text}
    parts += [named(prelude(needed), prefix), text]
    work = {field: max(p.places.sizes[field] for p in printers.values()) for field in "fdn"}
    return Core(prefix, functions, printers, layout, "\n\n".join(parts), work)


def head(prefix: str) -> str:
    return named(HEAD, prefix)


# The self-test ----------------------------------------------------------------------------------------------------


def vectors(
    graph: Graph, function: Function, quantize: bool, positive: bool
) -> tuple[list[Tensor], tuple[Tensor, ...], dict[str, int]]:
    """Inputs, what Python makes of them, and the sizes that were taken."""
    tested = {letter: max(size, graph.least.get(letter, 1) + 1) for letter, size in TESTED.items()}
    sizes = {letter: min(size, function.letters.get(letter, size)) for letter, size in tested.items()}
    given = examples(graph, {"B": 1, **sizes}, 10, positive)
    return given, (graph.with_eight_bits() if quantize else graph)(*given), sizes


def self_test(made: Core, graphs: Mapping[str, Graph], quantize: bool, positive: bool) -> str:
    """The text behind RECUR_SELFTEST: vectors, and a main that says how far off the header's own numbers are."""
    P, arrays_, lines = made.prefix, list[str](), list[str]()
    for name, graph in graphs.items():
        function = made.functions[name]
        given, expected, sizes = vectors(graph, function, quantize, positive)
        inputs, outputs, checks = list[str](), list[str](), list[str]()
        for value, buffer, part in zip(graph.inputs, function.inputs, given, strict=True):
            array_name = f"{P}_test_{name}_in_{value.name}"
            arrays_.append(array(f"{TYPES[buffer.kind]} {array_name}", part, P))
            inputs.append(array_name)
        for value, buffer, part in zip(graph.outputs, function.outputs, expected, strict=True):
            array_name = f"{P}_test_{name}_out_{value.name}"
            kind = TYPES[buffer.kind]
            arrays_.append(array(f"{kind} {array_name}", part, P))
            lines.append(f"    static {kind} {name}_{value.name}[{max(part.numel(), 1)}];")
            outputs.append(f"{name}_{value.name}")
            checks.append(
                f"    for (k = 0; k < {part.numel()}; ++k) worst = {P}_worse(worst, (double){name}_{value.name}[k], "
                f"(double){array_name}[k]);"
            )
        letters = [str(sizes[letter]) for letter in function.letters]
        lines.append(f"    {made.printers[name].call(inputs, outputs, letters)}")
        lines += checks
    work = f"    static {P}_work memory, *const work = &memory;\n" if "work)" in "".join(lines) else ""
    return "\n".join(
        [
            "#ifdef RECUR_SELFTEST",
            "#include <stdio.h>",
            *arrays_,
            f"static double {P}_worse(double worst, double a, double b) {{",
            "    const double size = fabs(b) > 1.0 ? fabs(b) : 1.0;",
            "    if (a == b || (a != a && b != b)) return worst;",
            "    return fabs(a - b) / size <= worst ? worst : fabs(a - b) / size;",
            "}",
            "int main(void) {",
            "    double worst = 0.0;",
            "    int32_t k;",
            f"{work}" + "\n".join(lines),
            f'    printf("{P}: largest difference %.3g\\n", worst);',
            f"    return worst <= {ROUNDED if quantize else TOLERANCE} ? 0 : 1;",
            "}",
            "#endif",
        ]
    )


TOLERANCE = 1e-4
"""Rounding of float32 over a few steps is a hundredth of it, a wrong sign a thousand times as much."""

ROUNDED = 1e-3
"""Where what weights of 8 bits multiply is rounded to 16."""


def struct_of(made: Core, more: Sequence[str] = ()) -> str:
    """The work memory, with what a driver needs beside."""
    kinds = {"f": "float", "d": "double", "n": "int32_t"}
    members = [f"    {kinds[field]} {field}[{size}];" for field, size in made.work.items() if size]
    members += [f"    {line}" for line in more]
    return "\n".join(["typedef struct {", *(members or ["    char none;"]), f"}} {made.prefix}_work;"])


def named(text: str, prefix: str) -> str:
    """With the model's name in its places."""
    return text.replace("@@", prefix.upper()).replace("@", prefix)
