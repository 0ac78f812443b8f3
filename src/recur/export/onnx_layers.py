"""ONNX's own recurrent operators: what `recur::layer` becomes.

    LSTM  gates i o f g, peepholes i o f      GRU  z r n, W h + b before r multiplies it      RNN  tanh, ReLU or σ

Weights lie a direction behind the other, sequences step after step, (T, B, ·).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnxscript

op: Any = onnxscript.opset20

KINDS: dict[str, tuple[str, list[int], dict[str, Any]]] = {
    "lstm": ("LSTM", [0, 3, 1, 2], {}),
    "peephole": ("LSTM", [0, 3, 1, 2], {}),
    "gru": ("GRU", [1, 0, 2], {"linear_before_reset": 1}),
    "rnn_tanh": ("RNN", [0], {}),
    "rnn_relu": ("RNN", [0], {"activations": "Relu"}),
    "rnn_sigmoid": ("RNN", [0], {"activations": "Sigmoid"}),
}
"""The operator, which of our gates each of its is, and what else it is told."""

PEEPHOLES = [0, 2, 1]
"""Ours are i, f, o."""


def layer(
    data: Any, weights: Sequence[Any], extras: Sequence[Any], state: Sequence[Any], kind: str, direction: str
) -> Any:
    """The nodes of one layer, in one direction or in both; arguments and results as those of `recur::layer`."""
    name, order, told = KINDS[kind]
    ways, H = (2 if direction == "bidirectional" else 1), weights[1].shape[1]
    each, own = len(weights) // ways, len(extras) // ways
    U, W = (_by_way([_gates(weights[way * each + k], order, H) for way in range(ways)]) for k in (0, 1))
    b = P = None
    if each == 4:
        both = [[_gates(weights[way * each + k], order, H) for k in (2, 3)] for way in range(ways)]
        b = _by_way([op.Concat(*pair, axis=0) for pair in both])
    if own:
        P = _by_way([op.Concat(*(extras[way * own + k] for k in PEEPHOLES), axis=0) for way in range(ways)])
    count = 2 if name == "LSTM" else 1
    start = [_by_way(list(state[k::count])) if state else None for k in range(count)]
    options = {"hidden_size": int(H), "direction": direction, **told}
    if "activations" in told:
        options["activations"] = [told["activations"]] * ways
    x = op.Transpose(data, perm=[1, 0, 2])
    given = [x, U, W, b, None, *start, P] if P is not None else [x, U, W, b, None, *start]
    Y, *finals = getattr(op, name)(*given, **options)
    if ways == 1:
        outputs = op.Transpose(op.Squeeze(Y, [1]), perm=[1, 0, 2])
    else:
        outputs = op.Reshape(op.Transpose(Y, perm=[2, 0, 1, 3]), [0, 0, ways * int(H)])
    last = [
        op.Squeeze(final, [0]) if ways == 1 else op.Gather(final, way, axis=0)
        for way in range(ways)
        for final in finals
    ]
    return [outputs, *last]


def _by_way(parts: Sequence[Any]) -> Any:
    """Directions behind each other."""
    each = [op.Unsqueeze(part, [0]) for part in parts]
    return each[0] if len(each) == 1 else op.Concat(*each, axis=0)


def _gates(weight: Any, order: Sequence[int], H: int) -> Any:
    if len(order) == 1:
        return weight
    return op.Concat(*(op.Slice(weight, [g * H], [(g + 1) * H], [0]) for g in order), axis=0)
