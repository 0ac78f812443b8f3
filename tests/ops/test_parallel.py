"""The parallel backend against the loop: cells that are affine in their states in every way there is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.utils._pytree import tree_leaves

import recur.ops.parallel as steps_at_once
from recur.cells import Cell
from recur.errors import BackendError
from recur.ops import scan
from recur.ops.bptt import BPTT
from tests.affine_cells import AFFINE, IDS, Gated, Ring, case_of
from tests.support import AFFINE_CELLS, DOUBLE, all_close, close

each_cell = pytest.mark.parametrize("cell", AFFINE, ids=IDS)
XI = torch.rand(3, 50, generator=torch.Generator().manual_seed(1), **DOUBLE) * 2
RESET = torch.rand(3, 50, generator=torch.Generator().manual_seed(2)) < 0.2

OPTIONS: dict[str, dict[str, Any]] = {
    "whole": {},
    "reverse": {"reverse": True},
    "lengths": {"lengths": [50, 7, 23]},
    "reset": {"reset": RESET},
    "xi": {"bptt": BPTT(xi=XI)},
    "truncated": {"bptt": "truncated:20"},
    "everything": {"lengths": [41, 50, 3], "reset": RESET, "reverse": True, "bptt": BPTT(xi=XI)},
}


@pytest.fixture(params=["chunks, then doubling", "chunks of chunks", "one chunk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way that `solve` may take, on small sizes: it chooses by them."""
    chunk, small = {"chunks, then doubling": (3, 2**20), "chunks of chunks": (4, 0), "one chunk": (99, 0)}[
        request.param
    ]
    monkeypatch.setattr(steps_at_once, "SMALL", {"cpu": small, "cuda": small})
    monkeypatch.setattr(steps_at_once, "_chunk", lambda T, b: chunk)


@each_cell
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.usefixtures("way")
def test_equal_to_the_loop(cell: Any, options: dict[str, Any]) -> None:
    case = case_of(cell, B=3, T=50)
    expected = case.everything(lambda: case.scan(backend="loop", **options))
    all_close(case.everything(lambda: case.scan(backend="parallel", **options)), expected)


@each_cell
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 2, 1), (2, 16, 3), (1, 17, 5), (2, 33, 1), (1, 1000, 2)])
def test_sizes(cell: Any, sizes: tuple[int, int, int]) -> None:
    B, T, H = sizes
    case = case_of(cell, B, T, 3, H)
    for p in case.weights.values():  # over a thousand steps a factor above 1 would leave nothing to compare
        p.data *= 0.3
    expected = case.everything(lambda: case.scan(backend="loop"))
    all_close(case.everything(lambda: case.scan(backend="parallel")), expected)


@given(st.integers(1, 70), st.integers(1, 9), st.integers(0, 40), st.integers(1, 3), st.booleans(), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_random_systems(T: int, chunk: int, small: int, n: int, reverse: bool, seed: int) -> None:
    """s = A s + b step by step, for matrices with zeros, ones and signs anywhere."""
    generator = torch.Generator().manual_seed(seed)
    A = torch.randint(-1, 2, (n, n, T, 2), generator=generator) * torch.rand(n, n, T, 2, generator=generator, **DOUBLE)
    A[:, :, torch.rand(T, generator=generator) < 0.2] = 1
    b, start = torch.randn(n, T, 2, generator=generator, **DOUBLE), torch.randn(n, 2, generator=generator, **DOUBLE)
    state, expected = start, torch.empty_like(b)
    for t in reversed(range(T)) if reverse else range(T):
        state = torch.einsum("ijk,jk->ik", A[:, :, t], state) + b[:, t]
        expected[:, t] = state
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps_at_once, "_chunk", lambda T, b: chunk)
        patch.setattr(steps_at_once, "SMALL", {"cpu": small, "cuda": small})
        rows = [[a if a.any() else None for a in row] for row in A]
        if chunk == 1 and small < 2 * T:  # a chunk of one step is no chunk: only doubling ends it
            patch.setattr(steps_at_once, "SMALL", {"cpu": 2 * T, "cuda": 2 * T})
        got = steps_at_once.solve(rows, list(b), list(start), reverse, False, False)
    close(torch.stack(got), expected)


def test_factors_of_zero_and_above_one_lose_nothing() -> None:
    """Products of many factors leave the range of float32 on both sides, where states of zero stay zero."""
    T = 3000
    A, b = torch.full((T, 2), 2.0), torch.zeros(T, 2)
    A[:, 1] = 1e-3
    A[1000], b[1000] = 0, 1
    b[1001:, 1] = 1e-3
    state, expected = torch.zeros(2), torch.empty(T, 2)
    for t in range(T):
        state = A[t] * state + b[t]
        expected[t] = state
    (got,) = steps_at_once.solve([[A]], [b], [torch.zeros(2)], False, False, False)
    assert torch.isinf(expected[-1, 0])
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=0)


@each_cell
def test_gradcheck(cell: Any) -> None:
    case = case_of(cell, B=2, T=18, D=1, H=1)

    def run(*leaves: Tensor) -> tuple[Tensor, ...]:
        weights = dict(zip(case.weights, leaves[1:], strict=False))
        outputs, state, _ = scan(
            case.cell, weights, leaves[0], leaves[1 + len(weights) :], backend="parallel", lengths=[18, 5]
        )
        return (outputs, *state)

    leaves = tuple(leaf.detach().mul(0.7).requires_grad_() for leaf in case.leaves.values())
    assert torch.autograd.gradcheck(run, leaves)


def transformed(cell: Cell, backend: str, what: str) -> Any:
    """One transform of torch.func, or a second derivative, of a network's loss."""
    torch.manual_seed(0)
    case = case_of(cell, B=2, T=20, D=2, H=2)
    weights = {name: weight.detach() for name, weight in case.weights.items()}
    x, start = case.x.detach(), tuple(part.detach() for part in case.state)

    def outputs(weights: Any, x: Tensor, start: Any) -> Tensor:
        outputs, state, _ = scan(case.cell, weights, x, start, backend=backend)
        return torch.cat([outputs.flatten(1), *state], dim=1).sin()

    def loss(weights: Any, x: Tensor, start: Any) -> Tensor:
        return outputs(weights, x, start).sum()

    def of_one(weights: Any, x: Tensor, start: Any) -> Tensor:
        return loss(weights, x[None], [part[None] for part in start])

    short = x[:, :5]
    match what:
        case "grad":
            return grad(loss, argnums=(0, 1, 2))(weights, x, start)
        case "vmap":
            return vmap(of_one, in_dims=(None, 0, 0))(weights, x, start)
        case "gradients of each sequence":
            return vmap(grad(of_one), in_dims=(None, 0, 0))(weights, x, start)
        case "jvp":
            return jvp(lambda w, v: outputs(w, v, start), (weights, x), (weights, x))
        case "jacfwd":
            return jacfwd(lambda v: outputs(weights, v, start))(short)
        case "jacrev":
            return jacrev(lambda v: outputs(weights, v, start))(short)
        case "hessian":
            return hessian(lambda v: loss(weights, v, start))(short)
        case _:
            leaves = [weight.clone().requires_grad_() for weight in (x, *weights.values())]
            value = loss(dict(zip(weights, leaves[1:], strict=True)), leaves[0], start)
            first = torch.autograd.grad(value, leaves, create_graph=True)
            return torch.autograd.grad(sum((part * part).sum() for part in first), leaves)


@each_cell
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own, in forward mode
@pytest.mark.parametrize(
    "what",
    ["grad", "vmap", "gradients of each sequence", "jvp", "jacfwd", "jacrev", "hessian", "twice"],
)
def test_transforms(cell: Any, what: str) -> None:
    got, expected = (tree_leaves(transformed(cell, backend, what)) for backend in ("parallel", "loop"))
    assert len(got) == len(expected) > 0
    for k, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        close(ours, theirs, f"{what} {k}")


@each_cell
def test_torch_compile_takes_it_whole(cell: Any) -> None:
    case = case_of(cell, B=2, T=20)

    def run(x: Tensor) -> Tensor:
        outputs, state, _ = scan(case.cell, case.weights, x, case.state, backend="parallel")
        return outputs.sum() + sum((part * part).sum() for part in state)

    torch._dynamo.reset()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    leaves = list(case.leaves.values())
    got, expected = (torch.autograd.grad(f(case.x), leaves, allow_unused=True) for f in (compiled, run))
    for name, ours, theirs in zip(case.leaves, got, expected, strict=True):
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            close(ours, theirs, name)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("with_start", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_opcheck(n: int, with_start: bool, reverse: bool) -> None:
    def made(count: int, *shape: int) -> list[Tensor]:
        return [torch.randn(*shape, **DOUBLE).requires_grad_() for _ in range(count)]

    A: list[Tensor | None] = [*made(n * n, 20, 2, 3)]
    if n > 1:
        A[1] = None
    given = (A, made(n, 20, 2, 3), made(n, 2, 3), torch.rand(20, 2, 1, **DOUBLE), reverse, with_start, False)
    torch.library.opcheck(torch.ops.recur.affine_scan, given)


@each_cell
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_trace_is_that_of_the_loop(cell: Any, options: dict[str, Any]) -> None:
    case = case_of(cell, B=3, T=50)
    found = []
    for backend in ("parallel", "loop"):
        result = case.scan(backend=backend, trace=True, **options)
        case.loss(result).backward()
        found.append(result.trace.gradients | result.trace.terms)
    all_close(*found)


def test_the_trace_of_a_state_to_which_nothing_is_added() -> None:
    """b is a number there, which autograd would pass by; `torch.autograd.grad` as much as `backward`."""
    case, found = case_of(Ring(), B=2, T=9), []
    for backend in ("parallel", "loop"):
        result = case.scan(backend=backend, trace=True)
        torch.autograd.grad(case.loss(result), case.x)
        found.append(result.trace.gradients)
    all_close(*found)


def test_what_it_cannot_do_is_refused_with_the_reason() -> None:
    case = case_of("gru")
    with pytest.raises(BackendError, match="affine in its states allows it, and its step reads a product of W"):
        case.scan(backend="parallel")
    with pytest.raises(BackendError, match="affine in its states allows it, and its state h is not affine in h"):
        case_of("indrnn").scan(backend="parallel")
    with pytest.raises(BackendError, match="pointwise = False"):
        case_of("gru2014").scan(backend="parallel")
    with pytest.raises(BackendError, match="clip bounds the gradient of one step after the other"):
        case_of("mingru").scan(backend="parallel", bptt="clip:1")


@pytest.mark.parametrize("name", AFFINE_CELLS)
def test_auto_takes_it_where_the_core_cannot(name: str) -> None:
    case = case_of(name, dtype=torch.float32)
    x = case.x.detach()
    seen = []

    def run(v: Tensor) -> Tensor:
        found = scan(case.cell, case.weights, v[None])
        seen.append(found.trace.backend)
        return found.outputs.sum()

    vmap(run)(x)
    assert seen == ["parallel"]
    assert case.scan(bptt="clip:1", backend="auto").trace.backend != "parallel"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    case = case_of("mingru", B=2, T=300, H=8, dtype=dtype)
    expected = case.everything(lambda: case.scan(backend="loop"))
    got = case.everything(lambda: case.scan(backend="parallel"))
    for name in ("outputs", "final h"):
        close(got[name], expected[name], name)
    assert {value.dtype for value in got.values()} == {dtype}


def test_an_input_that_is_not_finite_stays_in_its_own_sequence() -> None:
    case = case_of(Gated(), B=1, T=40)
    x = case.x.detach().clone()
    x[0, 3] = float("nan")
    reset = torch.zeros(1, 40, dtype=torch.bool)
    reset[0, 10] = True
    outputs = scan(case.cell, case.weights, x, backend="parallel", reset=reset).outputs[0]
    assert outputs[:3].isfinite().all()
    assert outputs[3].isnan().all()
    assert outputs[10:].isfinite().all()
