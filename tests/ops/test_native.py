"""The native backend against the loop: every cell, every instruction set, sizes across the edges of its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from recur.ops.bptt import BPTT
from recur.ops.cpu.plans import CorePlan
from tests.support import ISAS, NATIVE_CELLS, Case, all_close, close, core, in_double, needs_core, random_state

pytestmark = needs_core

# B, T, D, H: a single number; vectors, tiles and panels that are full, one short, and one over; several of each.
SIZES = [(1, 1, 1, 1), (2, 3, 7, 5), (13, 2, 1, 31), (1, 4, 33, 32), (25, 1, 16, 33), (49, 2, 33, 65)]
LARGE = (13, 3, 400, 650)
ROUNDING = 2.0**-23


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    was = core.isa
    core.use(request.param)
    yield request.param
    core.isa = was


@pytest.fixture
def threads() -> Iterator[Any]:
    yield torch.set_num_threads
    torch.set_num_threads(1)


def everything(case: Case, backend: str, **options: Any) -> dict[str, Tensor]:
    """All that a scan gives, norms of the carried gradients among it."""
    result = case.scan(backend=backend, trace=True, **options)
    found = case.everything(lambda: result)
    return found | {f"norm {name}": norms for name, norms in result.trace.norms.items()}


def as_exact_as_the_loop(case: Case, **options: Any) -> None:
    """In float32: at most twice as far from float64 as the loop is, but for two roundings of the largest number.

    In the mean square: the largest of some errors is a matter of luck, by a factor of three.
    """
    doubled = {k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in options.items()}
    exact = everything(in_double(case), "loop", **doubled)
    got, loop = everything(case, "native", **options), everything(case, "loop", **options)
    for name, true in exact.items():
        assert got[name].dtype == torch.float32
        ours, theirs = ((found[name].double() - true).square().mean().sqrt().item() for found in (got, loop))
        allowed = 2 * theirs + 2 * ROUNDING * true.abs().max().item()
        assert ours <= allowed, f"{name}: off by {ours:.3g}, and the loop by {theirs:.3g}"


@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_every_cell_at_every_size(name: str, isa: str) -> None:
    for B, T, D, H in SIZES:
        case = Case(name, B, T, D, H)
        all_close(everything(case, "native"), everything(case, "loop"))


@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_every_cell_in_single_precision(name: str, isa: str) -> None:
    for B, T, D, H in ((13, 4, 9, 33), (25, 8, 16, 40)):
        as_exact_as_the_loop(Case(name, B, T, D, H, dtype=torch.float32))


@pytest.mark.parametrize("name", ["elman", "gru", "lstm"])
def test_sizes_of_many_blocks(name: str) -> None:
    """More numbers than one block of a product holds, in every direction."""
    case = Case(name, *LARGE)
    for weight in case.weights.values():
        weight.data.mul_(0.1)
    all_close(everything(case, "native"), everything(case, "loop"))


def test_many_steps_of_many_rows() -> None:
    """More steps than the weights' gradients sum at a time."""
    case = Case("gru", 25, 33, 3, 7)
    all_close(everything(case, "native"), everything(case, "loop"))


OPTIONS: dict[str, Any] = {
    "lengths": lambda B, T, H, dtype: {"lengths": [1 + (5 * b) % T for b in range(B)]},
    "resets": lambda B, T, H, dtype: {"reset": torch.rand(B, T) < 0.3},
    "reverse": lambda B, T, H, dtype: {"reverse": True},
    "xi": lambda B, T, H, dtype: {"bptt": BPTT(xi=torch.randn(B, T))},
    "truncated": lambda B, T, H, dtype: {"bptt": "truncated:2"},
    "clip": lambda B, T, H, dtype: {"bptt": "full,clip:0.5"},
    "mask": lambda B, T, H, dtype: {"mask": 2.0 * (torch.rand(B, H) < 0.5).to(dtype)},
    "initial": lambda B, T, H, dtype: {"reset": torch.rand(B, T) < 0.3, "initial": None},
    "all": lambda B, T, H, dtype: {
        "lengths": [T - b % T for b in range(B)],
        "reset": torch.rand(B, T) < 0.3,
        "reverse": True,
        "bptt": BPTT(xi=torch.rand(B, T) * 2, clip=0.5),
        "mask": torch.rand(B, H, dtype=dtype),
    },
}


def options_for(kind: str, case: Case) -> dict[str, Any]:
    """For one cell: what it cannot have left out, and a start of every state."""
    B, T, H = *case.x.shape[:2], case.state[0].shape[1]
    options: dict[str, Any] = OPTIONS[kind](B, T, H, case.x.dtype)
    if not case.cell.recurrent_gates:
        options.pop("mask", None)
    if "initial" in options:
        options["initial"] = [part.detach() for part in random_state(case.cell, None, H, case.x.dtype)]
    return options


@pytest.mark.parametrize("shared", [False, True], ids=["each thread its rows", "threads share a step"])
@pytest.mark.parametrize("start", ["nothing", "a state without a gradient"])
@pytest.mark.parametrize("kind", ["plain", *OPTIONS])
def test_where_nobody_wants_the_gradient_of_the_start(kind: str, start: str, shared: bool, threads: Any) -> None:
    """From zero, or from a state that is given: the way back ends at the first step, with norms on it or without."""
    threads(2)
    for name in ("elman", "gru", "peephole") if shared else NATIVE_CELLS:
        case = Case(name, *((4, 3, 2, 200) if shared else (5, 4, 3, 33)))
        options = options_for(kind, case) if kind != "plain" else {}
        state = None if start == "nothing" else tuple(part.detach() for part in case.state)
        for traced in (False, True):
            found = {}
            for backend in ("native", "loop"):
                result = case.scan_of(slice(None), state, backend=backend, trace=traced, **options)
                found[backend] = case.everything(lambda result=result: result)
                if traced:
                    found[backend] |= {f"norm {key}": norms for key, norms in result.trace.norms.items()}
            all_close(found["native"], found["loop"])


def test_a_weight_that_is_no_number_is_not_passed_over() -> None:
    """Not even by a state of zero at the first step."""
    case = Case("elman", T=1)
    case.weights["weight_hh"].data[0, 0] = torch.inf
    for backend in ("native", "loop"):
        assert case.scan_of(slice(None), None, backend=backend).outputs[..., 0].isnan().all()


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_every_option(name: str, kind: str) -> None:
    for B, T, D, H in ((5, 6, 3, 35), (1, 1, 2, 3)):
        case = Case(name, B, T, D, H)
        options = options_for(kind, case)
        all_close(everything(case, "native", **options), everything(case, "loop", **options))


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_option_on_every_instruction_set(kind: str, isa: str) -> None:
    case = Case("lstm", 25, 4, 3, 33)
    options = options_for(kind, case)
    all_close(everything(case, "native", **options), everything(case, "loop", **options))


def test_every_option_in_single_precision() -> None:
    for kind in ("lengths", "mask", "clip"):
        case = Case("gru", 7, 6, 3, 35, dtype=torch.float32)
        as_exact_as_the_loop(case, **options_for(kind, case))


def test_a_loss_that_reads_the_last_state_alone() -> None:
    """And one that reads the outputs alone: gradients that do not come are no zeros in memory."""
    case = Case("lstm", 3, 4, 5, 33)
    for pick in (lambda r: r.state.c.sum(), lambda r: r.state.h.square().sum(), lambda r: r.outputs[:, 1].sum()):
        found = [
            torch.autograd.grad(pick(case.scan(backend=backend)), list(case.leaves.values()), allow_unused=True)
            for backend in ("native", "loop")
        ]
        for ours, theirs in zip(*found, strict=True):
            close(ours, torch.zeros_like(ours) if theirs is None else theirs)


def test_inputs_that_want_no_gradient_get_none() -> None:
    case = Case("gru")
    case.x.requires_grad_(False)
    result = case.scan(backend="native")
    case.loss(result).backward()
    assert case.x.grad is None
    expected = torch.autograd.grad(case.loss(case.scan(backend="loop")), case.weights["weight_ih"])[0]
    close(case.weights["weight_ih"].grad, expected)


def test_tensors_that_do_not_lie_in_one_piece() -> None:
    case = Case("lstm", 3, 4, 5, 7)
    plain = everything(case, "native")
    case.weights = {k: w.detach().t().contiguous().t().requires_grad_() for k, w in case.weights.items()}
    case.x = case.x.detach().transpose(0, 2).contiguous().transpose(0, 2).requires_grad_()
    case.state = tuple(part.detach()[:1].expand(3, -1).clone().t().contiguous().t() for part in case.state)
    case.state = tuple(part.requires_grad_() for part in case.state)
    all_close(everything(case, "native"), everything(case, "loop"))
    assert plain.keys() == everything(case, "native").keys()


def test_the_carried_gradient_may_explode_but_not_unseen() -> None:
    """An infinite gradient that is clipped is no number, and not a quiet 0; one that is cut is gone."""
    case = Case("elman", T=3)
    case.on_outputs[0, 2, 0] = float("inf")
    for backend in ("native", "loop"):
        (grad,) = torch.autograd.grad(case.loss(case.scan(backend=backend, bptt="full,clip:1")), case.x)
        assert grad[0, :2].isnan().all()
        assert grad[1:].isfinite().all()
    (grad,) = torch.autograd.grad(case.loss(case.scan(backend="native", bptt=torch.zeros(3))), case.x)
    assert grad[0, :2].isfinite().all()


# Threads --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["torch's own", "without OpenMP"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    without = request.param == "without OpenMP"
    if without:
        monkeypatch.setattr(core, "parallel", None)
    elif core.parallel is None:
        pytest.skip("torch's threads were not found")
    run, used = CorePlan.run, []

    def watched(plan: CorePlan, tensors: Sequence[Tensor]) -> None:
        used.append(plan.bound(tensors).parallel)
        run(plan, tensors)

    monkeypatch.setattr(CorePlan, "run", watched)
    yield
    assert used
    assert all((entry is None) == without for entry in used)


@pytest.mark.parametrize("kind", ["lengths", "all"])
@pytest.mark.parametrize(("B", "H"), [(1, 33), (3, 40), (26, 35)])
@pytest.mark.parametrize("name", ["gru", "peephole"])
def test_any_number_of_threads(name: str, B: int, H: int, kind: str, pool: None, threads: Any) -> None:
    """Four on fewer cores too. Equal within rounding for any number, and to the last bit run after run."""
    case = Case(name, B, 5, 9, H)
    options = options_for(kind, case)
    one = everything(case, "native", **options)
    for count in (2, 4):
        threads(count)
        many = everything(case, "native", **options)
        all_close(many, one)
        for _ in range(3):
            again = everything(case, "native", **options)
            assert all(torch.equal(again[key], many[key]) for key in many)


@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_threads_that_share_a_step(name: str, pool: None, threads: Any) -> None:
    """Where rows are few, all threads take a step together: as the loop has it, and to the last bit run after run."""
    case = Case(name, 3, 4, 9, 260)
    ways: list[dict[str, Any]] = [{}, {"lengths": [2, 4, 1]}, {"bptt": torch.rand(3, 4) * 2}]
    if case.cell.recurrent_gates:
        ways.append({"mask": torch.rand(3, 260, dtype=torch.float64), "reverse": True})
    for options in ways:
        threads(1)
        expected = case.everything(partial(case.scan, backend="loop", **options))
        for count in (2, 3):
            threads(count)
            first, *others = (case.everything(partial(case.scan, backend="native", **options)) for _ in range(3))
            all_close(first, expected)
            assert all(torch.equal(again[key], first[key]) for again in others for key in first)


def test_scans_side_by_side_do_not_meet(threads: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    threads(2)
    cases = [Case("lstm", 5, 6, 7, H) for H in (33, 200) for _ in range(4)]
    alone = [everything(case, "native") for case in cases]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda case: everything(case, "native"), cases))
    for got, expected in zip(together, alone, strict=True):
        all_close(got, expected)


@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_a_retained_graph_can_be_walked_again(name: str) -> None:
    """The last backward pass may write over the saved tensors, and none before it."""
    for H in (5, 32, 33):
        case = Case(name, 3, 4, 2, H)
        loss, leaves = case.loss(case.scan(backend="native")), list(case.leaves.values())
        expected = torch.autograd.grad(case.loss(case.scan(backend="loop")), leaves, allow_unused=True)
        for keep in (True, True, False):
            for ours, theirs in zip(torch.autograd.grad(loss, leaves, retain_graph=keep), expected, strict=True):
                close(ours, torch.zeros_like(ours) if theirs is None else theirs)
