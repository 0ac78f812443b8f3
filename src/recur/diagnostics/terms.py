"""The gradient of a matrix as the sum of what each step adds to it.

    ∂L_T/∂W  =  Σ_t G_t,     G_t = δ_t m_tᵀ     δ_t the gradient of W m_t, m_t what W multiplies at step t, h_{t−1}

L_T is the loss of the last step only, so a term k steps back says what W learns from there. Of one backward pass, with
the terms ordered by their lag, and norms over the rows of the batch together:

    norms       ‖G_t‖ of every lag (root mean square over the rows)
    cumulated   the share of Σ ‖G_t‖ that the last k steps have
    missing     ‖ΣG − Σ_{last k} G‖ / ‖ΣG‖: how wrong the gradient is if it stops k steps back
    cosine      between the sum of the last k terms and the whole
    steps       the fewest last steps that leave at most 10 % missing, they and all more
    alignment   ‖ΣG‖ / Σ‖G_t‖: 1 where all terms point one way, near 0 where they cancel

W for a cell that has one, and U, which every cell has. Of the cells without W, U decides.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.flow import GROWTH
from recur.diagnostics.layer import layer_name
from recur.diagnostics.subject import Subject
from recur.i18n import said
from recur.ops import Trace

MISSING = 0.1
"""The share of the gradient that may be missing where it is called whole."""
FEW = 3
"""A sum that is whole with fewer steps teaches no memory."""
LETTERS = {"weight_hh": "W", "weight_ih": "U"}


class Terms(NamedTuple):
    """The terms of one matrix's gradient, by lag."""

    norms: list[float]
    cumulated: list[float]
    """After the last 1, 2, … steps, as `missing` and `cosine` are."""
    missing: list[float]
    cosine: list[float]
    alignment: float
    largest: int
    """The lag of the largest term."""
    steps: int
    """How many of the last steps the gradient needs."""

    @property
    def share(self) -> float:
        """The largest term's share of the sum of all norms."""
        total = sum(self.norms)
        return self.norms[self.largest] / total if total > 0 else 0.0

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, (*self.norms, self.alignment)))


def terms_of(trace: Trace, *, reverse: bool = False, together: bool = False) -> dict[str, Terms]:
    """Of U and W by letter, after a backward pass; `reverse` for a layer that reads from the end, `together` for rows
    that read the same and have each their own loss."""
    return {LETTERS[name]: _terms(trace.term_products(name, together), reverse) for name in sorted(trace.terms)}


def _terms(products: Tensor, reverse: bool) -> Terms:
    by_lag = products if reverse else products.flip(1, 2)
    K = by_lag.mean(dim=0).cpu().numpy()  # of the rows together: their gradients side by side are one vector
    T, norms = len(K), np.sqrt(np.diagonal(K))
    total, nothing = float(norms.sum()), [0.0] * T
    if not np.isfinite(K).all() or not math.isfinite(float(np.abs(K).sum())):
        return Terms(norms.tolist(), nothing, nothing, nothing, math.nan, T - 1, T)
    with_whole = np.cumsum(K.sum(axis=1))  # ⟨Σ_{last k} G, ΣG⟩
    squares = np.diagonal(np.cumsum(np.cumsum(K, axis=0), axis=1))  # ‖Σ_{last k} G‖²
    whole = math.sqrt(max(float(squares[-1]), 0.0))
    if not whole:
        return Terms(norms.tolist(), nothing, nothing, nothing, 0.0, 0, 0)
    missing = np.sqrt(np.maximum(whole**2 - 2 * with_whole + squares, 0)) / whole
    missing[-1] = 0.0  # not the rounding of it
    parts = np.sqrt(np.maximum(squares, 0))
    cosine = np.divide(with_whole, parts * whole, out=np.zeros(T), where=parts > 0)
    steps = int(np.nonzero(missing > MISSING)[0].max(initial=-1)) + 2
    cumulated = np.cumsum(norms) / total
    return Terms(
        norms.tolist(), cumulated.tolist(), missing.tolist(), np.clip(cosine, -1, 1).tolist(),
        whole / total, int(norms.argmax()), min(steps, T),
    )  # fmt: skip


def gradient_terms(subject: Subject, *, rows: int = 8, steps: int = 200) -> Measurement:
    """Which steps a matrix learns from, in every layer, and how many of the last ones are enough."""
    x, loss = subject.last_loss(rows, steps)
    with subject.traced() as results:
        loss(subject.model(x)).backward()
    found = {
        layer_name(suffix): terms_of(trace, reverse=suffix.endswith("_reverse"))
        for suffix, trace in zip(subject.net.suffixes(), results[-1].trace, strict=True)
    }
    numbers = {
        name: {letter: {**part._asdict(), "share": part.share} for letter, part in layer.items()}
        for name, layer in found.items()
    }
    return Measurement(terms_finding(found, "W" if subject.net.cell.recurrent_gates else "U"), numbers)


def terms_finding(found: dict[str, dict[str, Terms]], letter: str) -> Finding:
    """The conclusion from the terms of one matrix, of every layer."""
    probe = "gradient terms"
    terms = {name: layer[letter] for name, layer in found.items()}
    if not all(part.finite for part in terms.values()):
        verdict = said("the terms of {letter} overflow: gradients explode", letter=letter)
        return Finding(probe, Level.WARNING, math.inf, FEW, verdict)
    # The layer whose gradient needs the most steps: what any of them can learn from far back, the network can.
    name = max(terms, key=lambda key: terms[key].steps)
    part = terms[name]
    T = len(part.norms)
    if not part.norms or not max(part.norms):
        return Finding(probe, Level.OK, 0.0, FEW, said("no gradient reaches {letter}", letter=letter))
    detail = said(
        "the last {steps} of {T} steps give ∂L/∂{letter} of {name} to within {missing:.0%}; the largest term lies "
        "{largest} steps back and is {share:.0%} of all",
        steps=part.steps, T=T, letter=letter, name=name, missing=MISSING, largest=part.largest, share=part.share,
    )  # fmt: skip
    if part.largest >= max(FEW, T // 2) and part.norms[part.largest] > GROWTH * part.norms[0]:
        verdict = said("the steps furthest back outweigh all others: {detail}", detail=detail)
        return Finding(probe, Level.WARNING, part.largest, T // 2, verdict)
    if part.steps < min(FEW, T):
        verdict = said("{letter} learns from next to nothing but the last step: {detail}", letter=letter, detail=detail)
        return Finding(probe, Level.WARNING, part.steps, FEW, verdict)
    if part.steps > 0.9 * T:
        return Finding(probe, Level.OK, part.steps, FEW, said("all steps count: {detail}", detail=detail))
    verdict = said("{letter} learns from {steps} steps: {detail}", letter=letter, steps=part.steps, detail=detail)
    return Finding(probe, Level.OK, part.steps, FEW, verdict)
