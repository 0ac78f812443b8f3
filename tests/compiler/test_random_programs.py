"""Cells that nobody would write: random steps from the supported operations, native against the loop."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from recur.cells import Cell
from recur.errors import CellError
from tests.support import ISAS, Case, all_close, core, needs_core, random_state, random_weights

pytestmark = needs_core

KINKS: list[float] = []
"""How near to a kink or a tie the loop came: there, a rounding decides which of two gradients is taken."""


WATCH = False
"""Whether kinks are collected: on the loop only, for a step that reads a list that grows is never the same again."""


def near(distance: Any) -> None:
    if WATCH:
        record(distance)


def record(distance: Tensor) -> None:
    KINKS.append(distance.detach().abs().min().item())


def relu(a: Any) -> Any:
    near(a)
    return torch.relu(a)


def absolute(a: Any) -> Any:
    near(a)
    return torch.abs(a)


def leaky(a: Any) -> Any:
    near(a)
    return F.leaky_relu(a, 0.2)


def clamp(a: Any) -> Any:
    near(a - 0.7)
    near(a + 0.3)
    return a.clamp(-0.3, 0.7)


def hardtanh(a: Any) -> Any:
    near(a - 1)
    near(a + 1)
    return F.hardtanh(a)


def maximum(a: Any, b: Any) -> Any:
    near(a - b)
    return torch.maximum(a, b)


def minimum(a: Any, b: Any) -> Any:
    near(a - b)
    return torch.minimum(a, b)


def smaller_or(a: Any, b: Any, c: Any) -> Any:
    near(a - b)
    return torch.where(a < b, c, a * 0.5)


def floor(a: Any) -> Any:
    near(a - torch.round(a))
    return torch.floor(a)


def rounded(a: Any) -> Any:
    near(a - torch.floor(a) - 0.5)
    return torch.round(a)


def remainder(a: Any, b: Any) -> Any:
    divisor = b * b + 1
    rest = a % divisor
    near(rest)
    near(rest - divisor)
    return rest


def changed_in_place(a: Any, b: Any) -> Any:
    value = a + 0 * b
    same = value
    value *= 0.5
    same += b
    value.sub_(1)
    return same


OPERATIONS: list[tuple[int, Any]] = [
    *((1, f) for f in (torch.neg, torch.sigmoid, torch.tanh, torch.sin, torch.cos, torch.erf, torch.atan)),
    *((1, f) for f in (F.softplus, F.gelu, F.silu, F.elu, F.selu, F.softsign, F.logsigmoid, F.mish)),
    *((1, f) for f in (relu, absolute, leaky, clamp, hardtanh, floor, rounded)),
    (1, lambda a: a * 0.5),
    (1, lambda a: 1 - a),
    (1, lambda a: a + 2),
    (1, lambda a: torch.tanh(a) ** 2),
    (1, lambda a: torch.exp(torch.tanh(a))),
    (1, lambda a: torch.expm1(torch.sin(a))),
    (1, lambda a: torch.log(a * a + 0.5)),
    (1, lambda a: torch.log1p(a * a)),
    (1, lambda a: torch.sqrt(a * a + 1)),
    (1, lambda a: torch.reciprocal(a * a + 1)),
    (1, lambda a: torch.rsqrt(a * a + 2)),
    *((2, f) for f in (torch.add, torch.sub, torch.mul, maximum, minimum) for _ in range(4)),
    (2, lambda a, b: a / (b * b + 1)),
    (2, lambda a, b: torch.lerp(a, b, 0.3)),
    (2, lambda a, b: (torch.sigmoid(a) + 0.5) ** torch.tanh(b)),
    *((2, f) for f in (remainder, changed_in_place)),
    *((3, f) for f in (smaller_or, torch.addcmul) for _ in range(3)),
    (3, lambda a, b, c: torch.lerp(a, b, torch.sigmoid(c))),
]


class Random(Cell):
    """A few leaves, then operations on what came before, any of it as often as it comes."""

    def __init__(
        self, gates: int, products: int, states: int, extras: int, heads: int, outputs: Any, program: Any, results: Any
    ) -> None:
        self.gates = tuple("abc"[:gates])
        self.state_gates = self.gates[:products]
        self.states = tuple("hcm"[:states])
        self.heads, self.outputs = heads, tuple(name for name in outputs if name in self.states)
        if self.outputs and products and "h" not in self.outputs:
            self.outputs = ("h", *self.outputs)
        self.extras = dict.fromkeys("pq"[:extras], ("H",))
        self.program, self.results = program, results

    def step(self, x: Any, h: Any, s: Any, w: Any = ()) -> Any:
        values = [*x, *h, *s, *w]
        for which, where in self.program:
            arguments, function = OPERATIONS[which]
            values.append(function(*(values[k % len(values)] for k in where[:arguments])))
        values.reverse()  # the later, the likelier
        picked = [values[k % len(values)] for k, _ in self.results]
        # A value of the cell's own weights is one row for all sequences, which a state is not.
        return tuple(
            value + 0 * s[0] if spread else value for value, (_, spread) in zip(picked, self.results, strict=True)
        )


@st.composite
def cells(draw: Any) -> Random:
    gates, states, extras = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 2))
    where = st.integers(0, 30)
    operation = st.tuples(st.integers(0, len(OPERATIONS) - 1), st.tuples(where, where, where))
    program = draw(st.lists(operation, min_size=1, max_size=12))
    results = draw(st.lists(st.tuples(where, st.booleans()), min_size=states, max_size=states))
    heads, outputs = draw(st.integers(1, 3)), draw(st.lists(st.sampled_from("hcm"), max_size=2, unique=True))
    return Random(gates, draw(st.integers(0, gates)), states, extras, heads, outputs, program, results)


@settings(max_examples=150)
@given(cell=cells(), isa=st.sampled_from(ISAS or ("none",)), H=st.integers(1, 20), seed=st.integers(0, 999))
def test_a_random_step(cell: Random, isa: str, H: int, seed: int) -> None:
    torch.manual_seed(seed)
    H += -H % cell.heads
    case = Case("elman", B=3, T=3, D=2, H=H)
    case.cell, case.weights, case.state = cell, random_weights(cell, 2, H), random_state(cell, 3, H)
    case.on_outputs = torch.randn(3, 3, cell.output_width(H), dtype=torch.float64)
    case.on_state = [torch.randn(3, H, dtype=torch.float64) for _ in cell.states]
    options: dict[str, Any] = {"lengths": [3, 1, 2]} if seed % 2 else {}
    KINKS.clear()
    traces = []

    def run(backend: str) -> Any:
        global WATCH
        WATCH = backend == "loop"
        result = case.scan(backend=backend, trace=True, **options)
        WATCH = False
        traces.append(result.trace)
        return result

    try:
        expected = case.everything(lambda: run("loop"))
    except CellError as error:
        assume("each like the one before" not in str(error))
        raise
    except RuntimeError as error:
        assume("does not require grad" not in str(error))
        raise
    assume(all(value.isfinite().all() and value.abs().max() < 1e6 for value in expected.values()))
    assume(min(KINKS, default=1.0) > 1e-7)
    was = core.isa
    core.use(isa)
    try:
        got = case.everything(lambda: run("native"))
    finally:
        core.isa = was
    all_close(got, expected)
    all_close(traces[1].terms, traces[0].terms)
