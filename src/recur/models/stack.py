"""From options to a recurrent network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from recur.layers import Connections, Depth, Dropout, FeedForward, Init, Recurrent
from recur.models.options import NetworkOptions, SequenceOptions, StackOptions

State = tuple[tuple[Tensor, ...], ...]
"""A network's state: for each layer, and each direction of it, the states of its cell."""


def each_part(state: State, change: Callable[[Tensor], Tensor]) -> State:
    """The same state with every tensor of it changed: picked, repeated, detached."""
    made = []
    for layer in state:
        parts = [change(part) for part in layer]
        made.append(layer._make(parts) if hasattr(layer, "_make") else tuple(parts))
    return tuple(made)


def stack(o: StackOptions, width: int, direction: str = "forward") -> Recurrent:
    """The layers of a language model or a reader."""
    return Recurrent(
        o.cell,
        width,
        o.hidden,
        layers=o.layers,
        top=getattr(o, "hidden_top", 0),
        direction=direction,
        dropout=Dropout(
            layers=o.dropout_hidden if o.layers > 1 else 0.0, weights=o.dropout_weight, variational=o.variational
        ),
        connections=Connections(residual=o.residual),
        depth=depth(o),
        init=Init(o.init, o.forget_bias, o.initial, o.chrono),
        bptt=o.bptt,
        backend=o.backend,
    )


def plain_stack(o: SequenceOptions, width: int) -> Recurrent:
    """Layers and nothing else, for numbers."""
    return Recurrent(
        o.cell,
        width,
        o.hidden,
        layers=o.layers,
        depth=depth(o),
        init=Init(o.init, o.forget_bias, chrono=o.chrono),
        bptt=o.bptt,
        backend=o.backend,
    )


def output_fed(o: NetworkOptions, width: int) -> FeedForward:
    """In place of layers, where a step reads the output before and no hidden state."""
    return FeedForward(width, o.hidden, depth=depth(o))


def writing_stack(o: NetworkOptions, layers: int, dropout: float) -> dict[str, Any]:
    """What `Recurrent` takes beside its sizes for an encoder or a decoder: one dropout mask a step, no cut in time."""
    return {
        "layers": layers,
        "dropout": Dropout(layers=dropout if layers > 1 else 0.0, variational=False),
        "depth": depth(o),
        "init": Init(o.init, o.forget_bias, chrono=o.chrono),
        "backend": o.backend,
    }


def depth(o: NetworkOptions) -> Depth:
    """Where layers of tanh stand."""
    return Depth(o.depth_input, o.depth_transition, o.depth_output, o.depth_between)
