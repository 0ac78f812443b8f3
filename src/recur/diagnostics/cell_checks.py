"""A cell's contract, and its gradients against central differences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from recur.cells import Cell
from recur.cells.cell import check_cell
from recur.cells.contract import check_step, versions_of
from recur.errors import CellError, RecurError
from recur.nn import Recurrent
from recur.ops import scan
from recur.utils.types import JsonObject

B, T, D, H = 2, 3, 3, 4
"""Of what is checked."""

Result = TypeVar("Result")


def units(cell: Cell, H: int) -> int:
    """About so many, divided into heads."""
    return max(H // cell.heads, 1) * cell.heads


def network(cell: Cell, D: int, H: int, dtype: torch.dtype = torch.float32) -> Recurrent:
    return _calling(cell, "init_extras", lambda: Recurrent(cell, D, H, dtype=dtype))


def _calling(cell: Cell, what: str, call: Callable[[], Result]) -> Result:
    """What a cell's own code raises, in one line of ours."""
    try:
        return call()
    except RecurError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or "without a word"
        raise CellError(f"{type(cell).__name__}.{what} raises {type(error).__name__}: {said}") from error


def check_contract(cell: Cell) -> None:
    """Names, weights, one step by itself, and a few of them carried along."""
    check_cell(cell)
    who = type(cell).__name__
    net = network(cell, D, units(cell, H), torch.float64)
    weights = {name: weight.detach() for name, weight in net.weights().items()}
    if broken := [name for name, weight in weights.items() if not weight.isfinite().all()]:
        raise CellError(f"{who} starts with weights that are no numbers: {', '.join(broken)}; see its init_extras")
    x = torch.randn(B, T, D, dtype=torch.float64)
    _check_one_step(cell, weights, x)
    result = _calling(cell, "step", lambda: scan(cell, weights, x, backend="loop"))
    if not result.outputs.isfinite().all():
        raise CellError(f"{who}.step gives outputs that are no numbers, from its own start on")


def _check_one_step(cell: Cell, weights: dict[str, Tensor], x: Tensor) -> None:
    """Called twice with the same arguments: the same result, and the arguments as they were."""
    who = type(cell).__name__
    shares = (x[:, 0] @ weights["weight_ih"].T).chunk(len(cell.gates), dim=-1)
    given = [
        cell.tuple_of("x")._make(part.clone() for part in shares),
        cell.tuple_of("h")._make(torch.randn_like(shares[0]) for _ in cell.recurrent_gates),
        cell.state(cell.start(x, B, cell.widths(shares[0].shape[-1]))),
        cell.tuple_of("w")._make(weights[name].clone() for name in cell.extras),
    ]
    before = [[part.clone() for part in parts] for parts in given]
    with torch.no_grad():
        results = []
        for _ in range(2):
            versions = versions_of(given[2])
            result = _calling(cell, "step", lambda: cell.advance(*given))
            check_step(cell, result, given[2], versions)
            results.append([part.clone() for part in result])
            for role, parts, were in zip("xhsw", given, before, strict=True):
                for name, part, was in zip(parts._fields, parts, were, strict=True):
                    if not torch.equal(part, was):
                        raise CellError(f"{who}.step changes {role}.{name} in place; make new tensors")
    for name, first, second in zip(cell.states, *results, strict=True):
        if not torch.allclose(first, second, rtol=0, atol=0, equal_nan=True):
            raise CellError(f"{who}.step gives another {name} when it is called again: it may read its arguments only")


# Gradients ------------------------------------------------------------------------------------------------


def check_gradients(cell: Cell) -> JsonObject:
    """Of inputs, weights and a state that the cell has reached, each against central differences in float64."""
    net = network(cell, D, units(cell, H), torch.float64)
    weights = {name: weight.detach() for name, weight in net.weights().items()}
    warm = scan(cell, weights, torch.randn(B, 4, D, dtype=torch.float64), backend="loop").state
    leaves = {"x": torch.randn(B, T, D, dtype=torch.float64), **weights}
    leaves |= {f"{name}0": part.detach().clone() for name, part in zip(cell.states, warm, strict=True)}
    problems: dict[str, str] = {}

    def run(given: dict[str, Tensor], own_start: bool = False) -> tuple[Tensor, ...]:
        state = None if own_start else [given[f"{name}0"] for name in cell.states]
        made = {name: given[name] for name in weights}
        outputs, final, _ = scan(cell, made, given["x"], state, backend="loop", lengths=[T, 1])
        return outputs, *final

    for own_start in (True, False):
        fresh = {name: leaf.clone().requires_grad_() for name, leaf in leaves.items()}
        loss = sum((part * torch.randn_like(part)).sum() for part in run(fresh, own_start))
        if not isinstance(loss, Tensor) or not loss.requires_grad:
            raise CellError(f"{type(cell).__name__}.step returns nothing that has a gradient; is it detached?")
        gradients = _calling(cell, "step", functools.partial(_gradients, loss, fresh))
        for name, gradient in zip(fresh, gradients, strict=True):
            if not gradient.isfinite().all():
                problems.setdefault(name, "not a number" + ", from the cell's own start on" * own_start)

    for name in leaves:
        if name in problems:
            continue

        def of_one(leaf: Tensor, name: str = name) -> tuple[Tensor, ...]:
            return run({**leaves, name: leaf})

        try:
            torch.autograd.gradcheck(of_one, (leaves[name].clone().requires_grad_(),))
        except GradcheckError as error:
            problems[name] = _difference(str(error))
    checked = {name: leaf.numel() for name, leaf in leaves.items()}
    by_problem: dict[str, list[str]] = {}
    for name, problem in problems.items():
        by_problem.setdefault(problem, []).append(name)
    said = [f"∂L/∂{', ∂L/∂'.join(names)}: {problem}" for problem, names in by_problem.items()]
    return {"agree": not problems, "checked": checked, "problems": said}


def _gradients(loss: Tensor, leaves: dict[str, Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)


def _difference(message: str) -> str:
    """Of what gradcheck says, the first line."""
    first = message.strip().splitlines()[0]
    return "not that of central differences" if "Jacobian mismatch" in first else first
