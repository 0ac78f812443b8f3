"""A cell's contract, and its gradients against central differences."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from recur.cells import Cell, MatrixCell
from recur.cells.cell import check_cell, check_projection
from recur.cells.contract import check_step, versions_of
from recur.cells.matrix import HeadedCell
from recur.cells.slopes import LinearSteps
from recur.compiler.equations import equations_of
from recur.compiler.matrix import matrix_form
from recur.compiler.programs import assembled
from recur.compiler.stage_tracing import stage_programs, staged
from recur.compiler.stages import products_in_sequence
from recur.diagnostics.gradient_flow import flow
from recur.diagnostics.subject import Subject
from recur.errors import BackendError, CellError, RecurError
from recur.nn import Recurrent
from recur.ops import BACKENDS, scan
from recur.utils.types import JsonObject

B, T, D, H = 2, 3, 3, 4
"""Of what is checked."""

Result = TypeVar("Result")


def units(cell: Cell, H: int) -> int:
    """About so many, divided into heads."""
    heads = cell.num_heads or 1 if isinstance(cell, HeadedCell) else cell.heads
    return max(H // heads, 1) * heads


def network(cell: Cell, D: int, H: int, dtype: torch.dtype = torch.float32) -> Recurrent:
    return _calling(cell, "init_extras", lambda: Recurrent(cell, D, H, dtype=dtype))


def _calling(cell: Cell, what: str, call: Callable[[], Result]) -> Result:
    """Turn an exception of a cell's own code into one line."""
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
    start = cell.state(cell.start(x, B, cell.widths(cell.units(len(weights["weight_ih"])))))
    of_x, h, s, w = cell.step_arguments(x[:, 0], start, weights)
    given = [
        type(of_x)._make(part.clone() for part in of_x),
        type(h)._make(torch.randn_like(part) for part in h),
        s,
        type(w)._make(part.clone() for part in w),
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
    """Compare the gradients of inputs, weights and a reached state with central differences in float64."""
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

        if not cell.exact_gradient:
            if not _declared_slopes(of_one, leaves[name]):
                problems[name] = "not that of the slopes that the step declares"
            continue
        try:
            torch.autograd.gradcheck(of_one, (leaves[name].clone().requires_grad_(),))
        except GradcheckError as error:
            problems[name] = _difference(str(error))
            if _has_own_slopes(of_one, leaves[name]):
                problems[name] += "; declare exact_gradient = False, since the step gives a slope of its own"
    checked = {name: leaf.numel() for name, leaf in leaves.items()}
    by_problem: dict[str, list[str]] = {}
    for name, problem in problems.items():
        by_problem.setdefault(problem, []).append(name)
    said = [f"∂L/∂{', ∂L/∂'.join(names)}: {problem}" for problem, names in by_problem.items()]
    return {"agree": not problems, "checked": checked, "problems": said}


def _has_own_slopes(run: Callable[[Tensor], tuple[Tensor, ...]], leaf: Tensor) -> bool:
    """Return True if a step uses functions with a derivative of their own."""
    with LinearSteps() as tangents, torch.no_grad():
        run(leaf)
    return bool(tangents.recorded)


def _declared_slopes(run: Callable[[Tensor], tuple[Tensor, ...]], leaf: Tensor) -> bool:
    """Compare a gradient with central differences of a scan whose spikes are replaced by their declared tangents."""
    at = leaf.clone().requires_grad_()
    results = run(at)
    pulls = [torch.randn_like(part) for part in results]
    loss = sum((part * pull).sum() for part, pull in zip(results, pulls, strict=True))
    gradient = torch.zeros_like(leaf)
    if isinstance(loss, Tensor) and loss.requires_grad:
        (gradient,) = torch.autograd.grad(loss, at, materialize_grads=True)
    tangents, step = LinearSteps(), 1e-5
    with torch.no_grad():
        with tangents:
            run(leaf)
        slopes = []
        for k in range(leaf.numel()):
            moved = torch.zeros_like(leaf).view(-1)
            moved[k] = step
            ends = []
            for sign in (1, -1):
                with tangents:
                    ends.append(run(leaf + sign * moved.view_as(leaf)))
            slopes.append(sum(((a - b) * pull).sum() for a, b, pull in zip(*ends, pulls, strict=True)) / (2 * step))
    return torch.allclose(torch.stack(slopes).view_as(leaf), gradient, rtol=1e-5, atol=1e-6)


def _gradients(loss: Tensor, leaves: dict[str, Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)


def _difference(message: str) -> str:
    """Return the first line of gradcheck's message."""
    first = message.strip().splitlines()[0]
    return "not that of central differences" if "Jacobian mismatch" in first else first


SECONDS = 0.5
"""For each size."""


class Measured(NamedTuple):
    """A call forward and back, D = H, of the cell and of a GRU taking turns: medians."""

    B: int
    T: int
    H: int
    backend: str
    seconds: float
    gru_seconds: float
    ratio: tuple[float, float]
    """Of the two: the middle half of the rounds lies between these."""
    bytes: int
    """What the forward pass keeps for the way back, beside inputs and weights."""
    gru_bytes: int


def measure(cell: Cell, B: int, T: int, H: int, seconds: float | None = None) -> Measured:
    H = units(cell, H)
    nets = [network(cell, H, H), Recurrent("gru", H, H)]
    x = torch.randn(B, T, H)
    kept = [kept_bytes(net, x) for net in nets]
    backend = nets[0](x).trace[0].backend
    times: list[list[float]] = [[], []]
    seconds, begun = SECONDS if seconds is None else seconds, time.perf_counter()
    while len(times[0]) < 5 or (time.perf_counter() - begun < seconds and len(times[0]) < 200):
        for net, spent in zip(nets, times, strict=True):
            at = time.perf_counter()
            net(x).outputs.sum().backward()
            spent.append(time.perf_counter() - at)
    ratios = statistics.quantiles([a / b for a, b in zip(*times, strict=True)], n=4)
    ours, theirs = map(statistics.median, times)
    return Measured(B, T, H, backend, ours, theirs, (ratios[0], ratios[2]), kept[0], kept[1])


def kept_bytes(net: Recurrent, x: Tensor) -> int:
    """The memory of all tensors that autograd saves in a call, each once, without inputs and weights."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (x, *net.parameters())}
    kept: dict[int, int] = {}
    alive: list[Any] = []  # an address is a tensor's own only while it lives

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive.append(net(x).outputs)
    return sum(kept.values())


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
    if staged(cell):
        programs = stage_programs(cell, True, False)
        kind["stages"] = programs if isinstance(programs, str) else products_in_sequence(programs[1])
    if pointwise:
        kind["equations"], kind["derivative"] = equations_of(cell)
    if isinstance(cell, MatrixCell):
        form = matrix_form(cell)
        kind["matrix"] = [f"no chunkwise form: {form}"] if isinstance(form, str) else form.lines
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
    return found, scan(cell, net.weights(), x.repeat(1, 20, 1)).trace.backend


def _off(a: Tensor, b: Tensor) -> float:
    same = torch.where(a == b, 0.0, (a - b).abs())  # equal infinities are
    return float(same.max() / b.abs().max().clamp_min(1)) if same.numel() else 0.0


def flow_at_start(cell: Cell) -> JsonObject:
    """Measure how far gradients reach in the untrained cell, on random input."""
    rows, steps, size = FLOW
    size = units(cell, size)
    net = network(cell, size, size)
    found = flow(Subject.of(net, torch.randn(rows, steps, size)), rows=rows, steps=steps)
    return {
        name.removeprefix("layer 1, "): {"decay": part.decay, "memory": part.memory, "reach": part.reach}
        for name, part in found.items()
    }
