"""One layer of a network after a pass, with all that its steps read and left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.functional import linear

from recur.cells import Cell
from recur.cells.tensors import Tensors
from recur.nn import Recurrent

if TYPE_CHECKING:
    from recur.nn.recurred import Recurred


@dataclass
class Layer:
    """One layer and direction of a network, with its inputs and states, on the CPU.

    >>> subject = recur.diagnostics.Subject.of(recur.Recurrent("gru", 3, 4), torch.randn(2, 20, 3))
    >>> layer = subject.layers[0]
    >>> layer.name, layer.states["h"].shape
    ('layer 1', torch.Size([2, 20, 4]))
    """

    name: str
    cell: Cell
    weights: Mapping[str, Tensor]
    inputs: Tensor
    """(B, T, D), in the order in which the layer read them."""
    states: dict[str, Tensor]
    """(B, T, H) each: after every step."""

    @property
    def previous(self) -> tuple[Tensor, ...]:
        """The states that each step but the first started from, (B, T − 1, H)."""
        return tuple(part[:, :-1] for part in self.states.values())

    def step_arguments(self, inputs: Tensor, previous: Sequence[Tensor]) -> tuple[Tensors, Tensors, Tensors, Tensors]:
        """The arguments of the cell's step, x, h, s and w, for any number of steps at once: (…, D) and (…, H)."""
        cell = self.cell
        w = cell.tuple_of("w")._make(self.weights[name] for name in cell.extras)
        s = cell.state(previous)
        U, b = self.weights["weight_ih"], self.weights.get("bias_ih")
        x = linear(inputs, U, b).chunk(len(cell.gates), dim=-1)
        h: Sequence[Tensor] = ()
        of_gates = cell.tuple_of("x")._make(x)
        if cell.recurrent_gates:
            multiplied = cell.multiplied(of_gates, s, w)
            h = cell.product(multiplied, self.weights).chunk(len(cell.recurrent_gates), dim=-1)
        return of_gates, cell.tuple_of("h")._make(h), s, w

    def advance(self, inputs: Tensor, previous: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The cell's step, each from the state given for it."""
        return tuple(self.cell.projected(self.cell.advance(*self.step_arguments(inputs, previous)), self.weights))


def layer_name(suffix: str) -> str:
    """`_l1_reverse` of torch's names is `layer 2, backward`."""
    number = int(suffix.removeprefix("_l").removesuffix("_reverse")) + 1
    return f"layer {number}" + ", backward" * suffix.endswith("_reverse")


def layers_of(net: Recurrent, result: Recurred) -> list[Layer]:
    """The layers of a network after a traced pass. They are on the CPU: probes take many small steps."""
    found = []
    for suffix, trace in zip(net.suffixes(), result.trace, strict=True):
        weights = {key: value.detach().cpu() for key, value in net.weights(suffix).items()}
        inputs, states = trace.inputs.cpu(), {key: part.cpu() for key, part in trace.states.items()}
        if suffix.endswith("_reverse"):
            inputs, states = inputs.flip(1), {key: part.flip(1) for key, part in states.items()}
        found.append(Layer(layer_name(suffix), net.cell, weights, inputs, states))
    return found
