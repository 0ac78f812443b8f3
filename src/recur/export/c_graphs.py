"""Graphs of a model in C: weights, work memory, one function per graph, and a self-test with vectors from Python.

A float matrix is stored in blocks of 32 rows, column by column: the 32 numbers of a column are adjacent. A product
then adds one column to 32 sums with vector instructions and needs no horizontal sum. The last block has the remaining
rows. An 8-bit matrix is stored row by row with one scale per row, because compilers recognise its integer dot product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recur.export.artifacts import example_inputs
from recur.export.c_prelude import FUNCTIONS, HEAD, prelude
from recur.export.c_printer import C_KINDS, CPrinter, WeightLayout
from recur.export.graphs import Graph, PortableModel, is_quantized, quantize_rows
from recur.export.loop_ir import Buffer, LoopFunction
from recur.export.lowering import lower_graphs

LINE_WIDTH = 116
"""Maximum number of characters in a line of numbers."""


def to_row_blocks(matrix: Tensor) -> Tensor:
    """Return a matrix (rows, columns) flattened in its storage order."""
    return torch.cat([part.t().reshape(-1) for part in matrix.split(32)])


def print_weights(layout: WeightLayout) -> Iterator[str]:
    """Yield all weights as arrays, in the order of first use."""
    for buffer in layout.weights:
        assert buffer.value is not None
        name, value = layout.name(buffer), buffer.value
        if buffer not in layout.matrices:
            yield c_array(f"{C_KINDS[buffer.kind]} {name}", value, layout.prefix)
        elif layout.matrices[buffer]:
            q, scale = quantize_rows(value)
            yield c_array(f"signed char {name}", q, layout.prefix)
            yield c_array(f"float {name}_scale", scale, layout.prefix)
        else:
            yield c_array(f"{C_KINDS[buffer.kind]} {name}", to_row_blocks(value), layout.prefix)


def count_weight_bytes(layout: WeightLayout) -> int:
    """Return the memory that the weights take in a program."""
    total = 0
    for buffer in layout.weights:
        assert buffer.value is not None
        rows, each = buffer.value.shape[0] if buffer.value.dim() else 1, buffer.value.element_size()
        narrow = layout.matrices.get(buffer, False)
        total += buffer.value.numel() + 4 * rows if narrow else buffer.value.numel() * (4 if each == 1 else each)
    return total


def c_array(declared: str, value: Tensor, prefix: str) -> str:
    flat, prefix = value.detach().cpu().reshape(-1), prefix.upper()
    return f"{prefix}_DATA {declared}[{max(flat.numel(), 1)}] = {{\n{wrap_lines(c_literals(flat, prefix))}\n}};"


def c_literals(flat: Tensor, prefix: str) -> list[str]:
    """Return numbers as C literals; infinities are macros of the header that are constants for every compiler."""
    if flat.dtype == torch.float64:
        return [_literal(repr(x), prefix) for x in flat.tolist()] or ["0"]
    if flat.dtype == torch.float32:
        return [_literal(f"{x:.9g}", prefix) + ("f" if np.isfinite(x) else "") for x in flat.tolist()] or ["0"]
    return [str(int(x)) for x in flat.tolist()] or ["0"]


def _literal(text: str, prefix: str) -> str:
    if "inf" in text:
        return f"{prefix}_BELOW_ALL" if text.startswith("-") else f"{prefix}_ABOVE_ALL"
    if "nan" in text:
        return "NAN"
    return text if "." in text or "e" in text else f"{text}.0"


def wrap_lines(parts: Sequence[str]) -> str:
    """Join with commas and break into lines."""
    lines, line, size = list[str](), list[str](), 0
    for part in parts:
        if size + len(part) > LINE_WIDTH and line:
            lines.append(",".join(line))
            line, size = [], 0
        line.append(part)
        size += len(part) + 1
    lines.append(",".join(line))
    return ",\n".join(lines)


SELF_TEST_SIZES = {"T": 5, "S": 4, "N": 3}
"""Sizes of the inputs of the self-test; at least the minimum of the graph."""


@dataclass
class CGraphs:
    """Printed graphs of a model: the part of a header behind its interface."""

    prefix: str
    functions: dict[str, LoopFunction]
    printers: dict[str, CPrinter]
    layout: WeightLayout
    text: str
    """Weights and functions; the work struct precedes them."""
    work: dict[str, int]
    """Number of elements of each member of the work memory."""

    @property
    def weight_bytes(self) -> int:
        return count_weight_bytes(self.layout)


def print_graphs(portable: PortableModel, prefix: str, longest: int, quantize: bool) -> CGraphs:
    graphs = portable.graphs
    functions, _ = lower_graphs(graphs, longest, quantize)

    def narrow(buffer: Buffer) -> bool:
        return quantize and buffer.value is not None and is_quantized(buffer.value)

    layout = WeightLayout(prefix, functions.values(), narrow)
    printers = {name: CPrinter(function, layout) for name, function in functions.items()}
    bodies = {name: printer.text() for name, printer in printers.items()}
    needed = {f"{op}_{kind[0]}" for printer in printers.values() for op, kind in printer.used}
    parts = [*print_weights(layout)]
    text = "\n\n".join([*(cell for p in printers.values() for cell in p.cells), *bodies.values()])
    needed |= {name for name in FUNCTIONS if f"{prefix}_{name}(" in text}
    parts += [insert_prefix(prelude(needed), prefix), text]
    work = {field: max(p.places.sizes[field] for p in printers.values()) for field in "fdn"}
    return CGraphs(prefix, functions, printers, layout, "\n\n".join(parts), work)


def print_includes(prefix: str) -> str:
    return insert_prefix(HEAD, prefix)


# The self-test ----------------------------------------------------------------------------------------------------


def make_test_vectors(
    graph: Graph, function: LoopFunction, quantize: bool, positive: bool
) -> tuple[list[Tensor], tuple[Tensor, ...], dict[str, int]]:
    """Return inputs, Python's outputs and the sizes that were used."""
    tested = {letter: max(size, graph.least.get(letter, 1) + 1) for letter, size in SELF_TEST_SIZES.items()}
    sizes = {letter: min(size, function.letters.get(letter, size)) for letter, size in tested.items()}
    given = example_inputs(graph, {"B": 1, **sizes}, 10, positive)
    return given, (graph.with_eight_bits() if quantize else graph)(*given), sizes


def print_self_test(made: CGraphs, graphs: Mapping[str, Graph], quantize: bool, positive: bool) -> str:
    """Return the code behind RECUR_SELFTEST: vectors, and a main that reports the largest difference.

    Outputs of both sides are sums of float32 in different orders, so the test compares with a tolerance and not for
    equality.
    """
    P, arrays_, lines = made.prefix, list[str](), list[str]()
    for name, graph in graphs.items():
        function = made.functions[name]
        given, expected, sizes = make_test_vectors(graph, function, quantize, positive)
        inputs, outputs, checks = list[str](), list[str](), list[str]()
        for value, buffer, part in zip(graph.inputs, function.inputs, given, strict=True):
            array_name = f"{P}_test_{name}_in_{value.name}"
            arrays_.append(c_array(f"{C_KINDS[buffer.kind]} {array_name}", part, P))
            inputs.append(array_name)
        for value, buffer, part in zip(graph.outputs, function.outputs, expected, strict=True):
            array_name = f"{P}_test_{name}_out_{value.name}"
            kind = C_KINDS[buffer.kind]
            arrays_.append(c_array(f"{kind} {array_name}", part, P))
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
            f"    return worst <= {QUANTIZED_TOLERANCE if quantize else FLOAT_TOLERANCE} ? 0 : 1;",
            "}",
            "#endif",
        ]
    )


FLOAT_TOLERANCE = 1e-4
"""Rounding of float32 over a few steps is about 1e-6; a wrong sign is about 0.1."""

QUANTIZED_TOLERANCE = 1e-3
"""With 8-bit weights, the inputs of products are rounded to 16 bits."""


def print_work_struct(made: CGraphs, more: Sequence[str] = ()) -> str:
    """Return the struct of the work memory, with further members of the interface."""
    kinds = {"f": "float", "d": "double", "n": "int32_t"}
    members = [f"    {kinds[field]} {field}[{size}];" for field, size in made.work.items() if size]
    members += [f"    {line}" for line in more]
    return "\n".join(["typedef struct {", *(members or ["    char none;"]), f"}} {made.prefix}_work;"])


def insert_prefix(text: str, prefix: str) -> str:
    """Replace @ by the prefix and @@ by the prefix in capitals."""
    return text.replace("@@", prefix.upper()).replace("@", prefix)
