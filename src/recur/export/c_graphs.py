"""Graphs of a model in C: weights, work memory, one function per graph, and a self-test with vectors from Python.

A float matrix is stored in blocks of 32 rows, column by column: the 32 numbers of a column are adjacent. A product
then adds one column to 32 sums with vector instructions and needs no horizontal sum. The last block has the remaining
rows. An 8-bit matrix is stored row by row with one scale per row, because compilers recognise its integer dot product.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from recur.export.artifacts import example_inputs
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
        """Memory that the weights take in a program."""
        total = 0
        for buffer in self.layout.weights:
            assert buffer.value is not None
            rows, each = buffer.value.shape[0] if buffer.value.dim() else 1, buffer.value.element_size()
            narrow = self.layout.matrices.get(buffer, False)
            total += buffer.value.numel() + 4 * rows if narrow else buffer.value.numel() * (4 if each == 1 else each)
        return total


def print_graphs(portable: PortableModel, prefix: str, longest: int, quantize: bool) -> CGraphs:
    functions, _ = lower_graphs(portable.graphs, longest, quantize)

    def narrow(buffer: Buffer) -> bool:
        return quantize and buffer.value is not None and is_quantized(buffer.value)

    layout = WeightLayout(prefix, functions.values(), narrow)
    printers = {name: CPrinter(function, layout) for name, function in functions.items()}
    bodies = [printer.text() for printer in printers.values()]
    text = "\n\n".join([*(cell for printer in printers.values() for cell in printer.cells), *bodies])
    work = {field: max(p.places.sizes[field] for p in printers.values()) for field in "fdn"}
    whole = "\n\n".join([*print_weights(layout), called_functions(text, prefix), text])
    return CGraphs(prefix, functions, printers, layout, whole, work)


def called_functions(text: str, prefix: str) -> str:
    """Return the functions of c/prelude.c that a text calls, and those that they call."""
    functions = {name: code for name, code in c_sections("prelude").items() if name not in ("head", "sort")}
    for kind in ("float", "double"):
        functions[f"sort_{kind[0]}"] = c_sections("prelude")["sort"] % {"letter": kind[0], "kind": kind}
    functions = {name: insert_prefix(code, prefix) for name, code in functions.items()}
    needed, todo = set[str](), [text]
    while todo:
        code = todo.pop()
        called = {name for name in functions if f"{prefix}_{name}(" in code} - needed
        needed |= called
        todo += [functions[name] for name in called]
    return "\n".join(code for name, code in functions.items() if name in needed)


def print_includes(prefix: str) -> str:
    return insert_prefix(c_sections("prelude")["head"], prefix)


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
    arrays, lines = list[str](), list[str]()
    for name, graph in graphs.items():
        function = made.functions[name]
        given, expected, sizes = make_test_vectors(graph, function, quantize, positive)
        inputs, outputs, checks = list[str](), list[str](), list[str]()
        for value, buffer, part in zip(graph.inputs, function.inputs, given, strict=True):
            inputs.append(f"@_test_{name}_in_{value.name}")
            arrays.append(c_array(f"{C_KINDS[buffer.kind]} {inputs[-1]}", part, made.prefix))
        for value, buffer, part in zip(graph.outputs, function.outputs, expected, strict=True):
            kind, made_, wanted = C_KINDS[buffer.kind], f"{name}_{value.name}", f"@_test_{name}_out_{value.name}"
            arrays.append(c_array(f"{kind} {wanted}", part, made.prefix))
            lines.append(f"    static {kind} {made_}[{max(part.numel(), 1)}];")
            outputs.append(made_)
            checks.append(
                f"    for (k = 0; k < {part.numel()}; ++k) worst = @_worse(worst, (double){made_}[k], "
                f"(double){wanted}[k]);"
            )
        letters = [str(sizes[letter]) for letter in function.letters]
        lines += [f"    {made.printers[name].call(inputs, outputs, letters)}", *checks]
    if "work)" in "".join(lines):
        lines.insert(0, "    static @_work memory, *const work = &memory;")
    tolerance = QUANTIZED_TOLERANCE if quantize else FLOAT_TOLERANCE
    fields = {"arrays": "\n".join(arrays), "lines": "\n".join(lines), "tolerance": tolerance}
    return c_sections("interface")["self_test"] % fields


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


@functools.cache
def c_sections(name: str) -> dict[str, str]:
    """Return the sections of c/NAME.c by name; a section begins behind a line `/// NAME`."""
    text = (files("recur.export") / "c" / f"{name}.c").read_text(encoding="utf-8")
    _, *parts = re.split(r"^/// (\w+)\n", text, flags=re.MULTILINE)
    return {key: body.rstrip() + "\n" for key, body in zip(parts[::2], parts[1::2], strict=True)}


def insert_prefix(text: str, prefix: str) -> str:
    """Replace @ by the prefix and @@ by the prefix in capitals."""
    return text.replace("@@", prefix.upper()).replace("@", prefix)
