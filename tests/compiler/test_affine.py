"""Which steps are affine in their states, and as what stages."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import sigmoid, tanh

from recur.cells import Cell, make_cell
from recur.compiler.affine import AffineStep, range_of, values_of
from recur.compiler.expressions import Expressions
from recur.compiler.formulas import FORMULAS
from recur.compiler.tracing import trace_step
from tests.affine_cells import AFFINE, IDS, Cascade, ReadOut, Turned
from tests.support import close


def affine_of(cell: Cell) -> AffineStep:
    affine = trace_step(cell).affine
    assert isinstance(affine, AffineStep), affine
    return affine


def made(gates: str, names: str, step: Any) -> Cell:
    """A cell of one line."""

    class Made(Cell):
        pass

    cell = Made()
    vars(cell).update(gates=tuple(gates), state_gates=(), states=tuple(names), step=step)
    return cell


@pytest.mark.parametrize("cell", AFFINE, ids=IDS)
def test_the_stages_are_the_step(cell: Any) -> None:
    """A s + b of every stage, on other numbers, is what the step itself gives."""
    cell = make_cell(cell)
    step, affine = trace_step(cell), affine_of(cell)
    x, s, w = (
        cell.tuple_of(role)._make(torch.randn(2, 3, dtype=torch.float64) for _ in names)
        for role, names in (("x", cell.gates), ("s", cell.states), ("w", cell.extras))
    )
    expected = cell.advance(x, (), s, w)
    own = dict(enumerate(step.weights.evaluate(step.prepared, {("w", k): v for k, v in enumerate(w)}))) if w else {}
    leaves = {("x", k): v for k, v in enumerate(x)} | {("s", k): v for k, v in enumerate(s)}
    leaves |= {("w", k): v for k, v in own.items()}
    for stage in affine.stages:
        for row, offset, i in zip(stage.matrix, stage.offset, stage.states, strict=True):
            (total,) = affine.terms.evaluate([offset], leaves)
            for a, j in zip(row, stage.states, strict=True):
                if a is not None:
                    total = total + affine.terms.evaluate([a], leaves)[0] * s[j]
            close(total.expand(2, 3), expected[i], cell.states[i])
        reached = affine.terms.reached_from(values_of(stage))
        read = {int(affine.terms[v].leaf) for v in reached if affine.terms[v].op == "s"}
        assert not read & set(stage.states), "A and b know nothing of the states that they carry"


def test_stages_stand_in_the_order_in_which_they_read_each_other() -> None:
    def stages(cell: Cell) -> list[tuple[tuple[str, ...], bool]]:
        return [(tuple(cell.states[i] for i in stage.states), stage.carried) for stage in affine_of(cell).stages]

    assert stages(make_cell("mingru")) == [(("h",), True)]
    assert stages(ReadOut()) == [(("c",), True), (("h",), False)]
    assert stages(Turned()) == [(("h", "c"), True), (("d",), False)]
    assert stages(Cascade()) == [(("c",), True), (("d",), False), (("h",), True)]


def test_which_past_is_read_beside_ones_own() -> None:
    assert affine_of(make_cell("mingru")).before == set()
    assert affine_of(ReadOut()).before == set(), "h reads c after the step, not before it"
    assert affine_of(Turned()).before == {0, 1}
    assert affine_of(Cascade()).before == {1, 2}


@pytest.mark.parametrize(
    ("names", "step", "bounded"),
    [
        ("h", lambda x, h, s: (sigmoid(x.a) * s.h + x.b,), True),
        ("h", lambda x, h, s: (s.h + sigmoid(x.a) * (x.b - s.h),), True),
        ("h", lambda x, h, s: (torch.exp(-2 * torch.nn.functional.softplus(x.a)) * s.h + x.b,), True),
        ("h", lambda x, h, s: (-(s.h - x.a) / 2,), True),
        ("h", lambda x, h, s: (torch.where(x.a < x.b, s.h, tanh(x.a) * s.h + 3),), True),
        ("h", lambda x, h, s: (x.a * s.h,), False),
        ("h", lambda x, h, s: (2 * sigmoid(x.a) * s.h,), False),
        ("h", lambda x, h, s: (s.h / (1 + sigmoid(x.a)) + x.b,), False),
        ("hc", lambda x, h, s: (0.1 * s.c, 0.1 * s.h + x.a), False),
        ("hc", lambda x, h, s: (s.c, x.a + x.b), True),
    ],
)
def test_affine_forms_and_whether_their_products_are_bounded(names: str, step: Any, bounded: bool) -> None:
    assert all(stage.bounded for stage in affine_of(made("ab", names, step)).stages) == bounded


@pytest.mark.parametrize(
    ("names", "step", "reason"),
    [
        ("h", lambda x, h, s: (tanh(s.h) + x.a,), "its state h is not affine in h"),
        ("h", lambda x, h, s: (s.h * s.h + x.a,), "its state h is not affine in h"),
        ("h", lambda x, h, s: (x.a / (s.h + 9),), "its state h is not affine in h"),
        ("h", lambda x, h, s: (torch.maximum(s.h, x.a),), "its state h is not affine in h"),
        ("h", lambda x, h, s: (torch.where(s.h < x.a, x.a, x.b),), "its state h is not affine in h"),
        ("hc", lambda x, h, s: (tanh(s.c), s.h + x.a), "its state h is not affine in h, c"),
        ("hc", lambda x, h, s: (s.c * s.h + x.a, s.h + x.a), "its state h is not affine in h, c"),
    ],
)
def test_a_step_that_is_not_affine_says_which_state(names: str, step: Any, reason: str) -> None:
    assert trace_step(made("ab", names, step)).affine == reason


def test_a_recurrent_product_is_no_affine_step() -> None:
    assert "product of W" in str(trace_step(make_cell("gru")).affine)


def test_ranges_hold_what_their_formulas_give() -> None:
    t = Expressions()
    x, minus = t.leaf("x", 0), t.leaf("w", 0)
    half = t("mul", t.number(0.5), t("tanh", x))
    assert range_of(t, half) == (-0.5, 0.5)
    assert range_of(t, t("abs", half)) == (0, 0.5)
    assert range_of(t, t("sub", t.number(1), t("sigmoid", x))) == (0, 1)
    assert range_of(t, t("relu", t("sub", half, t.number(1)))) == (0, 0)
    assert range_of(t, t("minimum", half, t.number(0.1))) == (-0.5, 0.1)
    assert range_of(t, t("maximum", half, t.number(0.1))) == (0.1, 0.5)
    assert range_of(t, t("exp", minus), [(-math.inf, 0)]) == (0, 1)
    assert range_of(t, t("exp", minus)) == (0, math.inf)
    assert range_of(t, t("sqrt", t("abs", half))) == (0, math.sqrt(0.5))
    assert range_of(t, t("log1p", t("sigmoid", x))) == (0, math.log(2))
    assert range_of(t, t("select", t("less", t.number(2), x), x, t("sigmoid", x))) == (0, math.inf)
    assert range_of(t, t("select", t("less", x, t.number(-2)), x, t("sigmoid", x))) == (-math.inf, 1)
    assert range_of(t, t("mul", t("sigmoid", x), x)) == (-math.inf, math.inf)
    assert range_of(t, t("atan", x)) == (-math.pi / 2, math.pi / 2)
    assert range_of(t, t("floor", t("mul", t.number(1.5), half))) == (-1, 0)
    assert range_of(t, t("round", t("mul", t.number(1.5), half))) == (-1, 1)
    assert range_of(t, t("floor", t("exp", x))) == (0, math.inf)
    assert range_of(t, t("remainder", x, t.number(0.5))) == (0, 0.5)
    assert range_of(t, FORMULAS["hardsigmoid"](t, x)) == (0, 1)
    assert range_of(t, t("div", half, x)) == (-math.inf, math.inf)
