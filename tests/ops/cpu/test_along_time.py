"""Programs whose rows are steps of one sequence, for cells that are affine in their states, against the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from recur.cells import Cell, make_cell
from recur.compiler.programs import assembled
from recur.ops.bptt import BPTT
from recur.ops.cpu import plans
from recur.ops.cpu.library import load_programs
from recur.ops.cpu.plans import CorePlan
from tests.affine_cells import AFFINE, IDS, Ring, case_of
from tests.support import DOUBLE, ISAS, all_close, close, core, needs_core

pytestmark = needs_core

T = 90
XI = torch.rand(3, T, generator=torch.Generator().manual_seed(1), **DOUBLE) * 2
XI[:, ::7] = 0
XI_LONG = torch.rand(2, 333, generator=torch.Generator().manual_seed(3), **DOUBLE)
RESET = torch.rand(3, T, generator=torch.Generator().manual_seed(2)) < 0.05
OPTIONS: dict[str, dict[str, Any]] = {
    "whole": {},
    "lengths": {"lengths": [T, 7, 51]},
    "reset": {"reset": RESET},
    "xi": {"bptt": BPTT(xi=XI)},
    "everything": {"lengths": [61, T, 3], "reset": RESET, "reverse": True, "bptt": BPTT(xi=XI)},
}


class Fixed(Cell):
    """One gate and nothing saved: U x + b lies where the outputs will."""

    gates = ("a",)
    state_gates = ()
    extras = {"p": ("H",)}

    def step(self, x: Any, h: Any, s: Any, w: Any) -> tuple[Tensor]:
        return (torch.tanh(w.p) * s.h + x.a,)


CELLS, NAMES = [*AFFINE, Ring(), Fixed()], [*IDS, "Ring", "Fixed"]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each call of the core took steps of one sequence. Here all do that can."""
    monkeypatch.setattr(plans, "runs_time_blocked", lambda cell, *sizes: bool(load_programs(cell).assembly.along_time))
    found: list[bool] = []
    plain = CorePlan.run

    def watched(plan: CorePlan, tensors: Sequence[Tensor]) -> None:
        found.append(bool(plan.bound(tensors).along_time))
        plain(plan, tensors)

    monkeypatch.setattr(CorePlan, "run", watched)
    forget_plans()
    yield found
    forget_plans()


def forget_plans() -> None:
    """They are made once, as things are then."""
    plans.forward_pass.cache_clear()
    plans.backward_pass.cache_clear()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("cell", CELLS, ids=NAMES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_equal_to_the_loop(cell: Any, options: dict[str, Any], threads: int, seen: list[bool]) -> None:
    case = case_of(cell, B=3, T=T, H=41)
    for weight in case.weights.values():
        weight.data *= 0.4
    was = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        got = case.everything(lambda: case.scan(backend="native", **options))
        with torch.no_grad():
            used = case.scan(backend="native", **options)
    finally:
        torch.set_num_threads(was)
    assert seen == [True] * 3
    expected = case.everything(lambda: case.scan(backend="loop", **options))
    all_close(got, expected)
    close(used.outputs, expected["outputs"])
    for name, part in zip(case.cell.states, used.state, strict=True):
        close(part, expected[f"final {name}"], name)


@pytest.mark.parametrize("cell", CELLS, ids=NAMES)
def test_threads_take_pieces_of_one_narrow_sequence(cell: Any, seen: list[bool]) -> None:
    """Bit for bit what one thread finds: only scans wait for each other, and nothing is summed in another order."""
    case = case_of(cell, B=2, T=333, H=7, dtype=torch.float32)
    for weight in case.weights.values():
        weight.data *= 0.4
    options: dict[str, Any] = {"lengths": [333, 200], "bptt": BPTT(xi=XI_LONG)}
    found, was = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.append(case.everything(lambda: case.scan(backend="native", **options)))
    finally:
        torch.set_num_threads(was)
    assert all(seen)
    for other in found[1:]:
        for name, value in found[0].items():
            assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 2, 32), (1, 29, 33), (4, 100, 16), (1, 100, 40), (1, 2000, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.usefixtures("seen")
def test_sizes(isa: str, sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    B, steps, H = sizes
    case = case_of("mingru", B, steps, 3, H, dtype=dtype)
    was = core.isa
    core.use(isa)
    try:
        got = case.everything(lambda: case.scan(backend="native"))
    finally:
        core.isa = was
    all_close(got, case.everything(lambda: case.scan(backend="loop")))


@pytest.mark.parametrize("cell", CELLS, ids=NAMES)
def test_the_trace(cell: Any, seen: list[bool]) -> None:
    case = case_of(cell, B=3, T=40)
    found = []
    for backend in ("native", "loop"):
        result = case.scan(backend=backend, trace=True, lengths=[40, 3, 29])
        case.loss(result).backward()
        found.append(result.trace.gradients | result.trace.terms)
    assert seen == [True] * 2
    all_close(*found)


def test_chosen_where_sequences_are_few_and_long() -> None:
    def chosen(name: str, segments: int, steps: int) -> bool:
        cell = make_cell(name)
        found = assembled(cell, biased=True)
        assert not isinstance(found, str)
        return plans.runs_time_blocked(found[1], segments, steps)

    assert chosen("mingru", 1, 100)
    assert chosen("mingru", 8, 16)
    assert not chosen("mingru", 9, 100)
    assert not chosen("mingru", 1, 3)
    assert not chosen("indrnn", 1, 100), "which is not affine"
    assert not chosen("gru", 1, 100)


def test_clip_takes_step_after_step(seen: list[bool]) -> None:
    """The norm that it needs is over all units of a step."""
    case = case_of("mingru", B=2, T=30)
    got = case.everything(lambda: case.scan(backend="native", bptt="clip:0.1"))
    assert seen == [True, False], "forward there is nothing to clip"
    all_close(got, case.everything(lambda: case.scan(backend="loop", bptt="clip:0.1")))
