"""The product of Jacobians, ∂s_t/∂s_{t−k} = J_t J_{t−1} … J_{t−k+1}, that multiplies a gradient on its way back.

Its singular values are the factors by which directions of the state grow or shrink over k steps. Their growth per step
as k → ∞ are the Lyapunov exponents

    λ_i  =  lim  1/k log σ_i(∂s_t/∂s_{t−k})

computed as by Benettin et al. 1980: multiply an orthonormal basis by the Jacobians, orthonormalise it again at every
step, and average the logarithms of the factors (the diagonal of R in QR). λ₁ < 0: the past is forgotten, at e^λ₁ a
step; λ₁ > 0: the dynamics are chaotic. s is the whole state; of an LSTM, h and c together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.layer import Layer
from recur.diagnostics.linear import Linearised
from recur.diagnostics.subject import Subject
from recur.i18n import said

WHOLE = 512
"""States up to this wide are multiplied whole; for wider ones, DIRECTIONS random directions of them."""
DIRECTIONS = 64
EXPONENTS = 8
CHAOTIC = 0.02
"""λ₁ above this is called chaotic."""
FORGETFUL = math.log(0.01) / 16
"""λ₁ below this leaves less than 1 % of any direction after 16 steps."""
LARGEST_LOG = 700.0
"""exp of more is infinite in float64."""


class Dynamics(NamedTuple):
    """Of one layer, along the text."""

    singular_values: dict[str, list[float]]
    """Of ∂s_t/∂s_{t−k} by k, largest first."""
    lyapunov: list[float]
    """The largest exponents, largest first."""


def singular_values(layer: Layer, lags: list[int], begin: int | None = None) -> dict[int, Tensor]:
    """Singular values of ∂s_t/∂s_{t−k} for each lag k, largest first; t − k is the same step (`begin`) for all.

    Of a state wider than WHOLE, those of the product on a random subspace: lower bounds, tight for the largest.
    """
    steps = Linearised(layer)
    longest = max(lags)
    at = steps.steps - longest if begin is None else begin
    product = basis(steps.N, steps.N if steps.N <= WHOLE else DIRECTIONS)
    log_scale, found = 0.0, {}  # so that neither 1.5^1000 nor 0.1^1000 leaves the range of numbers
    for k in range(1, longest + 1):
        product = steps.push(at + k, product)
        size = float(product.abs().max())
        if size > 0 and math.isfinite(size):
            product, log_scale = product / size, log_scale + math.log(size)
        if k in lags:
            found[k] = torch.linalg.svdvals(product) * math.exp(min(log_scale, LARGEST_LOG))
    return found


def lyapunov(layer: Layer, count: int = EXPONENTS, last: int = 400) -> list[float]:
    """The largest Lyapunov exponents along the last steps of the text, largest first."""
    steps = Linearised(layer)
    Q = basis(steps.N, min(count, steps.N))
    begin = max(0, steps.steps - last)
    warmup = min(20, (steps.steps - begin) // 4)  # until the basis has aligned with the leading directions
    sums = torch.zeros(Q.shape[1], dtype=torch.float64)
    for step in range(begin + 1, steps.steps + 1):
        Q, R = torch.linalg.qr(steps.push(step, Q))
        if step > begin + warmup:
            sums += R.diagonal().abs().clamp_min(1e-300).log()
    exponents: list[float] = (sums / max(1, steps.steps - begin - warmup)).sort(descending=True).values.tolist()
    return exponents


def _one_per_cent(exponent: float) -> str:
    """After how many steps 1 % is left, where anything is lost."""
    if exponent >= -1e-3:
        return ""
    return said(", 1 % of it is left after {steps:,} steps", steps=math.ceil(math.log(0.01) / exponent))


def basis(N: int, columns: int) -> Tensor:
    """Orthonormal directions of the whole state, (N, M); the identity if there are as many as the state is wide."""
    if columns >= N:
        return torch.eye(N, dtype=torch.float64)
    drawn = torch.randn(N, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Q: Tensor = torch.linalg.qr(drawn).Q
    return Q


def jacobians(subject: Subject, *, lags: tuple[int, ...] = (1, 4, 16, 64), last: int = 400) -> Measurement:
    """Singular values over several lags and Lyapunov exponents, layer by layer."""
    found = {}
    for layer in subject.layers:
        longest = layer.inputs.shape[1] - 1
        values = singular_values(layer, [k for k in lags if k <= longest] or [longest])
        by_lag = {str(k): v.tolist() for k, v in values.items()}
        found[layer.name] = Dynamics(by_lag, lyapunov(layer, last=last))
    numbers = {name: part._asdict() for name, part in found.items()}
    name = max(found, key=lambda key: found[key].lyapunov[0])
    exponent = found[name].lyapunov[0]
    factor = math.exp(min(exponent, LARGEST_LOG))
    detail = said(
        "λ₁ = {exponent:.3g} in {name}: a small change of the state becomes × {factor:.3g} a step{steps}",
        exponent=exponent, name=name, factor=factor, steps=_one_per_cent(exponent),
    )  # fmt: skip
    if exponent > CHAOTIC:
        verdict = said("small changes grow (chaos): {detail}", detail=detail)
        finding = Finding("Jacobians", Level.WARNING, exponent, CHAOTIC, verdict)
    elif exponent < FORGETFUL:
        verdict = said("the past is erased: {detail}", detail=detail)
        finding = Finding("Jacobians", Level.WARNING, exponent, FORGETFUL, verdict)
    else:
        finding = Finding(
            "Jacobians", Level.OK, exponent, CHAOTIC, said("the past fades slowly: {detail}", detail=detail)
        )
    return Measurement(finding, numbers)
