"""Every function that a step may use, run by the C++ core, against PyTorch's: values, and gradients at kinks too."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from recur.cells import Cell, custom
from recur.compiler import formulas
from recur.compiler.formulas import FORMULAS
from recur.ops import scan
from tests.support import needs_core

pytestmark = needs_core

Function = Callable[..., Tensor]


def chosen(compare: Function) -> Function:
    """A truth cannot be a state: it chooses one."""
    return lambda a, b: torch.where(compare(a, b), a * 2, b * 3)


# For every name, ways to write it. Each takes one to three tensors.
WAYS: dict[str, list[Function]] = {
    "neg": [lambda a: -a, torch.neg],
    "negative": [torch.negative],
    "add": [operator.add, lambda a, b: torch.add(a, b, alpha=-2), lambda a: 1.5 + a],
    "sub": [operator.sub, lambda a, b: a.sub(b, alpha=3), lambda a: 1.5 - a, lambda a: a - 0.5],
    "subtract": [torch.subtract, lambda a, b: torch.subtract(a, b, alpha=2)],
    "rsub": [torch.rsub],
    "mul": [operator.mul, lambda a: 3 * a, lambda a: a * a],
    "multiply": [torch.multiply],
    "div": [torch.div],
    "truediv": [operator.truediv, lambda a: 2 / a, lambda a: a / 3],
    "true_divide": [torch.true_divide],
    "divide": [torch.divide],
    "reciprocal": [torch.reciprocal],
    "relu": [torch.relu, F.relu, lambda a: a.relu()],
    "sigmoid": [torch.sigmoid, F.sigmoid],
    "special_expit": [torch.special.expit],
    "tanh": [torch.tanh, F.tanh],
    "exp": [torch.exp],
    "expm1": [torch.expm1],
    "log": [torch.log],
    "log1p": [torch.log1p],
    "sqrt": [torch.sqrt],
    "rsqrt": [torch.rsqrt],
    "square": [torch.square],
    "pow": [
        lambda a: a**2, lambda a: a**3, lambda a: a**-1, lambda a: a**-2, lambda a: torch.pow(a, 0.5), lambda a: a**1.5,
        lambda a: a**-0.5, lambda a: a**0 * a, lambda a: a**8, lambda a: a**9, lambda a: a**0.3, lambda a: 2**a,
        lambda a: torch.pow(0.5, a), lambda a, b: abs(a) ** b, lambda a, b: torch.pow(abs(a), b),
    ],
    "atan": [torch.atan, lambda a: a.atan()],
    "arctan": [torch.arctan],
    "floor": [lambda a: torch.floor(a) + a, lambda a: (3 * a).floor() * a],
    "ceil": [lambda a: torch.ceil(a) + a, lambda a: (3 * a).ceil() * a],
    "trunc": [lambda a: torch.trunc(a) + a, lambda a: (3 * a).trunc() * a],
    "fix": [lambda a: torch.fix(3 * a) + a],
    "frac": [torch.frac, lambda a: (3 * a).frac()],
    "round": [
        lambda a: torch.round(a) + a, lambda a: (3 * a).round() * a, lambda a: torch.round(1.2345 * a, decimals=2) + a,
        lambda a: (3 * a).round(decimals=-1) * a,
    ],
    "remainder": [torch.remainder, lambda a: a.remainder(-0.3), lambda a: torch.remainder(a, 2)],
    "mod": [operator.mod, lambda a: a % 0.1],
    "sin": [torch.sin],
    "cos": [torch.cos],
    "erf": [torch.erf],
    "abs": [torch.abs, lambda a: abs(a)],
    "absolute": [torch.absolute],
    "sign": [lambda a: torch.sign(a) + a],
    "sgn": [lambda a: torch.sgn(a) + a],
    "minimum": [torch.minimum],
    "maximum": [torch.maximum],
    "lt": [chosen(operator.lt), lambda a: (a < 1) * a],
    "le": [chosen(operator.le)],
    "gt": [chosen(operator.gt)],
    "ge": [chosen(operator.ge), lambda a: (a >= 0.5) * a],
    "eq": [chosen(operator.eq)],
    "ne": [chosen(operator.ne)],
    "invert": [chosen(lambda a, b: ~(a < b))],
    "and_": [chosen(lambda a, b: (a < b) & (a > 0))],
    "or_": [chosen(lambda a, b: (a < b) | (a > 0))],
    "logical_not": [chosen(lambda a, b: torch.logical_not(a))],
    "logical_and": [lambda a, b: torch.logical_and(a, b) * a, chosen(lambda a, b: torch.logical_and(a < b, b))],
    "logical_or": [lambda a, b: torch.logical_or(a, b) * a],
    "where": [lambda a, b, c: torch.where(a > 0, b, c), lambda a: torch.where(a > 0, a, 0.25)],
    "clamp": [
        lambda a: a.clamp(-1, 1), lambda a: torch.clamp(a, min=0.5), lambda a: torch.clamp(a, max=0.5),
        lambda a: a.clamp(1, -1), lambda a, b, c: a.clamp(b, c),
    ],
    "clip": [lambda a: torch.clip(a, -1, 1)],
    "clamp_min": [lambda a: torch.clamp_min(a, 0)],
    "clamp_max": [lambda a: a.clamp_max(1)],
    "hardtanh": [F.hardtanh, lambda a: F.hardtanh(a, -0.5, 2.0), lambda a: F.hardtanh(a, min_val=0.5, max_val=1.0)],
    "relu6": [F.relu6, lambda a: F.relu6(a * 6)],
    "softplus": [F.softplus, lambda a: F.softplus(a, beta=3, threshold=2), lambda a: F.softplus(40 * a)],
    "log_sigmoid": [F.logsigmoid],
    "elu": [F.elu, lambda a: F.elu(a, alpha=0.5)],
    "selu": [F.selu],
    "leaky_relu": [F.leaky_relu, lambda a: F.leaky_relu(a, 0.3)],
    "gelu": [F.gelu, lambda a: F.gelu(a, approximate="tanh")],
    "silu": [F.silu],
    "mish": [F.mish],
    "hardsigmoid": [F.hardsigmoid, lambda a: F.hardsigmoid(3 * a)],
    "softsign": [F.softsign],
    "lerp": [torch.lerp, lambda a, b: torch.lerp(a, b, 0.25)],
    "addcmul": [torch.addcmul, lambda a, b, c: torch.addcmul(a, b, c, value=0.5)],
    "addcdiv": [torch.addcdiv, lambda a, b, c: a.addcdiv(b, c, value=-2)],
    "zeros_like": [lambda a: torch.zeros_like(a) + a],
    "ones_like": [lambda a: torch.ones_like(a) - a],
    "clone": [lambda a: a.clone()],
    "detach": [lambda a: a.detach() * a],
    "custom_slope": [lambda a: custom(torch.relu, torch.tanh)(a) * a],
}  # fmt: skip
CASES = [(name, k) for name, ways in WAYS.items() for k in range(len(ways))]

POSITIVE = {"log", "log1p", "sqrt", "rsqrt"}
"""Defined for such numbers alone; fractional powers too."""

# Kinks, ties and bounds of the functions above, numbers on both sides of them, and some that are far out.
POINTS = torch.tensor([-60.0, -9.5, -2, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 1.25, 2, 6, 9.5, 60], dtype=torch.float64)


def points(name: str, way: Function, count: int) -> list[Tensor]:
    """All pairs of points and, for three arguments, a third one of each pair."""
    grid = torch.cartesian_prod(POINTS, POINTS) if count > 1 else POINTS[:, None]
    found = [*grid.unbind(1), *([grid[:, 0].roll(7)] if count > 2 else [])]
    if name in POSITIVE or (name == "pow" and count == 1 and not torch.isfinite(way(-POINTS.abs())).all()):
        found = [part.abs() + 0.01 for part in found]
    if "div" in name or name in ("reciprocal", "pow", "remainder", "mod"):
        found = [torch.where(part == 0, 0.01, part) for part in found]
    return found


def arguments_of(way: Function) -> int:
    for count in (1, 2, 3):
        try:
            way(*[torch.ones(1, dtype=torch.float64)] * count)
        except TypeError:
            continue
        return count
    raise AssertionError


def pointwise(way: Function, count: int) -> Cell:
    class OneFunction(Cell):
        gates = ("a", "b", "c")[:count]
        state_gates = ()

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (way(*x),)

    return OneFunction()


def run_by_the_core(way: Function, given: list[Tensor]) -> Tensor:
    """One step with U the unit matrix, so that the gates are the given numbers."""
    cell, H = pointwise(way, len(given)), len(given[0])
    x = torch.cat(given)
    result = scan(cell, {"weight_ih": torch.eye(len(x), dtype=x.dtype)}, x[None, None], backend="native")
    return result.outputs[0, 0].view(H)


def test_every_formula_has_its_line() -> None:
    assert WAYS.keys() == FORMULAS.keys()


@pytest.mark.parametrize(("name", "k"), CASES, ids=[f"{name} {k}" for name, k in CASES])
def test_as_pytorch_has_it(name: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    way = WAYS[name][k]
    given = points(name, way, arguments_of(way))
    spy = mock.Mock(side_effect=FORMULAS[name])
    monkeypatch.setitem(formulas.FORMULAS, name, spy)

    leaves = [part.clone().requires_grad_() for part in given]
    expected, got = way(*leaves), run_by_the_core(way, leaves)
    assert spy.called, "the formula was not asked"
    torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-14)
    weight = torch.randn_like(expected)
    theirs = torch.autograd.grad(expected, leaves, weight, allow_unused=True)
    ours = torch.autograd.grad(got, leaves, weight)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "name", ["relu", "tanh", "sigmoid", "hardtanh", "relu6", "exp", "abs", "sign", "gelu", "softplus"]
)
def test_what_is_no_number_stays_none(name: str) -> None:
    """Also not turned into a bound: a network whose numbers break must not look as if they did not."""
    way = WAYS[name][0]
    for value in (float("nan"), float("inf"), float("-inf")):
        given = torch.tensor([value], dtype=torch.float64)  # alone, for 0 · NaN would spoil its neighbours
        torch.testing.assert_close(run_by_the_core(way, [given]), way(given), equal_nan=True)


EDGES: dict[str, Function] = {
    "atan": torch.atan, "mish": F.mish, "hardsigmoid": F.hardsigmoid, "floor": torch.floor, "ceil": torch.ceil,
    "trunc": torch.trunc, "frac": torch.frac, "round": torch.round, "remainder": torch.remainder, "pow": torch.pow,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str, dtype: torch.dtype) -> None:
    """Zeros of both signs, infinities, NaN, halves, negative bases: values with their signs, and gradients."""
    way, count = EDGES[name], arguments_of(EDGES[name])
    inf = float("inf")
    few = [0.0, -0.0, 0.3, -0.3, 0.5, -0.5, 1, -1, 1.5, -1.5, 2.5, -2.5, 3, -3, 7.3, -7.3, 9e6, inf, -inf, float("nan")]
    some = torch.tensor(few, dtype=dtype)
    given = torch.cartesian_prod(some, some).unbind(1) if count == 2 else (some,)

    class OfStates(Cell):
        gates = ("x",)
        state_gates = ()
        states = ("h", "c")[:count]

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (way(*s), *s[1:])

    def by(backend: str) -> tuple[Tensor, ...]:
        leaves = [part[None].clone().requires_grad_() for part in given]
        weights = {"weight_ih": torch.zeros(leaves[0].shape[1], 1, dtype=dtype)}
        result = scan(OfStates(), weights, torch.zeros(1, 1, 1, dtype=dtype), tuple(leaves), backend=backend)
        value = result.outputs[0, 0]
        return value.detach(), *torch.autograd.grad(value.sum(), leaves)

    (got, *ours), (expected, *theirs) = by("native"), by("loop")
    close = {"rtol": 16 * torch.finfo(dtype).eps, "atol": 0.0, "equal_nan": True}
    torch.testing.assert_close(got, expected, **close)
    number = ~expected.isnan()
    assert torch.equal(got.signbit()[number], expected.signbit()[number])
    known = torch.ones_like(number)
    if name == "remainder":  # a / 0 and a / ∞ have no slope in the divisor
        known = given[1].isfinite() & (given[1] != 0) & given[0].isfinite()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a[0, known], b[0, known], **close)


def test_a_remainder_is_that_of_the_division_even_where_the_quotient_is_rounded() -> None:
    """1 / 0.1 is 10 in floating point, but 0.1 is slightly more than a tenth: 9 times, and almost 0.1 remains."""
    one = torch.ones(1, dtype=torch.float64)
    assert run_by_the_core(lambda a: a % 0.1, [one]).item() == 1.0 % 0.1 > 0.09


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["tanh", "sigmoid", "exp"])
def test_to_the_last_digits(name: str, dtype: torch.dtype) -> None:
    """The core's own curves, against float64 and against extended precision: within a few roundings everywhere."""
    steps = torch.cat([torch.linspace(-30, 30, 4001), torch.logspace(-12, 0, 400), -torch.logspace(-12, 0, 400)])
    given = steps.to(dtype)
    got = torch.cat([run_by_the_core(WAYS[name][0], [part]) for part in given.split(600)])
    x = given.double().numpy().astype("longdouble")
    exact = {"tanh": np.tanh(x), "sigmoid": 1 / (1 + np.exp(-x)), "exp": np.exp(x)}[name]
    off = np.abs(got.double().numpy() - exact) / np.abs(exact)
    assert float(off.max()) < 4 * torch.finfo(dtype).eps
