"""Flow, Jacobians, spectrum and paths: against finite differences, closed forms, and what the textbook says of each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn, tanh

from recur.cells import Cell, make_cell
from recur.diagnostics import Level, Subject, xray
from recur.diagnostics.gates import activations
from recur.diagnostics.gradient_flow import (
    Flow,
    _flow_finding,
    fit_decay,
    flow,
    gradient_flow,
    memory_gradients,
    memory_path,
)
from recur.diagnostics.jacobian import Linearised, basis, jacobians, lyapunov, singular_values, spectrum, spectrum_of
from recur.diagnostics.subject import _random_projection
from recur.errors import OptionError
from recur.nn import Init, Recurrent
from tests.support import ALL_CELLS, DOUBLE, close


class LinearUnits(Cell):
    """h' = x_h + h_h"""

    gates = ("h",)

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor, ...]:
        return (x.h + h.h,)


def linear_network(W: Tensor) -> Recurrent:
    net = Recurrent(LinearUnits(), 3, len(W), bias=False, **DOUBLE)
    with torch.no_grad():
        net.weight_hh_l0.copy_(W)
    return net


def rotated(eigenvalues: list[float]) -> Tensor:
    """A normal matrix with these eigenvalues: its powers are known."""
    Q = torch.linalg.qr(torch.randn(len(eigenvalues), len(eigenvalues), **DOUBLE)).Q
    return Q @ torch.diag(torch.tensor(eigenvalues, **DOUBLE)) @ Q.t()


def sequence(T: int = 60, B: int = 2, scale: float = 0.3) -> Tensor:
    return torch.randn(B, T, 3, **DOUBLE) * scale


# Against finite differences ------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [name for name in ALL_CELLS if make_cell(name).exact_gradient])
def test_flow_equals_finite_differences(cell: str) -> None:
    """∂L_T/∂s_t of the first state by moving each unit of it at step t, and reading on from there."""
    net = Recurrent(cell, 3, 4, **DOUBLE).eval()  # without noise
    x, lag, eps = sequence(T=9, B=1), 3, 1e-6
    found = flow(Subject.of(net, x), rows=1, steps=9)
    upto = x.shape[1] - lag
    _, state, _ = net(x[:, :upto])
    slopes = []
    for unit in range(4):
        losses = []
        for sign in (1, -1):
            moved = [part.detach().clone() for part in state[0]]
            moved[0][0, unit] += sign * eps
            losses.append(float(_random_projection(net(x[:, upto:], (net.cell.state(moved),))).detach()))
        slopes.append((losses[0] - losses[1]) / (2 * eps))
    expected = math.sqrt(sum(s * s for s in slopes))
    assert found[f"layer 1, {net.cell.states[0]}"].norms[lag] == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("cell", ["lstm", "lstm1997", "peephole"])
def test_the_gradient_of_a_memory_goes_through_its_output_too(cell: str) -> None:
    """∂L_T/∂c_t by moving c_t, and with it h_t = σ(a + p ⊙ c_t) ⊙ tanh(c_t), which is made of it."""
    net = Recurrent(cell, 3, 4, **DOUBLE)
    x, eps = sequence(T=9, B=1), 1e-6
    p = net.p_o_l0.detach() if cell == "peephole" else torch.zeros(4, **DOUBLE)
    norms = flow(Subject.of(net, x), rows=1, steps=9)["layer 1, c"].norms
    for lag in (0, 3):
        upto = x.shape[1] - lag
        h, c = (part.detach() for part in net(x[:, :upto]).state[0])
        a = torch.logit(h / tanh(c)) - p * c
        slopes = []
        for unit in range(4):
            losses = []
            for sign in (1, -1):
                moved = c.clone()
                moved[0, unit] += sign * eps
                output = torch.sigmoid(a + p * moved) * tanh(moved)
                out = net(x[:, upto:], (net.cell.state([output, moved]),)) if lag else output[:, None]
                losses.append(float(_random_projection(out).detach()))
            slopes.append((losses[0] - losses[1]) / (2 * eps))
        assert norms[lag] == pytest.approx(math.sqrt(sum(s * s for s in slopes)), rel=1e-6)


@pytest.mark.parametrize("cell", [*(name for name in ALL_CELLS if make_cell(name).exact_gradient), "slstm:heads=2"])
def test_a_linearised_step_is_its_jacobian(cell: str) -> None:
    """Both ways of multiplying with J, against the step moved a little in every direction."""
    subject = Subject.of(Recurrent(cell, 3, 4, **DOUBLE), sequence(T=6, B=1))
    layer = subject.layers[0]
    steps, t, eps = Linearised(layer), 3, 1e-6
    before = torch.cat([part[0, t - 1] for part in layer.states.values()])
    widths = [part.shape[-1] for part in layer.states.values()]

    def after(s: Tensor) -> Tensor:
        return torch.cat([p[0] for p in layer.advance(layer.inputs[:1, t], [part[None] for part in s.split(widths)])])

    J = torch.stack(
        [(after(before + eps * e) - after(before - eps * e)) / (2 * eps) for e in torch.eye(steps.N, **DOUBLE)], 1
    )
    bound = 1e-8 * max(1.0, float(J.abs().max()))
    assert (steps.push(t, torch.eye(steps.N, **DOUBLE)) - J).abs().max() < bound
    g = torch.randn(steps.N, **DOUBLE)
    assert (steps.pull(t, g) - J.t() @ g).abs().max() < bound
    if not steps.by_unit:  # of a wide state, without forming J
        assert (steps._push(t, torch.eye(steps.N, **DOUBLE)) - J).abs().max() < bound
        assert (steps._pull(t, g) - J.t() @ g).abs().max() < bound


# Against closed forms ------------------------------------------------------------------------------------


def test_a_linear_network_decays_as_its_eigenvalues_say() -> None:
    eigenvalues = [0.9, 0.7, -0.5, 0.2]
    W = rotated(eigenvalues)
    subject = Subject.of(linear_network(W), sequence())
    layer = subject.layers[0]
    expected = sorted((math.log(abs(v)) for v in eigenvalues), reverse=True)
    assert lyapunov(layer, count=4) == pytest.approx(expected, abs=1e-3)
    for k, values in singular_values(layer, [1, 5]).items():
        close(values, torch.tensor(sorted((abs(v) ** k for v in eigenvalues), reverse=True), **DOUBLE))
    norms = flow(subject, rows=1)["layer 1, h"].norms
    drawn = torch.randn(1, 4, generator=torch.Generator().manual_seed(0), **DOUBLE)
    d = (drawn / drawn.norm())[0]
    expected_norms = [float((torch.linalg.matrix_power(W.t(), k) @ d).norm()) for k in range(60)]
    assert norms == pytest.approx(expected_norms, rel=1e-9)
    assert gradient_flow(subject).numbers["modes"]["full"]["layer 1, h"]["decay"] == pytest.approx(0.9, rel=0.01)


def test_decay_and_memory_of_a_curve_that_is_known() -> None:
    assert fit_decay(0.5 ** np.arange(30)) == (pytest.approx(0.5), 7)
    late = np.concatenate([[0.0], 0.1 ** np.arange(5)])
    assert fit_decay(late).memory == 3
    assert fit_decay(np.ones(9)) == (pytest.approx(1.0), None)
    assert fit_decay(np.zeros(4)) == (0.0, 0)


def test_powers_of_a_matrix_follow_its_spectrum() -> None:
    found = spectrum_of(rotated([1.5, 0.5, -0.2]))
    assert found.radius == pytest.approx(1.5)
    assert found.powers["16"] == pytest.approx(1.5**16)
    assert sorted(real for real, _ in found.eigenvalues) == pytest.approx([-0.2, 0.5, 1.5])
    rotation = spectrum_of(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    assert sorted(imaginary for _, imaginary in rotation.eigenvalues) == pytest.approx([-1, 1])


def test_wide_states_are_measured_on_a_subspace() -> None:
    assert torch.equal(basis(4, 9), torch.eye(4, dtype=torch.float64))
    Q = basis(40, 6)
    close(Q.t() @ Q, torch.eye(6, **DOUBLE))


# What the textbook says of each --------------------------------------------------------------------------


def test_a_sigmoid_network_vanishes() -> None:
    subject = Subject.of(Recurrent("elman-sigmoid", 3, 16, **DOUBLE), sequence())
    found = gradient_flow(subject).finding
    assert found.level is Level.FAULT
    assert "vanish" in found.verdict
    assert found.value < found.threshold
    bound = spectrum(subject)
    assert bound.finding.level is Level.WARNING
    assert "vanish for any input" in bound.finding.verdict
    assert bound.numbers["slope"]["bound"] == 0.25
    assert 0 < bound.numbers["slope"]["largest"] <= 0.25
    assert jacobians(subject).finding.level is Level.WARNING


def test_linear_units_with_a_radius_above_one_explode() -> None:
    subject = Subject.of(linear_network(rotated([1.5, 0.6, 0.3])), sequence())
    found = gradient_flow(subject).finding
    assert found.level is Level.FAULT
    assert "explode" in found.verdict
    assert found.value == pytest.approx(1.5, rel=0.01)
    assert jacobians(subject).finding.value == pytest.approx(math.log(1.5), abs=1e-3)
    assert "chaos" in jacobians(subject).finding.verdict


def test_an_orthogonal_matrix_preserves_the_gradient() -> None:
    W = torch.linalg.qr(torch.randn(6, 6, **DOUBLE)).Q
    subject = Subject.of(linear_network(W), sequence())
    found = gradient_flow(subject).finding
    assert found.level is Level.OK
    assert "preserved" in found.verdict
    assert lyapunov(subject.layers[0], 3) == pytest.approx([0, 0, 0], abs=1e-9)
    tanh = Recurrent("elman", 3, 16, init="orthogonal", **DOUBLE)
    assert gradient_flow(Subject.of(tanh, sequence(scale=0.1))).finding.level is Level.OK


def test_a_state_without_a_gradient_does_not_hide_the_others() -> None:
    flows = {"c": Flow([0.0] * 40, 0.0, 0), "h": Flow([1.0] * 40, 1.0, None)}
    assert "preserved: × 1 per step in h" in _flow_finding(flows, 40, gated=True).verdict
    assert "vanish" in _flow_finding({"c": flows["c"]}, 40, gated=False).verdict


def test_truncation_ends_the_flow_and_a_random_one_does_not() -> None:
    found = gradient_flow(Subject.of(linear_network(rotated([0.95, 0.9])), sequence(T=40))).numbers["modes"]
    full, cut = (np.array(found[mode]["layer 1, h"]["norms"]) for mode in ("full", "truncated:10"))
    assert cut[:10] == pytest.approx(full[:10])
    assert not cut[10:].any()
    assert np.array(found["randomized:0.9"]["layer 1, h"]["norms"])[10:].any()


def test_a_factor_of_two_thirds_vanishes_and_says_when() -> None:
    """× 0.64 a step leaves 1 % after log 0.01 / log 0.64 = 10.3 steps."""
    found = gradient_flow(Subject.of(linear_network(rotated([0.64, 0.64])), sequence())).finding
    assert found.level is Level.WARNING
    assert "gradients vanish" in found.verdict
    assert "1 % is left after 11 steps" in found.verdict
    assert gradient_flow(Subject.of(linear_network(rotated([0.5, 0.5])), sequence())).finding.level is Level.FAULT


def test_a_matrix_whose_powers_die_lets_gradients_vanish_in_the_long_run() -> None:
    """σ₁ is above 1 and all |λ| = 0.8: one step can grow, sixty-four cannot."""
    net = Recurrent("elman", 3, 2, **DOUBLE)
    with torch.no_grad():
        net.weight_hh_l0.copy_(torch.tensor([[0.8, 2.0], [0.0, 0.8]], **DOUBLE))
    found = spectrum(Subject.of(net, sequence())).finding
    assert found.level is Level.WARNING
    assert "gradients vanish in the long run" in found.verdict
    assert "1 % is left after 21 steps" in found.verdict


def test_the_memory_of_an_lstm_preserves_the_gradient_where_other_paths_do_not() -> None:
    """The notes' argument: with f near 1 the gradient along c alone neither shrinks nor grows."""
    net = Recurrent("lstm", 3, 8, init=Init(forget_bias=8.0), **DOUBLE)
    with torch.no_grad():
        net.weight_hh_l0.mul_(0.2)
    measured = memory_path(Subject.of(net, sequence()))
    part = measured.numbers["layer 1"]
    assert part["decay"]["memory"] == pytest.approx(1.0, abs=2e-3)
    assert part["share"] > 0.9
    assert "carries the gradient" in measured.finding.verdict
    shut = Recurrent("lstm", 3, 8, init=Init(forget_bias=-8.0), **DOUBLE)
    assert memory_path(Subject.of(shut, sequence())).numbers["layer 1"]["share"] < 0.01


def test_paths_add_up_to_what_backpropagation_finds() -> None:
    """All paths together are the trace's norm of c; the path alone is the product of the forget gates."""
    net = Recurrent("lstm", 3, 5, **DOUBLE)
    subject = Subject.of(net, sequence(T=12, B=1))
    norms = flow(subject, rows=1)["layer 1, c"].norms
    numbers = memory_path(subject, rows=1).numbers["layer 1"]
    assert numbers["total"] == pytest.approx(norms[:-1], rel=1e-9)  # the state before the first step is not recorded
    layer = subject.layers[0]
    f = activations(layer)["f"].values
    start = torch.randn(5, **DOUBLE)
    total, memory = memory_gradients(layer, start)
    o = activations(layer)["o"].values[-1]
    entered = start * o * (1 - tanh(layer.states["c"][0, -1]) ** 2)  # ∂h_T/∂c_T
    close(total[0], entered)
    close(memory[3], entered * f[-1] * f[-2] * f[-3])  # f[−1] is the gate of step T


# Other models, and mistakes ------------------------------------------------------------------------------


def test_a_model_of_ones_own_joins_with_its_loss() -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Recurrent("gru", 3, 6, num_layers=2, direction="both")
            self.head = nn.Linear(12, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.net(x).outputs[:, -1])

    model = Classifier()
    report = xray(model, sequence().float(), loss=lambda out: out[:, 0].sum())
    flows = report.numbers("gradient flow")["modes"]["full"]
    assert set(flows) == {"layer 1, h", "layer 1, backward, h", "layer 2, h", "layer 2, backward, h"}
    assert all(p.grad is None for p in model.parameters())
    assert report.as_dict()["run"] is None


def test_what_cannot_be_read_is_refused() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Recurrent("gru", 3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x).outputs[:, -1]

    with pytest.raises(OptionError, match=r"got \(2, 4\); give the loss"):
        xray(Last(), sequence().float())
    with pytest.raises(OptionError, match="no recur.Recurrent"):
        Subject.of(nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(OptionError, match="reads a tensor, got str"):
        Subject.of(Recurrent("gru", 3, 4), "text")
    with pytest.raises(OptionError, match="reads a trained model or a torch module, got str"):
        Subject.of("runs/book", "text")
