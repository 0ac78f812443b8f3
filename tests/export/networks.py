"""Networks of cells as graphs, two layers in both directions along a sequence and three layers one step at a time, in C
beside Python: many of them in one program."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recur.cells import make_cell
from recur.export.c_core import core, head, struct_of
from recur.export.graphs import Graph, Portable, States, Value, capture, example, flat, ready
from recur.layers import Recurrent
from tests.export.c_library import library

D, H = 3, 10
"""Odd enough that blocks of rows have a rest; H is made of heads where a cell has some."""

TOLERANCE = 2e-6
"""Float32 rounding over seven steps."""


class Along(nn.Module):
    """A network along a sequence, or over a step."""

    def __init__(self, network: Recurrent) -> None:
        super().__init__()
        self.network, self.states = network, States(network)

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        if x.dim() == 3:
            return (self.network(x).outputs,)
        found = self.network(x[:, None], self.states.nested(state))
        return (found.outputs[:, 0], *flat(found.state))


def portable_of(cell: Any, **options: Any) -> Portable:
    """Graphs of a cell: `sequence` of both directions, `step` of three layers."""
    torch.manual_seed(0)
    made = make_cell(cell)
    width = H if H % made.heads == 0 else made.heads * 3
    both = ready(Recurrent(made, D, width, layers=2, direction="both", **options))
    forward = ready(Recurrent(made, D, width, layers=3, **options))
    states = States(forward).values
    graphs = {
        "sequence": capture(
            "sequence", Along(both), [Value("x", ("B", "T", D))], [Value("y", ("B", "T", both.output_size))]
        ),
        "step": capture(
            "step", Along(forward), [Value("x", ("B", D)), *states], [Value("y", ("B", forward.output_size)), *states]
        ),
    }
    return Portable("language", "network", str(cell), graphs)


def given_to(graph: Graph, seed: int = 0) -> list[Tensor]:
    """Small numbers: states such as a normaliser's are positive."""
    given = [example(value, {"B": 1, "T": 7}, seed + k) for k, value in enumerate(graph.inputs)]
    return [given[0], *(part.abs() * 0.3 + 0.2 for part in given[1:])]


def differences_in_c(networks: dict[str, Portable], folder: Path, quantize: bool = False) -> dict[str, float]:
    """The largest between C and Python for each network; all of them in one program."""
    headers, calls = {}, ["typedef const void *In;\n"]
    for name, portable in networks.items():
        made = core(portable, name, 7, quantize)
        text = "\n\n".join([head(name), struct_of(made), made.text])
        headers[name] = text.replace("\nstatic void ", f"\n{name.upper()}_API void ")
        headers[name] = headers[name].replace("\nstatic float ", f"\n{name.upper()}_API float ")
        for graph, printer in made.printers.items():
            count = len(printer.function.inputs) + len(printer.function.outputs)
            inputs = [f"(const float *)p[{k}]" for k in range(len(printer.function.inputs))]
            outputs = [f"(float *)p[{k}]" for k in range(len(inputs), count)]
            call = printer.call(inputs, outputs, ["7"] if printer.function.letters else [])
            work = f"static {name}_work memory, *const work = &memory; (void)work;"
            calls.append(f"void {name}_{graph}(void **p); void {name}_{graph}(void **p) {{ {work} {call} }}\n")
    compiled = library(folder, headers, "".join(calls))
    found = {}
    for name, portable in networks.items():
        found[name] = 0.0
        for graph in portable.graphs.values():
            given = given_to(graph)
            with torch.no_grad():
                expected = graph(*given)
            made_ = [torch.full_like(part, torch.nan) for part in expected]
            tensors = [*(part.contiguous() for part in given), *made_]
            pointers = (ctypes.c_void_p * len(tensors))(*(part.data_ptr() for part in tensors))
            getattr(compiled, f"{name}_{graph.name}")(pointers)
            for ours, theirs in zip(made_, expected, strict=True):
                apart = (ours - theirs).abs() / theirs.abs().clamp_min(1.0)
                found[name] = max(found[name], float(apart.nan_to_num(torch.inf).max()))
    return found
