"""recur.nn in the places where code meets torch.nn: isinstance, subclasses, seeds, pickles, reparametrised weights,
compilers and exporters."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from abc import ABC
from typing import Any

import pytest
import torch
import torch.nn.utils.parametrize
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.rnn import pack_sequence

import recur
from recur import nn as rnn
from recur.errors import BackendError, OptionError
from tests.support import close

LAYERS = ("RNN", "GRU", "LSTM")
CELLS = ("RNNCell", "GRUCell", "LSTMCell")
D, H = 5, 4


def pair(kind: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    made = []
    for package in (nn, rnn):
        torch.manual_seed(1)
        made.append(getattr(package, kind)(*args or (D, H), dtype=torch.float64, **options))
    return made[0], made[1]


def drawn(kind: str, *shape: int) -> Tensor:
    return torch.randn(*(shape or ((3, D) if kind in CELLS else (6, 3, D))), dtype=torch.float64)


def leaves(value: Any) -> list[Tensor]:
    if isinstance(value, tuple | list):  # a PackedSequence too
        return [leaf for part in value for leaf in leaves(part)]
    return [] if value is None else [value]


def same(ours: Any, theirs: Any, tolerance: float | None = None) -> None:
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        if b.is_floating_point():
            close(a, b, tolerance=tolerance)
        else:
            assert torch.equal(a, b)


class Tagger(nn.Module):
    """A parent module, as user code has it."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.rnn = layer
        self.out = nn.Linear(H * (2 if getattr(layer, "bidirectional", False) else 1), 2, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        found = self.rnn(x)
        out: Tensor = self.out(found[0] if isinstance(found, tuple) else found)
        return out


class Tags(nn.Module):
    """The same without branches, which torch.fx and torch.jit.script cannot follow."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.rnn = layer

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.rnn(x)
        return out.tanh()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [*LAYERS, *CELLS])
def test_they_are_modules_of_torch(kind: str) -> None:
    theirs, ours = pair(kind)
    assert isinstance(ours, getattr(nn, kind))
    assert isinstance(ours, recur.Recurrent) == (kind in LAYERS)
    assert repr(ours) == repr(theirs)
    if kind in LAYERS:
        assert [w is getattr(ours, name) for w, name in zip(ours._flat_weights, ours._flat_weights_names, strict=True)]
        ours.weight_hh_l0 = nn.Parameter(torch.zeros(len(ours.weight_hh_l0), H, dtype=torch.float64))
        assert ours._flat_weights[1] is ours.weight_hh_l0
        assert (ours.dropout, ours.mode, ours.proj_size) == (theirs.dropout, theirs.mode, theirs.proj_size)
        ours.flatten_parameters()


def test_a_class_may_have_another_base_for_layers() -> None:
    class Base(ABC, nn.RNNBase):  # as pytorch-forecasting has it
        def layers(self) -> int:
            return self.num_layers

    class Mixed(Base, rnn.LSTM):
        pass

    class Scaled(rnn.GRU):
        def forward(self, input: Any, hx: Any = None) -> Any:
            out, state = super().forward(input, hx)
            return 2 * out, state

    assert Mixed(D, H, 2).layers() == 2
    assert Mixed(D, H, batch_first=True)(torch.randn(2, 3, D))[0].shape == (2, 3, H)
    scaled = Scaled(D, H)
    x, theirs = torch.randn(3, 2, D), nn.GRU(D, H)
    theirs.load_state_dict(scaled.state_dict())
    close(scaled(x)[0], 2 * theirs(x)[0])


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_dropout_has_the_masks_of_torch_for_a_seed(kind: str, batch_first: bool) -> None:
    theirs, ours = pair(kind, D, H, num_layers=3, dropout=0.5, bidirectional=True, batch_first=batch_first)
    packed = pack_sequence([drawn(kind, n, D) for n in (3, 6, 2, 6)], enforce_sorted=False)
    for given in (drawn(kind), drawn(kind, 6, D), packed):
        found = []
        for module in (ours, theirs):
            torch.manual_seed(7)
            found.append(module(given))
        same(*found)
    assert not torch.equal(ours(packed)[0].data, ours(packed)[0].data), "each call draws again"


@pytest.mark.parametrize("kind", [*LAYERS, *CELLS])
def test_copies_and_pickles(kind: str) -> None:
    theirs, ours = pair(kind)
    x, file = drawn(kind), io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(file, weights_only=True)):
        assert type(again) is type(ours)
        assert repr(again) == repr(theirs)
        same(again(x), theirs(x))
    ours.load_state_dict({name: 2 * weight for name, weight in theirs.state_dict().items()}, assign=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    same(ours(x), theirs(x))
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.03)):
        same(ours.to(dtype)(x.to(dtype)), theirs.to(dtype)(x.to(dtype)), tolerance)


class Squashed(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.tanh()


@pytest.mark.parametrize("kind", [*LAYERS, *CELLS])
@pytest.mark.parametrize("way", ["parametrize", "weight norm", "prune", "replace", "replicate"])
def test_weights_that_are_computed(kind: str, way: str) -> None:
    """Weights that are properties, plain attributes, or tensors of another module."""
    theirs, ours = pair(kind)
    name, x = "weight_hh" if kind in CELLS else "weight_hh_l0", drawn(kind)
    h = drawn(kind, *((3, H) if kind in CELLS else (1, 3, H)))
    hx: Any = (h, h) if "LSTM" in kind else h
    found = []
    for module in (theirs, ours):
        if way == "parametrize":
            nn.utils.parametrize.register_parametrization(module, name, Squashed())
        elif way == "weight norm":
            nn.utils.parametrizations.weight_norm(module, name)
        elif way == "prune":
            prune.l1_unstructured(module, name, 0.5)  # type: ignore[no-untyped-call]
        elif way == "replace":  # as WeightDrop does
            raw = getattr(module, name)
            del module._parameters[name]
            module.register_parameter(f"{name}_raw", nn.Parameter(raw.detach()))
            setattr(module, name, getattr(module, f"{name}_raw") * 0.5)
        else:  # as DataParallel does
            replica, weights = module._replicate_for_data_parallel(), dict(module.named_parameters())
            replica._parameters = {}
            for key, weight in weights.items():
                setattr(replica, key, weight * 0.5)
            found.append(replica(x, hx))
            continue
        outputs = leaves(module(x, hx))
        gradients = torch.autograd.grad(sum(out.square().sum() for out in outputs), list(module.parameters()))
        found.append((outputs, gradients))
    same(*found)
    if way == "parametrize":
        nn.utils.parametrize.remove_parametrizations(ours, name)
        same(ours(x, hx), found[1][0])


@pytest.mark.parametrize("kind", LAYERS)
def test_torch_jit_and_tensorboard_record_the_layer_of_torch(kind: str) -> None:
    _, ours = pair(kind, D, H, 2, bidirectional=True)
    model, x, file = Tags(ours), drawn(kind), io.BytesIO()
    expected, longer = model(x), drawn(kind, 9, 2, D)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated; torch.nn compares sizes while it is traced
        torch.jit.save(torch.jit.trace(model, x), file)
        file.seek(0)
        traced = torch.jit.load(file)
        same(traced(longer), model(longer))
        scripted = torch.jit.script(Tags(copy.deepcopy(ours)))
        same(scripted(x), expected)
        with pytest.raises(BackendError, match="use torch.export.export, `recur export`, or recur.nn.LSTM"):
            torch.jit.trace(recur.Recurrent("gru", D, H), torch.randn(2, 3, D))
        with pytest.raises(OptionError, match="to script; use tanh or relu"):
            torch.jit.script(rnn.RNN(D, H, nonlinearity="sigmoid"))
    assert not [node for node in traced.inlined_graph.nodes() if "recur" in node.kind()]


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("rows", [2, 40])
def test_torch_jit_records_the_cell_of_torch(kind: str, rows: int) -> None:
    theirs, ours = pair(kind, D, 256)
    x = drawn(kind, rows, D)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(torch.jit.trace(ours, x)(2 * x), theirs(2 * x))


@pytest.mark.parametrize("kind", [*LAYERS, *CELLS])
def test_torch_fx_takes_it_for_a_leaf(kind: str) -> None:
    theirs, ours = pair(kind)
    x = drawn(kind)
    graph = torch.fx.symbolic_trace(nn.Sequential(ours) if kind in CELLS else Tags(ours))
    assert [node.op for node in graph.graph.nodes].count("call_module") == 1
    same(graph(x), theirs(x) if kind in CELLS else Tags(theirs)(x))


@pytest.mark.parametrize("kind", LAYERS)
def test_torch_compile_ends_its_graph_as_at_torchs(kind: str) -> None:
    _, ours = pair(kind)
    x, model = drawn(kind), Tags(ours)
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler reads .grad of an output
        same(torch.compile(model, backend="aot_eager")(x), model(x))
    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        same(torch.compile(model, backend="aot_eager", fullgraph=True)(x), model(x))


@pytest.mark.parametrize("kind", [*LAYERS, *CELLS])
def test_functional_calls_and_autocast(kind: str) -> None:
    theirs, ours = pair(kind)
    x = drawn(kind)
    weights = {name: 2 * weight for name, weight in theirs.named_parameters()}
    same(torch.func.functional_call(ours, weights, (x,)), torch.func.functional_call(theirs, weights, (x,)))
    theirs, ours, x = theirs.float(), ours.float(), x.float()
    with torch.autocast("cpu", torch.bfloat16):
        same(ours(x), theirs(x), 0.03)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_stream_and_a_report_of_a_layer(kind: str) -> None:
    _, ours = pair(kind)
    x = drawn(kind, 30, 1, D)
    stream = ours.stream()
    same(torch.stack([stream.step(step) for step in x]), ours(x)[0])
    report = recur.xray(Tagger(rnn.LSTM(D, H)).float(), torch.randn(2, 20, D))
    assert report.findings


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_a_wide_cell_is_that_of_torch(kind: str, rows: int) -> None:
    """Either way of computing a step: torch's kernel for few rows, the core for many."""
    theirs, ours = pair(kind, 64, 192)
    x, h = drawn(kind, rows, 64), drawn(kind, rows, 192)
    hx: Any = (h, 2 * h) if kind == "LSTMCell" else h
    found = []
    for module in (ours, theirs):
        outputs = leaves(module(x, hx))
        loss = sum(((k + 1) * out).square().sum() for k, out in enumerate(outputs))
        found.append((outputs, torch.autograd.grad(loss, list(module.parameters()))))
    same(*found)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRUCell"])
def test_the_onnx_exporter_of_torch(kind: str) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    models: list[tuple[nn.Module, Tensor]]
    if kind in CELLS:
        models = [(getattr(rnn, kind)(D, H), torch.randn(2, D))]
    else:
        models = [(Tags(getattr(rnn, kind)(D, H, 2, bidirectional=True)), torch.randn(6, 2, D))]
    if kind == "LSTM":
        models += [(recur.Recurrent(cell, D, H), torch.randn(2, 4, D)) for cell in ("lstm", "peephole")]
    for model, x in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(_First(model).eval(), (x,), dynamo=True, verbose=False)
        assert program is not None
        session = runtime.InferenceSession(program.model_proto.SerializeToString())
        (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        close(torch.from_numpy(got), _First(model)(x).detach())


class _First(nn.Module):
    """The outputs of a model, without states."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        found = self.model(x)
        outputs: Tensor = found if isinstance(found, Tensor) else found[0]
        return outputs
