"""Cells that are affine in their states in more ways than those of the registry, for the tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import sigmoid, tanh

from recur.cells import Cell, State
from tests.support import Case, random_state, random_weights


class ReadOut(Cell):
    """A state that is carried and one that is read out of it, as SRU has them."""

    gates = ("f", "r", "v", "x")
    state_gates = ()
    states = ("h", "c")

    def step(self, x: Any, h: Any, s: Any) -> State:
        f, r = sigmoid(x.f), sigmoid(x.r)
        c = f * s.c + (1 - f) * x.v
        return (r * tanh(c) + (1 - r) * x.x, c)


class Turned(Cell):
    """Two states that turn into each other, as the parts of a complex number, and their product one step late."""

    gates = ("a", "b")
    state_gates = ()
    states = ("h", "c", "d")
    extras = {"nu": ("H",), "theta": ("H",)}

    def step(self, x: Any, h: Any, s: Any, w: Any) -> State:
        size = torch.exp(-torch.exp(w.nu))
        cos, sin = size * torch.cos(w.theta), size * torch.sin(w.theta)
        return (cos * s.h - sin * s.c + x.a, sin * s.h + cos * s.c + x.b, s.h * s.c)


class Cascade(Cell):
    """A state whose factor is made of another's past, one that is read one step late, and one that grows."""

    gates = ("a", "b")
    state_gates = ()
    states = ("h", "c", "d")

    def step(self, x: Any, h: Any, s: Any) -> State:
        c = -1.05 * s.c + x.a
        return (tanh(s.c) * s.h + s.d * x.b + c, c, tanh(s.c) + x.b)


class Gated(Cell):
    """A factor that is exactly 0, 1, −1 or 2, by the sign and size of the input."""

    gates = ("a", "b")
    state_gates = ()

    def step(self, x: Any, h: Any, s: Any) -> State:
        kept = torch.where(
            x.a < 0, torch.where(x.a < -0.7, 0 * x.a, 0 * x.a - 1), torch.where(x.a < 2, 0 * x.a + 1, 0 * x.a + 2)
        )
        return (kept * s.h + x.b,)


class Ring(Cell):
    """Three states that read each other's past, one of them nothing else, and one that is read out of two."""

    gates = ("a", "b", "c")
    state_gates = ()
    states = ("h", "c", "d", "e")

    def step(self, x: Any, h: Any, s: Any) -> State:
        f, g = 0.5 * sigmoid(x.c), 0.4 * tanh(x.b)
        return (g * s.c - 0.3 * s.e, 0.4 * s.h + f * s.c - x.a, s.h * s.c, 0.4 * s.e + f * x.b - f * s.h)


AFFINE: list[Any] = ["mingru", ReadOut(), Turned(), Cascade(), Gated()]
IDS = [cell if isinstance(cell, str) else type(cell).__name__ for cell in AFFINE]


def case_of(
    cell: str | Cell, B: int = 3, T: int = 5, D: int = 4, H: int = 3, P: int = 0, dtype: Any = torch.float64
) -> Case:
    """Inputs, weights and an initial state for a cell, registered or not."""
    if isinstance(cell, str):
        return Case(cell, B, T, D, H, P, dtype=dtype)
    case = Case("elman", B, T, D, H, dtype=dtype)
    case.cell, case.weights = cell, random_weights(cell, D, H, dtype=dtype)
    case.state = random_state(cell, B, H, dtype)
    case.on_state = [torch.randn(B, H, dtype=dtype) for _ in cell.states]
    return case
