"""What the tests share: one table of tolerances, random weights, and comparison of everything a scan gives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from recur.cells import Cell, MatrixCell, cell_names, make_cell
from recur.compiler.programs import not_affine
from recur.compiler.stage_tracing import stage_programs, staged
from recur.ops import ScanOutput, scan
from recur.ops.cpu import library

# The largest difference allowed, relative to the largest number compared (or to 1, if that is smaller).
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2}
SLOPE_TOLERANCE = 1e-6
"""The same for a slope by central differences in float64, which are no better than that themselves."""

ALL_CELLS = cell_names()
TORCH_CELLS = ["elman", "elman-relu", "gru", "lstm"]
POINTWISE_CELLS = [name for name in ALL_CELLS if make_cell(name).pointwise]
STAGED_CELLS = [
    name
    for name in ALL_CELLS
    if staged(make_cell(name)) and not isinstance(stage_programs(make_cell(name), True, False), str)
]
"""Cells with several products, reductions, or inputs of their own in a step, which the C++ core runs in stages."""
NATIVE_CELLS = [name for name in POINTWISE_CELLS if name not in STAGED_CELLS]
"""Cells that are one program, which the CPU and the CUDA backend run."""
AFFINE_CELLS = [name for name in NATIVE_CELLS if not_affine(make_cell(name), biased=True) is None]
MATRIX_CELLS = [name for name in ALL_CELLS if isinstance(make_cell(name), MatrixCell)]

core = library.core()
needs_core = pytest.mark.skipif(core is None, reason="the C++ core is not built")
HERE = ["loop", "torch", *(["native"] if core else [])]
"""The backends that run on this machine."""
ISAS = library.ISAS[: core.best_isa + 1] if core else ()
"""The instruction sets that the core can use here."""

RUNS = [(name, "loop") for name in ALL_CELLS] + [(name, "torch") for name in TORCH_CELLS]
RUNS += [(name, "parallel") for name in AFFINE_CELLS]
RUNS += [(name, "native") for name in NATIVE_CELLS + STAGED_CELLS if core]
RUNS += [(name, "chunk") for name in MATRIX_CELLS]
"""Every cell on every backend that takes it."""

DOUBLE = {"dtype": torch.float64}


def become_another_user(monkeypatch: pytest.MonkeyPatch, state: str | Path = "another user") -> None:
    """Forget which custom cells this user named, trusted and executed, as a new process of another user would."""
    monkeypatch.setenv("RECUR_STATE", str(state))
    monkeypatch.setattr("recur.utils.trust._CELLS._in_process", set())
    for name in [name for name in sys.modules if name.startswith("recur_user_cell_")]:
        monkeypatch.delitem(sys.modules, name)


def close(got: Any, expected: Any, what: str = "", tolerance: float | None = None) -> None:
    got, expected = torch.as_tensor(got), torch.as_tensor(expected)
    assert got.shape == expected.shape, f"{what}: {tuple(got.shape)} is not {tuple(expected.shape)}"
    assert got.dtype == expected.dtype, f"{what}: {got.dtype} is not {expected.dtype}"
    off = (got - expected).abs().max().item()
    bound = (tolerance or TOLERANCE[expected.dtype]) * max(1.0, expected.abs().max().item())
    assert off <= bound, f"{what}: off by {off:.3g}, more than {bound:.3g}"


def random_weights(
    cell: Cell, D: int, H: int, projection: int = 0, *, bias: bool = True, dtype: Any = torch.float64
) -> dict[str, Tensor]:
    """Weights large enough for gates to move and for a dropped term to show."""
    return {
        name: (torch.randn(shape, dtype=dtype) * 0.5).requires_grad_()
        for name, shape in cell.shapes(D, H, bias, projection).items()
    }


def random_state(
    cell: Cell, B: int | None, H: int, dtype: Any = torch.float64, projection: int = 0
) -> tuple[Tensor, ...]:
    """(B, H) each, or (H,) for all rows alike. A normaliser n is at least 1, as steps leave it."""
    rows = () if B is None else (B,)
    parts = [torch.randn(*rows, width, dtype=dtype) * 0.5 for width in cell.widths(H, projection)]
    normalised = [part.abs() + 1 if name == "n" else part for name, part in zip(cell.states, parts, strict=True)]
    return tuple(part.requires_grad_() for part in normalised)


class Case:
    """One cell with inputs, weights and an initial state that all want gradients."""

    def __init__(
        self, name: str, B: int = 3, T: int = 5, D: int = 4, H: int = 3, P: int = 0, dtype: Any = torch.float64
    ) -> None:
        self.cell = make_cell(name)
        self.weights = random_weights(self.cell, D, H, P, dtype=dtype)
        self.x = torch.randn(B, T, D, dtype=dtype).requires_grad_()
        self.state = random_state(self.cell, B, H, dtype, P)
        # Fixed weights of the loss, so that every output and every final state counts differently.
        self.on_outputs = torch.randn(B, T, self.cell.output_width(H, P), dtype=dtype)
        self.on_state = [torch.randn(B, width, dtype=dtype) for width in self.cell.widths(H, P)]

    @property
    def leaves(self) -> dict[str, Tensor]:
        states = {f"{name}0": part for name, part in zip(self.cell.states, self.state, strict=True)}
        return {"x": self.x, **self.weights, **states}

    def scan(self, **options: Any) -> ScanOutput:
        return scan(self.cell, self.weights, self.x, self.state, **options)

    def scan_of(self, steps: slice, state: Any, **options: Any) -> ScanOutput:
        return scan(self.cell, self.weights, self.x[:, steps], state, **options)

    def loss(self, result: Any) -> Tensor:
        outputs, state = result[0], result[1]
        value = (outputs * self.on_outputs).sum()
        for part, weight in zip(state, self.on_state, strict=True):
            value = value + (part * weight).sum()
        return value

    def everything(self, run: Callable[[], Any]) -> dict[str, Tensor]:
        """Outputs, final state and the gradient of every leaf, by name."""
        result = run()
        grads = torch.autograd.grad(self.loss(result), list(self.leaves.values()), allow_unused=True)
        found = {"outputs": result[0].detach()}
        found |= {f"final {n}": p.detach() for n, p in zip(self.cell.states, result[1], strict=True)}
        for (name, leaf), grad in zip(self.leaves.items(), grads, strict=True):
            found[f"grad {name}"] = torch.zeros_like(leaf) if grad is None else grad
        return found


def in_double(case: Case) -> Case:
    """The same numbers in float64."""
    other = Case.__new__(Case)
    other.cell = case.cell
    other.weights = {name: w.detach().double().requires_grad_() for name, w in case.weights.items()}
    other.x = case.x.detach().double().requires_grad_()
    other.state = tuple(part.detach().double().requires_grad_() for part in case.state)
    other.on_outputs, other.on_state = case.on_outputs.double(), [weight.double() for weight in case.on_state]
    return other


def all_close(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    for name in expected:
        close(got[name], expected[name], name)
