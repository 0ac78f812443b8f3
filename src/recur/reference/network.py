"""The whole network of the notes: a recurrence, a softmax output layer, the summed negative log-likelihood.

o_t  = c + V s_t
ŷ_t  = softmax(o_t)
L    = − Σ_t Σ_batch log ŷ_t[y_t]

∇_o L  = ŷ_t − (the one-hot y_t)
∇_c L  = Σ_t ∇_o L
∇_V L  = Σ_t ∇_o L s_tᵀ
the output layer's part of ∇_s L = Vᵀ ∇_o L
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recur.reference import sequence
from recur.reference.sequence import Array, Parameters


def softmax(o: Array) -> Array:
    """Over the first axis; the largest is taken out first, so that exp cannot overflow."""
    e = np.exp(o - o.max(axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True)  # type: ignore[no-any-return]


def output_forward(s: Array, parameters: Parameters) -> Array:
    """s (n_s, m, T) → ŷ (n_y, m, T)."""
    o = parameters["c"][:, :, None] + np.einsum("ys,smt->ymt", parameters["V"], s)
    return softmax(o)


def negative_log_likelihood(y_hat: Array, y: Any) -> float:
    """y (m, T) holds class numbers."""
    m, T = y.shape
    return float(-np.log(y_hat[y, np.arange(m)[:, None], np.arange(T)]).sum())


def output_backward(y_hat: Array, y: Any, s: Array, parameters: Parameters) -> dict[str, Array]:
    do = y_hat.copy()
    m, T = y.shape
    do[y, np.arange(m)[:, None], np.arange(T)] -= 1
    return {
        "do": do,
        "dc": do.sum(axis=(1, 2))[:, None],
        "dV": np.einsum("ymt,smt->ys", do, s),
        "ds": np.einsum("ys,ymt->smt", parameters["V"], do),
    }


def loss(cell: Any, x: Array, y: Any, state0: tuple[Array, ...], parameters: Parameters, **options: Any) -> float:
    s, _, _ = sequence.forward(cell, x, state0, parameters, **options)
    return negative_log_likelihood(output_forward(s, parameters), y)


def loss_and_gradients(
    cell: Any,
    x: Array,
    y: Any,
    state0: tuple[Array, ...],
    parameters: Parameters,
    xi: Array | None = None,
    **options: Any,
) -> tuple[float, dict[str, Any]]:
    """L and ∇L: do, dh (∂L/∂s_t at every step), dc, dV, dU, dW, db (and dbW), dx, ds0."""
    s, _, caches = sequence.forward(cell, x, state0, parameters, **options)
    y_hat = output_forward(s, parameters)
    out = output_backward(y_hat, y, s, parameters)
    back = sequence.backward(cell, out.pop("ds"), caches, xi=xi)
    return negative_log_likelihood(y_hat, y), {**out, **back, "dh": back["dstates"]["s"]}
