"""One step at a time gives what the whole pass gives, whether the caller or a stream holds the state."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from recur.cells import make_cell
from recur.errors import BackendError, DeviceError, DtypeError, OptionError, ShapeError
from recur.nn import Connections, Depth, Dropout, Init, Recurrent
from recur.nn.streaming import get_native_stack
from recur.ops.cpu.plans import CorePlan
from recur.ops.cpu.streaming import MAX_PLANS
from tests.support import ALL_CELLS, DOUBLE, ISAS, NATIVE_CELLS, close, core, needs_core

D, H = 5, 35


def network(cell: str = "lstm", **options: Any) -> Recurrent:
    return Recurrent(cell, D, H, **{**DOUBLE, **options})


def start(net: Recurrent, B: int) -> tuple[Any, ...]:
    widths = net.cell.widths(H)
    return tuple(net.cell.state([torch.randn(B, width, **DOUBLE) for width in widths]) for _ in range(net.num_layers))


def same(got: Any, expected: Any) -> None:
    for mine, theirs in zip(got, expected, strict=True):
        assert mine._fields == theirs._fields
        for part, other in zip(mine, theirs, strict=True):
            close(part, other.detach())


def follow(net: Recurrent, x: Tensor, state: Any = None) -> None:
    """step and stream against forward on the same sequence, outputs and states."""
    expected = net.eval()(x, state)
    stream = net.stream(len(x), state)
    carried = state
    for t in range(x.shape[1]):
        one, carried = net.step(x[:, t], carried)
        close(one, expected.outputs[:, t].detach())
        close(stream.step(x[:, t]), expected.outputs[:, t].detach())
    same(carried, expected.state)
    same(stream.state, expected.state)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", ALL_CELLS)
def test_every_cell_at_every_depth(name: str, layers: int) -> None:
    net = network(name, num_layers=layers)
    follow(net, torch.randn(2, 4, D, **DOUBLE))
    follow(net, torch.randn(2, 4, D, **DOUBLE), start(net, 2))


@needs_core
def test_every_pointwise_cell_streams_through_the_core() -> None:
    for name in NATIVE_CELLS:
        if make_cell(name).outputs:  # several states side by side, which the layer above would read
            continue
        assert get_native_stack(network(name), torch.randn(2, D, **DOUBLE)) is not None, name


@pytest.mark.parametrize("B", [1, 7, 200])
@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_every_batch(name: str, B: int) -> None:
    net = network(name, num_layers=2)
    follow(net, torch.randn(B, 3, D, **DOUBLE), start(net, B))


@needs_core
def test_every_instruction_set_and_number_of_threads() -> None:
    """Chosen anew under a network that runs already."""
    net, was = network(num_layers=2), core.isa
    wide = Recurrent("lstm", D, 260, num_layers=2, **DOUBLE)  # for which threads share a step
    try:
        for isa in ISAS:
            core.use(isa)
            for threads in (1, 2, 4):
                torch.set_num_threads(threads)
                follow(net, torch.randn(7, 3, D, **DOUBLE))
                follow(wide, torch.randn(1, 3, D, **DOUBLE))
    finally:
        core.isa = was
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    "options",
    [
        {"init": Init(state="learned")},
        {"bias": False},
        {"connections": Connections(skip=True), "num_layers": 3},
        {"connections": Connections(residual=True), "num_layers": 3},
        {"depth": Depth(input=1)},
        {"depth": Depth(output=2)},
        {"depth": Depth(transition=1)},
        {"backend": "loop"},
        {"backend": "native", "num_layers": 2},
        {"dropout": Dropout(0.5, state=0.5), "num_layers": 2},
        {"dtype": torch.float32},
    ],
    ids=str,
)
def test_every_kind_of_network(options: dict[str, Any]) -> None:
    if options.get("backend") == "native" and core is None:
        pytest.skip("the C++ core is not built")
    net = network("gru", **options)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)  # a learned start is 0 before it was learned
    follow(net, torch.randn(3, 4, D, dtype=options.get("dtype", torch.float64)))


def test_weights_that_change_are_noticed() -> None:
    net, x = network(num_layers=2), torch.randn(2, 3, D, **DOUBLE)
    follow(net, x)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    net(x).outputs.square().sum().backward()
    optimizer.step()
    follow(net, x)
    net.weight_hh_l1 = torch.nn.Parameter(net.weight_hh_l1.detach() * 2)
    follow(net, x)
    net.load_state_dict({name: weight * 0.5 for name, weight in net.state_dict().items()})
    follow(net, x)
    for weight in net.parameters():
        weight.data = weight.data * 2
    follow(net, x)
    net.to(torch.float32)
    follow(net, x.float())


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_steps_of_fused_optimizers_are_noticed(optimizer: Any) -> None:
    """They change weights in place and leave their versions as they were."""
    net, x = network(), torch.randn(2, 3, D, **DOUBLE)
    follow(net, x)
    net(x).outputs.square().sum().backward()
    before = net.weight_hh_l0.detach().clone()
    optimizer(net.parameters(), lr=0.5, fused=True).step()
    assert not torch.equal(before, net.weight_hh_l0)
    follow(net, x)


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[CorePlan]:
    """Every packing of a layer's weights."""
    made: list[CorePlan] = []
    pack = CorePlan.pack

    def counted(plan: CorePlan, tensors: Sequence[Tensor]) -> Tensor:
        made.append(plan)
        return pack(plan, tensors)

    monkeypatch.setattr(CorePlan, "pack", counted)
    return made


@needs_core
def test_batches_of_every_size_share_packed_weights(packings: list[CorePlan]) -> None:
    net, sizes = network(num_layers=2), range(1, 13)  # more sizes than plans are held for
    streams = [(net.stream(B), torch.randn(B, 3, D, **DOUBLE)) for B in sizes]
    expected = [net(x).outputs.detach() for _, x in streams]
    for t in range(3):
        for (stream, x), outputs in zip(streams, expected, strict=True):
            close(stream.step(x[:, t]), outputs[:, t])
    assert len(packings) == net.num_layers
    with torch.no_grad():
        net.bias_hh_l0.zero_()
    for stream, x in streams:
        stream.step(x[:, 0])
    assert len(packings) == 2 * net.num_layers


@needs_core
def test_scratch_memory_is_held_for_few_batch_sizes() -> None:
    net = network()
    for B in range(1, 50):
        net.step(torch.randn(B, D, **DOUBLE))
    stack: Any = get_native_stack(net, torch.randn(1, D, **DOUBLE))
    assert len(stack._plans) == MAX_PLANS


@pytest.mark.parametrize("backend", ["auto", "loop"])
def test_what_a_stream_returned_stays_as_it_was(backend: str) -> None:
    net, x = network("gru", num_layers=2, backend=backend), torch.randn(3, 6, D, **DOUBLE)
    stream = net.stream(3)
    outputs = torch.stack([stream.step(x[:, t]) for t in range(6)], dim=1)
    expected = net(x).outputs.detach()
    close(outputs, expected)
    stream = net.stream(3)
    for t in range(6):
        one = stream.step(x[:, t])
        close(one, expected[:, t])
        one.zero_()  # nor is it the stream's state


def test_a_stream_follows_weights_that_change_on_its_way() -> None:
    net, x = network(), torch.randn(2, 2, D, **DOUBLE)
    stream = net.stream(2)
    stream.step(x[:, 0])
    state = stream.state
    with torch.no_grad():
        net.weight_ih_l0.mul_(2)
    close(stream.step(x[:, 1]), net(x[:, 1:], state).outputs[:, 0].detach())


def test_options_of_the_cell_that_change_are_noticed() -> None:
    net, x = network("elman"), torch.randn(2, 3, D, **DOUBLE)
    follow(net, x)
    net.cell.activation = "relu"
    follow(net, x)


def test_a_stream_can_be_set_back() -> None:
    net, x = network("gru", num_layers=2), torch.randn(3, D, **DOUBLE)
    stream = net.stream(3)
    first = stream.step(x)
    state = stream.state
    second = stream.step(x)
    assert (first - second).abs().max() > 1e-3
    stream.state = state
    assert torch.equal(stream.step(x), second)
    assert torch.equal(state[0].h, net.step(x)[1][0].h), "the copy is not overwritten"


def test_a_step_leaves_what_it_was_given() -> None:
    net, x = network(num_layers=2), torch.randn(3, D, **DOUBLE)
    state = start(net, 3)
    copies = [[part.clone() for part in layer] for layer in state]
    first, after = net.step(x, state)
    second, _ = net.step(x, after)
    same([net.cell.state(layer) for layer in copies], state)
    assert (first - second).abs().max() > 1e-3
    assert torch.equal(net.step(x, state)[0], first), "and what it returned stays"


def test_nothing_is_recorded_for_a_backward_pass() -> None:
    net = network()
    x = torch.randn(2, D, **DOUBLE).requires_grad_()
    outputs, state = net.step(x)
    assert not outputs.requires_grad
    assert not state[0].c.requires_grad
    assert not net.stream(2).step(x).requires_grad


def test_threads_may_share_a_network() -> None:
    net = network(num_layers=2)
    inputs = [torch.randn(2, 300, D, **DOUBLE) for _ in range(8)]
    expected = [net(x).outputs.detach() for x in inputs]

    def steps(x: Tensor) -> Tensor:
        stream = net.stream(2)
        return torch.stack([stream.step(x[:, t]) for t in range(300)], dim=1)

    with ThreadPoolExecutor(4) as pool:
        for got, wanted in zip(pool.map(steps, inputs), expected, strict=True):
            close(got, wanted)


def test_a_step_can_be_mapped_over_batches() -> None:
    """By torch.func, whose tensors have no memory that the core could read."""
    net, x = network("gru"), torch.randn(4, 2, D, **DOUBLE)
    one_by_one = torch.stack([net.step(part)[0] for part in x])
    close(torch.func.vmap(lambda part: net.step(part)[0])(x), one_by_one)
    assert core is None or get_native_stack(net, x[0]) is not None, "and the core is used again afterwards"


def test_inputs_in_pieces() -> None:
    net = network(num_layers=2)
    x = torch.randn(D, 3, **DOUBLE).t()
    state = tuple(
        net.cell.state([torch.randn(H, 3, **DOUBLE).t() for _ in net.cell.states]) for _ in range(net.num_layers)
    )
    close(net.step(x, state)[0], net(x[:, None], state).outputs[:, 0].detach())


BAD: list[tuple[Any, Any, type[Exception], str]] = [
    (torch.zeros(2, D + 1, **DOUBLE), None, ShapeError, r"LSTM: one step takes x of \(B, D=5\), got \(2, 6\)"),
    (torch.zeros(D, **DOUBLE), None, ShapeError, r"got \(5,\)"),
    (torch.zeros(2, D), None, DtypeError, r"x is torch.float32 and the network torch.float64; convert x"),
    (torch.zeros(2, D, **DOUBLE), [], ShapeError, r"state must be \(h, c\) for each of 1 layers"),
    (torch.zeros(2, D, **DOUBLE), [[torch.zeros(2, H, **DOUBLE)]], ShapeError, r"\(B=2, H=35\) and"),
    (
        torch.zeros(2, D, **DOUBLE),
        [[torch.zeros(1, H, **DOUBLE)] * 2],
        ShapeError,
        r"got \[\[\(\(1, 35\), torch.float64",
    ),
    (torch.zeros(2, D, **DOUBLE), [[torch.zeros(2, H)] * 2], ShapeError, r"torch.float32"),
]


@pytest.mark.parametrize(("x", "state", "error", "says"), BAD, ids=[says[:40] for *_, says in BAD])
def test_what_does_not_fit_is_refused(x: Any, state: Any, error: type[Exception], says: str) -> None:
    net = network()
    net.step(torch.zeros(2, D, **DOUBLE))
    with pytest.raises(error, match=says):
        net.step(x, state)


def test_a_stream_refuses_what_it_was_not_begun_for() -> None:
    net = network()
    stream = net.stream(2)
    with pytest.raises(ShapeError, match=r"reads \(2, 5\), got \(3, 5\)"):
        stream.step(torch.zeros(3, D, **DOUBLE))
    with pytest.raises(DtypeError, match="has dtype torch.float64, got x of torch.float32"):
        stream.step(torch.zeros(2, D))
    with pytest.raises(DeviceError, match="is on cpu, got x on meta"):
        stream.step(torch.zeros(2, D, **DOUBLE, device="meta"))
    with pytest.raises(ShapeError, match="state must be"):
        stream.state = start(net, 3)
    net.float()
    with pytest.raises(DtypeError, match="network torch.float32"):
        stream.step(torch.zeros(2, D, **DOUBLE))
    for begin in (lambda net: net.step(torch.zeros(2, D, **DOUBLE)), lambda net: net.stream()):
        with pytest.raises(OptionError, match="needs direction='forward'"):
            begin(network(direction="both"))


def test_a_backend_asked_for_by_name_steps_or_refuses() -> None:
    net = Recurrent("gru2014", 3, 4, backend="native")  # its step is not pointwise
    with pytest.raises(BackendError, match="backend 'native' cannot run this: "):
        net.step(torch.randn(2, 3))
    with pytest.raises(BackendError, match="backend 'native' cannot run this: "):
        net.stream(2).step(torch.randn(2, 3))
    assert Recurrent("gru2014", 3, 4).step(torch.randn(2, 3))[0].shape == (2, 4)


def test_networks_of_inference_mode_stream() -> None:
    """Nothing tells whether their weights have changed, so they are read at every step; a stream may leave the mode."""
    with torch.inference_mode():
        net, x = network(num_layers=2), torch.randn(2, 4, D, **DOUBLE)
        stream = net.stream(2)
        close(stream.step(x[:, 0]), net(x).outputs[:, 0])
        net.bias_hh_l0.add_(1)
        state = stream.state
        expected = net(x[:, 1:], state).outputs
        close(net.step(x[:, 1], state)[0], expected[:, 0])
    for t in range(1, 4):
        close(stream.step(x[:, t]), expected[:, t - 1])
    with pytest.raises(BackendError, match="nothing would tell that its weights have changed"):
        net.stream(2, matmul_dtype="bfloat16").step(x[:, 0])


@needs_core
def test_a_stream_of_plain_weights_goes_through_inference_mode() -> None:
    net, x = network(), torch.randn(2, 3, D, **DOUBLE)
    stream, expected = net.stream(2), net(x).outputs.detach()
    close(stream.step(x[:, 0]), expected[:, 0])
    with torch.inference_mode():
        close(stream.step(x[:, 1]), expected[:, 1])
    close(stream.step(x[:, 2]), expected[:, 2])
