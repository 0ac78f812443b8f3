"""The numbers of Step beside those of recur.reference, whose gradients were derived by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recur.reference import network as reference
from recur.studio.equations.network import Network, Pass
from recur.studio.equations.textbook import TEXTBOOK

Array = NDArray[np.float64]


def compared(
    cell: str,
    activation: str,
    network: Network,
    weights: Mapping[str, Array],
    x: Array,
    ids: list[int],
    start: Mapping[str, Array],
    found: Pass,
) -> float:
    """The largest difference of the loss and of any gradient: of inputs, states and weights."""
    book, states = TEXTBOOK[cell], network.equations.states
    begin = tuple(start[name][:, None] for name in states)
    options: dict[str, Any] = {"activation": activation} if activation else {}
    with np.errstate(all="ignore"):
        loss, theirs = reference.loss_and_gradients(
            book.module, x.T[:, None, :], np.array([ids[1:]]), begin, book.parameters(weights), **options
        )
    totals = book.parameters({name: found.total(name) for name in weights})
    pairs = [(np.array(loss), np.array(found.loss))]
    for name, value in totals.items():
        of_theirs = theirs.weights[f"d{name}"]
        if name == "bW":  # of its three blocks we have the candidate's: the others are in b
            value, of_theirs = np.split(value, 3)[2], np.split(of_theirs, 3)[2]
        pairs.append((value, of_theirs))
    inputs = next(k for k, node in enumerate(network.nodes) if node.op == "input")
    logits = len(network.nodes) - 3
    for t, own in enumerate(found.gradients):
        pairs += [(own[inputs], theirs.dx[:, 0, t]), (own[logits], theirs.do[:, 0, t])]
        pairs += [(own[k], theirs.dstates[s][:, 0, t]) for k, s in zip(states.values(), theirs.dstates, strict=True)]
    pairs += [(found.start[name], part[:, 0]) for name, part in zip(states, theirs.ds0, strict=True)]
    return float(max(np.max(np.abs(a - b)) for a, b in pairs))
