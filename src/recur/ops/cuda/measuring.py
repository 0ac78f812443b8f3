"""The passes of a layer on a GPU, each by a way of one's choice: for a table of the fastest, and to see what works."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from recur.cells import make_cell
from recur.compiler.program_text import text_of
from recur.compiler.signature import make_signature
from recur.errors import BackendError
from recur.ops.cuda import persistent, run, tuning
from recur.ops.cuda.after import Asked
from recur.ops.cuda.backward_pass import Backward
from recur.ops.cuda.choice import candidates
from recur.ops.cuda.device import device
from recur.ops.cuda.forward_pass import Forward
from recur.ops.cuda.kernel_time import Measured, compile_all
from recur.ops.cuda.memory import layout
from recur.ops.cuda.operands import uses_tf32
from recur.ops.cuda.tuning import DIRECTIONS, Kind
from recur.ops.cuda.way import Way

STEPS = 100
WIDTHS, ROWS = (512, 256, 1024, 128, 768, 1536), (64, 16, 256, 1)
CELLS: dict[str, Callable[[int, int], nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN}
MOST_WAYS = 8
"""How many of a problem's ways are measured: those that the estimate has first."""
ROUNDS, IN_A_ROW = 5, 5


class Layer:
    """One layer with numbers of its own, as wide as its input."""

    def __init__(self, cell: str, S: int, H: int, dtype: torch.dtype, index: int, steps: int = STEPS) -> None:
        made, on = make_cell(cell), torch.device("cuda", index)
        numbers = torch.Generator(on).manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=numbers, device=on)

        self.data = drawn(steps, S, H).to(dtype).transpose(0, 1)
        weights = [(drawn(*shape) / H**0.5).to(dtype) for shape in made.shapes(H, H).values()]
        self.arriving = drawn(steps, S, H).to(dtype).transpose(0, 1)
        self.of, self.given = make_signature(self.data, weights, [], [], None, None, None, 0.0, text_of(made, True), "")
        self.lay, self.index, self.cell = layout(self.of), index, cell

    @functools.cached_property
    def alone(self) -> Measured:
        """Its steps without the products before and after them."""
        return Measured(self.of.cell, self.of.dtype, self.lay.S, self.lay.steps, self.lay.H)

    def ways(self, backward: bool) -> list[Way]:
        """That fit, the likeliest first."""
        return candidates(persistent.problem(self.lay, backward), device(self.index))

    def forward(self) -> list[Tensor]:
        return run.forward(self.of, self.given, True)

    def backward(self, results: Sequence[Tensor]) -> list[Tensor]:
        found, _ = run.backward(self.of, self._kept(results), [self.arriving], True, False, False)
        return [part for part in found if part is not None]

    def _kept(self, results: Sequence[Tensor]) -> list[Tensor]:
        n = len(self.lay.outputs)
        return [*self.given, *results[:n], *results[n + len(self.lay.finals) :]]

    def prepared(self, results: Sequence[Tensor] | None) -> Callable[[], object]:
        """A pass with all that is found out once, by the way that is taken now: back from these results, or forward."""
        index, tf32 = self.index, uses_tf32()
        with run.on_device(torch.device("cuda", index)):
            chosen = run.plan(self.lay, index, results is not None, results is None)
            if results is None:
                return functools.partial(Forward(self.lay, True, index, tf32, chosen), self.given)
            kept, gradients = self._kept(results), [self.arriving, *[None] * len(self.lay.finals)]
            asked = Asked(tuple(part is not None for part in gradients), True, False, False, False)
            return functools.partial(Backward(self.lay, asked, index, tf32, chosen), kept, gradients)

    def has(self, way: Way | None, backward: bool) -> bool:
        """Whether the way that is asked for is the one that runs."""
        with by(way), run.on_device(torch.device("cuda", self.index)):
            found = run.plan(self.lay, self.index, backward, not backward)
        return (found is None) == (way is None)


@contextmanager
def by(way: Way | None) -> Iterator[None]:
    """Scans by this way alone; None is one step a launch."""
    was = run.SELECT
    run.SELECT = lambda problem, found: [way]
    try:
        yield
    finally:
        run.SELECT = was


def microseconds(call: Callable[[], object]) -> float:
    """The median of a few, each of several calls in a row between two events, as training makes them."""
    call()
    times: list[float] = []
    for _ in range(ROUNDS):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        first.record()
        for _ in range(IN_A_ROW):
            call()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) * 1e3 / IN_A_ROW)
    return statistics.median(times)


def in_one_piece(layer: nn.RNNBase) -> nn.RNNBase:
    """With its weights in one buffer, as cuDNN takes them; torch does so itself, but not for bfloat16."""
    weights = list(layer.parameters())
    buffer = torch.cat([weight.detach().reshape(-1) for weight in weights])
    for weight, part in zip(weights, buffer.split([weight.numel() for weight in weights]), strict=True):
        weight.data = part.view_as(weight)
    return layer


class OnGPU:
    """What `tune` asks of a GPU."""

    def __init__(self, index: int = 0) -> None:
        self.index, self.device = index, device(index).name

    def problems(self) -> list[Kind]:
        numbers = ["bfloat16", "tf32" if uses_tf32() else "exact", "float16"]
        sizes = itertools.product(WIDTHS, ROWS, numbers, CELLS, DIRECTIONS)
        return [Kind(_gates(cell), _gates(cell), H, S, kind, way) for H, S, kind, cell, way in sizes]

    def candidates(self, problem: Kind) -> list[tuning.Way]:
        """Compiled together, which takes the longest."""
        layer, backward = self._layer(problem._replace(direction="")), problem.direction == "backward"
        found, p = layer.ways(backward)[:MOST_WAYS], persistent.problem(layer.lay, backward)
        compile_all(layer.of.cell, layer.of.dtype, [(p, way) for way in found])
        return [*(way.numbers() for way in found), {}]

    def measure(self, problem: Kind, way: tuning.Way) -> float | None:
        layer, backward = self._layer(problem._replace(direction="")), problem.direction == "backward"
        try:
            return layer.alone.microseconds(persistent.problem(layer.alone.lay, backward), _way(way))
        except (BackendError, MemoryError, torch.OutOfMemoryError):
            return None

    def whole(self, problem: Kind, way: tuning.Way) -> float | None:
        layer, backward = self._layer(problem._replace(direction="")), problem.direction == "backward"
        results = layer.forward()
        with by(_way(way)):
            call = layer.prepared(results if backward else None)
        return microseconds(call) / STEPS

    def cudnn(self, problem: Kind) -> float | None:
        layer = self._layer(problem._replace(direction=""))
        x = layer.data.transpose(0, 1).detach().requires_grad_()
        arriving = layer.arriving.transpose(0, 1)
        peer = in_one_piece(CELLS[layer.cell](problem.H, problem.H).to(x.device, x.dtype))
        leaves = [x, *peer.parameters()]
        forward = microseconds(lambda: peer(x)) / STEPS
        if problem.direction == "forward":
            return forward
        both = microseconds(lambda: torch.autograd.grad(peer(x)[0], leaves, arriving)) / STEPS
        return max(both - forward, 1e-3)

    @functools.lru_cache(maxsize=1)  # noqa: B019  # one of them lives
    def _layer(self, problem: Kind) -> Layer:
        cell = next(cell for cell in CELLS if _gates(cell) == problem.gates)
        dtype = getattr(torch, problem.numbers if "float" in problem.numbers else "float32")
        return Layer(cell, problem.S, problem.H, dtype, self.index)


def _way(numbers: tuning.Way) -> Way | None:
    return Way(**{name: int(value) for name, value in numbers.items()}) if numbers else None


def _gates(cell: str) -> int:
    return len(make_cell(cell).gates)
