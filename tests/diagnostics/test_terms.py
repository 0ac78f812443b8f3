"""The terms of a matrix's gradient: their sum is the gradient, and what is said of them follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recur.cells import Cell, make_cell
from recur.diagnostics import Level, Subject, xray
from recur.diagnostics.gradient_flow import Terms, gradient_terms, terms_finding, terms_of
from recur.diagnostics.jacobian import jacobians
from recur.errors import OptionError
from recur.nn import Init, Recurrent
from recur.ops import scan
from tests.diagnostics.test_gradients import linear_network, rotated, sequence
from tests.support import ALL_CELLS, DOUBLE, HERE, Case, close

BACKENDS = [backend for backend in ("loop", "native") if backend in HERE]


def matrices_of_terms(net: Recurrent, x: Tensor, loss: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The gradients of W and U, and what each step adds to them: the matrices are copied, one for every step."""
    cell, weights = net.cell, net.weights()
    T = x.shape[1]
    copies = {
        name: [weights[name].detach().clone().requires_grad_() for _ in range(T)]
        for name in ("weight_ih", "weight_hh")
        if name in weights
    }
    state: Any = None
    outputs = []
    for t in range(T):
        step = {**weights, **{name: each[t] for name, each in copies.items()}}
        out, state, _ = scan(cell, step, x[:, t : t + 1], state, backend="loop")
        outputs.append(out)
    terms = torch.autograd.grad(loss(torch.cat(outputs, 1)), [w for each in copies.values() for w in each])
    split = {name: torch.stack(terms[k * T : (k + 1) * T]) for k, name in enumerate(copies)}
    whole = torch.autograd.grad(loss(net(x).outputs), [weights[name] for name in copies])
    return split, dict(zip(copies, whole, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cell", [name for name in ALL_CELLS if make_cell(name).exact_gradient])
def test_the_terms_add_up_to_the_gradient(cell: str, backend: str) -> None:
    if backend == "native" and not Case(cell).cell.pointwise:
        pytest.skip("not pointwise")
    net = Recurrent(cell, 3, 4, backend=backend, **DOUBLE).eval()  # without noise
    x, T = sequence(T=7, B=1, scale=1.0), 7

    def loss(outputs: Tensor) -> Tensor:
        return outputs[:, -1].square().sum()

    terms, whole = matrices_of_terms(net, x, loss)
    result = net(x, trace=True)
    loss(result.outputs).backward()
    (trace,) = result.trace
    assert trace.terms.keys() == terms.keys()
    letters = terms_of(trace)
    for name, each in terms.items():
        close(each.sum(0), whole[name], name)
        close(trace.terms[name][0], each.flatten(1).norm(dim=1), name)
        flat = each.flatten(1)
        close(trace.term_products(name)[0], flat @ flat.t(), name)
        found = letters["W" if name == "weight_hh" else "U"]
        total = flat.sum(0)
        for k in range(1, T + 1):
            last = flat[T - k :].sum(0)
            assert found.missing[k - 1] == pytest.approx(float((total - last).norm() / total.norm()), abs=1e-7)
            if last.norm() > 0:
                cosine = float(last @ total / last.norm() / total.norm())
                assert found.cosine[k - 1] == pytest.approx(cosine, abs=1e-9)
        norms = flat.norm(dim=1).flip(0)
        assert found.norms == pytest.approx(norms.tolist())
        assert found.cumulated == pytest.approx((norms.cumsum(0) / norms.sum()).tolist())
        assert found.largest == int(norms.argmax())
        assert found.alignment == pytest.approx(float(total.norm() / norms.sum()))
        assert all(missing <= 0.1 for missing in found.missing[found.steps - 1 :])
        assert found.steps == 1 or found.missing[found.steps - 2] > 0.1


def test_rows_of_a_batch_are_one_vector() -> None:
    case = Case("gru", B=3, T=6)
    result = case.scan(trace=True)
    case.loss(result).backward()
    missing = terms_of(result.trace)["W"].missing
    products = result.trace.term_products("weight_hh")
    for k in (1, 3, 5):
        left = products[:, : 6 - k, : 6 - k].sum((1, 2))
        assert missing[k - 1] == pytest.approx(float((left.sum() / products.sum()).sqrt()))


def test_the_first_step_counts_where_nothing_but_its_input_wants_a_gradient() -> None:
    """Weights at rest, as probes have them, and an initial state that is not zero."""
    net = Recurrent("elman", 3, 4, init=Init(state="learned"), **DOUBLE)
    with torch.no_grad():
        net.h0_l0.copy_(torch.tensor([1.0, -1.0, 0.5, 2.0]))
    x = sequence(T=4, B=1)
    found = gradient_terms(Subject.of(net, x)).numbers["layer 1"]["W"]
    result = net(x, trace=True)
    Subject.of(net, x).last_loss(1, 4)[1](result).backward()
    expected = result.trace[0].terms["weight_hh"][0].flip(0)
    assert expected[-1] > 0
    assert found["norms"] == pytest.approx(expected.tolist())


def test_terms_of_a_linear_network_are_known() -> None:
    """h_t = w h_{t−1} + x with x = 1 at the start only: every term of W is w^{T−2}, and the last k have k of T − 1."""
    w, T = 0.8, 12
    net = linear_network(torch.tensor([[w]], **DOUBLE))
    with torch.no_grad():
        net.weight_ih_l0.fill_(1.0)
    x = torch.zeros(1, T, 3, **DOUBLE)
    x[0, 0, 0] = 1.0
    found = gradient_terms(Subject.of(net, x)).numbers["layer 1"]["W"]
    assert found["norms"][:-1] == pytest.approx([w ** (T - 2)] * (T - 1))
    assert found["norms"][-1] == 0, "h_0 is zero"
    assert found["missing"] == pytest.approx([*(1 - np.arange(1, T) / (T - 1)), 0.0], abs=1e-7)
    assert found["cosine"] == pytest.approx([1.0] * T)
    assert found["alignment"] == pytest.approx(1.0)


def test_what_is_said_of_them() -> None:
    net = linear_network(rotated([0.01, 0.005]))
    short = gradient_terms(Subject.of(net, sequence())).finding
    assert short.level is Level.WARNING
    assert "W learns from the last step only" in short.verdict
    assert short.value < short.threshold
    norms = (1.3 ** np.arange(60)).tolist()  # of a chaotic network, whose states are bounded and whose slopes grow
    grows = terms_finding({"layer 1": {"W": Terms(norms, norms, norms, norms, 1.0, 59, 60)}}, "W")
    assert grows.level is Level.WARNING
    assert "the most distant steps dominate the gradient" in grows.verdict
    assert "59 steps back and has 23% of the sum" in grows.verdict
    long = gradient_terms(Subject.of(linear_network(rotated([0.95, 0.9])), sequence())).finding
    assert long.level is Level.OK
    assert "steps give ∂L/∂W of layer 1 to within 10%" in long.verdict


class Sum(Cell):
    """h' = h + x_h"""

    gates = ("h",)
    state_gates = ()

    def step(self, x: Any, h: Any, s: Any) -> Any:
        return (s.h + x.h,)


def test_a_cell_without_a_recurrent_product_has_terms_of_u() -> None:
    subject = Subject.of(Recurrent(Sum(), 3, 4, **DOUBLE), sequence(T=30))
    measured = gradient_terms(subject)
    assert set(measured.numbers["layer 1"]) == {"U"}
    assert "∂L/∂U of layer 1" in measured.finding.verdict
    assert measured.numbers["layer 1"]["U"]["steps"] > 10, "every input of a sum counts alike"


def test_nothing_and_too_much() -> None:
    zero = Terms([0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3, 0.0, 0, 0)
    assert "no gradient reaches W" in terms_finding({"layer 1": {"W": zero}}, "W").verdict
    over = linear_network(rotated([1e30, 1e30]))
    assert "overflow" in gradient_terms(Subject.of(over, sequence())).finding.verdict
    result = Recurrent("gru", 3, 4)(torch.randn(1, 2, 3), trace=True)
    result.outputs.sum().backward()
    with pytest.raises(OptionError, match="no terms of 'W' were recorded; known: weight_ih, weight_hh"):
        result.trace[0].term_products("W")


def test_both_directions_and_the_report() -> None:
    net = Recurrent("lstm", 3, 4, num_layers=2, direction="both", **DOUBLE)
    report = xray(net, sequence(T=20), loss=lambda out: out.outputs[:, -1].sum())
    numbers = report.numbers("gradient terms")
    assert set(numbers) == {"layer 1", "layer 1, backward", "layer 2", "layer 2, backward"}
    assert "gradient terms" in report.figures()
    assert "Gradient terms" in report.html()
    backward = numbers["layer 2, backward"]["U"]["norms"]
    assert backward[-1] > 0
    assert not any(backward[:-1]), "the last output reads one step of the layer that goes backward: its first"


@dataclass
class Headed(Cell):
    """h' = tanh(x_h + h_h), its units in two groups"""

    heads: int = 2
    gates = ("h",)

    def step(self, x: Any, h: Any, s: Any) -> Any:
        return (torch.tanh(x.h + h.h),)


def test_networks_with_a_projection_or_heads_are_read() -> None:
    """Their Jacobians, spectra and terms too: the projected LSTM's recurrent matrices are W_g and weight_hr in one."""
    net = Recurrent("lstm", 3, 6, projection=2, num_layers=2, **DOUBLE)
    report = xray(net, sequence(T=20))
    radius = report.numbers("spectrum")["layer 1, i"]["radius"]
    whole = net.weight_hh_l0.detach()[:6] @ net.weight_hr_l0.detach()
    assert radius == pytest.approx(float(torch.linalg.eigvals(whole).abs().max()))
    assert len(report.numbers("gradient terms")["layer 2"]["W"]["norms"]) == 20
    headed = Recurrent(Headed(), 3, 4, **DOUBLE)
    report = xray(headed, sequence(T=20))
    dense = Recurrent("elman", 3, 4, **DOUBLE)
    weights = {**headed.state_dict(), "weight_hh_l0": torch.block_diag(*headed.weight_hh_l0.detach().chunk(2))}
    dense.load_state_dict(weights)
    expected = xray(dense, sequence(T=20))
    spectra = [found.numbers("spectrum")["layer 1, h"]["radius"] for found in (report, expected)]
    assert spectra[0] == pytest.approx(spectra[1])
    torch.manual_seed(4)
    x = sequence(T=20)
    exponents = [jacobians(Subject.of(module, x)).numbers["layer 1"]["lyapunov"] for module in (headed, dense)]
    assert exponents[0] == pytest.approx(exponents[1])
