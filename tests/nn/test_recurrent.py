"""Recurrent: depth, both directions and how they merge, skips, the three deepenings, and what reaches scan."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recur.cells import DeepTransition
from recur.errors import OptionError
from recur.nn import Connections, Depth, Init, Recurrent
from recur.ops import scan
from tests.support import ALL_CELLS, DOUBLE, TOLERANCE, close

B, T, D, H = 3, 6, 4, 5


def inputs() -> Tensor:
    return torch.randn(B, T, D, **DOUBLE)


def layer(cell: Any = "lstm", **options: Any) -> Recurrent:
    return Recurrent(cell, D, H, **{**DOUBLE, **options})


@pytest.mark.parametrize("name", ALL_CELLS)
def test_layers_are_scans_one_above_the_other(name: str) -> None:
    net = layer(name, num_layers=3).eval()  # without noise
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
    net = layer("gru", num_layers=2, direction="both", connections=Connections(merge=merge))
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
    net = layer("lstm", num_layers=2, connections=Connections(residual=True, skip=True))
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
        "num_layers": 2,
        "init": Init(state="learned"),
        "connections": Connections(residual=True, skip=True),
        "depth": Depth(input=1, output=1),
    }
    net = layer(name, dropout=0.5, **options).eval()
    with torch.no_grad():
        learned = next(state for state in net.cell.states if state not in net.cell.initial)
        net.get_parameter(f"{learned}0_l0").normal_()
    x = inputs()
    whole = net(x)
    state = None
    for t in range(T):
        out, state = net.step(x[:, t], state)
        close(out, whole.outputs[:, t])
    assert state is not None
    close(state[1][0], whole.state[1][0])
    for direction in ("both", "backward"):
        with pytest.raises(OptionError, match=f"one step at a time needs direction='forward', .* has '{direction}'"):
            layer(name, direction=direction).step(x[:, 0])


def test_a_trace_for_every_layer_and_direction() -> None:
    net = layer("gru", num_layers=2, direction="both")
    outputs, _, traces = net(inputs(), trace=True)
    outputs[:, -1].sum().backward()
    assert len(traces) == 4
    # The last output reaches the whole first layer, and of the top layer's backward half only its first step.
    assert (traces[0].norms["h"] > 0).all()
    assert (traces[3].norms["h"] > 0).sum(1).tolist() == [1, 1, 1]
    assert [trace.total.shape for trace in traces] == [(T,)] * 4


def test_residual_adds_the_input_of_each_layer_above_the_first() -> None:
    net = layer("gru", num_layers=3, connections=Connections(residual=True))
    x = inputs()
    y = scan(net.cell, net.weights("_l0"), x).outputs
    for suffix in ("_l1", "_l2"):
        y = y + scan(net.cell, net.weights(suffix), y).outputs
    close(net(x).outputs, y)


def test_skip_joins_the_input_to_every_layer_and_every_layer_to_the_output() -> None:
    net = layer("gru", num_layers=2, connections=Connections(skip=True))
    x = inputs()
    first = scan(net.cell, net.weights("_l0"), x).outputs
    second = scan(net.cell, net.weights("_l1"), torch.cat([first, x], -1)).outputs
    close(net(x).outputs, torch.cat([first, second], -1))
    assert net.output_size == 2 * H


def test_the_three_deepenings() -> None:
    net = layer("gru", num_layers=2, depth=Depth(2, 1, 1))
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


@pytest.mark.parametrize("residual", [False, True])
def test_an_mlp_between_layers(residual: bool) -> None:
    """Inside a residual connection, and not behind the last layer; in a pass, in a step, and without a native stack."""
    net = layer("lru", num_layers=3, depth=Depth(between=1), connections=Connections(residual=residual))
    x = inputs()
    mlps = [mlp[0] for mlp in net.between_mlps]
    assert [(m.in_features, m.out_features) for m in mlps] == [(2 * H, 2 * H)] * 2
    y = x
    for k in range(3):
        found = scan(net.cell, net.weights(f"_l{k}"), y).outputs
        if k < 2:
            found = torch.tanh(found @ mlps[k].weight.T + mlps[k].bias)
        y = found + y if residual and k else found
    close(net(x).outputs, y)
    state = None
    for t in range(x.shape[1]):
        out, state = net.step(x[:, t], state)
        close(out, y[:, t].detach())
    short = net(x, lengths=[6, 2, 4]).outputs
    close(short[1, :2], y[1, :2])
    assert (short[1, 2:] == 0).all()
    with pytest.raises(OptionError, match="at least two layers, got one"):
        layer("lru", depth=Depth(between=1))


# Options of scan ------------------------------------------------------------------------------------------


def test_bptt_and_reset_reach_every_layer_and_direction() -> None:
    options: Any = {"num_layers": 2, "direction": "both", "connections": Connections("sum")}
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
        net = layer("gru", num_layers=2, connections=Connections(**{option: True}))
        with torch.no_grad():
            net.weight_ih_l1.zero_()
            net.weight_hh_l1.zero_()
        net(inputs()).outputs.sum().backward()
        assert net.weight_ih_l0.grad.abs().max() > 0, option
    net = layer("gru", num_layers=2, connections=Connections(skip=True))
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


def test_its_repr_names_the_cell() -> None:
    assert repr(layer("elman-relu", num_layers=2)) == "Recurrent(Elman(activation='relu'), 4, 5, num_layers=2)"


@pytest.mark.parametrize("options", [{}, {"init": Init(state="learned")}, {"connections": Connections(skip=True)}])
def test_a_last_layer_of_another_width(options: dict[str, Any]) -> None:
    """The same as one of several layers below another of one."""
    net = Recurrent("lstm", 5, 8, num_layers=3, top=6, **options).double()
    x = torch.randn(2, 7, 5, dtype=torch.float64)
    found = net(x)
    assert [part.shape[1] for layer in found.state for part in layer] == [8, 8, 8, 8, 6, 6]
    assert found.outputs.shape[-1] == net.output_size
    state, each = None, []
    for t in range(7):
        out, state = net.step(x[:, t], state)
        each.append(out)
    close(torch.stack(each, 1), found.outputs)
    again = net(x, net.starting_state(x[:, 0]))
    close(again.outputs, found.outputs)
    if not options:
        below, above = Recurrent("lstm", 5, 8, num_layers=2).double(), Recurrent("lstm", 8, 6).double()
        with torch.no_grad():
            for name, p in net.named_parameters():
                own = above if "_l2" in name else below
                getattr(own, name.replace("_l2", "_l0")).copy_(p)
        close(above(below(x).outputs).outputs, found.outputs)


def test_widths_that_do_not_fit() -> None:
    with pytest.raises(OptionError, match="residual connections need layers of equal width"):
        Recurrent("gru", 4, 8, num_layers=2, top=6, connections=Connections(residual=True))
