"""Recurrent: depth, both directions and how they merge, dropout, skips, the three deepenings, initial states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from recur.cells import Cell, DeepTransition
from recur.errors import BackendError, CellError, OptionError, ShapeError
from recur.layers import Connections, Depth, Dropout, Init, Recurrent
from recur.scan import scan
from tests.support import ALL_CELLS, DOUBLE, TOLERANCE, close

B, T, D, H = 3, 6, 4, 5


def inputs() -> Tensor:
    return torch.randn(B, T, D, **DOUBLE)


def layer(cell: Any = "lstm", **options: Any) -> Recurrent:
    return Recurrent(cell, D, H, **{**DOUBLE, **options})


@pytest.mark.parametrize("name", ALL_CELLS)
def test_layers_are_scans_one_above_the_other(name: str) -> None:
    net = layer(name, layers=3)
    x = inputs()
    expected, finals = x, []
    for suffix in ("_l0", "_l1", "_l2"):
        expected, final, _ = scan(net.cell, net.weights(suffix), expected)
        finals.append(final)
    outputs, state, traces = net(x)
    close(outputs, expected)
    for got, final in zip(state, finals, strict=True):
        for a, b in zip(got, final, strict=True):
            close(a, b)
    assert len(traces) == 3


@pytest.mark.parametrize(
    ("merge", "how"),
    [
        ("concat", lambda a, b: torch.cat([a, b], -1)),
        ("sum", lambda a, b: a + b),
        ("mean", lambda a, b: (a + b) / 2),
        ("product", lambda a, b: a * b),
    ],
)
def test_the_two_halves_merge(merge: str, how: Any) -> None:
    net = layer("gru", layers=2, direction="both", connections=Connections(merge=merge))
    lengths = [6, 2, 4]
    x = inputs()
    expected = x
    for k in (0, 1):
        forward = scan(net.cell, net.weights(f"_l{k}"), expected, lengths=lengths).outputs
        backward = scan(net.cell, net.weights(f"_l{k}_reverse"), expected, lengths=lengths, reverse=True).outputs
        expected = how(forward, backward)
    outputs = net(x, lengths=lengths).outputs
    close(outputs, expected)
    assert net.output_size == outputs.shape[-1] == (2 * H if merge == "concat" else H)


def test_state_goes_in_as_it_came_out() -> None:
    net = layer("lstm", layers=2, connections=Connections(residual=True, skip=True))
    x = inputs()
    whole = net(x)
    first = net(x[:, :2])
    second = net(x[:, 2:], first.state)
    close(torch.cat([first.outputs, second.outputs], 1), whole.outputs)
    for got, expected in zip(second.state, whole.state, strict=True):
        close(got.c, expected.c)


@pytest.mark.parametrize("name", ALL_CELLS)
def test_one_step_at_a_time_is_the_same_sequence(name: str) -> None:
    options: Any = {
        "layers": 2,
        "init": Init(state="learned"),
        "connections": Connections(residual=True, skip=True),
        "depth": Depth(input=1, output=1),
    }
    net = layer(name, dropout=0.5, **options).eval()
    with torch.no_grad():
        net.h0_l0.normal_()
    x = inputs()
    whole = net(x)
    state = None
    for t in range(T):
        out, state = net.step(x[:, t], state)
        close(out, whole.outputs[:, t])
    assert state is not None
    close(state[1].h, whole.state[1].h)
    for direction in ("both", "backward"):
        with pytest.raises(OptionError, match=f"one step at a time needs direction='forward', .* has '{direction}'"):
            layer(name, direction=direction).step(x[:, 0])


def test_a_trace_for_every_layer_and_direction() -> None:
    net = layer("gru", layers=2, direction="both")
    outputs, _, traces = net(inputs(), trace=True)
    outputs[:, -1].sum().backward()
    assert len(traces) == 4
    # The last output reaches the whole first layer, and of the top layer's backward half only its first step.
    assert (traces[0].norms["h"] > 0).all()
    assert (traces[3].norms["h"] > 0).sum(1).tolist() == [1, 1, 1]
    assert [trace.total.shape for trace in traces] == [(T,)] * 4


def test_residual_adds_the_input_of_each_layer_above_the_first() -> None:
    net = layer("gru", layers=3, connections=Connections(residual=True))
    x = inputs()
    y = scan(net.cell, net.weights("_l0"), x).outputs
    for suffix in ("_l1", "_l2"):
        y = y + scan(net.cell, net.weights(suffix), y).outputs
    close(net(x).outputs, y)


def test_skip_joins_the_input_to_every_layer_and_every_layer_to_the_output() -> None:
    net = layer("gru", layers=2, connections=Connections(skip=True))
    x = inputs()
    first = scan(net.cell, net.weights("_l0"), x).outputs
    second = scan(net.cell, net.weights("_l1"), torch.cat([first, x], -1)).outputs
    close(net(x).outputs, torch.cat([first, second], -1))
    assert net.output_size == 2 * H


def test_the_three_deepenings() -> None:
    net = layer("gru", layers=2, depth=Depth(2, 1, 1))
    x = inputs()
    linears = [m for m in net.input_mlp if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linears] == [(D, H), (H, H)]
    y = x
    for m in linears:
        y = torch.tanh(y @ m.weight.T + m.bias)
    assert isinstance(net.cell, DeepTransition)
    for suffix in ("_l0", "_l1"):
        y = scan(net.cell, net.weights(suffix), y).outputs
    (out,) = [m for m in net.output_mlp if isinstance(m, nn.Linear)]
    close(net(x).outputs, torch.tanh(y @ out.weight.T + out.bias))
    short = net(x, lengths=[6, 2, 4]).outputs
    assert (short[1, 2:] == 0).all()
    assert (short[1, :2] != 0).all()


# Dropout --------------------------------------------------------------------------------------------------


def test_dropout_is_off_outside_training() -> None:
    wild: Any = {"dropout": Dropout(0.5, state=0.5, weights=0.5), "init": Init(state="random:1.0")}
    net = layer("lstm", layers=2, **wild).eval()
    plain = layer("lstm", layers=2)
    plain.load_state_dict(net.state_dict())
    x = inputs()
    assert torch.equal(net(x).outputs, plain(x).outputs)
    net.train()
    assert not torch.equal(net(x).outputs, net(x).outputs)


@pytest.mark.parametrize("variational", [True, False])
def test_dropout_between_layers(variational: bool) -> None:
    # A second layer that copies its input shows the mask: h' = ReLU(x) with weight_ih = I.
    net = Recurrent("indrnn", H, H, layers=2, dropout=Dropout(0.4, variational=variational), **DOUBLE)
    with torch.no_grad():
        for suffix in ("_l0", "_l1"):
            weights = net.weights(suffix)
            nn.init.eye_(weights["weight_ih"])
            weights["bias_ih"].zero_()
            weights["u"].zero_()
    kept = net(torch.ones(200, T, H, **DOUBLE)).outputs
    assert set(kept.unique().tolist()) == {0.0, 1 / 0.6}
    assert abs((kept > 0).double().mean().item() - 0.6) < 0.05
    same_at_every_step = bool((kept == kept[:, :1]).all())
    assert same_at_every_step is variational


def test_dropout_of_the_state_is_one_mask_a_sequence() -> None:
    # h' = x + m ⊙ h with W = I: h_1 = 1, and h_T counts the steps a unit remembers.
    net = Recurrent("elman-relu", H, H, dropout=Dropout(state=0.5), bias=False, **DOUBLE)
    with torch.no_grad():
        nn.init.eye_(net.weight_ih_l0)
        nn.init.eye_(net.weight_hh_l0)
    outputs = net(torch.ones(100, 4, H, **DOUBLE)).outputs
    dropped, kept = torch.ones(4, **DOUBLE), torch.tensor([1.0, 3, 7, 15], **DOUBLE)
    paths = outputs.transpose(1, 2).reshape(-1, 4)
    is_kept = (paths == kept).all(1)
    assert (is_kept | (paths == dropped).all(1)).all()
    assert abs(is_kept.double().mean().item() - 0.5) < 0.1


def test_dropout_of_weights_acts_on_entries_of_w() -> None:
    net = Recurrent("elman-relu", 1, 40, dropout=Dropout(weights=0.25), bias=False, **DOUBLE)
    with torch.no_grad():
        net.weight_ih_l0.fill_(1)
        nn.init.eye_(net.weight_hh_l0)
    last = net(torch.ones(2, 2, 1, **DOUBLE)).outputs[:, 1]
    assert set(last.unique().tolist()) == {1.0, 1 + 1 / 0.75}
    assert torch.equal(last[0], last[1]), "one mask for the whole batch: it is the weights' own"
    net(torch.ones(2, 2, 1, **DOUBLE)).outputs.sum().backward()
    assert net.weight_hh_l0.grad is not None


# Initial states -------------------------------------------------------------------------------------------


def test_a_learned_initial_state_is_a_parameter_that_learns() -> None:
    net = layer("lstm", layers=2, direction="both", init=Init(state="learned"))
    names = {name for name, _ in net.named_parameters() if "0_l" in name}
    assert names == {f"{s}0_l{k}{d}" for s in "hc" for k in (0, 1) for d in ("", "_reverse")}
    net(inputs()).outputs.sum().backward()
    assert all(getattr(net, name).grad.abs().sum() > 0 for name in names)


def test_a_reset_returns_to_the_learned_state() -> None:
    net = layer("gru", init=Init(state="learned"))
    with torch.no_grad():
        net.h0_l0.normal_()
    x = inputs()
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[:, 3] = True
    carried = [torch.randn(B, H, **DOUBLE)]
    close(net(x, [carried], reset=reset).outputs[:, 3:], net(x[:, 3:]).outputs)


# What is handed on to scan --------------------------------------------------------------------------------


def test_bptt_and_reset_reach_every_layer_and_direction() -> None:
    options: Any = {"layers": 2, "direction": "both", "connections": Connections("sum")}
    net = layer("gru", bptt="truncated:2", **options)
    x = inputs().requires_grad_()
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[:, 3] = True

    def by_hand() -> Tensor:
        y = x
        for k in (0, 1):
            common: Any = {"reset": reset, "bptt": "truncated:2"}
            forward = scan(net.cell, net.weights(f"_l{k}"), y, **common).outputs
            y = forward + scan(net.cell, net.weights(f"_l{k}_reverse"), y, reverse=True, **common).outputs
        return y

    weight = torch.randn(B, T, H, **DOUBLE)
    leaves = [x, *net.parameters()]
    got = torch.autograd.grad((net(x, reset=reset).outputs * weight).sum(), leaves)
    expected = torch.autograd.grad((by_hand() * weight).sum(), leaves)
    for a, b in zip(got, expected, strict=True):
        close(a, b)


def test_gradients_pass_the_skip_and_residual_paths() -> None:
    # With the top layer's input cut off, what is left of the gradient has come around it.
    for option in ("skip", "residual"):
        net = layer("gru", layers=2, connections=Connections(**{option: True}))
        with torch.no_grad():
            net.weight_ih_l1.zero_()
            net.weight_hh_l1.zero_()
        net(inputs()).outputs.sum().backward()
        assert net.weight_ih_l0.grad.abs().max() > 0, option
    net = layer("gru", layers=2, connections=Connections(skip=True))
    with torch.no_grad():
        net.weight_ih_l0.zero_()
        net.weight_ih_l1[:, :H] = 0
    x = inputs().requires_grad_()
    (grad,) = torch.autograd.grad(net(x).outputs[..., H:].sum(), x)
    assert grad.abs().max() > 0, "the input reaches the second layer by itself"


def test_what_stands_behind_a_length_reaches_no_gradient() -> None:
    net = layer("gru", depth=Depth(input=1, output=1))
    x = inputs()
    x[0, 2:] = float("nan")
    net(x, lengths=[2, 6, 6]).outputs.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())


def test_dropout_masks_differ_between_rows_also_when_packed() -> None:
    net = Recurrent("elman-relu", H, H, dropout=Dropout(state=0.5), bias=False, **DOUBLE)
    with torch.no_grad():
        nn.init.eye_(net.weight_ih_l0)
        nn.init.eye_(net.weight_hh_l0)
    outputs = net(torch.ones(50, 4, H, **DOUBLE), lengths=[2 + b % 3 for b in range(50)]).outputs
    kept = outputs[:, 1] == 3  # 1 + 2 · 1 for a unit that remembers, 1 for one that does not
    assert len(kept.unique(dim=0)) > 10, "rows have masks of their own"


def test_a_random_start_has_the_scale_it_was_given() -> None:
    for sigma in (0.02, 0.3):
        net = Recurrent("elman", 1, 400, init=Init(state=f"random:{sigma}"), bias=False, **DOUBLE)
        with torch.no_grad():
            net.weight_ih_l0.zero_()
            nn.init.eye_(net.weight_hh_l0)
        h0 = torch.atanh(net(torch.zeros(20, 1, 1, **DOUBLE)).outputs)
        assert abs(h0.std().item() / sigma - 1) < 0.05
        assert (net.eval()(torch.zeros(20, 1, 1, **DOUBLE)).outputs == 0).all()


def test_a_learned_state_starts_at_zero() -> None:
    net = layer("lstm", init=Init(state="learned"))
    assert (net.h0_l0 == 0).all()
    assert (net.c0_l0 == 0).all()


@pytest.mark.parametrize("backend", ["loop", "torch"])
@pytest.mark.parametrize("name", ["elman", "gru", "lstm"])
def test_autocast_runs_the_whole_scan_in_its_dtype(name: str, backend: str) -> None:
    net = Recurrent(name, D, H, backend=backend, depth=Depth(input=1))
    x = torch.randn(B, T, D)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = net(x).outputs
    assert outputs.dtype == torch.bfloat16
    outputs.sum().backward()
    assert net.weight_hh_l0.grad.dtype == torch.float32
    assert (outputs.float() - net(x).outputs).abs().max() < TOLERANCE[torch.bfloat16]


# Refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layers": 0}, "layers must be a whole number ≥ 1, got 0"),
        ({"layers": 1.5}, "layers must be a whole number"),
        ({"layers": True}, "layers must be a whole number"),
        ({"direction": "backwards"}, "unknown direction 'backwards'; did you mean 'backward'"),
        ({"direction": True}, "unknown direction True"),
        ({"dropout": 1.1, "layers": 2}, "dropout of layers must lie in 0 … 1, got 1.1"),
        ({"init": None}, "unknown initialisation None"),
        ({"init": "xavier"}, "unknown initialisation 'xavier'"),
        ({"bptt": "half"}, "bptt 'half'"),
        ({"cell": "gru2014", "dropout": Dropout(state=0.5)}, "multiplies its state inside the step"),
        ({"cell": "mingru", "dropout": Dropout(weights=0.5)}, "MinGRU has no product with W"),
        ({"cell": "indrnn", "dropout": Dropout(state=0.5)}, "IndRNN has no product with W"),
        ({"cell": "elman", "init": Init(forget_bias=1.0)}, "Elman has no forget gate"),
        ({"bias": False, "init": Init(forget_bias=1.0)}, "without biases"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        layer(**options)


def test_sizes_and_cells_are_refused_by_name() -> None:
    Recurrent("gru", np.int64(4), np.int64(5))
    with pytest.raises(OptionError, match="hidden_size must be a whole number"):
        Recurrent("gru", 4, 0)
    with pytest.raises(CellError, match="unknown cell 'gruu'"):
        layer("gruu")
    with pytest.raises(CellError, match="MinGRU has no product with W"):
        layer("mingru", depth=Depth(transition=1))


def test_wrong_calls_are_refused() -> None:
    net = layer("gru", layers=2)
    with pytest.raises(ShapeError, match=r"GRU: x must be \(B, T, D=4\), got \(3, 4\); add a time axis"):
        net(torch.zeros(3, 4, **DOUBLE))
    with pytest.raises(ShapeError, match=r"x must be \(B, T, D=4\), got \(3, 6, 5\)"):
        net(torch.zeros(3, 6, 5, **DOUBLE))
    with pytest.raises(ShapeError, match="one entry for each of 2 layers"):
        net(inputs(), [torch.zeros(B, H, **DOUBLE)])
    for wrong in (torch.zeros(2, H, **DOUBLE), 3):
        with pytest.raises(ShapeError, match=r"one entry for each of 2 layers and directions, got (Tensor|int)"):
            net(inputs(), wrong)
    with pytest.raises(BackendError, match="unknown backend 'tourch'"):
        layer("gru", backend="tourch")
    with pytest.raises(CellError, match="Cell has no step"):
        layer(Cell)


def test_dropout_with_one_layer_warns_that_it_has_no_effect() -> None:
    with pytest.warns(UserWarning, match="there is one layer"):
        layer("gru", dropout=0.5)


def test_its_repr_names_the_cell() -> None:
    assert repr(layer("elman-relu", layers=2)) == "Recurrent(Elman(activation='relu'), 4, 5, layers=2)"


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_notices_what_an_optimizer_changed(fused: bool) -> None:
    net = Recurrent("gru", 3, 5)
    optimizer = torch.optim.SGD(net.parameters(), 0.5, fused=fused)
    x = torch.randn(2, 4, 3)
    before, _ = net.step(x[:, 0])
    net(x).outputs.sum().backward()
    net.step(x[:, 0])
    optimizer.step()
    after, _ = net.step(x[:, 0])
    with torch.no_grad():
        close(after, net(x[:, :1]).outputs[:, 0])
    assert not torch.allclose(before, after)
