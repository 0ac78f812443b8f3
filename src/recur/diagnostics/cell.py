"""What there is to know of a cell before anything is trained with it: `recur cell`.

The contract is checked first, and a cell that breaks it is refused. The rest is found out: whether its gradients are
those of central differences, what kind of step it has and which backends take it, its derivative in words, its speed
and memory beside the GRU, and how gradients flow through it as it is initialised.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recur.cells import Cell
from recur.cells.cell import check_projection
from recur.compiler.equations import equations_of
from recur.compiler.program_text import assembled
from recur.diagnostics.cell_checks import B, D, H, T, check_contract, check_gradients, network, units
from recur.diagnostics.cell_cost import measure
from recur.diagnostics.flow import flow
from recur.diagnostics.subject import Subject
from recur.errors import BackendError, CellError
from recur.ops import BACKENDS, scan
from recur.utils.types import JsonObject

SIZES = ((16, 32, 32), (32, 50, 128), (32, 50, 256))
"""B, T and H, at which a cell is measured."""
FLOW = (8, 100, 64)
AGREES = 1e-9
"""The largest difference between two backends in float64, relative to the largest number (or to 1)."""


def examine(cell: Cell, *, speed: bool = True, seed: int = 0) -> JsonObject:
    """All of it, as JSON can hold it; a cell that breaks the contract is a CellError."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        check_contract(cell)
        found = _described(cell)
        found["gradients"] = check_gradients(cell)
        found |= _kind(cell)
        found["backends"], found["auto"] = try_backends(cell)
        if speed:
            found["speed"] = [measure(cell, *size)._asdict() for size in SIZES]
        found["flow"] = flow_at_start(cell)
    return found


def _described(cell: Cell) -> JsonObject:
    size = units(cell, 64)
    return {
        "cell": repr(cell),
        "gates": list(cell.gates),
        "state_gates": list(cell.recurrent_gates),
        "states": list(cell.states),
        "outputs": list(cell.outputs or cell.states[:1]),
        "initial": {name: str(number) for name, number in cell.initial.items()},
        "heads": cell.heads,
        "extras": {name: list(shape) for name, shape in cell.extras.items()},
        "parameters": {"D": size, "H": size, "count": sum(p.numel() for p in network(cell, size, size).parameters())},
    }


def _kind(cell: Cell) -> JsonObject:
    """Whether it is pointwise, affine in its states, can be projected; its derivative in words."""
    found = assembled(cell, True)
    pointwise = not isinstance(found, str)
    kind: JsonObject = {"pointwise": pointwise, "affine": False, "projectable": True}
    if isinstance(found, str):
        kind |= {"not_pointwise": found, "not_affine": "its step was not read"}
    elif isinstance(found[0].affine, str):
        kind["not_affine"] = found[0].affine
    else:
        kind["affine"] = True
    try:
        check_projection(cell)
    except CellError:
        kind["projectable"] = False
    if pointwise:
        kind["equations"], kind["derivative"] = equations_of(cell)
    return kind


def try_backends(cell: Cell) -> tuple[dict[str, str], str]:
    """Each backend runs a small scan, forward and back, and is compared with the loop; what it says if it cannot. And
    which one `auto` takes for it."""
    net = network(cell, D, units(cell, H), torch.float64)
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)

    def numbers(backend: str) -> list[Tensor]:
        outputs, final, _ = scan(cell, net.weights(), x, backend=backend)
        loss = outputs.square().sum() + sum(part.sum() for part in final)
        grads = torch.autograd.grad(loss, [x, *net.parameters()], materialize_grads=True)
        return [outputs.detach(), *(part.detach() for part in final), *grads]

    expected = numbers("loop")
    found = {}
    for backend in BACKENDS:
        try:
            off = max(_off(a, b) for a, b in zip(numbers(backend), expected, strict=True))
            found[backend] = "runs" if off < AGREES else f"gives other numbers than the loop, off by {off:.2g}"
        except BackendError as error:
            found[backend] = str(error).partition(" cannot run this: ")[2].partition("; take backend=")[0] or str(error)
    return found, scan(cell, net.weights(), x).trace.backend


def _off(a: Tensor, b: Tensor) -> float:
    same = torch.where(a == b, 0.0, (a - b).abs())  # equal infinities are
    return float(same.max() / b.abs().max().clamp_min(1)) if same.numel() else 0.0


def flow_at_start(cell: Cell) -> JsonObject:
    """How far gradients reach in the untrained cell, on random input."""
    rows, steps, size = FLOW
    size = units(cell, size)
    net = network(cell, size, size)
    found = flow(Subject.of(net, torch.randn(rows, steps, size)), rows=rows, steps=steps)
    return {
        name.removeprefix("layer 1, "): {"decay": part.decay, "memory": part.memory, "reach": part.reach}
        for name, part in found.items()
    }
