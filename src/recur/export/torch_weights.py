"""Export of weights as a state dict of torch.nn: `torch.nn.LSTM(…).load_state_dict(load_file(path))`.

All other weights of the model (embedding, output layer) are written to `model.rest.safetensors`. The metadata of both
files holds the arguments of torch.nn's layer and a description of the model, under `about`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recur.compiler.program_text import text_of
from recur.errors import OptionError
from recur.export import ExportOptions, ExportResult
from recur.export.artifacts import TEST_SHAPES, check_difference, keep_files, metadata, relative_difference
from recur.export.fused_layers import RecognizedCell, recognize_cell
from recur.export.graphs import PortableModel
from recur.nn import Connections, Depth, Recurrent
from recur.runs.weights import to_bytes

TAKES: set[str] = set()

TORCH_LAYERS: dict[str, tuple[type[nn.RNNBase], dict[str, str]]] = {
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
    "rnn_tanh": (nn.RNN, {"nonlinearity": "tanh"}),
    "rnn_relu": (nn.RNN, {"nonlinearity": "relu"}),
}


def write(portable: PortableModel, path: Path, options: ExportOptions) -> ExportResult:
    network = portable.network
    if network is None:
        raise OptionError(f"a model of the task {portable.task} is not a single recurrent network; {OTHER_TARGETS}")
    known = check_torch_layer(network)
    weights = state_dict(network, known)
    layer, told = TORCH_LAYERS[known.kind]
    given: dict[str, Any] = {
        "input_size": network.input_size, "hidden_size": network.units(0), "num_layers": network.layers,
        "bias": network.bias, "batch_first": True, "bidirectional": network.direction == "both", **told,
    }  # fmt: skip
    if network.projection:
        given["proj_size"] = network.projection
    made = layer(**given)
    made.load_state_dict(weights)
    difference = check_difference(_difference(network, made), path.name)
    graph = next(iter(portable.graphs.values()))
    about = {"layer": layer.__name__, "options": given, **metadata(portable, graph)}
    whole = {
        name.removeprefix("module.").removeprefix("model."): part for name, part in graph.program.state_dict.items()
    }
    rest = {name: part.detach().clone() for name, part in whole.items() if not name.startswith("recurrent.")}
    files = {path: to_bytes(weights, about)}
    if rest:
        files[path.with_suffix(f".rest{path.suffix}")] = to_bytes(rest, about)
    keep_files(files)
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return ExportResult(
        tuple(files),
        sum(map(len, files.values())),
        difference,
        f"{', '.join(sorted(weights))}" + (f"; other weights: {', '.join(sorted(rest))}" if rest else ""),
        f'torch.nn.{layer.__name__}({words}).load_state_dict(safetensors.torch.load_file("{path.name}"))',
        portable.notes,
    )


OTHER_TARGETS = "--to torch and --to onnx export the whole model"


def check_torch_layer(network: Recurrent) -> RecognizedCell:
    """Refuse a network that no layer of torch.nn computes; return its cell."""
    known = recognize_cell(text_of(network.cell, network.bias))
    name = network.cell.name or type(network.cell).__name__
    if known is None or known.kind not in TORCH_LAYERS or (network.projection and known.kind != "lstm"):
        projected = " with a projection" if network.projection else ""
        raise OptionError(f"torch.nn has no {name}{projected}: expected LSTM, GRU or RNN; {OTHER_TARGETS}")
    if network.direction == "backward":
        raise OptionError(f"torch.nn has no backward-only network; {OTHER_TARGETS}")
    if network.units(0) != network.units(network.layers - 1):
        raise OptionError(
            f"torch.nn has one hidden size for all layers, and the last layer of this network differs; {OTHER_TARGETS}"
        )
    if network.connections != Connections() or network.depth != Depth():
        raise OptionError(f"torch.nn has no residual connections, skip connections, merges or MLPs; {OTHER_TARGETS}")
    return known


def state_dict(network: Recurrent, known: RecognizedCell) -> dict[str, Tensor]:
    """Return the weights with torch.nn's names and order of gates."""
    found: dict[str, Tensor] = {}
    for suffix in network.suffixes():
        for name, weight in network.weights(suffix).items():
            order = {"ih": known.gates, "hh": known.products}.get(name.rpartition("_")[2])
            if order is not None:
                weight = torch.cat([weight.chunk(len(order))[gate] for gate in order])
            found[name + suffix] = weight.detach().clone()
    return found


def _difference(network: Recurrent, layer: nn.RNNBase) -> float:
    """Return the largest difference from torch.nn's layer at four shapes, from a nonzero state."""
    largest = 0.0
    draw = torch.Generator().manual_seed(0)
    names, widths = network.cell.states, network.widths_of(0)
    for sizes in TEST_SHAPES:
        B, T = sizes["B"], sizes["T"]
        x = torch.randn(B, T, network.input_size, generator=draw)
        start = [tuple(torch.randn(B, width, generator=draw) for width in widths) for _ in network.suffixes()]
        by_state = [torch.stack([part[k] for part in start]) for k in range(len(names))]
        with torch.no_grad():
            ours, state, _ = network(x, start)
            theirs, last = layer(x, tuple(by_state) if len(names) > 1 else by_state[0])
        finals = last if isinstance(last, tuple) else (last,)
        largest = max(largest, relative_difference(ours, theirs))
        for k, final in enumerate(finals):
            largest = max(largest, relative_difference(torch.stack([part[k] for part in state]), final))
    return largest
