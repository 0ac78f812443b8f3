"""What the contract allows beyond the plain cell: projection, heads, several outputs, an initial state of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn, sigmoid, tanh
from torch.nn.functional import linear

from recur.cells import GRU, LSTM, Cell, make_cell
from recur.errors import CellError, ShapeError
from recur.nn import Conditioned, Init, Recurrent
from recur.ops import scan
from tests.support import DOUBLE, HERE, ISAS, all_close, close, core, needs_core

CPU = [backend for backend in HERE if backend != "torch"]


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("layers", "direction"), [(1, "forward"), (2, "both")])
def test_a_projected_lstm_is_that_of_torch(backend: str, bias: bool, layers: int, direction: str) -> None:
    both = direction == "both"
    theirs = nn.LSTM(4, 5, layers, bias=bias, batch_first=True, bidirectional=both, proj_size=3, **DOUBLE)
    ours = Recurrent(
        "lstm", 4, 5, num_layers=layers, bias=bias, direction=direction, projection=3, backend=backend, **DOUBLE
    )
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 6, 4, requires_grad=True, **DOUBLE)
    start = [
        [torch.randn(2, width, requires_grad=True, **DOUBLE) for width in (3, 5)] for _ in range(layers * (1 + both))
    ]
    hx = tuple(torch.stack([layer[k] for layer in start]) for k in (0, 1))
    expected, final = theirs(x, hx)
    outputs, state, _ = ours(x, start)
    close(outputs, expected, "outputs")
    for k, name in enumerate("hc"):
        close(torch.stack([layer[k] for layer in state]), final[k], name)
    pull = torch.randn_like(expected)
    leaves = [x, *(part for layer in start for part in layer)]
    ends = [torch.randn_like(part) for part in final]

    def gradients(out: Any, last: Any, weights: Any) -> Any:
        loss = (out * pull).sum() + sum((part * end).sum() for part, end in zip(last, ends, strict=True))
        return torch.autograd.grad(loss, [*leaves, *weights], retain_graph=True)

    stacked = [torch.stack([layer[k] for layer in state]) for k in (0, 1)]
    names = [name for name, _ in theirs.named_parameters()]
    got = gradients(outputs, stacked, [ours.get_parameter(name) for name in names])
    wanted = gradients(expected, final, [theirs.get_parameter(name) for name in names])
    for name, a, b in zip(["x", *["start"] * (len(leaves) - 1), *names], got, wanted, strict=True):
        close(a, b, name)


def test_a_cell_that_reads_its_output_cannot_be_projected() -> None:
    with pytest.raises(CellError, match="GRU cannot be projected"):
        Recurrent(GRU(), 3, 4, projection=2)


def test_a_projected_network_streams() -> None:
    net = Recurrent(LSTM(), 3, 5, num_layers=2, projection=2, **DOUBLE)
    x = torch.randn(2, 4, 3, **DOUBLE)
    outputs = net(x).outputs
    stream = net.stream(2)
    for t in range(4):
        close(stream.step(x[:, t]), outputs[:, t].detach())


@dataclass
class Headed(Cell):
    """h' = tanh(z ⊙ (x_h + h_h)), z = σ(x_z + h_z), its units in heads."""

    heads: int = 2
    gates = ("z", "h")

    def step(self, x: Any, h: Any, s: Any) -> Any:
        return (tanh(sigmoid(x.z + h.z) * (x.h + h.h)),)


@pytest.mark.parametrize("backend", CPU)
def test_heads_multiply_apart(backend: str) -> None:
    cell, one = Headed(2), Headed(1)
    weights = {name: torch.randn(shape, requires_grad=True, **DOUBLE) for name, shape in cell.shapes(3, 6).items()}
    assert weights["weight_hh"].shape == (12, 3)
    blocks = weights["weight_hh"].view(2, 2, 3, 3)  # (gate, head, its units, its inputs)
    dense = torch.cat([torch.block_diag(*blocks[gate]) for gate in range(2)])
    x = torch.randn(2, 5, 3, requires_grad=True, **DOUBLE)
    got = scan(cell, weights, x, backend=backend, trace=True)
    expected = scan(one, {**weights, "weight_hh": dense}, x, backend="loop", trace=True)
    close(got.outputs, expected.outputs)
    leaves = [x, *weights.values()]
    pull = torch.randn_like(got.outputs)
    for name, a, b in zip(
        ["x", *weights],
        torch.autograd.grad((got.outputs * pull).sum(), leaves),
        torch.autograd.grad((expected.outputs * pull).sum(), leaves),
        strict=True,
    ):
        close(a, b, name)
    # The blocks between heads are no weights, so their share of each term is left out.
    slope, before = expected.trace._summed(expected.trace._slopes["weight_hh"]), torch.zeros(2, 5, 6, **DOUBLE)
    before[:, 1:] = expected.outputs[:, :-1].detach()
    whole = torch.einsum("btrnu,btnk->btrnuk", slope.view(2, 5, 2, 2, 3), before.view(2, 5, 2, 3))
    close(got.trace.terms["weight_hh"], whole.flatten(2).norm(dim=-1))


def test_units_that_cannot_be_divided_into_heads_are_refused() -> None:
    with pytest.raises(ShapeError, match="5 units cannot be divided into 2 heads"):
        scan(Headed(2), Headed(1).shapes(3, 5) and {"weight_ih": torch.randn(10, 3)}, torch.randn(1, 2, 3))


class Rotation(Cell):
    """a' = x_a + cos(p) a − sin(p) b,   b' = x_b + sin(p) a + cos(p) b: a complex number, whole as the output."""

    gates = ("a", "b")
    state_gates = ()
    states = ("a", "b")
    outputs = ("a", "b")
    extras = {"p": ("H",)}

    def step(self, x: Any, h: Any, s: Any, w: Any) -> Any:
        c, d = torch.cos(w.p), torch.sin(w.p)
        return x.a + c * s.a - d * s.b, x.b + d * s.a + c * s.b


@pytest.mark.parametrize("backend", CPU)
def test_several_states_are_the_output(backend: str) -> None:
    net = Recurrent(Rotation(), 3, 4, num_layers=2, backend=backend, **DOUBLE)
    assert net.output_size == 8
    x = torch.randn(2, 5, 3, **DOUBLE)
    outputs, state, _ = net(x)
    below = x
    for layer in range(2):
        w = net.weights(f"_l{layer}")
        u = torch.complex(*linear(below, w["weight_ih"], w["bias_ih"]).chunk(2, dim=-1))
        z, seen = torch.zeros(2, 4, dtype=torch.complex128), []
        for t in range(5):
            z = u[:, t] + torch.exp(1j * w["p"]) * z
            seen.append(z)
        below = torch.cat([torch.stack(seen, 1).real, torch.stack(seen, 1).imag], dim=-1)
        close(state[layer].a, z.real)
    close(outputs, below)
    stream = net.stream(2)
    for t in range(5):
        close(stream.step(x[:, t]), outputs[:, t].detach())


class Largest(Cell):
    """m' = max(m, x_m), from −∞ on;  h' = m'."""

    gates = ("m",)
    state_gates = ()
    states = ("h", "m")
    initial = {"m": -math.inf}

    def step(self, x: Any, h: Any, s: Any) -> Any:
        m = torch.maximum(s.m, x.m)
        return m * 1.0, m


@pytest.mark.parametrize("backend", CPU)
@pytest.mark.parametrize("options", [{}, {"lengths": [3, 5]}, {"reset": torch.tensor([[0, 0, 1, 0, 0]] * 2).bool()}])
def test_a_state_starts_where_its_cell_says(backend: str, options: dict[str, Any]) -> None:
    cell = Largest()
    weights = {name: torch.randn(shape, requires_grad=True, **DOUBLE) for name, shape in cell.shapes(3, 4).items()}
    x = torch.randn(2, 5, 3, requires_grad=True, **DOUBLE)
    outputs = scan(cell, weights, x, backend=backend, **options).outputs
    share = linear(x, weights["weight_ih"], weights["bias_ih"])
    expected = share.cummax(1).values
    if "reset" in options:
        expected = torch.cat([share[:, :2].cummax(1).values, share[:, 2:].cummax(1).values], 1)
    if "lengths" in options:
        expected = expected * (torch.arange(5) < torch.tensor([3, 5])[:, None])[..., None]
    close(outputs, expected)
    for a, b in zip(*(torch.autograd.grad(y.sum(), [x, *weights.values()]) for y in (outputs, expected)), strict=True):
        close(a, b)


@pytest.mark.parametrize("state", ["learned", "random:0.5"])
def test_a_state_of_the_cells_own_is_not_learned_drawn_or_conditioned(state: str) -> None:
    net = Recurrent(Largest(), 3, 4, init=Init(state=state), **DOUBLE)
    assert not any(name.startswith("m0") for name, _ in net.named_parameters())
    x = torch.randn(2, 1, 3, **DOUBLE)
    close(net(x).outputs, linear(x, net.weights()["weight_ih"], net.weights()["bias_ih"]))
    conditioned = Conditioned(Largest(), 3, 4, 2, way="initial", device="cpu")
    start = conditioned.start(torch.randn(2, 2))
    assert start is not None
    assert (start[0].m == -math.inf).all()
    assert start[0].h.abs().max() <= 1


@needs_core
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("H", "P"), [(5, 3), (40, 33), (70, 20), (6, 9)])
@pytest.mark.parametrize(
    "options",
    [{}, {"lengths": [4, 6, 1], "bptt": "truncated:2"}, {"reverse": True, "bptt": "full,clip:0.3"}, {"masked": True}],
    ids=["whole", "lengths", "clip", "mask"],
)
def test_a_projection_in_the_core_is_that_of_the_loop(isa: str, H: int, P: int, options: dict[str, Any]) -> None:
    cell, options = make_cell("peephole"), dict(options)
    weights = {k: (torch.randn(s, **DOUBLE) * 0.3).requires_grad_() for k, s in cell.shapes(3, H, projection=P).items()}
    x = torch.randn(3, 6, 3, requires_grad=True, **DOUBLE)
    state = [torch.randn(3, width, requires_grad=True, **DOUBLE) for width in (P, H)]
    if options.pop("masked", False):
        options["mask"] = torch.randint(0, 2, (3, P), **DOUBLE) * 2
    leaves = {"x": x, **weights, "h0": state[0], "c0": state[1]}
    pull = [torch.randn(3, 6, P, **DOUBLE), torch.randn(3, P, **DOUBLE), torch.randn(3, H, **DOUBLE)]

    def run(backend: str) -> Any:
        found = scan(cell, weights, x, state, backend=backend, trace=True, **options)
        loss = sum((part * w).sum() for part, w in zip((found.outputs, *found.state), pull, strict=True))
        grads = torch.autograd.grad(loss, list(leaves.values()))
        traced = {**found.trace.gradients, **{f"term {k}": v for k, v in found.trace.terms.items()}}
        return {"outputs": found.outputs, **dict(zip(leaves, grads, strict=True)), **traced}

    was, expected = core.isa, run("loop")
    core.use(isa)
    try:
        got = run("native")
    finally:
        core.isa = was
    all_close(got, expected)


@needs_core
def test_a_projected_pass_has_second_derivatives() -> None:
    cell = make_cell("peephole")
    weights = {k: (torch.randn(s, **DOUBLE) * 0.3).requires_grad_() for k, s in cell.shapes(2, 3, projection=2).items()}
    x = torch.randn(1, 3, 2, requires_grad=True, **DOUBLE)

    def twice(backend: str) -> Any:
        first = torch.autograd.grad(
            scan(cell, weights, x, backend=backend).outputs.square().sum(), x, create_graph=True
        )
        return torch.autograd.grad(first[0].square().sum(), list(weights.values()))

    for name, got, expected in zip(weights, twice("native"), twice("loop"), strict=True):
        close(got, expected, name)
