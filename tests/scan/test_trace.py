"""The trace: norms of every state's gradient, as one step at a time would find them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recur.errors import OptionError
from recur.scan import scan
from tests.support import RUNS, Case, close


@pytest.mark.parametrize(("name", "backend"), [run for run in RUNS if run[1] != "torch"])
@pytest.mark.parametrize(
    "options", [{}, {"lengths": [5, 2, 4]}, {"reverse": True}], ids=["whole", "lengths", "reverse"]
)
def test_the_trace_is_the_gradient_of_each_state(name: str, backend: str, options: dict[str, Any]) -> None:
    case = Case(name)
    result = case.scan(trace=True, backend=backend, **options)
    case.loss(result).backward()

    # One step at a time, every state a tensor whose gradient autograd retains.
    lengths = options.get("lengths", [5, 5, 5])
    for b in range(3):
        n = lengths[b]
        state: Any = [part[b : b + 1] for part in case.state]
        order = list(reversed(range(n))) if options.get("reverse") else list(range(n))
        loss, saved = torch.zeros((), dtype=torch.float64), {}
        for t in order:
            _out, state, _ = scan(case.cell, case.weights, case.x[b : b + 1, t : t + 1], state)
            state = [part.clone() for part in state]
            saved[t] = state
            loss = loss + (state[0] * case.on_outputs[b, t]).sum()
        for part, weight in zip(state, case.on_state, strict=True):
            loss = loss + (part * weight[b]).sum()
        for k, key in enumerate(case.cell.states):
            grads = torch.autograd.grad(loss, [saved[t][k] for t in range(n)], retain_graph=True, allow_unused=True)
            expected = torch.zeros(5, dtype=torch.float64)
            for t, grad in enumerate(grads):
                expected[t] = 0.0 if grad is None else grad.norm()
            close(result.trace.norms[key][b], expected, key)


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
