"""The portable form of a trained model: its own forward code as graphs of PyTorch's basic operations.

torch.export follows the model once and writes down what it did, so that whatever a task, a pooling, an attention or a
user's cell computes comes along without a line about it here. A recurrent layer stays one node, `recur::scan`
(recur/native/operators.py), which holds the cell as the text of its programs. Each target prints these graphs in its
own language; what a driver does around them (tokens, searches, tables) stands beside them as plain data.
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

from recur.cells.cell import Cell
from recur.errors import OptionError
from recur.export.quantise import dequantised
from recur.layers import Recurrent
from recur.native import compiled
from recur.run import Run
from recur.text import Vocab
from recur.typedefs import JsonObject

Size: TypeAlias = int | str
"""A number, or one that a graph leaves open, by name: "B" rows, "T" steps, "S" symbols of a source, "N" of anything;
"T+12" are twelve more."""

DRAWN = {"B": 2, "T": 7, "S": 5, "N": 3}
"""With how many of each a model is followed: neither 0 nor 1, which would be taken for something special."""


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Without what PyTorch says to itself: that it is changing, and to these logs, which packages are not here."""
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
class Value:
    """What goes into a graph or comes out of it."""

    name: str
    shape: tuple[Size, ...]
    dtype: torch.dtype = torch.float32
    below: int = 0
    """Of whole numbers: 0 … below − 1 are allowed."""


@dataclass(frozen=True)
class Graph:
    """One function of a model. Inputs and outputs stand in the order of the program's own."""

    name: str
    program: ExportedProgram
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    least: Mapping[str, int] = field(default_factory=dict)
    """Of open sizes that must be more than 1."""

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """In PyTorch, with the operators of recur: what every target is compared with."""
        with torch.no_grad(), quiet():
            found = self.program.module()(*given)
        return found if isinstance(found, tuple) else (found,)

    @functools.cached_property
    def decomposed(self) -> ExportedProgram:
        """In PyTorch's basic operations, to be read only: they take a second to find."""
        with quiet():
            program: ExportedProgram = self.program.run_decompositions()
        return program

    def with_eight_bits(self) -> Graph:
        """The same with the numbers that 8-bit weights stand for."""
        program = copied(self.program)
        for name, weight in program.state_dict.items():
            if isinstance(weight, nn.Parameter):
                program.state_dict[name] = nn.Parameter(dequantised(weight), requires_grad=False)
        return replace(self, program=program)

    @property
    def carried(self) -> tuple[str, ...]:
        """What it hands on to its next call: inputs that are outputs too."""
        made = {value.name for value in self.outputs}
        return tuple(value.name for value in self.inputs if value.name in made)


@dataclass(frozen=True)
class Portable:
    """A trained model as graphs and tables."""

    task: str
    """As `recur train` calls it."""
    kind: str
    """What a driver does with it: language, writer, classifier, tagger, transcriber, forecaster, numbers."""
    name: str
    """Of the run."""
    graphs: Mapping[str, Graph]
    start: Mapping[str, Tensor] = field(default_factory=dict)
    """What is carried, before the first step: of one row, without its axis of rows."""
    vocabs: Mapping[str, Vocab] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    tables: Mapping[str, Tensor] = field(default_factory=dict)
    """Numbers that a driver reads: moves between tags, TF-IDF."""
    settings: JsonObject = field(default_factory=dict)
    """What a driver has to know beside them."""
    network: Recurrent | None = None
    """The recurrent network itself, where the model is one: its weights have torch.nn's names."""
    notes: tuple[str, ...] = ()
    """Where what is exported differs from what `recur predict` does."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What there is to know of the model, in words."""
    run: Run | None = None
    """The run itself, for a target that shows more of it."""

    @property
    def metadata(self) -> dict[str, str]:
        """What a file says of itself."""
        return {"task": self.task, "kind": self.kind, "run": self.name}


def copied(program: ExportedProgram) -> ExportedProgram:
    with quiet("torch.export"):
        return copy.deepcopy(program)


def has_program(cell: Cell, biased: bool = True) -> str | None:
    """Why a cell cannot be exported, or None."""
    found = compiled.assembled(cell, biased)
    return found if isinstance(found, str) else None


def ready(model: nn.Module) -> nn.Module:
    """A copy to be followed, on the CPU: its layers run by their programs, with weights as they are."""
    model = copy.deepcopy(model).cpu().eval()
    for layer in model.modules():
        if isinstance(layer, Recurrent):
            if reason := has_program(layer.cell, layer.bias):
                name = layer.cell.name or type(layer.cell).__name__
                instead = "train a pointwise one, such as lstm or gru, without --depth-transition"
                raise OptionError(f"the cell {name} has no program to export: {reason}; {instead}")
            layer.backend, layer.products = "native", ""
    return model.requires_grad_(False)


def capture(
    name: str,
    module: nn.Module,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    least: Mapping[str, int] = MappingProxyType({}),
) -> Graph:
    """Follow a module, whose forward takes the inputs in their order and returns a tuple of the outputs. Open sizes are
    at least 1, or what `least` says. No tensor's `len` may be asked on the way: a number would settle the size."""
    sizes = {letter: max(drawn, least.get(letter, 1) + 1) for letter, drawn in DRAWN.items()}
    opened = {letter: Dim(letter, min=least.get(letter, 1)) for value in inputs for letter in _letters(value.shape)}
    shapes = tuple(
        {k: _open(size, opened) for k, size in enumerate(value.shape) if isinstance(size, str)} for value in inputs
    )
    given = tuple(example(value, sizes, k) for k, value in enumerate(inputs))
    with torch.no_grad(), quiet():
        program = torch.export.export(_Called(module).eval(), given, dynamic_shapes=(shapes,))
    return Graph(name, program, tuple(inputs), tuple(outputs), dict(least))


class _Called(nn.Module):
    """A module whose arguments are one row of them, so that sizes can be left open in one way."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *given: Tensor) -> Any:
        return self.module(*given)


def example(value: Value, sizes: Mapping[str, int], seed: int = 0) -> Tensor:
    """Something to give a graph: small numbers, and whole ones that are allowed."""
    draw = torch.Generator().manual_seed(seed)
    shape = [_size(size, sizes) for size in value.shape]
    if value.dtype.is_floating_point:
        return torch.randn(shape, generator=draw, dtype=value.dtype)
    return torch.randint(value.below or 2, shape, generator=draw, dtype=value.dtype)


def split_size(size: str) -> tuple[str, int]:
    """The letter of an open size, and how many more there are."""
    letter, _, more = size.partition("+")
    return letter, int(more or 0)


def _letters(shape: Sequence[Size]) -> list[str]:
    return [split_size(size)[0] for size in shape if isinstance(size, str)]


def _open(size: str, opened: Mapping[str, Any]) -> Any:
    letter, more = split_size(size)
    return opened[letter] + more if more else opened[letter]


def _size(size: Size, sizes: Mapping[str, int]) -> int:
    if isinstance(size, int):
        return size
    letter, more = split_size(size)
    return sizes[letter] + more


# States -----------------------------------------------------------------------------------------------------------


class States:
    """The states of a network by name, `h_0` for that of the first layer: names of one length, no one of which begins
    another. A network that has no state has none."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.parts: list[tuple[int, str, int]] = []
        if isinstance(network, Recurrent):
            digits = len(str(network.layers - 1))
            for layer in range(network.layers):
                for state, width in zip(network.cell.states, network.widths_of(layer), strict=True):
                    self.parts.append((layer, f"{state}_{layer:0{digits}d}", width))

    @property
    def values(self) -> list[Value]:
        return [Value(name, ("B", width)) for _, name, width in self.parts]

    def start(self) -> dict[str, Tensor]:
        """Where a sequence begins, of one row."""
        network, found = self.network, list[Tensor]()
        if isinstance(network, Recurrent):
            like = next(network.parameters()).new_zeros(1, 1)
            for layer in range(network.layers):
                start = network.cell.start(like, 1, network.widths_of(layer))
                found += network.with_learned(start, f"_l{layer}") if network.init.learned else start
        return {name: part[0].detach().clone() for (_, name, _), part in zip(self.parts, found, strict=True)}

    def nested(self, flat: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], ...]:
        """As the network takes them."""
        if not self.parts:
            return ()
        each = len(self.parts) // (self.parts[-1][0] + 1)
        return tuple(tuple(flat[k : k + each]) for k in range(0, len(flat), each))


def flat(state: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [part for layer in state for part in layer]
