"""Construction of recurrent networks from options, and helpers for their states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from recur.cells.registry import configured_cell
from recur.compat import tree_map
from recur.models.options import NetworkOptions, SequenceOptions, StackOptions
from recur.nn import Connections, Depth, Dropout, FeedForward, Init, Recurrent

State = tuple[tuple[Tensor, ...], ...]
"""State of a network: for each layer and direction, the states of its cell."""


def map_state(state: State, change: Callable[[Tensor], Tensor]) -> State:
    """Return the state with `change` applied to every tensor."""
    changed: State = tree_map(change, state)
    return changed


def make_recurrent(o: StackOptions, width: int, direction: str = "forward") -> Recurrent:
    """Return the recurrent layers of a language model or an encoder."""
    return Recurrent(
        configured_cell(o.cell),
        width,
        o.hidden,
        layers=o.layers,
        top=getattr(o, "hidden_top", 0),
        direction=direction,
        dropout=Dropout(
            layers=o.dropout_hidden if o.layers > 1 else 0.0, weights=o.dropout_weight, variational=o.variational
        ),
        connections=Connections(residual=o.residual),
        depth=make_depth(o),
        init=Init(o.init, o.forget_bias, o.initial, o.chrono),
        bptt=o.bptt,
        backend=o.backend,
    )


def make_plain_recurrent(o: SequenceOptions, width: int) -> Recurrent:
    """Return recurrent layers without dropout and connections, for numbers."""
    return Recurrent(
        configured_cell(o.cell),
        width,
        o.hidden,
        layers=o.layers,
        depth=make_depth(o),
        init=Init(o.init, o.forget_bias, chrono=o.chrono),
        bptt=o.bptt,
        backend=o.backend,
    )


def make_output_recurrent(o: NetworkOptions, width: int) -> FeedForward:
    """Return a feed-forward layer in place of recurrent layers, for output recurrence."""
    return FeedForward(width, o.hidden, depth=make_depth(o))


def decoder_network_options(o: NetworkOptions, layers: int, dropout: float) -> dict[str, Any]:
    """Return keywords of `Recurrent` for an encoder or a decoder: one dropout mask per step, full BPTT."""
    return {
        "layers": layers,
        "dropout": Dropout(layers=dropout if layers > 1 else 0.0, variational=False),
        "depth": make_depth(o),
        "init": Init(o.init, o.forget_bias, chrono=o.chrono),
        "backend": o.backend,
    }


def make_depth(o: NetworkOptions) -> Depth:
    """Return the depth of the MLPs around recurrent layers."""
    return Depth(o.depth_input, o.depth_transition, o.depth_output, o.depth_between)
