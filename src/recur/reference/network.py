"""Complete network of the notes: a recurrence, a softmax output layer, and the summed negative log-likelihood.

o_t  = c + V s_t
ŷ_t  = softmax(o_t)
L    = − Σ_t Σ_batch log ŷ_t[y_t]

∇_o L  = ŷ_t − (the one-hot y_t)
∇_c L  = Σ_t ∇_o L
∇_V L  = Σ_t ∇_o L s_tᵀ
∇_s L through the output layer = Vᵀ ∇_o L

**CTC.** Connectionist temporal classification (Graves et al. 2006): labels without alignment.

At every step the network outputs y_t = softmax(u_t) over the labels and a blank. A path π has one of them per step. It
represents the labels that remain when repeats are merged and blanks removed, and

    P(labels) = Σ_π Π_t y_t(π_t)        over all paths that represent them

With a blank before, between and after the labels, l' of S = 2 L + 1 symbols, two tables compute this sum:

    α_t(s) = y_t(l'_s) · [α_{t−1}(s) + α_{t−1}(s − 1) + α_{t−1}(s − 2), if l'_s is no blank and not l'_{s−2}]
    β_t(s) = Σ_{s'} y_{t+1}(l'_{s'}) β_{t+1}(s')       over the s' that s leads to;     β_T = 1 at the last two symbols

    ∂(−log P)/∂u_t(k) = y_t(k) − Σ_{s: l'_s = k} α_t(s) β_t(s) / P

All computations are in logarithms. The trainer uses torch's `ctc_loss`, which is tested against this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recur.reference import sequence
from recur.reference.sequence import Array, Parameters, Recurrence, State

__all__ = [
    "NetworkGradients",
    "OutputGradients",
    "ctc",
    "loss",
    "loss_and_gradients",
    "negative_log_likelihood",
    "output_backward",
    "output_forward",
    "softmax",
]

Classes = NDArray[np.int64]
"""Class indices y, (m, T)."""


class OutputGradients(NamedTuple):
    """Gradients of the output layer.

    >>> recur.reference.network.OutputGradients._fields
    ('do', 'dc', 'dV', 'ds')
    """

    do: Array
    dc: Array
    dV: Array  # noqa: N815  # the book's letter
    ds: Array
    """∇_s L through the output layer."""


class NetworkGradients(NamedTuple):
    """Gradients of everything, named as in the notes.

    >>> recur.reference.network.NetworkGradients._fields
    ('do', 'dh', 'dx', 'ds0', 'weights', 'dstates')
    """

    do: Array
    dh: Array
    """∂L/∂s_t at every step."""
    dx: Array
    ds0: State
    weights: dict[str, Array]
    """dU, dW, db, dV, dc; for a GRU also dbW."""
    dstates: dict[str, Array]
    """The gradient of every state at every step: s, and C for an LSTM."""


def softmax(o: Array) -> Array:
    """Compute the softmax over the first axis; the maximum is subtracted first, so exp cannot overflow.

    >>> recur.reference.network.softmax(np.array([[0.0], [0.0]])).ravel().tolist()
    [0.5, 0.5]
    """
    e = np.exp(o - o.max(axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True)  # type: ignore[no-any-return]


def output_forward(s: Array, parameters: Parameters) -> Array:
    """Compute ŷ (n_y, m, T) from s (n_s, m, T).

    >>> weights = {"V": np.zeros((4, 2)), "c": np.zeros((4, 1))}
    >>> recur.reference.network.output_forward(np.ones((2, 1, 3)), weights)[0, 0].tolist()
    [0.25, 0.25, 0.25]
    """
    o = parameters["c"][:, :, None] + np.einsum("ys,smt->ymt", parameters["V"], s)
    return softmax(o)


def negative_log_likelihood(y_hat: Array, y: Classes) -> float:
    """Return the summed negative log-likelihood of class indices y (m, T).

    >>> y_hat = np.full((4, 1, 3), 0.25)
    >>> round(recur.reference.network.negative_log_likelihood(y_hat, np.zeros((1, 3), int)) / 3, 4)     # log 4 a step
    1.3863
    """
    m, T = y.shape
    return float(-np.log(y_hat[y, np.arange(m)[:, None], np.arange(T)]).sum())


def output_backward(y_hat: Array, y: Classes, s: Array, parameters: Parameters) -> OutputGradients:
    """Return ∇_o L and the gradients of c, V and s.

    >>> weights, s = {"V": np.zeros((2, 2)), "c": np.zeros((2, 1))}, np.ones((2, 1, 1))
    >>> y_hat = recur.reference.network.output_forward(s, weights)
    >>> found = recur.reference.network.output_backward(y_hat, np.array([[1]]), s, weights)
    >>> found.do.ravel().tolist()                       # ŷ − y
    [0.5, -0.5]
    """
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
    """Return the loss L, for finite differences.

    >>> weights = {"U": np.eye(2), "W": np.eye(2), "b": np.zeros((2, 1)), "V": np.zeros((4, 2)), "c": np.zeros((4, 1))}
    >>> x, y, start = np.ones((2, 1, 3)), np.zeros((1, 3), int), (np.zeros((2, 1)),)
    >>> round(recur.reference.network.loss(recur.reference.elman, x, y, start, weights) / 3, 4)     # log 4 a step
    1.3863
    """
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
    """Return the loss L and all gradients.

    >>> weights = {"U": np.eye(2), "W": np.eye(2), "b": np.zeros((2, 1)), "V": np.ones((4, 2)), "c": np.zeros((4, 1))}
    >>> x, y, start = np.ones((2, 1, 3)), np.zeros((1, 3), int), (np.zeros((2, 1)),)
    >>> L, found = recur.reference.network.loss_and_gradients(recur.reference.elman, x, y, start, weights)
    >>> sorted(found.weights), found.dh.shape
    (['dU', 'dV', 'dW', 'db', 'dc'], (2, 1, 3))
    """
    s, _, caches = sequence.forward(cell, x, state0, parameters, **options)
    y_hat = output_forward(s, parameters)
    out = output_backward(y_hat, y, s, parameters)
    back = sequence.backward(cell, out.ds, caches, xi=xi)
    weights = {**back.weights, "dV": out.dV, "dc": out.dc}
    found = NetworkGradients(out.do, back.dstates["s"], back.dx, back.ds0, weights, back.dstates)
    return negative_log_likelihood(y_hat, y), found


def ctc(u: Array, labels: Sequence[int], blank: int) -> tuple[float, Array]:
    """Return −log P of labels (L,) given logits u (T, K), and its gradient (T, K); infinite if T is too short.

    >>> loss, gradient = recur.reference.network.ctc(np.zeros((2, 2)), [1], blank=0)
    >>> round(float(np.exp(-loss)), 4)                  # three of the four paths represent it: 1 1, 1 _ and _ 1
    0.75
    """
    T, K = u.shape
    logy = u - np.logaddexp.reduce(u, axis=1, keepdims=True)
    symbols = [blank]
    for label in labels:
        symbols += [label, blank]
    S = len(symbols)
    skips = [s >= 2 and symbols[s] not in (blank, symbols[s - 2]) for s in range(S)]
    a, b = np.full((T, S), -np.inf), np.full((T, S), -np.inf)
    with np.errstate(invalid="ignore"):
        a[0, :2] = logy[0, symbols[:2]]
        for t in range(1, T):
            for s in range(S):
                before = [a[t - 1, s], *a[t - 1, max(s - 1, 0) : s], *a[t - 1, s - 2 : s - 1][: skips[s]]]
                a[t, s] = np.logaddexp.reduce(before) + logy[t, symbols[s]]
        b[-1, -2:] = 0.0
        for t in reversed(range(T - 1)):
            ahead = logy[t + 1, symbols] + b[t + 1]
            for s in range(S):
                b[t, s] = np.logaddexp.reduce([*ahead[s : s + 2], *ahead[s + 2 : s + 3][: s + 2 < S and skips[s + 2]]])
        logp = float(np.logaddexp.reduce(a[-1, -2:]))
    if logp == -np.inf:
        return np.inf, np.zeros((T, K))
    gradient = np.exp(logy)
    for s, symbol in enumerate(symbols):
        gradient[:, symbol] -= np.exp(a[:, s] + b[:, s] - logp)
    return -logp, gradient
