"""Headers beside RTNeural's published vectors: `python -m tests.export.rtneural FOLDER`, a checkout of its repository.

RTNeural (github.com/jatinchowdhury18/RTNeural) keeps six recurrent networks, `models/*.json`, with a signal that Keras
or PyTorch read and what they made of it, `test_data/*_python.csv`. Their weights go into recur's cells, the network
into C, and the signal through its step, one number at a time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from ctypes import c_int, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recur.export.c_graphs import print_graphs, print_includes, print_work_struct
from recur.export.graphs import NetworkStates, PortableModel, TensorSpec, capture, flatten_state, prepare_model
from recur.nn import Recurrent
from tests.export.c_library import library

MODELS = ("lstm", "lstm_1d", "lstm_torch", "gru", "gru_1d", "gru_torch")

TOLERANCE = 1e-5
"""Their own tests allow 5e-5 and more; rounding of float32 is what should be left."""

ACTIVATIONS = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "": nn.Identity}

RUN = """
void run(const float *x, int count, float *y);
void run(const float *x, int count, float *y) {
    static model_work memory, *const work = &memory;
    static float %s;
    (void)work;
    for (int k = 0; k < count; ++k) {
        %s
        %s
    }
}
"""


class Chain(nn.Module):
    """Layers behind each other, one step at a time, all states in a row."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    @property
    def recurrent(self) -> list[Recurrent]:
        return [layer for layer in self.layers if isinstance(layer, Recurrent)]

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        carried, left = [], list(state)
        for layer in self.layers:
            if isinstance(layer, Recurrent):
                states = NetworkStates(layer)
                own, left = left[: len(states.parts)], left[len(states.parts) :]
                found = layer(x[:, None], states.nested(own))
                x, carried = found.outputs[:, 0], [*carried, *flatten_state(found.state)]
            else:
                x = layer(x)
        return (x, *carried)


def of_torch(weights: dict[str, Any]) -> Chain:
    """A state dict of PyTorch: its recurrent layers by name, and a Linear."""
    names = {name: torch.tensor(values) for name, values in weights.items()}
    layers: list[nn.Module] = []
    for prefix in dict.fromkeys(name.split(".")[0] for name in names):
        own = {name.removeprefix(f"{prefix}."): value for name, value in names.items() if name.startswith(f"{prefix}.")}
        if "weight" in own:
            made: nn.Module = nn.Linear(own["weight"].shape[1], own["weight"].shape[0])
        else:
            H, depth = own["weight_hh_l0"].shape[1], len(own) // 4
            made = Recurrent(prefix.rstrip("0123456789"), own["weight_ih_l0"].shape[1], H, num_layers=depth)
        made.load_state_dict(own)
        layers.append(made)
    return Chain(layers)


def of_keras(layers: list[dict[str, Any]]) -> Chain:
    """Keras keeps matrices the other way around, an LSTM's gates as i f g o with one bias, a GRU's z r n with two."""
    made: list[nn.Module] = []
    for layer in layers:
        given = [torch.tensor(part) for part in layer["weights"]]
        kind, D, H = layer["type"], given[0].shape[0], layer["shape"][-1]
        if kind in ("lstm", "gru"):
            network = Recurrent(kind, D, H)
            U, W = given[0].T, given[1].T
            biases = list(given[2]) if kind == "gru" else [given[2], torch.zeros_like(given[2])]
            order = [1, 0, 2] if kind == "gru" else [0, 1, 2, 3]
            parts = [torch.cat([part.split(H)[k] for k in order]) for part in (U, W, *biases)]
            names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
            network.load_state_dict(dict(zip(names, parts, strict=True)))
            made.append(network)
        else:
            linear = nn.Linear(D, H)
            linear.load_state_dict({"weight": given[0].T, "bias": given[1]})
            made += [linear, ACTIVATIONS[layer["activation"]]()]
    return Chain(made)


def difference(folder: Path, name: str, work: Path) -> float:
    """The largest between what the header makes of a published signal and what was published."""
    held = json.loads((folder / "models" / f"{name}.json").read_text())
    chain = prepare_model(of_keras(held["layers"]) if "layers" in held else of_torch(held))
    assert isinstance(chain, Chain)
    x, wanted = (np.loadtxt(folder / "test_data" / f"{name}_{side}_python.csv") for side in "xy")
    states = [
        TensorSpec(f"{state}_{k}", ("B", width))
        for k, layer in enumerate(chain.recurrent)
        for _, state, width in NetworkStates(layer).parts
    ]
    graph = capture("step", chain, [TensorSpec("x", ("B", 1)), *states], [TensorSpec("y", ("B", 1)), *states])
    made = print_graphs(PortableModel("numbers", "network", name, {"step": graph}), "model", 1, quantize=False)
    before, after = [value.name for value in states], [f"next_{value.name}" for value in states]
    buffers = ", ".join(f"{side}[{value.shape[1]}]" for value in states for side in (value.name, f"next_{value.name}"))
    call = made.printers["step"].call(["x + k", *before], ["y + k", *after], [])
    moved = " ".join(f"memcpy({old}, {new}, sizeof {old});" for old, new in zip(before, after, strict=True))
    text = "\n\n".join([print_includes("model"), print_work_struct(made), made.text])
    compiled = library(
        work, {"model": text.replace("\nstatic void ", "\nMODEL_API void ")}, RUN % (buffers, call, moved)
    )
    given, found = np.ascontiguousarray(x, np.float32), np.full(len(x), np.nan, np.float32)
    compiled.run(given.ctypes.data_as(c_void_p), c_int(len(x)), found.ctypes.data_as(c_void_p))
    return float(np.abs(found - wanted).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="with models/ and test_data/")
    folder, failed = parser.parse_args().folder, 0
    for name in MODELS:
        with tempfile.TemporaryDirectory() as work:
            found = difference(folder, name, Path(work))
        failed += not found < TOLERANCE
        print(f"{name:<12} {found:.1e}", flush=True)
    raise SystemExit(f"{failed} of {len(MODELS)} are further off than {TOLERANCE}" if failed else 0)


if __name__ == "__main__":
    main()
