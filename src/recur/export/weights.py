"""A recurrent network's weights as a state dict of torch.nn: `torch.nn.LSTM(…).load_state_dict(load_file(path))`.

All else that a model has lies in a second file, `model.rest.safetensors`, by its name in the model: the embedding, the
output layer. How torch.nn's layer is to be made, and what the model is, both say in their metadata, under `about`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recur.errors import OptionError
from recur.export import Options, Written
from recur.export.compare import SIZES, apart, check
from recur.export.graphs import Portable
from recur.export.known import Known, recognised
from recur.export.parts import metadata
from recur.files import write_atomically
from recur.layers import Connections, Depth, Recurrent
from recur.native.compiled import text_of
from recur.run.tensors import to_bytes

TAKES: set[str] = set()

LAYERS: dict[str, tuple[type[nn.RNNBase], dict[str, str]]] = {
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
    "rnn_tanh": (nn.RNN, {"nonlinearity": "tanh"}),
    "rnn_relu": (nn.RNN, {"nonlinearity": "relu"}),
}


def write(portable: Portable, path: Path, options: Options) -> Written:
    network = portable.network
    if network is None:
        raise OptionError(f"a model of the task {portable.task} is more than one recurrent network; {INSTEAD}")
    known = check_plain(network)
    weights = state_dict(network, known)
    layer, told = LAYERS[known.kind]
    given: dict[str, Any] = {
        "input_size": network.input_size, "hidden_size": network.units(0), "num_layers": network.layers,
        "bias": network.bias, "batch_first": True, "bidirectional": network.direction == "both", **told,
    }  # fmt: skip
    if network.projection:
        given["proj_size"] = network.projection
    made = layer(**given)
    made.load_state_dict(weights)
    difference = check(_difference(network, made), path.name)
    graph = next(iter(portable.graphs.values()))
    about = {"layer": layer.__name__, "options": given, **metadata(portable, graph)}
    whole = {
        name.removeprefix("module.").removeprefix("model."): part for name, part in graph.program.state_dict.items()
    }
    rest = {name: part.detach().clone() for name, part in whole.items() if not name.startswith("recurrent.")}
    files = {path: to_bytes(weights, about)}
    if rest:
        files[path.with_suffix(f".rest{path.suffix}")] = to_bytes(rest, about)
    for where, content in files.items():
        write_atomically(where, content)
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return Written(
        tuple(files),
        sum(map(len, files.values())),
        difference,
        f"{', '.join(sorted(weights))}" + (f"; beside them {', '.join(sorted(rest))}" if rest else ""),
        f'torch.nn.{layer.__name__}({words}).load_state_dict(safetensors.torch.load_file("{path.name}"))',
        portable.notes,
    )


INSTEAD = "--to torch and --to onnx take it whole"


def check_plain(network: Recurrent) -> Known:
    """Refuse what no layer of torch.nn computes."""
    known = recognised(text_of(network.cell, network.bias))
    name = network.cell.name or type(network.cell).__name__
    if known is None or known.kind not in LAYERS or (network.projection and known.kind != "lstm"):
        projected = " with a projection" if network.projection else ""
        raise OptionError(f"torch.nn has no {name}{projected}: LSTM, GRU and RNN are plain; {INSTEAD}")
    if network.direction == "backward":
        raise OptionError(f"torch.nn reads forward or both ways, and this network backward; {INSTEAD}")
    if network.units(0) != network.units(network.layers - 1):
        raise OptionError(f"torch.nn's layers are of one width, and of this network the last is not; {INSTEAD}")
    if network.connections != Connections() or network.depth != Depth():
        raise OptionError(
            f"torch.nn has no residual or skip connections, merges or MLPs, as this network has; {INSTEAD}"
        )
    return known


def state_dict(network: Recurrent, known: Known) -> dict[str, Tensor]:
    """By torch.nn's names, with its order of gates."""
    found: dict[str, Tensor] = {}
    for suffix in network.suffixes():
        for name, weight in network.weights(suffix).items():
            order = {"ih": known.gates, "hh": known.products}.get(name.rpartition("_")[2])
            if order is not None:
                weight = torch.cat([weight.chunk(len(order))[gate] for gate in order])
            found[name + suffix] = weight.detach().clone()
    return found


def _difference(network: Recurrent, layer: nn.RNNBase) -> float:
    """At four shapes, from a state that is not zero."""
    largest = 0.0
    draw = torch.Generator().manual_seed(0)
    names, widths = network.cell.states, network.widths_of(0)
    for sizes in SIZES:
        B, T = sizes["B"], sizes["T"]
        x = torch.randn(B, T, network.input_size, generator=draw)
        start = [tuple(torch.randn(B, width, generator=draw) for width in widths) for _ in network.suffixes()]
        by_state = [torch.stack([part[k] for part in start]) for k in range(len(names))]
        with torch.no_grad():
            ours, state, _ = network(x, start)
            theirs, last = layer(x, tuple(by_state) if len(names) > 1 else by_state[0])
        finals = last if isinstance(last, tuple) else (last,)
        largest = max(largest, apart(ours, theirs))
        for k, final in enumerate(finals):
            largest = max(largest, apart(torch.stack([part[k] for part in state]), final))
    return largest
