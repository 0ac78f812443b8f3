"""Portable form of a trained model: its forward code as graphs of PyTorch's basic operations, with its tables.

torch.export traces the model once, so that every task, pooling, attention or custom cell is exported without code of
its own here. A recurrent layer stays one node, `recur::scan` (recur/ops/cpu/operators.py), which holds the cell's
program as text. Each target prints these graphs in its language.

8-bit weights are integers −127 … 127 with one scale per row:

    w[r, c] ≈ scale[r] · q[r, c]        scale[r] = max_c |w[r, c]| / 127

All targets share these numbers. Only matrices are quantized: biases and CRF transitions are too few to matter.
"""

from __future__ import annotations

import copy
import functools
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from recur.compiler.programs import assembled
from recur.data.text import Vocab
from recur.errors import OptionError
from recur.export.escaping import identifier
from recur.models import LanguageModel
from recur.nn import Recurrent
from recur.nn.functional import MaskedLinear
from recur.runs import Run
from recur.utils.types import JsonObject

MIN_MATRIX_SIZE = 256
"""Number of weights from which a matrix is quantized."""


def is_matrix(weight: Tensor) -> bool:
    """Return True if a weight is a matrix that quantization is worth for."""
    return (
        weight.dtype == torch.float32
        and weight.dim() == 2
        and weight.shape[1] > 1
        and weight.numel() >= MIN_MATRIX_SIZE
    )


def is_quantized(weight: Tensor) -> bool:
    """Return True if 8 bits and scales reproduce the weight; a matrix computed from quantized weights is not
    reproduced."""
    return is_matrix(weight) and torch.allclose(dequantize(weight), weight, rtol=1e-6, atol=0)


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 numbers (R, C) and scales (R,) of a matrix (R, C)."""
    scale = weight.abs().amax(1) / 127
    scale = torch.where(scale > 0, scale, 1.0)
    return (weight / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale


def dequantize(weight: Tensor) -> Tensor:
    """Return the numbers that a target computes with; weights that are not matrices are returned unchanged."""
    if not is_matrix(weight):
        return weight
    q, scale = quantize_rows(weight)
    return q.to(torch.float32) * scale[:, None]


Size: TypeAlias = int | str
"""A number, or the letter of a dynamic size: "B" rows, "T" steps, "S" source symbols, "N" anything else; "T+12" is T
plus 12."""

TRACE_SIZES = {"B": 2, "T": 7, "S": 5, "N": 3}
"""Sizes with which a model is traced; torch.export treats 0 and 1 as special."""


@contextmanager
def silence_torch(*loggers: str) -> Iterator[None]:
    """Suppress PyTorch's warnings and the messages of these loggers."""
    logs = [logging.getLogger(name) for name in loggers]
    levels = [log.level for log in logs]
    try:
        for log in logs:
            log.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


@dataclass(frozen=True)
class TensorSpec:
    """Input or output of a graph: name, shape and dtype."""

    name: str
    shape: tuple[Size, ...]
    dtype: torch.dtype = torch.float32
    below: int = 0
    """Integers must be in 0 … below − 1; 0: no bound."""

    def __post_init__(self) -> None:
        """Refuse a name that is not an identifier, because C and JavaScript use it as one."""
        if identifier(self.name) != self.name:
            raise ValueError(f"the name of a value must be an ASCII identifier, got {self.name!r}")


@dataclass(frozen=True)
class Graph:
    """One function of a model. Inputs and outputs are in the order of the traced program."""

    name: str
    program: ExportedProgram
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    least: Mapping[str, int] = field(default_factory=dict)
    """Minimum of dynamic sizes where it is above 1."""

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Run the graph in PyTorch with recur's operators: the reference for every target."""
        with torch.no_grad(), silence_torch():
            found = self.program.module()(*given)
        return found if isinstance(found, tuple) else (found,)

    @functools.cached_property
    def decomposed(self) -> ExportedProgram:
        """The program in PyTorch's basic operations, read-only; cached, because the decomposition takes a second."""
        with silence_torch():
            program: ExportedProgram = self.program.run_decompositions()
        return program

    def with_eight_bits(self) -> Graph:
        """Return the graph with its weights rounded to 8 bits."""
        program = copy_program(self.program)
        for name, weight in program.state_dict.items():
            if isinstance(weight, nn.Parameter):
                program.state_dict[name] = nn.Parameter(dequantize(weight), requires_grad=False)
        return replace(self, program=program)

    @property
    def carried(self) -> tuple[str, ...]:
        """Names of the state: inputs that are outputs too."""
        made = {value.name for value in self.outputs}
        return tuple(value.name for value in self.inputs if value.name in made)


@dataclass(frozen=True)
class PortableModel:
    """A trained model as graphs and tables."""

    task: str
    """Name of the task, as `recur train --task` has it."""
    kind: str
    """Kind of interface: language, writer, classifier, tagger, transcriber, forecaster or numbers."""
    name: str
    """Name of the run."""
    graphs: Mapping[str, Graph]
    start: Mapping[str, Tensor] = field(default_factory=dict)
    """State before the first step, for one row, without the batch dimension."""
    vocabs: Mapping[str, Vocab] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    tables: Mapping[str, Tensor] = field(default_factory=dict)
    """Numbers outside of the graphs, such as CRF transitions."""
    settings: JsonObject = field(default_factory=dict)
    """Facts that an interface needs: first token, horizon, stacking, …"""
    network: Recurrent | None = None
    """The recurrent network, if the model has exactly one; its weights have torch.nn's names."""
    notes: tuple[str, ...] = ()
    """Differences between the exported model and `recur predict`."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Description of the model for people."""
    run: Run | None = None
    """The run, for a target that shows more of it."""


def copy_program(program: ExportedProgram) -> ExportedProgram:
    with silence_torch("torch.export"):
        return copy.deepcopy(program)


def prepare_model(model: nn.Module) -> nn.Module:
    """Return a copy of a model on the CPU, ready to be traced: native backend, float32 weights, no gradients."""
    model = copy.deepcopy(model).cpu().eval()
    for layer in model.modules():
        if isinstance(layer, MaskedLinear | LanguageModel):
            layer.fold_mask()
        if isinstance(layer, Recurrent):
            reason = assembled(layer.cell, layer.bias)
            if isinstance(reason, str):
                name = layer.cell.name or type(layer.cell).__name__
                instead = "train a pointwise cell such as lstm or gru, without --depth-transition"
                raise OptionError(f"the cell {name} cannot be exported: {reason}; {instead}")
            layer.backend, layer.matmul_dtype = "native", ""
    return model.requires_grad_(False)


def capture(
    name: str,
    module: nn.Module,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    least: Mapping[str, int] = MappingProxyType({}),
) -> Graph:
    """Trace a module whose forward takes the inputs in order and returns a tuple of the outputs.

    least: minimum of dynamic sizes, default 1.
    The module must not call `len` on a tensor: a Python number fixes the size.
    """
    sizes = {letter: max(drawn, least.get(letter, 1) + 1) for letter, drawn in TRACE_SIZES.items()}
    opened = {letter: Dim(letter, min=least.get(letter, 1)) for value in inputs for letter in _letters(value.shape)}
    shapes = tuple(
        {k: _open_size(size, opened) for k, size in enumerate(value.shape) if isinstance(size, str)} for value in inputs
    )
    given = tuple(example_tensor(value, sizes, k) for k, value in enumerate(inputs))
    with torch.no_grad(), silence_torch():
        program = torch.export.export(_StarArguments(module).eval(), given, dynamic_shapes=(shapes,))
    return Graph(name, program, tuple(inputs), tuple(outputs), dict(least))


class _StarArguments(nn.Module):
    """Module with variadic arguments, so that dynamic shapes are given in one form."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *given: Tensor) -> Any:
        return self.module(*given)


def example_tensor(value: TensorSpec, sizes: Mapping[str, int], seed: int = 0) -> Tensor:
    """Return a random input: standard normal numbers, or integers in the allowed range."""
    draw = torch.Generator().manual_seed(seed)
    shape = [_known_size(size, sizes) for size in value.shape]
    if value.dtype.is_floating_point:
        return torch.randn(shape, generator=draw, dtype=value.dtype)
    return torch.randint(value.below or 2, shape, generator=draw, dtype=value.dtype)


def split_size(size: str) -> tuple[str, int]:
    """Return the letter of a dynamic size and the number added to it."""
    letter, _, more = size.partition("+")
    return letter, int(more or 0)


def _letters(shape: Sequence[Size]) -> list[str]:
    return [split_size(size)[0] for size in shape if isinstance(size, str)]


def _open_size(size: str, opened: Mapping[str, Any]) -> Any:
    letter, more = split_size(size)
    return opened[letter] + more if more else opened[letter]


def _known_size(size: Size, sizes: Mapping[str, int]) -> int:
    if isinstance(size, int):
        return size
    letter, more = split_size(size)
    return sizes[letter] + more


# States -----------------------------------------------------------------------------------------------------------


class NetworkStates:
    """States of a network by name, `h_0` for the first layer; names have equal length, so that none is a prefix of
    another."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.parts: list[tuple[int, str, int]] = []
        if isinstance(network, Recurrent):
            digits = len(str(network.num_layers - 1))
            for layer in range(network.num_layers):
                for state, width in zip(network.cell.states, network.widths_of(layer), strict=True):
                    self.parts.append((layer, f"{identifier(state)}_{layer:0{digits}d}", width))

    @property
    def values(self) -> list[TensorSpec]:
        return [TensorSpec(name, ("B", width)) for _, name, width in self.parts]

    def start(self) -> dict[str, Tensor]:
        """Return the initial state of one row."""
        network, found = self.network, list[Tensor]()
        if isinstance(network, Recurrent):
            like = next(network.parameters()).new_zeros(1, 1)
            for layer in range(network.num_layers):
                start = network.cell.start(like, 1, network.widths_of(layer))
                found += network.with_learned(start, f"_l{layer}") if network.init.learned else start
        return {name: part[0].detach().clone() for (_, name, _), part in zip(self.parts, found, strict=True)}

    def nested(self, flat: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], ...]:
        """Return flat states as the network takes them: one tuple per layer."""
        if not self.parts:
            return ()
        each = len(self.parts) // (self.parts[-1][0] + 1)
        return tuple(tuple(flat[k : k + each]) for k in range(0, len(flat), each))


def flatten_state(state: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [part for layer in state for part in layer]
