"""Printed programs, compiled by g++, against operations of PyTorch and their derivatives: every cell, and random ones.

A program's expressions are evaluated in PyTorch, and differentiated there: nothing of how programs are assembled or
printed takes part in what is expected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from recur.cells import Cell, make_cell
from recur.compiler.assembly import FUSED, Assembly, Code, assemble
from recur.compiler.expressions import OPERATIONS as MEANINGS
from recur.compiler.tracing import TracedStep, trace_step
from recur.errors import CellError
from recur.ops.cuda.codegen import OPERATIONS, format_constant, print_function, read_indices, written_indices
from tests.compiler.test_random_programs import KINKS, Random, cells
from tests.cuda.printed import Host, needs_compiler
from tests.support import NATIVE_CELLS

pytestmark = needs_compiler

COUNT = 40
"""Elements at once."""
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}

DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)


def leaves_of(cell: Cell, step: TracedStep, seed: int) -> dict[tuple[str, int], Tensor]:
    """Of the expressions: shares, products, states before, prepared weights; a normaliser n is at least 1."""
    numbers = torch.Generator().manual_seed(seed)
    counts = {role: len(cell.tuple_of(role)._fields) for role in "xhs"} | {"w": len(step.prepared)}
    made = {}
    for role, count in counts.items():
        for k in range(count):
            leaf = torch.randn(COUNT, generator=numbers, dtype=torch.float64)
            leaf = leaf.abs() + 1 if role == "s" and cell.states[k] == "n" else leaf
            made[role, k] = -leaf.abs() if role == "w" and cell.name in ("lru", "rglru") else leaf
    return made


def custom(y: Tensor, *slope: Tensor) -> Tensor:
    """The value y with the derivative slope[1] in slope[0], in PyTorch."""
    return y.detach() + (slope[0] - slope[0].detach()) * slope[1].detach() if slope else y.detach()


def expected_of(
    cell: Cell, step: TracedStep, a: Assembly, leaves: dict[tuple[str, int], Tensor], arriving: list[Tensor]
) -> dict[str, Tensor]:
    """By PyTorch: the next states, and the gradients of everything that a step reads."""
    given = {key: leaf.clone().requires_grad_() for key, leaf in leaves.items()}
    # A state that is what the step was given, or another one, is a node of its own.
    with mock.patch.dict(MEANINGS, custom=custom):
        after = [part.expand(COUNT) * 1 for part in step.terms.evaluate(step.states, given)]
    loss = torch.stack([(part * g).sum() for part, g in zip(after, arriving, strict=True)]).sum()
    grads = dict(zip(given, torch.autograd.grad(loss, list(given.values()), allow_unused=True), strict=True))

    def of(role: str, count: int) -> Tensor:
        parts = [grads[role, k] for k in range(count)]
        return stacked([torch.zeros(COUNT, dtype=torch.float64) if part is None else part for part in parts])

    found = {"after": stacked([part.detach() for part in after]), "d_share": of("x", a.gates)}
    found |= {"product": of("h", a.products), "d_before": of("s", a.states), "sum": of("w", a.extras)}
    return found


def stacked(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts) if parts else torch.zeros(0, COUNT, dtype=torch.float64)


def agree(got: Tensor, expected: Tensor, what: str, tolerance: float) -> None:
    assert got.shape == expected.shape, what
    if not expected.numel():
        return
    off = (got.double() - expected).abs().max().item()
    assert off <= tolerance * max(1.0, expected.abs().max().item()), f"{what}: off by {off:.3g}"


def check(host: Host, name: str, cell: Cell, step: TracedStep, a: Assembly, dtype: torch.dtype, seed: int = 0) -> None:
    leaves = {key: leaf.to(dtype).double() for key, leaf in leaves_of(cell, step, seed).items()}
    numbers = torch.Generator().manual_seed(seed + 1)
    arriving = [torch.randn(COUNT, generator=numbers).double() for _ in cell.states]
    expected = expected_of(cell, step, a, leaves, arriving)
    tolerance = TOLERANCE[dtype]
    by_role = {role: stacked([leaf for (r, _), leaf in leaves.items() if r == role]) for role in "xhsw"}
    given = {"share": by_role["x"], "product": by_role["h"], "before": by_role["s"], "extra": by_role["w"]}
    for program in ("use", "train"):
        made = host(name, program, given)
        agree(made["after"], expected["after"], f"{name}, {program}: after", tolerance)
    # What a forward pass does not write, no backward pass may read: it stays what it was.
    kept = {kind: made[kind] for kind in ("share", "saved", "after")} | {"d_after": stacked(arriving)}
    for program in ("back", "trace"):
        found = host(name, program, {**kept, "before": given["before"], "extra": given["extra"]})
        for kind in ("d_share", "d_before", "sum"):
            agree(found[kind], expected[kind], f"{name}, {program}: {kind}", tolerance)
        whole = torch.cat([found["d_share"], found["d_product"]])
        agree(whole[a.product_places], expected["product"], f"{name}, {program}: product", tolerance)
        for j, wanted in enumerate(found["d_state"] if program == "trace" else []):
            assert wanted.isfinite().all(), f"{name}: ∂L/∂{cell.states[j]} is not written"


def assembled(cell: Cell) -> tuple[TracedStep, Assembly]:
    step = trace_step(cell)
    return step, assemble(cell, step, biased=True)


@pytest.fixture(scope="module")
def registered() -> dict[str, tuple[Cell, TracedStep, Assembly]]:
    return {name: (cell, *assembled(cell)) for name in NATIVE_CELLS for cell in [make_cell(name)]}


class Rare(Cell):
    """Functions that no registered cell uses."""

    gates = ("a", "b")
    states = ("h", "c")

    def step(self, x: Any, h: Any, s: Any) -> Any:
        v = torch.atan(x.a + h.a) + functional.mish(x.b) - functional.hardsigmoid(h.a)
        v *= torch.round(4 * h.b)
        return torch.remainder(v, x.b * x.b + 0.7) - torch.floor(3 * s.c) * v, (x.b * x.b + 0.1) ** torch.tanh(s.h)


@DTYPES
def test_rare_functions(dtype: torch.dtype, tmp_path: Path) -> None:
    cell = Rare()
    step, a = assembled(cell)
    check(Host({"rare": a}, dtype, tmp_path), "rare", cell, step, a, dtype)


@DTYPES
def test_every_cell(
    registered: dict[str, tuple[Cell, TracedStep, Assembly]], dtype: torch.dtype, tmp_path: Path
) -> None:
    host = Host({name: a for name, (_, _, a) in registered.items()}, dtype, tmp_path)
    for name, (cell, step, a) in registered.items():
        check(host, name, cell, step, a, dtype)


def test_the_whole_gradient_of_a_state(
    registered: dict[str, tuple[Cell, TracedStep, Assembly]], tmp_path: Path
) -> None:
    """Of an LSTM's memory: what comes to it, and what comes through its output."""
    cell, step, a = registered["lstm"]
    leaves = leaves_of(cell, step, 3)
    given = [stacked([leaf for (r, _), leaf in leaves.items() if r == role]) for role in "xhs"]
    arriving = torch.randn(2, COUNT, dtype=torch.float64)
    host = Host({"lstm": a}, torch.float64, tmp_path)
    made = host("lstm", "train", dict(zip(("share", "product", "before"), given, strict=True)))
    kept = {kind: made[kind] for kind in ("share", "saved", "after")} | {"before": given[2], "d_after": arriving}
    found = host("lstm", "trace", kept)["d_state"]
    c = made["after"][1]
    o = torch.sigmoid(given[0][3] + given[1][3])
    agree(found, torch.stack([arriving[0], arriving[1] + arriving[0] * o * (1 - c.tanh() ** 2)]), "d_state", 1e-12)


def usable(cell: Random) -> tuple[TracedStep, Assembly] | None:
    try:
        return assembled(cell)
    except CellError:  # a state of the weights alone, which has no rows
        return None


# Smaller examples are not looked for: each is compiled.
@settings(max_examples=6, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(made=st.lists(cells(), min_size=12, max_size=12), seed=st.integers(0, 999))
def test_random_steps(made: list[Random], seed: int, tmp_path_factory: Any) -> None:
    read = {str(k): (cell, *found) for k, cell in enumerate(made) if (found := usable(cell)) is not None}
    kept = {}
    for name, (cell, step, a) in read.items():
        leaves = leaves_of(cell, step, seed)
        KINKS.clear()
        roles = [cell.tuple_of(r)(*(leaf for (q, _), leaf in leaves.items() if q == r)) for r in "xhs"]
        own = cell.tuple_of("w")(*(torch.randn(COUNT, dtype=torch.float64) for _ in cell.extras))
        cell.step(*roles, own)
        arriving = [torch.ones(COUNT, dtype=torch.float64) for _ in cell.states]
        found = expected_of(cell, step, a, leaves, arriving)
        tame = all(part.isfinite().all() and part.abs().max() < 1e4 for part in found.values() if part.numel())
        if tame and min(KINKS, default=1.0) > 1e-6:
            kept[name] = cell, step, a
    if kept:
        host = Host({name: a for name, (_, _, a) in kept.items()}, torch.float64, tmp_path_factory.mktemp("random"))
        for name, (cell, step, a) in kept.items():
            check(host, name, cell, step, a, torch.float64, seed)


def test_every_operation_can_be_printed() -> None:
    assert {*MEANINGS, *FUSED.values(), "copy", "sum"} - {"custom"} == set(OPERATIONS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "real(0.1)"),
        (float("inf"), "real(INFINITY)"),
        (float("-inf"), "real(-INFINITY)"),
        (float("nan"), "real(NAN)"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert format_constant(value) == text


def test_what_a_program_reads_and_writes() -> None:
    places = [("share", 0), ("share", 1), ("after", 0), ("sum", 0), ("sum", 1), ("temp", 0)]
    code = Code(
        [("tanh", (5, 0)), ("copy", (0, 5)), ("add", (2, 0, 1)), ("sum", (3, 2)), ("sum", (4, 2))], places, [], 1
    )
    assert read_indices(code, "share") == [0, 1]
    assert written_indices(code, "share") == [0]
    assert read_indices(code, "after") == []
    assert read_indices(code, "sum") == [0, 1]
    text = print_function("f", code, ("share", "after", "sum"), sums=1)
    assert "sum[0] = sum[0] + after[0];" in text
    assert "sum[1]" not in text
