"""Equations and derivatives as text: every line, read again by Python, against the step and autograd."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from recur.cells import Cell, make_cell
from recur.compiler.equations import equations_of
from recur.errors import CellError
from tests.support import POINTWISE_CELLS, close

FUNCTIONS = {
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu, "sqrt": torch.sqrt, "exp": torch.exp,
    "log": torch.log, "log1p": torch.log1p, "expm1": torch.expm1, "sin": torch.sin, "cos": torch.cos, "abs": torch.abs,
    "max": torch.maximum, "min": torch.minimum, "logsigmoid": F.logsigmoid, "softplus": F.softplus,
    "atan": torch.atan, "floor": torch.floor, "round": torch.round, "pow": torch.pow, "remainder": torch.remainder,
}  # fmt: skip


def as_python(formula: str) -> str:
    """What a person reads, as Python does."""
    for theirs, ours in (
        ("log σ", "logsigmoid"),
        ("σ", "sigmoid"),
        ("ReLU", "relu"),
        ("√", "sqrt"),
        ("−", "-"),
        ("≤", "<="),
    ):
        formula = formula.replace(theirs, ours)
    formula = re.sub(r"(?<=\w)'", "_new", formula).replace("∂", "d_").replace("²", "**2").replace("⊙", "*")
    formula = re.sub(r"\|([^|]+)\|", r"abs(\1)", formula)
    formula = re.sub(r" = ", " == ", formula)
    return re.sub(r"(?<![\w.])(\(?-?[\d.]+(?:e-?\d+)?\)?) (?=[\w(])", r"\1 * ", formula)


def where(which: Tensor, a: Any, b: Any) -> Tensor:
    return torch.where(which, torch.as_tensor(a, dtype=torch.float64), torch.as_tensor(b, dtype=torch.float64))


def run(lines: list[str], known: dict[str, Any]) -> None:
    """Have the names that these lines define among those known."""
    for line in lines:
        if "+=" in line:  # Wᵀ, outside the step
            continue
        *names, formula = re.split(r" = (?![^(]*\))", line)
        value = eval(as_python(formula), {"where": where, **FUNCTIONS}, known)
        known.update({as_python(name): value for name in names})


@pytest.mark.parametrize("name", [*POINTWISE_CELLS, "slstm:forget=exp", "sru:peephole=False", "mingru:positive=True"])
def test_what_is_written_is_the_step_and_its_derivative(name: str) -> None:
    cell = make_cell(name)
    equations, derivative = equations_of(cell)
    arguments = [
        cell.tuple_of(role)._make(torch.rand(3, dtype=torch.float64).add(0.2).requires_grad_() for _ in fields)
        for role, fields in ((role, cell.tuple_of(role)._fields) for role in "xhsw")
    ]
    x, h, s, w = arguments
    of_x = [*(f"x_{gate}" for gate in cell.gates), *cell.step_inputs]
    known: dict[str, Any] = dict(zip(of_x, x, strict=True))
    known |= {f"h_{g}": v for g, v in zip(cell.recurrent_gates, h, strict=True)}
    known |= dict(zip(cell.states, s, strict=True)) | dict(zip(cell.extras, w, strict=True))
    leaves = dict(known)
    expected = cell.advance(*arguments)
    arriving = [torch.randn_like(part) for part in expected]
    known |= {f"g_{state}": g for state, g in zip(cell.states, arriving, strict=True)}
    run(equations, known)
    for state, part in zip(cell.states, expected, strict=True):
        close(known[f"{state}_new"], part, state)
    run(derivative, known)
    gradients = torch.autograd.grad(expected, list(leaves.values()), arriving, allow_unused=True)
    for (leaf, _), gradient in zip(leaves.items(), gradients, strict=True):
        if gradient is None:
            assert f"d_{leaf}" not in known
        else:
            close(known[f"d_{leaf}"], gradient, leaf)


def test_the_lstm_reads_as_its_book() -> None:
    equations, derivative = equations_of(make_cell("lstm"))
    assert equations == [
        "i = σ(x_i + h_i)",
        "f = σ(x_f + h_f)",
        "g = tanh(x_g + h_g)",
        "o = σ(x_o + h_o)",
        "c' = c ⊙ f + i ⊙ g",
        "h' = o ⊙ tanh(c')",
    ]
    for line in (
        "∂c' = g_c + o ⊙ g_h ⊙ (1 − u1²)",
        "∂c = f ⊙ ∂c'",
        "∂x_f = ∂h_f = ∂f ⊙ f ⊙ (1 − f)",
        "∂h += Wᵀ (∂h_i, ∂h_f, ∂h_g, ∂h_o)",
    ):
        assert line in derivative


def test_odd_steps() -> None:
    class Odd(Cell):
        """Hands a state on as it came, returns one value twice, and calls something by a state's name."""

        gates = ("a",)
        states = ("h", "c", "d")

        def step(self, x: Any, h: Any, s: Any) -> Any:
            c = x.a * 2
            both = torch.tanh(c + h.a)
            return both, s.h, both

    equations, derivative = equations_of(Odd())
    assert equations == ["h' = d' = tanh(h_a + 2 x_a)", "c' = h"]
    assert derivative == ["∂h' = g_h + g_d", "∂h_a = ∂h' ⊙ (1 − h'²)", "∂x_a = 2 ∂h_a", "∂h = g_c", "∂h += Wᵀ (∂h_a)"]


def test_a_step_that_is_not_pointwise_is_not_written() -> None:
    with pytest.raises(CellError, match="GRU2014 has pointwise = False"):
        equations_of(make_cell("gru2014"))


def test_rare_functions_are_written_by_name() -> None:
    class Rare(Cell):
        gates = ("a", "b")

        def step(self, x: Any, h: Any, s: Any) -> Any:
            v = torch.atan(x.a + h.a)
            v += torch.remainder(s.h, x.b)
            return (v * torch.round(4 * h.b) + torch.floor(2 * h.b),)

    equations, derivative = equations_of(Rare())
    assert equations == ["v = atan(x_a + h_a) + remainder(h, x_b)", "h' = v ⊙ round(4 h_b) + floor(2 h_b)"]
    names = ("x_a", "x_b", "h_a", "h_b", "h", "g_h")
    known: dict[str, Any] = {name: torch.rand(3, dtype=torch.float64).add(0.2).requires_grad_() for name in names}
    x, h, s = (Rare().tuple_of(role) for role in "xhs")
    (result,) = Rare().step(x(known["x_a"], known["x_b"]), h(known["h_a"], known["h_b"]), s(known["h"]))
    leaves = {name: known[name] for name in ("x_a", "x_b", "h")}
    gradients = torch.autograd.grad(result, list(leaves.values()), known["g_h"])
    run(equations, known)
    close(known["h_new"], result, "h'")
    run(derivative, known)
    for (name, _), gradient in zip(leaves.items(), gradients, strict=True):
        close(known[f"d_{name}"], gradient, name)

    class Power(Rare):
        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (x.a**x.b,)

    assert equations_of(Power()) == (
        ["h' = pow(x_a, x_b)"],
        [
            "∂x_a = where(x_b = 0, 0, g_h ⊙ x_b ⊙ pow(x_a, x_b − 1))",
            "∂x_b = where((x_a = 0) ⊙ (0 ≤ x_b), 0, g_h ⊙ h' ⊙ log(x_a))",
            "∂h += Wᵀ (∂h_a, ∂h_b)",
        ],
    )
