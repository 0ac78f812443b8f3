"""The trace: norms of every state's gradient, as one step at a time would find them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from recur.errors import OptionError
from recur.ops import scan
from tests.support import RUNS, Case, close


def by_hand(case: Case, row: int, order: list[int], restarts: set[int] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    """One sequence, step by step, every state, product and share a tensor whose gradient autograd retains."""
    cell, weights = case.cell, case.weights
    own = cell.tuple_of("w")._make(weights[name] for name in cell.extras)
    W, R = weights.get("weight_hh"), len(cell.recurrent_gates)
    state: Any = cell.state([part[row : row + 1] for part in case.state])
    loss, kept = torch.zeros((), dtype=torch.float64), {}
    for t in order:
        if t in restarts:
            state = cell.state(cell.start(case.x, 1, [part.shape[1] for part in case.state]))
        share = linear(case.x[row : row + 1, t], weights["weight_ih"], weights.get("bias_ih"))
        inside = cell.own_inputs(case.x[row : row + 1, t], state[-1].shape[-1])
        factor = case.x[row : row + 1, t]
        if cell.multiplies_inside:
            factor = cell.multiplied_input(cell.tuple_of("i")._make(inside), state, own)
            share = linear(factor, weights["weight_ih"], weights.get("bias_ih"))
        x, h, m, product = cell.tuple_of("x")._make((*cell.split(share), *inside)), [], None, None
        if W is not None:
            m = cell.multiplied(x, state, own)
            product = cell.product(m, weights)
            h = product.chunk(R, -1)
        state = cell.state(
            [
                part.clone() if part.grad_fn is None or part is old else part
                for part, old in zip(cell.advance(x, cell.tuple_of("h")._make(h), state, own), state, strict=True)
            ]
        )
        kept[t] = state, share, product, m, factor
        for kept_tensor in (*state, share, *([] if product is None else [product])):
            kept_tensor.retain_grad()
        loss = loss + (cell.output(state) * case.on_outputs[row, t]).sum()
    for part, weight in zip(state, case.on_state, strict=True):
        loss = loss + (part * weight[row]).sum()
    loss.backward()
    return kept


OPTIONS: dict[str, dict[str, Any]] = {
    "whole": {},
    "lengths": {"lengths": [5, 2, 4]},
    "reverse": {"reverse": True},
    "reset": {"reset": torch.tensor([[0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]], dtype=torch.bool)},
}


@pytest.mark.parametrize(("name", "backend"), [run for run in RUNS if run[1] not in ("torch", "chunk")])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_trace_is_the_gradient_of_each_state(name: str, backend: str, options: dict[str, Any]) -> None:
    case = Case(name)
    result = case.scan(trace=True, backend=backend, **options)
    case.loss(result).backward()
    trace, lengths = result.trace, options.get("lengths", [5, 5, 5])
    expected = {key: torch.zeros_like(found) for key, found in trace.gradients.items()}
    terms = {key: torch.zeros_like(found) for key, found in trace.terms.items()}
    for b in range(3):
        n = lengths[b]
        restarts = set(options["reset"][b].nonzero().flatten().tolist()) if "reset" in options else set()
        order = list(reversed(range(n))) if options.get("reverse") else list(range(n))
        for t, (state, share, product, m, factor) in by_hand(case, b, order, restarts).items():
            for key, part in zip(case.cell.states, state, strict=True):
                expected[key][b, t] = 0 if part.grad is None else part.grad[0]
            terms["weight_ih"][b, t] = torch.outer(share.grad[0], factor[0]).norm()
            if product is not None and product.grad is not None and case.cell.heads == 1:
                terms["weight_hh"][b, t] = torch.outer(product.grad[0], m[0]).norm()
    for key in expected:
        close(trace.gradients[key], expected[key], key)
        close(trace.norms[key], expected[key].norm(dim=-1), key)
    for key in terms:
        if key == "weight_ih" or case.cell.heads == 1:
            close(trace.terms[key], terms[key].detach(), key)


def test_the_total_is_over_batch_and_states() -> None:
    case = Case("lstm")
    result = case.scan(trace=True)
    case.loss(result).backward()
    norms = result.trace.norms
    expected = (norms["h"].square() + norms["c"].square()).sum(0).sqrt()
    close(result.trace.total, expected)


def test_truncation_shows_in_the_trace() -> None:
    case = Case("elman", T=6)
    result = case.scan(trace=True, bptt="truncated:2")
    result.outputs[:, -1].sum().backward()
    seen = result.trace.norms["h"] > 0
    assert seen.tolist() == [[False] * 4 + [True] * 2] * 3


def test_a_step_that_hands_its_state_back_is_traced_step_by_step() -> None:
    from recur.cells import Cell

    class Still(Cell):
        gates = ("g",)

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (s.h,)

    cell = Still()
    weights = {k: torch.randn(s, dtype=torch.float64) for k, s in cell.shapes(2, 3).items()}
    h0 = torch.randn(1, 3, dtype=torch.float64, requires_grad=True)
    result = scan(cell, weights, torch.randn(1, 4, 2, dtype=torch.float64), h0, trace=True)
    result.outputs.sum().backward()
    close(result.trace.norms["h"][0], torch.tensor([4.0, 3, 2, 1], dtype=torch.float64) * 3**0.5)


def test_a_trace_that_was_not_asked_for_or_not_filled_says_so() -> None:
    case = Case("gru")
    with pytest.raises(OptionError, match="trace=True"):
        _ = case.scan().trace.norms
    with pytest.raises(OptionError, match="no backward pass"):
        _ = case.scan(trace=True).trace.total
    assert case.scan(backend="auto", trace=True).trace.backend == case.scan().trace.backend


def test_a_second_pass_starts_from_nothing() -> None:
    case = Case("gru")
    result = case.scan(trace=True)
    result.outputs.sum().backward(retain_graph=True)
    result.outputs[:, 1].sum().backward()
    assert (result.trace.norms["h"] > 0).tolist() == [[True, True, False, False, False]] * 3
