"""Steps with several products, reductions, inputs and noise: the C++ core against the loop, and what they promise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, exp, sigmoid, tanh
from torch.nn.functional import layer_norm, linear

from recur import Recurrent
from recur.cells import Cell, custom, detach, make_cell
from recur.compiler.stage_tracing import stage_programs
from recur.compiler.stages import products_in_sequence
from recur.errors import CellError, OptionError, ShapeError
from recur.ops import scan
from recur.ops.noise import philox
from tests.support import DOUBLE, STAGED_CELLS, Case, all_close, close, needs_core, random_state, random_weights


class Heads(Cell):
    """A softmax within each head, low-rank products, a maximum and a norm, and a state that the step does not read."""

    gates, states, pointwise = ("a", "b"), ("h", "m"), False
    inputs = {"dt": 1, "raw": "D"}
    noise = {"eps": "uniform"}
    extras = {"A": ("H", 3), "B": (3, "H"), "C": ("H", "D"), "p": (2, "H"), "q": ("H",)}
    heads = 2

    def step(self, x: Any, h: Any, s: Any, w: Any) -> Any:
        weights = (x.a + h.a).unflatten(-1, (2, -1)).softmax(-1).flatten(-2)
        low = linear(linear(s.m, w.B), w.A) + linear(x.raw * 2, w.C)
        most = low.amax(-1, keepdim=True) + (low * low).sum(-1, keepdim=True).sqrt()
        m = detach(weights) * tanh(low / (1 + most)) + w.p[0] * exp(-x.dt) + w.p[1] * x.eps
        rough = custom(tanh, sigmoid)(layer_norm(m + h.b, m.shape[-1:], w.q))
        return weights * rough + x.training * x.b, m


def both(case: Case, **options: Any) -> None:
    all_close(
        case.everything(lambda: case.scan(backend="native", **options)),
        case.everything(lambda: case.scan(backend="loop", **options)),
    )


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> Cell:
    cell = Heads()
    monkeypatch.setattr("tests.support.make_cell", lambda name: cell)
    return cell


OPTIONS: list[dict[str, Any]] = [
    {},
    {"lengths": [5, 2, 4]},
    {"reverse": True, "bptt": "truncated:2,clip:0.3"},
    {"reset": torch.tensor([[0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]], dtype=torch.bool)},
    {"bptt": "sliding:2"},
    {"mask": torch.rand(3, 6, **DOUBLE)},
]


@needs_core
@pytest.mark.parametrize("options", OPTIONS, ids=[" ".join(o) or "plain" for o in OPTIONS])
@pytest.mark.parametrize("seed", [None, 3])
def test_everything_at_once_agrees_with_the_loop(heads: Cell, options: dict[str, Any], seed: int | None) -> None:
    both(Case("", H=6), inputs={"dt": torch.rand(3, 5, **DOUBLE)}, seed=seed, **options)


@needs_core
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("B", [1, 3, 20])
@pytest.mark.parametrize("name", ["gru2014", "lnlstm", "mogrifier"])
def test_threads_divide_rows_or_share_stages(name: str, B: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        both(Case(name, B=B, T=3, D=70, H=300 if B == 1 else 33))
    finally:
        torch.set_num_threads(before)


@needs_core
@pytest.mark.parametrize("name", STAGED_CELLS)
def test_single_precision(name: str) -> None:
    case = Case(name, dtype=torch.float32)
    for got, expected in zip(case.scan(backend="native").state, case.scan(backend="loop").state, strict=True):
        close(got, expected)


@pytest.mark.parametrize("backend", ["loop", pytest.param("native", marks=needs_core)])
@pytest.mark.parametrize("name", ["cfc", "grud", "ltc"])
def test_gradients_of_inputs(name: str, backend: str) -> None:
    if (name, backend) == ("ltc", "native"):
        pytest.skip("a sum over pairs of units is no product")
    case = Case(name, B=2, T=4)
    for decay in ("d", "k"):
        if decay in case.weights:
            case.weights[decay] = case.weights[decay].detach().abs()
    dt = (torch.rand(2, 4, **DOUBLE) + 0.5).requires_grad_()

    def run(dt: Tensor) -> Tensor:
        return case.scan(inputs={"dt": dt}, lengths=[4, 2], backend=backend).outputs

    assert torch.autograd.gradcheck(run, (dt,))
    assert torch.autograd.grad(run(dt).sum(), dt)[0].abs().sum() > 0


@needs_core
def test_second_derivatives() -> None:
    case = Case("grud", B=1, T=3, D=2, H=2)
    dt = (torch.rand(1, 3, **DOUBLE) + 0.5).requires_grad_()
    weights = list(case.weights.values())

    def run(x: Tensor, dt: Tensor, *given: Tensor) -> Tensor:
        named = dict(zip(case.weights, given, strict=True))
        return scan(case.cell, named, x, inputs={"dt": dt}, backend="native").outputs

    assert torch.autograd.gradgradcheck(run, (case.x, dt, *weights))


def test_an_input_that_is_not_given_is_one() -> None:
    net, x = Recurrent("cfc", 3, 4, num_layers=2), torch.randn(2, 5, 3)
    close(net(x).outputs, net(x, dt=torch.ones(2, 5)).outputs)
    assert not torch.allclose(net(x).outputs, net(x, dt=torch.full((2, 5), 3.0)).outputs)
    with pytest.raises(OptionError, match="CfC has no input Δt; its inputs: dt"):
        net(x, Δt=torch.ones(2, 5))
    with pytest.raises(OptionError, match="GRU has no input dt; it has none"):
        Recurrent("gru", 3, 4)(x, dt=torch.ones(2, 5))
    with pytest.raises(ShapeError, match=r"CfC: dt must be \(B=2, T=5\), got \(2, 4\)"):
        net(x, dt=torch.ones(2, 4))


def test_philox_gives_the_numbers_of_its_authors() -> None:
    """Random123 1.14, kat_vectors: philox4x32 with 10 rounds."""
    known = [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ]
    for counter, key, expected in known:
        words = philox(tuple(map(torch.tensor, counter)), (torch.tensor(key[0]), torch.tensor(key[1])))
        assert [int(word) for word in words] == expected


@pytest.mark.parametrize("backend", ["loop", pytest.param("native", marks=needs_core)])
@pytest.mark.parametrize("name", ["ctrnn", "zoneout_lstm"])
def test_noise_depends_on_seed_row_step_and_unit_only(name: str, backend: str) -> None:
    case = Case(name, B=3, T=6, H=5)
    whole = case.scan(seed=7, backend=backend)
    first = scan(case.cell, case.weights, case.x[:, :2], case.state, seed=7, backend=backend)
    rest = scan(case.cell, case.weights, case.x[:, 2:], first.state, seed=7, first_step=2, backend=backend)
    close(torch.cat([first.outputs, rest.outputs], 1), whole.outputs)
    assert not torch.allclose(case.scan(seed=8, backend=backend).outputs, whole.outputs)
    state = [part[:2] for part in case.state]
    close(scan(case.cell, case.weights, case.x[:2], state, seed=7, backend=backend).outputs, whole.outputs[:2])


def test_noise_has_its_distribution() -> None:
    from recur.ops.noise import draw_noise

    class Noisy(Cell):
        gates = ("h",)
        noise = {"n": "normal", "u": "uniform", "b": "bernoulli:0.2"}

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (x.n + x.u + x.b + h.h,)

    found = draw_noise(Noisy(), 1, torch.zeros(50, 40, 1, **DOUBLE), 51)
    for name, mean, deviation in (("n", 0, 1), ("u", 0.5, 12**-0.5), ("b", 0.2, 0.4)):
        part = found[name]
        assert part.shape == (50, 40, 51)
        assert abs(part.mean() - mean) < 0.01
        assert abs(part.std() - deviation) < 0.01
    assert found["b"].unique().tolist() == [0, 1]


def test_a_network_draws_noise_in_training_only() -> None:
    net, x = Recurrent("zoneout_gru", 3, 4, num_layers=2), torch.randn(2, 5, 3)
    assert not torch.equal(net(x).outputs, net(x).outputs)
    assert torch.equal(net(x, seed=1).outputs, net(x, seed=1).outputs)
    torch.manual_seed(3)
    drawn = net(x).outputs
    torch.manual_seed(3)
    assert torch.equal(net(x).outputs, drawn)
    net.eval()
    assert torch.equal(net(x).outputs, net(x).outputs)


@needs_core
@pytest.mark.parametrize(("name", "depth"), [("gru2014", 2), ("mogrifier", 6), ("lnlstm", 1), ("cfc", 2)])
def test_products_that_wait_for_each_other(name: str, depth: int) -> None:
    found = stage_programs(make_cell(name), True, False)
    assert not isinstance(found, str)
    assert products_in_sequence(found[1]) == depth


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"inputs": {"dt": 2}}, "must have the size 1 or 'H', got 2"),
        ({"inputs": {"raw": 1}}, "must have the size 'D', it is the input itself, got 1"),
        ({"inputs": {"g": 1}}, "must be distinct"),
        ({"inputs": {"lengths": 1}}, "gives the name 'lengths' to an input"),
        ({"noise": {"eps": "cauchy"}}, "must be normal, uniform or bernoulli:p"),
        ({"noise": {"eps": "bernoulli:2"}}, "must be normal, uniform or bernoulli:p"),
    ],
)
def test_wrong_declarations_are_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(CellError, match=message):
        type("Wrong", (Cell,), {"gates": ("g",), **attributes})


@needs_core
def test_operations_in_place() -> None:
    """On the values of a step, through views of heads too; an argument is not changed."""

    class InPlace(Cell):
        gates, pointwise, heads = ("a",), False, 2

        def step(self, x: Any, h: Any, s: Any) -> Any:
            value = x.a + h.a
            value -= value.mean(-1, keepdim=True)
            value.unflatten(-1, (2, -1)).mul_(0.5)
            return (torch.atan(value) % 0.7,)

    case = Case("elman", H=6)
    case.cell, case.weights, case.state = InPlace(), random_weights(InPlace(), 4, 6), random_state(InPlace(), 3, 6)
    case.on_state = [torch.randn(3, 6, dtype=torch.float64)]
    both(case)

    class OfArgument(InPlace):
        def step(self, x: Any, h: Any, s: Any) -> Any:
            value = h.a
            value += x.a.mean(-1, keepdim=True)
            return (tanh(value),)

    assert stage_programs(OfArgument(), True, False) == (
        "its step changes its argument h_a in place; write a new tensor"
    )
