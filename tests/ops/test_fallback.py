"""What runs on the loop says so; a network can refuse it; a compiled graph has no breaks there either."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import recur
from recur.cells import Cell
from recur.errors import BackendError, CellError, OptionError, RecurLoopWarning
from recur.nn import Recurrent
from recur.ops import backends, scan
from tests.support import Case, close, needs_core, random_weights

DOUBLE = torch.float64


@pytest.fixture(autouse=True)
def not_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_WARNED", set())


class Mixing(Cell):
    """A product inside the step, undeclared."""

    gates = ("h",)

    def step(self, x: Any, h: Any, s: Any) -> Any:
        return (torch.tanh(x.h + h.h) @ torch.eye(x.h.shape[-1], dtype=x.h.dtype),)


@needs_core
def test_a_cell_on_the_loop_warns_once_with_the_reason() -> None:
    x = torch.randn(2, 3, 4)
    with pytest.warns(
        RecurLoopWarning, match=r"^Mixing runs on the loop, .*: its step .*backend='loop' accepts"
    ) as found:
        _ = [Recurrent(Mixing(), 4, 3)(x) for _ in range(2)]
    assert len(found) == 1
    assert found[0].filename == __file__, "the line of the caller"


@needs_core
def test_what_is_compiled_or_asked_for_does_not_warn() -> None:
    x = torch.randn(2, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RecurLoopWarning)
        Recurrent("gru", 4, 3)(x)
        Recurrent(Mixing(), 4, 3, backend="loop")(x)
        torch.vmap(Recurrent("gru", 4, 3))(x[:, None])


@needs_core
def test_a_network_may_require_to_be_compiled() -> None:
    with pytest.raises(BackendError, match="require='compiled', and Mixing cannot be compiled: its step"):
        Recurrent(Mixing(), 4, 3, require="compiled")
    with pytest.raises(OptionError, match="require must be 'compiled', or nothing; got 'speed'"):
        Recurrent("gru", 4, 3, require="speed")
    net, x = Recurrent("gru", 4, 3, require="compiled"), torch.randn(2, 3, 4)
    assert net(x).trace[0].backend == "native"
    with pytest.raises(BackendError, match="require='compiled', and GRU ran on the loop: transforms of torch.func"):
        torch.vmap(net)(x[:, None])


@needs_core
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_mask_times_a_number_is_compiled(dtype: torch.dtype) -> None:
    """The probe of tracing is in float64, where such a mask is float32."""

    class Spikes(Cell):
        gates, states = ("h",), ("z", "v")

        def step(self, x: Any, h: Any, s: Any) -> Any:
            v = 0.5 * s.v + x.h + h.h
            return (v > 1) * 1.0, v

    cell = Spikes()
    weights, x = random_weights(cell, 4, 3, dtype=dtype), 3 * torch.randn(2, 6, 4, dtype=dtype)
    found = scan(cell, weights, x)
    assert found.trace.backend == "native"
    with torch.no_grad():
        single = {name: weight.float() for name, weight in weights.items()}
        expected = scan(cell, single, x.float(), backend="loop")
    assert found.outputs.any()
    close(found.outputs.detach().float(), expected.outputs)


def test_whatever_fails_on_a_trace_runs_on_the_loop() -> None:
    class Particular(Cell):
        gates = ("h",)

        def step(self, x: Any, h: Any, s: Any) -> Any:
            if not isinstance(x.h, Tensor):
                raise CellError("only tensors")
            return (torch.tanh(x.h + h.h),)

    cell = Particular()
    found = scan(cell, random_weights(cell, 4, 3), torch.randn(2, 3, 4, dtype=DOUBLE))
    assert found.trace.backend == "loop"


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by torch's own compiler
@pytest.mark.parametrize("name", ["gru2014", "slstm"])
@pytest.mark.parametrize("bptt", ["full", "truncated:2", "clip:0.1"])
def test_the_loop_is_compiled_into_one_graph(name: str, bptt: str) -> None:
    torch._dynamo.reset()
    net = Recurrent(name, 3, 4, bptt=bptt, backend="loop")
    compiled, x = torch.compile(net, backend="aot_eager", fullgraph=True), torch.randn(2, 4, 3)
    found = []
    for run in (compiled, net):
        outputs = run(x).outputs
        found.append([outputs, *torch.autograd.grad(outputs.square().sum(), list(net.parameters()))])
    for ours, expected in zip(*found, strict=True):
        close(ours, expected)


LEVEL = 0.5


class Levels(Cell):
    gates = ("h",)
    beta = 0.5

    def __init__(self) -> None:
        self.items = [0.5]

    def step(self, x: Any, h: Any, s: Any) -> Any:
        return (torch.tanh(x.h + h.h) * self.beta * self.items[0] * LEVEL,)


@needs_core
def test_a_compiled_graph_notices_constants_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    gc.collect()  # cells of other tests that end while Dynamo traces change the table of caches that it reads
    net, x = Recurrent(Levels(), 3, 4), torch.randn(2, 4, 3)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    changes: list[Any] = [
        lambda: None,
        lambda: monkeypatch.setattr(Levels, "beta", 2.0),
        lambda: net.cell.items.__setitem__(0, 3.0),
        lambda: monkeypatch.setitem(globals(), "LEVEL", 0.25),
    ]
    outputs = []
    for change in changes:
        change()
        outputs.append(compiled(x).outputs)  # first, or the eager call would find the change for it
        close(outputs[-1], net(x).outputs)
    assert not any(torch.equal(a, b) for a, b in itertools.pairwise(outputs))


def test_parameters_and_modules_on_a_cell_are_refused() -> None:
    class Held(Cell):
        gates = ("h",)

        def __init__(self, held: Any) -> None:
            self.held = held

    for held in (nn.Parameter(torch.ones(3)), nn.Linear(2, 2), [nn.Parameter(torch.ones(3))], {"a": nn.Tanh()}):
        with pytest.raises(
            CellError, match=r"Held\.held holds a \w+, which a cell does not train; declare a weight by"
        ):
            Held(held)
    with pytest.raises(CellError, match=r"Shared\.held holds a Linear"):
        type("Shared", (Cell,), {"gates": ("h",), "held": nn.Linear(2, 2)})
    with pytest.raises(CellError, match="has no `training`: a cell is the same in training and inference"):
        Held(1).training  # noqa: B018
    assert not hasattr(Held(1), "training")
    with pytest.raises(AttributeError, match="object has no attribute 'no_such'"):
        Held(1).no_such  # noqa: B018


def test_a_cell_that_is_a_module_is_registered() -> None:
    class Both(Cell, nn.Module):
        gates = ("h",)

        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.scale = nn.Parameter(torch.ones(()))

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (torch.tanh(x.h + h.h) * self.scale,)

    net = Recurrent(Both(), 3, 4)
    net(torch.randn(2, 5, 3)).outputs.sum().backward()
    assert dict(net.named_parameters())["cell.scale"].grad is not None


@pytest.mark.parametrize("backend", ["auto", "loop"])
@pytest.mark.parametrize("name", ["lstm", "leaky", "gru2014"])
def test_rows_without_steps(name: str, backend: str) -> None:
    case = Case(name, B=3)
    x = case.x.detach().clone()
    x[1] = torch.nan  # nothing of such a row is read
    found = scan(case.cell, case.weights, x, case.state, lengths=[5, 0, 2], backend=backend)
    others = torch.tensor([0, 2])
    state = tuple(part[others] for part in case.state)
    expected = scan(case.cell, case.weights, x[others], state, lengths=[5, 2], backend=backend)
    close(found.outputs[others], expected.outputs)
    assert not found.outputs[1].any()
    for part, other, first in zip(found.state, expected.state, case.state, strict=True):
        close(part[others], other)
        assert torch.equal(part[1], first[1])
    weights = list(case.weights.values())
    ours = torch.autograd.grad(found.outputs.square().sum(), weights)
    for got, wanted in zip(ours, torch.autograd.grad(expected.outputs.square().sum(), weights), strict=True):
        close(got, wanted)


@pytest.mark.parametrize("name", ["lstm", "gru2014", "elman"])
def test_a_batch_of_no_rows(name: str) -> None:
    net = Recurrent(name, 3, 4, num_layers=2, direction="both", dropout=0.5)
    for lengths in (None, []):
        found = net(torch.zeros(0, 5, 3), lengths=lengths)
        assert found.outputs.shape == (0, 5, 8)
        assert all(part.shape == (0, 4) for state in found.state for part in state)
    found.outputs.sum().backward()
    assert all(weight.grad is not None and not weight.grad.any() for weight in net.parameters())
    one = Recurrent(name, 3, 4)
    outputs, state = one.step(torch.zeros(0, 3))
    assert outputs.shape == state[0][0].shape == (0, 4)
    assert one.stream(0).step(torch.zeros(0, 3)).shape == (0, 4)


def test_advice_names_the_tensor_that_is_wrong() -> None:
    net, x = Recurrent("gru", 3, 4), torch.zeros(2, 5, 3)
    with pytest.raises(TypeError, match=r"x is float32 and state.h float64; convert state.h with .to\(torch.float32\)"):
        net(x, [(torch.zeros(2, 4, dtype=DOUBLE),)])
    with pytest.raises(TypeError, match=r"convert x with x.to\(torch.float32\) or the layer with layer.to"):
        net(x.double())


def test_scan_is_a_function_whatever_was_imported_before() -> None:
    program = (
        "import recur.ops.scan, recur.nn\nfrom recur import scan\nassert scan.__name__ == 'scan' and callable(scan)"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    assert callable(recur.scan)


@needs_core
def test_the_profiler_shows_the_operator_and_its_backward() -> None:
    net, x = Recurrent("gru", 3, 4), torch.randn(2, 5, 3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        net(x).outputs.sum().backward()
    assert {"recur::scan", "recur::scan_backward"} <= {event.name for event in profile.events()}


def test_a_trace_says_what_it_is() -> None:
    x = torch.randn(2, 5, 3)
    assert repr(Recurrent("gru", 3, 4, backend="loop")(x).trace[0]) == "Trace(backend='loop')"
    found = Recurrent("ltc", 3, 4)(x, trace=True)
    assert repr(found.trace[0]).startswith("Trace(backend='loop'; not native: ")
    assert repr(found.trace[0]).endswith("; records gradients)")
    found.outputs.sum().backward()
    assert repr(found.trace[0]).endswith("; has gradients)")
