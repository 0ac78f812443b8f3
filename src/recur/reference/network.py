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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recur.reference import sequence
from recur.reference.sequence import Array, Parameters, Recurrence, State

Classes = NDArray[np.int64]
"""Class numbers y, (m, T)."""


class OutputGradients(NamedTuple):
    """Of the output layer."""

    do: Array
    dc: Array
    dV: Array  # noqa: N815  # the book's letter
    ds: Array
    """Its part of ∇_s L."""


class NetworkGradients(NamedTuple):
    """∇L of everything, named as in the notes."""

    do: Array
    dh: Array
    """∂L/∂s_t at every step."""
    dx: Array
    ds0: State
    weights: dict[str, Array]
    """dU, dW, db, dV, dc; of a GRU also dbW."""
    dstates: dict[str, Array]
    """∂L/∂ of every state at every step: s, and C of an LSTM."""


def softmax(o: Array) -> Array:
    """Over the first axis; the largest is taken out first, so that exp cannot overflow."""
    e = np.exp(o - o.max(axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True)  # type: ignore[no-any-return]


def output_forward(s: Array, parameters: Parameters) -> Array:
    """s (n_s, m, T) → ŷ (n_y, m, T)."""
    o = parameters["c"][:, :, None] + np.einsum("ys,smt->ymt", parameters["V"], s)
    return softmax(o)


def negative_log_likelihood(y_hat: Array, y: Classes) -> float:
    """y (m, T) holds class numbers."""
    m, T = y.shape
    return float(-np.log(y_hat[y, np.arange(m)[:, None], np.arange(T)]).sum())


def output_backward(y_hat: Array, y: Classes, s: Array, parameters: Parameters) -> OutputGradients:
    do = y_hat.copy()
    m, T = y.shape
    do[y, np.arange(m)[:, None], np.arange(T)] -= 1
    return OutputGradients(
        do=do,
        dc=do.sum(axis=(1, 2))[:, None],
        dV=np.einsum("ymt,smt->ys", do, s),
        ds=np.einsum("ys,ymt->smt", parameters["V"], do),
    )


def loss(cell: Recurrence, x: Array, y: Classes, state0: State, parameters: Parameters, **options: str) -> float:
    s, _, _ = sequence.forward(cell, x, state0, parameters, **options)
    return negative_log_likelihood(output_forward(s, parameters), y)


def loss_and_gradients(
    cell: Recurrence,
    x: Array,
    y: Classes,
    state0: State,
    parameters: Parameters,
    xi: Array | None = None,
    **options: str,
) -> tuple[float, NetworkGradients]:
    """L and ∇L, of everything."""
    s, _, caches = sequence.forward(cell, x, state0, parameters, **options)
    y_hat = output_forward(s, parameters)
    out = output_backward(y_hat, y, s, parameters)
    back = sequence.backward(cell, out.ds, caches, xi=xi)
    weights = {**back.weights, "dV": out.dV, "dc": out.dc}
    found = NetworkGradients(out.do, back.dstates["s"], back.dx, back.ds0, weights, back.dstates)
    return negative_log_likelihood(y_hat, y), found
