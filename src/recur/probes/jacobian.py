"""The product of Jacobians, ∂s_t/∂s_{t−k} = J_t J_{t−1} … J_{t−k+1}, which a gradient meets on its way back.

Its singular values say how much each direction of the state is stretched or shrunk over k steps. Their growth per
step, as k goes on, are the Lyapunov exponents

    λ_i  =  lim  1/k log σ_i(∂s_t/∂s_{t−k})

found as Benettin et al. 1980 do: carry an orthonormal basis through the Jacobians, make it orthonormal again at every
step, and average the logarithms of what each direction lost or won. λ₁ < 0: the past is forgotten, at e^λ₁ a step;
λ₁ > 0: it is amplified. s is the whole state; of an LSTM, h and c together.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from recur.probes.finding import Finding, Level, Seen
from recur.probes.linear import Linearised
from recur.probes.subject import Layer, Subject

WHOLE = 512
"""States up to this wide are carried whole; of wider ones, so many random directions as DIRECTIONS says."""
DIRECTIONS = 64
EXPONENTS = 8
CHAOS = 0.02
"""λ₁ above this is called amplifying."""
FORGETFUL = math.log(0.01) / 8
"""λ₁ below this leaves less than 1 % of any direction after 8 steps."""


def products(layer: Layer, lags: list[int], begin: int | None = None) -> dict[int, Tensor]:
    """Singular values of ∂s_t/∂s_{t−k} for each lag k, largest first; t − k is the same step (`begin`) for all.

    Of a state wider than WHOLE, those of the product on a random subspace: lower bounds, tight for the largest.
    """
    steps = Linearised(layer)
    longest = max(lags)
    at = steps.steps - longest if begin is None else begin
    V = basis(steps.N, steps.N if steps.N <= WHOLE else DIRECTIONS)
    scale, found = 0.0, {}  # the scale in logarithms, so that 1.5^1000 and 0.1^1000 are numbers still
    for k in range(1, longest + 1):
        V = steps.push(at + k, V)
        size = float(V.abs().max())
        if size > 0 and math.isfinite(size):
            V, scale = V / size, scale + math.log(size)
        if k in lags:
            found[k] = torch.linalg.svdvals(V) * math.exp(min(scale, 700))
    return found


def lyapunov(layer: Layer, count: int = EXPONENTS, last: int = 400) -> list[float]:
    """The largest Lyapunov exponents along the last steps of the text, largest first."""
    steps = Linearised(layer)
    Q = basis(steps.N, min(count, steps.N))
    begin = max(0, steps.steps - last)
    warm = min(20, (steps.steps - begin) // 4)  # until the basis has turned towards the directions that matter
    sums = torch.zeros(Q.shape[1], dtype=torch.float64)
    for step in range(begin + 1, steps.steps + 1):
        Q, R = torch.linalg.qr(steps.push(step, Q))
        if step > begin + warm:
            sums += R.diagonal().abs().clamp_min(1e-300).log()
    exponents: list[float] = (sums / max(1, steps.steps - begin - warm)).sort(descending=True).values.tolist()
    return exponents


def basis(N: int, columns: int) -> Tensor:
    """Orthonormal directions of the whole state, (N, M); the identity if there are as many as the state is wide."""
    if columns >= N:
        return torch.eye(N, dtype=torch.float64)
    drawn = torch.randn(N, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Q: Tensor = torch.linalg.qr(drawn).Q
    return Q


def jacobians(subject: Subject, *, lags: tuple[int, ...] = (1, 4, 16, 64), last: int = 400) -> Seen:
    """Singular values over several lags and Lyapunov exponents, layer by layer."""
    numbers: dict[str, Any] = {}
    for layer in subject.layers:
        longest = layer.inputs.shape[1] - 1
        values = products(layer, [k for k in lags if k <= longest] or [longest])
        numbers[layer.name] = {
            "singular_values": {str(k): v.tolist() for k, v in values.items()},
            "lyapunov": lyapunov(layer, last=last),
        }
    name = max(numbers, key=lambda key: numbers[key]["lyapunov"][0])
    exponent = numbers[name]["lyapunov"][0]
    factor = math.exp(min(exponent, 700))
    said = f"λ₁ = {exponent:.3g} in {name}: the strongest direction changes by × {factor:.3g} a step"
    if exponent > CHAOS:
        advice = "init=orthogonal, a smaller rate, clipping at every step (--bptt full,clip:1)"
        finding = Finding("Jacobians", Level.CONCERN, exponent, CHAOS, f"the state amplifies its past: {said}", advice)
    elif exponent < FORGETFUL:
        advice = "a gated cell, a forget bias (--forget-bias 1), init=orthogonal"
        finding = Finding("Jacobians", Level.CONCERN, exponent, FORGETFUL, f"the past is erased: {said}", advice)
    else:
        finding = Finding("Jacobians", Level.SOUND, exponent, CHAOS, f"the past fades slowly: {said}")
    return Seen(finding, numbers)
