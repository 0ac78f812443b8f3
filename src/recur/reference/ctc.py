"""Connectionist temporal classification (Graves et al. 2006): labels without alignment, with the gradient by hand.

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

import numpy as np

from recur.reference.sequence import Array

__all__ = ["ctc"]


def ctc(u: Array, labels: Sequence[int], blank: int) -> tuple[float, Array]:
    """Return −log P of labels (L,) given logits u (T, K), and its gradient (T, K); infinite if T is too short.

    >>> loss, gradient = recur.reference.ctc.ctc(np.zeros((2, 2)), [1], blank=0)
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
