"""Weights of torch.nn and Keras models: an embedding, recurrent layers and an output layer.

    .pt .pth .safetensors        state_dict of a torch module with nn.Embedding, nn.RNN/GRU/LSTM and nn.Linear
    .keras .h5 .weights.h5       Keras model with Embedding, SimpleRNN/GRU/LSTM (also Bidirectional) and Dense

Keras stores U as (D, gates·H) and orders the gates of a GRU z, r, n; torch stores (gates·H, D) and r, z, n. Both order
an LSTM i, f, g, o. Nothing in a file is executed.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recur.errors import RecurError, RunError
from recur.nn import Recurrent

WEIGHT_BYTES = 1 << 32
"""Largest file of weights in bytes."""

INFLATION = 100
"""Largest size of an HDF5 file's arrays in multiples of the file: weights hardly shrink."""

KINDS = {1: "elman", 3: "gru", 4: "lstm"}
"""Cell by the number of its gates."""

Direction = dict[str, Tensor]
"""weight_ih, weight_hh, bias_ih and bias_hh of one direction, as torch.nn has them."""


@dataclass
class ForeignModel:
    """Weights of another library, in the layout of torch.nn."""

    name: str
    cell: str
    embedding: Tensor | None
    """(K, D)"""
    layers: list[list[Direction]]
    """The directions of each layer: one, or forward and backward."""
    output: tuple[Tensor, Tensor] | None = None
    """Weight (K, H) and bias (K,) of the output layer."""
    ignored: list[str] = field(default_factory=list)
    """Names of tensors that belong to none of these."""

    @property
    def hidden_size(self) -> int:
        return self.layers[0][0]["weight_hh"].shape[1]

    @property
    def input_size(self) -> int:
        return self.layers[0][0]["weight_ih"].shape[1]

    @property
    def direction(self) -> str:
        return "both" if len(self.layers[0]) == 2 else "forward"

    def state_dict(self) -> dict[str, Tensor]:
        """Return the recurrent weights under torch.nn's names."""
        found: dict[str, Tensor] = {}
        for k, directions in enumerate(self.layers):
            for suffix, weights in zip(("", "_reverse"), directions, strict=False):
                found |= {f"{name}_l{k}{suffix}": value for name, value in weights.items()}
        return found

    def recurrent(self, **options: Any) -> Recurrent:
        """Return a `Recurrent` with these weights."""
        sizes: dict[str, Any] = {"num_layers": len(self.layers), "direction": self.direction}
        made = Recurrent(self.cell, self.input_size, self.hidden_size, **(sizes | options))
        made.load_state_dict(self.state_dict())
        return made


def read_weights(path: str | Path) -> ForeignModel:
    """Read the weights of a torch or Keras model.

    >>> lstm = torch.nn.LSTM(4, 8, num_layers=2)
    >>> torch.save(lstm.state_dict(), "lstm.pt")
    >>> recur.exchange.read_weights("lstm.pt").recurrent()
    Recurrent(LSTM, 4, 8, num_layers=2)
    """
    path = Path(path)
    if not path.is_file():
        raise RunError(f"no file {str(path)!r}")
    if path.stat().st_size > WEIGHT_BYTES:
        raise RunError(f"{path} has more than {WEIGHT_BYTES:,} bytes")
    name = path.name.lower()
    if name.endswith((".keras", ".h5", ".hdf5")):
        model = _from_keras(path)
    elif name.endswith((".pt", ".pth", ".bin", ".safetensors")):
        model = _from_torch(_torch_tensors(path), str(path))
    else:
        raise RunError(f"{path} must end in .pt, .pth, .safetensors, .keras or .h5")
    _check(model)
    return model


def _check(model: ForeignModel) -> None:
    """Refuse layers that do not fit each other."""
    width = model.input_size if model.embedding is None else model.embedding.shape[1]
    for k, directions in enumerate(model.layers):
        for weights in directions:
            gates = {"elman": 1, "gru": 3, "lstm": 4}[model.cell]
            H = weights["weight_hh"].shape[1]
            expected = {"weight_ih": (gates * H, width), "weight_hh": (gates * H, H), "bias_ih": (gates * H,),
                        "bias_hh": (gates * H,)}  # fmt: skip
            for name, shape in expected.items():
                if tuple(weights[name].shape) != shape:
                    raise RunError(
                        f"{model.name}: {name} of layer {k} must be {shape}, got {tuple(weights[name].shape)}"
                    )
            if model.hidden_size != H:
                raise RunError(
                    f"{model.name}: its layers have {model.hidden_size} and {H} units; one size is supported"
                )
        if len(directions) != len(model.layers[0]):
            raise RunError(f"{model.name}: some layers have two directions and others one")
        width = len(directions) * model.hidden_size
    if model.output is not None and model.output[0].shape[1] != width:
        raise RunError(
            f"{model.name}: the output layer reads {model.output[0].shape[1]} values, "
            f"the last recurrent layer has {width}"
        )


# torch ------------------------------------------------------------------------------------------------------------


def _torch_tensors(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        try:
            return dict(load_file(path))
        except Exception as error:  # safetensors raises several types
            raise RunError(f"{path} is not a safetensors file: {error}") from None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the damaged pickle does
        raise RunError(
            f"{path} does not hold tensors alone, and nothing else is opened: save model.state_dict() "
            f"({type(error).__name__})"
        ) from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise RunError(f"{path} is not a state_dict: a mapping from names to tensors")
    if wrong := next(
        (name for name, value in found.items() if value.is_complex() or value.layout != torch.strided), ""
    ):
        raise RunError(f"{path}: {wrong} must be a dense tensor of real numbers")
    return {str(name): value.detach().float() for name, value in found.items()}


RECURRENT = re.compile(r"(?P<layer>.*?)(?P<kind>weight|bias)_(?P<role>ih|hh|hr)_l(?P<k>\d+)(?P<reverse>_reverse)?")


def _from_torch(tensors: Mapping[str, Tensor], name: str) -> ForeignModel:
    modules: dict[str, dict[tuple[int, bool], Direction]] = {}
    rest = {}
    for key, value in tensors.items():
        if (found := RECURRENT.fullmatch(key)) is None:
            rest[key] = value
            continue
        if found["role"] == "hr":
            raise RunError(f"{name}: {key} is a projection (proj_size), which recur does not import")
        at = int(found["k"]), bool(found["reverse"])
        modules.setdefault(found["layer"], {}).setdefault(at, {})[f"{found['kind']}_{found['role']}"] = value
    if not modules:
        raise RunError(f"{name} has no nn.RNN, nn.GRU or nn.LSTM: no tensor is named …weight_ih_l0")
    layers: list[list[Direction]] = []
    for prefix, found_layers in modules.items():
        for k in sorted({k for k, _ in found_layers}):
            directions = [found_layers[at] for at in ((k, False), (k, True)) if at in found_layers]
            for weights in directions:
                if not {"weight_ih", "weight_hh"} <= weights.keys():
                    raise RunError(f"{name}: layer {prefix}{k} lacks weight_ih or weight_hh")
                if any(weights[role].dim() != 2 for role in ("weight_ih", "weight_hh")):
                    raise RunError(f"{name}: weight_ih and weight_hh of layer {prefix}{k} must be matrices")
                for bias in ("bias_ih", "bias_hh"):
                    weights.setdefault(bias, torch.zeros(len(weights["weight_ih"])))
            layers.append(directions)
    first = layers[0][0]
    return _assembled(name, _cell_of(first, name), layers, rest, first["weight_ih"].shape[1])


def _cell_of(weights: Direction, name: str) -> str:
    rows, H = weights["weight_hh"].shape
    if H == 0 or rows % H or rows // H not in KINDS:
        raise RunError(f"{name}: weight_hh of shape {(rows, H)} belongs to no RNN, GRU or LSTM")
    return KINDS[rows // H]


def _assembled(
    name: str, cell: str, layers: list[list[Direction]], rest: Mapping[str, Tensor], width: int
) -> ForeignModel:
    """Find the embedding and the output layer among the tensors that are not recurrent."""
    top = len(layers[-1]) * layers[-1][0]["weight_hh"].shape[1]
    embeddings = [key for key, value in rest.items() if value.dim() == 2 and value.shape[1] == width]
    named = [key for key in embeddings if re.search(r"emb|encoder|wte|lookup", key, re.IGNORECASE)]
    without_bias = [key for key in embeddings if key.removesuffix("weight") + "bias" not in rest]
    embedding = next(iter(named or without_bias), None)
    outputs = [key for key, value in rest.items() if value.dim() == 2 and value.shape[1] == top and key != embedding]
    if len(outputs) > 1:
        raise RunError(
            f"{name}: {', '.join(outputs)} may each be the output layer; keep one recurrent stack and one Linear"
        )
    output = None
    used = {embedding, *outputs}
    if outputs:
        bias = outputs[0].removesuffix("weight") + "bias"
        used.add(bias)
        output = rest[outputs[0]], rest.get(bias, torch.zeros(len(rest[outputs[0]])))
    ignored = [key for key in rest if key not in used]
    return ForeignModel(name, cell, None if embedding is None else rest[embedding], layers, output, ignored)


# Keras ------------------------------------------------------------------------------------------------------------


def _from_keras(path: Path) -> ForeignModel:
    try:
        import h5py
    except ImportError:
        raise RecurError("h5py is not installed: pip install 'recur[keras]'") from None
    content, settings = path.read_bytes(), []
    if path.suffix == ".keras":
        try:
            with zipfile.ZipFile(path) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > WEIGHT_BYTES:
                    raise RunError(f"{path} inflates to more than {WEIGHT_BYTES:,} bytes")
                content = archive.read("model.weights.h5")
                settings = _layer_settings(json.loads(archive.read("config.json")))
        except (zipfile.BadZipFile, KeyError, ValueError, RecursionError) as error:
            raise RunError(f"{path} is not a Keras model: {error}") from None
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            if not settings and isinstance(config := file.attrs.get("model_config"), str | bytes):
                settings = _layer_settings(json.loads(config))
            arrays: dict[str, Tensor] = {}
            left = min(WEIGHT_BYTES, INFLATION * len(content) + (1 << 26))

            def visit(key: str, item: object) -> None:
                nonlocal left
                if isinstance(item, h5py.Dataset) and "optimizer" not in key and item.dtype.kind == "f":
                    if item.external or item.is_virtual:
                        raise RunError(f"{path}: {key} is in another file")
                    if (left := left - item.nbytes) < 0:  # compressed or never written, any shape takes a few bytes
                        raise RunError(f"{path} inflates to more than {WEIGHT_BYTES:,} bytes")
                    arrays[key] = torch.from_numpy(item[()]).float()

            file.visititems(visit)
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is not a Keras model: {error}") from None
    _check_settings(settings, str(path))
    return _keras_model(arrays, str(path))


def _layer_settings(config: Any) -> list[Mapping[str, Any]]:
    """Return the configurations of all layers, also of wrapped ones."""
    found: list[Mapping[str, Any]] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("class_name"), str) and isinstance(value.get("config"), dict):
                found.append(value)
            for part in value.values():
                walk(part)
        elif isinstance(value, list):
            for part in value:
                walk(part)

    walk(config)
    return found


EXPECTED: dict[str, dict[str, object]] = {"LSTM": {"activation": "tanh", "recurrent_activation": "sigmoid"},
            "GRU": {"activation": "tanh", "recurrent_activation": "sigmoid", "reset_after": True},
            "SimpleRNN": {"activation": "tanh"}}  # fmt: skip
"""Options of Keras layers that have an equal in recur."""


def _check_settings(settings: Iterable[Mapping[str, Any]], name: str) -> None:
    for layer in settings:
        for option, value in EXPECTED.get(layer["class_name"], {}).items():
            given = layer["config"].get(option, value)
            if given != value:
                raise RunError(f"{name}: {layer['class_name']} with {option}={given!r} is not imported, only {value!r}")
        if (
            layer["config"].get("go_backwards")
            and layer["class_name"] in EXPECTED
            and "backward" not in str(layer["config"].get("name"))
        ):
            raise RunError(f"{name}: {layer['class_name']} with go_backwards=True is not imported")


def _natural(key: str) -> list[object]:
    """Sort key that orders lstm, lstm_1, lstm_2, lstm_10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", key)]


CELL_PART = re.compile(r"(^|/)(cell|lstm_cell[^/]*|gru_cell[^/]*|simple_rnn_cell[^/]*)(/|$)")


def _keras_model(arrays: Mapping[str, Tensor], name: str) -> ForeignModel:
    groups: dict[str, dict[str, Tensor]] = {}
    for key, value in arrays.items():
        group, _, leaf = key.rpartition("/")
        groups.setdefault(group.removesuffix("/vars"), {})[leaf] = value
    recurrent: dict[str, dict[str, Direction]] = {}
    cells, rest = set[str](), dict[str, Tensor]()
    for group in sorted(groups, key=_natural):
        parts = _ordered(groups[group])
        if CELL_PART.search(group):
            layer = re.split(r"/(?:forward|backward)_", group)[0]
            layer = CELL_PART.split(layer)[0]
            cell, weights = _keras_cell(parts, f"{name}: {group}")
            cells.add(cell)
            recurrent.setdefault(layer, {})["backward" if "backward_" in group else "forward"] = weights
        elif len(parts) == 1:
            rest[f"{group}/embedding"] = parts[0]
        elif len(parts) == 2 and parts[0].dim() == 2:
            rest[f"{group}/weight"], rest[f"{group}/bias"] = parts[0].t().contiguous(), parts[1]
        else:
            rest |= {f"{group}/{leaf}": value for leaf, value in groups[group].items()}
    if len(cells) != 1:
        kinds = " and ".join(sorted(cells)) or "none"
        raise RunError(f"{name} must have recurrent layers of one kind (SimpleRNN, GRU or LSTM), found {kinds}")
    layers = [[found[d] for d in ("forward", "backward") if d in found] for found in recurrent.values()]
    return _assembled(name, cells.pop(), layers, rest, layers[0][0]["weight_ih"].shape[1])


def _ordered(group: Mapping[str, Tensor]) -> list[Tensor]:
    """Return kernel, recurrent kernel and bias in this order; Keras 3 numbers them, older files name them."""
    rank = {"kernel": 0, "embeddings": 0, "recurrent_kernel": 1, "bias": 2}

    def position(leaf: str) -> list[object]:
        base = leaf.partition(":")[0]
        return [(rank[base], "")] if base in rank else _natural(leaf)

    return [group[leaf] for leaf in sorted(group, key=position)]


def _keras_cell(parts: list[Tensor], name: str) -> tuple[str, Direction]:
    if len(parts) not in (2, 3) or parts[0].dim() != 2 or parts[1].dim() != 2:
        raise RunError(f"{name} has no kernel and recurrent kernel")
    U, W = parts[0].t(), parts[1].t()
    cell = _cell_of({"weight_hh": W}, name)
    bias = parts[2] if len(parts) == 3 else torch.zeros(len(U))
    if cell == "gru" and len(parts) == 3 and bias.dim() == 1:
        raise RunError(f"{name} is a GRU with reset_after=False, which is not imported")
    ih, hh = (bias[0], bias[1]) if bias.dim() == 2 else (bias, torch.zeros(len(bias)))
    found = {"weight_ih": U, "weight_hh": W, "bias_ih": ih, "bias_hh": hh}
    if cell == "gru":  # z, r, n → r, z, n
        found = {key: torch.cat([value.chunk(3)[k] for k in (1, 0, 2)]) for key, value in found.items()}
    return cell, {key: value.contiguous() for key, value in found.items()}
