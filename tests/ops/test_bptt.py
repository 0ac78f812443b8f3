"""What crosses time in the backward pass: truncation, randomized truncation, clipping."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from recur.cells import make_cell
from recur.errors import OptionError, ShapeError
from recur.ops import scan
from recur.ops.bptt import BPTT
from tests.support import HERE, RUNS, Case, all_close, close


@pytest.mark.parametrize("lengths", [None, [7, 3, 5]], ids=["whole", "lengths"])
@pytest.mark.parametrize(("name", "backend"), RUNS, ids=[f"{n} on {b}" for n, b in RUNS])
def test_truncated_is_the_gradient_of_the_detached_computation(name: str, backend: str, lengths: Any) -> None:
    case = Case(name, T=7)
    ends = torch.tensor(lengths or [7, 7, 7])

    def windows() -> Any:
        state: Any = case.state
        outputs = []
        for begin in (0, 3, 6):
            x = case.x[:, begin : begin + 3]
            if begin:
                state = [part.detach() for part in state]
            left = (ends - begin).clamp(0, x.shape[1])
            live = left > 0
            out, final, _ = scan(case.cell, case.weights, x[live], [p[live] for p in state], lengths=left[live])
            none = torch.zeros_like(x[..., :1]).expand(-1, -1, out.shape[-1])
            outputs.append(none.masked_scatter(live[:, None, None], out))
            # A row that has ended retains the state it ended with, gradient and all.
            state = [
                torch.stack([new[int(live[:b].sum())] if live[b] else old[b] for b in range(3)])
                for new, old in zip(final, state, strict=True)
            ]
        return torch.cat(outputs, dim=1), state

    if lengths is None:
        all_close(case.everything(lambda: case.scan(bptt="truncated:3", backend=backend)), case.everything(windows))
    else:  # the detached states of ended rows lose their gradient above: compare the outputs' part alone
        case.on_state = [torch.zeros_like(w) for w in case.on_state]
        got = case.everything(lambda: case.scan(bptt="truncated:3", lengths=lengths, backend=backend))
        all_close(got, case.everything(windows))


def test_values_do_not_depend_on_the_mode() -> None:
    case = Case("lstm", T=8)
    full = case.scan().outputs
    for mode in ("truncated:3", "randomized:0.4", "full,clip:0.1"):
        assert torch.equal(case.scan(bptt=mode, backend="loop").outputs, case.scan(backend="loop").outputs)
        close(case.scan(bptt=mode).outputs, full)


def test_a_window_as_long_as_the_sequence_cuts_nothing() -> None:
    case = Case("gru", T=4)
    for mode in ("truncated:4", "truncated:9", "randomized:1"):
        all_close(case.everything(lambda mode=mode: case.scan(bptt=mode)), case.everything(case.scan))


@pytest.mark.parametrize("backend", HERE)
def test_truncation_counts_from_the_start_of_each_sequence(backend: str) -> None:
    # A reset is what two separate sequences would be, windows and all; and the learned start has its gradient.
    case = Case("lstm", T=7)
    fresh = [torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in case.cell.states]
    reset = torch.zeros(3, 7, dtype=torch.bool)
    reset[:, 3] = True

    def separate() -> Any:
        first = case.scan_of(slice(0, 3), case.state, bptt="truncated:3", backend=backend)
        second = case.scan_of(slice(3, 7), fresh, bptt="truncated:3", backend=backend)
        return torch.cat([first.outputs, second.outputs], dim=1), second.state

    def together() -> Any:
        return case.scan(bptt="truncated:3", reset=reset, initial=fresh, backend=backend)

    all_close(case.everything(together), case.everything(separate))
    for got, expected in zip(
        torch.autograd.grad(case.loss(together()), fresh),
        torch.autograd.grad(case.loss(separate()), fresh),
        strict=True,
    ):
        assert expected.abs().max() > 0
        close(got, expected)


@pytest.mark.parametrize("pi", [0.5, 0.8])
@pytest.mark.parametrize("name", ["elman", "lstm"])
def test_randomized_truncation_is_unbiased(name: str, pi: float) -> None:
    """Rows of one batch that are all alike are independent draws; groups of rows are draws of the weights' gradient."""
    cell, T, D, H, rows, groups = make_cell(name), 6, 2, 3, 250, 40
    weights = {k: torch.randn(s, dtype=torch.float64) * 0.7 for k, s in cell.shapes(D, H).items()}
    x = torch.randn(1, T, D, dtype=torch.float64)
    on_last = torch.randn(H, dtype=torch.float64)

    def gradients(bptt: Any, B: int) -> Tensor:
        leaves = [w.clone().requires_grad_() for w in weights.values()]
        batch = x.expand(B, T, D).clone().requires_grad_()
        out = scan(cell, dict(zip(weights, leaves, strict=True)), batch, bptt=bptt).outputs
        grads = torch.autograd.grad((out[:, -1] @ on_last).sum() / B, [*leaves, batch])
        # Every row of dx is a draw too; its mean over rows is what a group saw.
        return torch.cat([*(g.reshape(-1) for g in grads[:-1]), grads[-1].sum(0).reshape(-1)])

    mode = BPTT(keep=pi, generator=torch.Generator().manual_seed(11))
    draws = torch.stack([gradients(mode, rows) for _ in range(groups)])
    full = gradients("full", 1)
    error = draws.std(0) / groups**0.5
    z = (draws.mean(0) - full) / error.clamp_min(1e-12)
    assert z.abs().max() < 4.5, "the mean of many draws is not the full gradient"
    # The test can fail: what plain truncation gives lies far outside the same error.
    cut = gradients("truncated:2", 1)
    assert ((cut - full) / error.clamp_min(1e-12)).abs().max() > 20


def test_randomized_draws_are_seeded_and_differ_between_rows() -> None:
    draw = BPTT(keep=0.5, generator=torch.Generator().manual_seed(1)).draw(4, 50)
    again = BPTT(keep=0.5, generator=torch.Generator().manual_seed(1)).draw(4, 50)
    assert draw is not None
    assert again is not None
    assert torch.equal(draw, again)
    assert set(draw.unique().tolist()) == {0.0, 2.0} | {1.0}
    assert (draw[:, 0] == 1).all()
    assert not torch.equal(draw[0], draw[1])


def test_any_xi_scales_the_carried_gradient() -> None:
    # h' = relu(u h) with one unit and h > 0: ∂h_T/∂h_0 = Π ξ_t u.
    cell = make_cell("indrnn")
    weights = {
        "weight_ih": torch.zeros(1, 1, dtype=torch.float64),
        "bias_ih": torch.zeros(1, dtype=torch.float64),
        "u": torch.tensor([0.9], dtype=torch.float64),
    }
    h0 = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    xi = torch.tensor([[0.5, 2, 3], [1, 1, 0]], dtype=torch.float64)
    final = scan(cell, weights, torch.zeros(2, 3, 1, dtype=torch.float64), h0, bptt=xi).state.h
    (grad,) = torch.autograd.grad(final.sum(), h0)
    close(grad, torch.tensor([[3 * 0.9**3], [0.0]], dtype=torch.float64))


def test_clipping_bounds_what_is_carried_row_by_row() -> None:
    case = Case("lstm", B=3, T=6)
    theta = 0.3
    # By hand: the gradient of (h_{t−1}, c_{t−1}) that comes from step t alone, clipped jointly for each row.
    steps, state = [], list(case.state)
    for t in range(6):
        before = [part.detach().requires_grad_() for part in state]
        state = list(scan(case.cell, case.weights, case.x[:, t : t + 1], before).state)
        steps.append((before, state))
    carried: list[Tensor] = list(case.on_state)
    clipped = 0
    for t in reversed(range(6)):
        before, after = steps[t]
        back = torch.autograd.grad(after, before, [carried[0] + case.on_outputs[:, t], carried[1]])
        norm = torch.cat(back, dim=1).norm(dim=1, keepdim=True)
        clipped += int((norm > theta).sum())
        carried = [part * torch.where(norm > theta, theta / norm, torch.ones_like(norm)) for part in back]
    assert 0 < clipped < 18, "some rows are clipped at some steps, and some are not"

    got = case.everything(lambda: case.scan(bptt=f"full,clip:{theta}"))
    close(got["grad h0"], carried[0])
    close(got["grad c0"], carried[1])
    assert (torch.cat([got["grad h0"], got["grad c0"]], 1).norm(dim=1) <= theta * (1 + 1e-12)).all()


def test_a_bound_that_is_never_reached_changes_nothing() -> None:
    case = Case("gru")
    all_close(case.everything(lambda: case.scan(bptt="full,clip:1e9")), case.everything(case.scan))


# Its names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        ("full", "full"),
        ("truncated:20", "truncated:20"),
        ("randomized:0.9", "randomized:0.9"),
        ("full,clip:2", "full,clip:2"),
        ("clip:2", "full,clip:2"),
        ("truncated:5, clip:0.5", "truncated:5,clip:0.5"),
    ],
)
def test_a_mode_is_read_and_written(spec: str, written: str) -> None:
    assert str(BPTT.parse(spec)) == written
    assert BPTT.parse(str(BPTT.parse(spec))) == BPTT.parse(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "half",
        "full,truncated:2",
        "truncated:2,truncated:3",
        "fullclip:2",
        "truncated",
        "truncated:0",
        "truncated:-1",
        "truncated:2.5",
        "randomized",
        "randomized:0",
        "randomized:1.1",
        "randomized:nan",
        "clip:0",
        "clip:-1",
        "clip:nan",
        "clip:inf",
        "truncated:2,randomized:0.5",
        "",
        3,
        None,
    ],
)
def test_a_mode_out_of_range_is_refused(spec: Any) -> None:
    with pytest.raises(OptionError, match="bptt"):
        Case("gru").scan(bptt=spec)


def test_a_xi_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"ξ must be \(T=5,\) or \(B=3, T=5\), got \(4,\)"):
        Case("gru").scan(bptt=torch.ones(4))
    with pytest.raises(OptionError, match="finite"):
        Case("gru").scan(bptt=torch.full((5,), float("nan")))


@pytest.mark.parametrize("backend", [backend for backend in HERE if backend != "torch"])
@pytest.mark.parametrize("tau", [1, 2, 3, 9])
@pytest.mark.parametrize("name", ["elman", "lstm"])
@pytest.mark.parametrize(
    "options",
    [{}, {"lengths": [5, 2, 4]}, {"reverse": True}, {"reset": torch.tensor([[0, 0, 1, 0, 0]] * 3).bool()}],
    ids=["whole", "lengths", "reverse", "reset"],
)
def test_sliding_truncation_is_the_sum_of_detached_computations(
    name: str, tau: int, backend: str, options: dict[str, Any]
) -> None:
    """For every t, a computation of its own: up to t − τ without a graph, then τ steps with one."""
    case = Case(name)
    got = case.everything(lambda: case.scan(bptt=f"sliding:{tau}", backend=backend, **options))
    expected = {key: torch.zeros_like(value) for key, value in got.items()}
    lengths = options.get("lengths", [5, 5, 5])
    for b in range(3):
        order = list(reversed(range(lengths[b]))) if options.get("reverse") else list(range(lengths[b]))
        starts = [0, 2] if "reset" in options else [0]
        for begin, end in zip(starts, [*starts[1:], len(order)], strict=True):
            for t in range(begin, end):
                first = max(begin, t - tau + 1)
                given = begin == 0
                state: Any = [part[b : b + 1] for part in case.state] if given else None
                if first > begin:  # the state before the window, as a number
                    with torch.no_grad():
                        before = case.x[b : b + 1, order[begin:first]]
                        state = scan(case.cell, case.weights, before, state, backend="loop").state
                outputs, state, _ = scan(case.cell, case.weights, case.x[b : b + 1, order[first : t + 1]], state)
                loss = (outputs[:, -1] * case.on_outputs[b, order[t]]).sum()
                if t == len(order) - 1:
                    loss = loss + sum((part * w[b]).sum() for part, w in zip(state, case.on_state, strict=True))
                    for key, part in zip(case.cell.states, state, strict=True):
                        expected[f"final {key}"][b] = part[0].detach()
                expected["outputs"][b, order[t]] = outputs[0, -1].detach()
                grads = torch.autograd.grad(loss, list(case.leaves.values()), allow_unused=True)
                for key, grad in zip(case.leaves, grads, strict=True):
                    expected[f"grad {key}"] += 0 if grad is None else grad
    all_close(got, expected)


def test_sliding_costs_nothing_where_no_gradient_is_wanted() -> None:
    case = Case("gru")
    with torch.no_grad():
        close(case.scan(bptt="sliding:2").outputs, case.scan().outputs)
    assert str(BPTT.parse("sliding:7,clip:2")) == "sliding:7,clip:2"
    with pytest.raises(OptionError, match="sliding needs τ"):
        BPTT.parse("sliding:0")


def test_the_trace_of_sliding_truncation_is_one_sequences() -> None:
    case = Case("elman", T=6)
    result = case.scan(trace=True, bptt="sliding:2")
    result.outputs[:, -1].sum().backward()
    assert (result.trace.norms["h"] > 0).tolist() == [[False] * 4 + [True] * 2] * 3
    assert result.trace.inputs.shape == case.x.shape
    assert result.trace.terms["weight_hh"].argmax(1).tolist() == result.trace.dominant().tolist()
