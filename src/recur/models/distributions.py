"""Predictive distributions of a forecaster: quantiles, or a parametric distribution.

    quantile            q₁ … q_Q themselves, trained with the pinball loss (Koenker and Bassett 1978)
    gaussian            μ, σ
    student             μ, σ, ν > 2: heavier tails, so that single large values move μ less
    negative-binomial   μ, α for counts: mean μ, variance μ + α μ²

The last three are trained by negative log-likelihood, as in DeepAR (Salinas et al. 2020). A network outputs raw numbers
around a base forecast b; `place` converts them to parameters, and raw zeros put the centre at b.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from recur.errors import OptionError

LEAST = 1e-4
"""Smallest scale parameter, in units of the scaled series, so that a constant series has a finite likelihood."""

COUNTED = 2000
"""Largest mean for which counts are enumerated; above it a continuous approximation is used."""


class Distribution(ABC):
    """Distribution of values (…) with parameters (…, P)."""

    size: int
    """P, the number of parameters."""

    def __init__(self, quantiles: Sequence[float]) -> None:
        self.levels = tuple(quantiles)

    @abstractmethod
    def place(self, raw: Tensor, base: Tensor) -> Tensor:
        """Return parameters (…, P) from raw numbers (…, P) around base forecasts (…)."""

    def moved(self, raw: Tensor, by: Tensor) -> Tensor:
        """Return raw numbers (…, P) whose centre is higher by (…)."""
        return torch.cat([raw[..., :1] + by[..., None], raw[..., 1:]], dim=-1)

    @abstractmethod
    def loss(self, parameters: Tensor, targets: Tensor, unit: Tensor) -> Tensor:
        """Return the loss (…) of values (…) that are scaled by `unit`."""

    @abstractmethod
    def quantiles(self, parameters: Tensor, unit: Tensor) -> Tensor:
        """Return quantiles (…, Q), increasing."""

    @abstractmethod
    def draw(self, parameters: Tensor, unit: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one value (…) each; random numbers come from the CPU, so that all devices agree."""


class Quantiles(Distribution):
    def __init__(self, quantiles: Sequence[float]) -> None:
        super().__init__(quantiles)
        self.size = len(self.levels)

    def place(self, raw: Tensor, base: Tensor) -> Tensor:
        return base[..., None] + raw

    def moved(self, raw: Tensor, by: Tensor) -> Tensor:
        return raw + by[..., None]

    def loss(self, parameters: Tensor, targets: Tensor, unit: Tensor) -> Tensor:
        """Return the pinball loss max(q e, (q − 1) e), e = y − ŷ_q, averaged over q."""
        q = _levels(self.levels, targets.dtype, targets.device)
        error = targets[..., None] - parameters
        return torch.maximum(q * error, (q - 1) * error).mean(-1)

    def quantiles(self, parameters: Tensor, unit: Tensor) -> Tensor:
        return parameters.sort(-1).values

    def draw(self, parameters: Tensor, unit: Tensor, generator: torch.Generator) -> Tensor:
        """Draw at a random probability, by linear interpolation of the quantiles and extrapolation beyond them."""
        found = parameters.sort(-1).values
        if self.size == 1:
            return found[..., 0]
        u = torch.rand(found.shape[:-1], generator=generator).to(found)
        q = found.new_tensor(self.levels)
        k = torch.searchsorted(q, u.contiguous()).clamp(1, self.size - 1)
        low, high = (found.gather(-1, (k - side)[..., None])[..., 0] for side in (1, 0))
        return low + (u - q[k - 1]) / (q[k] - q[k - 1]) * (high - low)


class Gaussian(Distribution):
    size = 2

    def place(self, raw: Tensor, base: Tensor) -> Tensor:
        return torch.stack([base + raw[..., 0], softplus(raw[..., 1]) + LEAST], dim=-1)

    def loss(self, parameters: Tensor, targets: Tensor, unit: Tensor) -> Tensor:
        mean, width = parameters.unbind(-1)
        return 0.5 * ((targets - mean) / width) ** 2 + width.log() + 0.5 * math.log(2 * math.pi)

    def quantiles(self, parameters: Tensor, unit: Tensor) -> Tensor:
        mean, width = parameters[..., :1], parameters[..., 1:]
        z: Tensor = torch.special.ndtri(parameters.new_tensor(self.levels))
        return mean + width * z

    def draw(self, parameters: Tensor, unit: Tensor, generator: torch.Generator) -> Tensor:
        mean, width = parameters.unbind(-1)
        return mean + width * torch.randn(mean.shape, generator=generator).to(mean)


class Student(Distribution):
    size = 3

    def place(self, raw: Tensor, base: Tensor) -> Tensor:
        width, freedom = softplus(raw[..., 1]) + LEAST, 2 + LEAST + softplus(raw[..., 2] + 2)
        return torch.stack([base + raw[..., 0], width, freedom], dim=-1)

    def loss(self, parameters: Tensor, targets: Tensor, unit: Tensor) -> Tensor:
        mean, width, nu = parameters.unbind(-1)
        z = (targets - mean) / width
        constant = torch.lgamma(nu / 2) - torch.lgamma((nu + 1) / 2) + 0.5 * (math.pi * nu).log()
        return constant + width.log() + (nu + 1) / 2 * torch.log1p(z**2 / nu)

    def quantiles(self, parameters: Tensor, unit: Tensor) -> Tensor:
        mean, width, nu = (part[..., None] for part in parameters.unbind(-1))
        return mean + width * student_quantiles(self.levels, nu)

    def draw(self, parameters: Tensor, unit: Tensor, generator: torch.Generator) -> Tensor:
        """Draw z / √(χ² / ν), scaled."""
        mean, width, nu = parameters.unbind(-1)
        z = torch.randn(mean.shape, generator=generator).to(mean)
        return mean + width * z / (2 * gamma_draw(nu / 2, generator) / nu).clamp_min(1e-12).sqrt()


class NegativeBinomial(Distribution):
    """Distribution of counts y · unit; parameters are scaled like the values."""

    size = 2

    def place(self, raw: Tensor, base: Tensor) -> Tensor:
        base = base.clamp_min(1e-3)
        mean = softplus(base + torch.log(-torch.expm1(-base)) + raw[..., 0])  # softplus⁻¹(base): raw 0 is base again
        return torch.stack([mean, softplus(raw[..., 1] - 1) + LEAST], dim=-1)

    def loss(self, parameters: Tensor, targets: Tensor, unit: Tensor) -> Tensor:
        mean, alpha = parameters[..., 0] * unit, parameters[..., 1]
        y, r = targets * unit, 1 / alpha
        return (
            torch.lgamma(r)
            + torch.lgamma(y + 1)
            - torch.lgamma(y + r)
            + r * torch.log1p(alpha * mean)
            - y * (torch.log(alpha * mean) - torch.log1p(alpha * mean))
        )

    def quantiles(self, parameters: Tensor, unit: Tensor) -> Tensor:
        """Return the smallest count with P(y ≤ count) ≥ q; for large means, that of a gamma distribution, rounded."""
        mean, alpha = torch.broadcast_tensors((parameters[..., 0] * unit).double(), parameters[..., 1].double())
        large = mean > COUNTED
        found: Tensor = mean.new_zeros(*mean.shape, len(self.levels))
        found[~large] = self._counted(mean[~large], alpha[~large])
        found[large] = self._smooth(mean[large], alpha[large])
        return (found / unit[..., None]).to(parameters.dtype)

    def _smooth(self, mean: Tensor, alpha: Tensor) -> Tensor:
        """Return quantiles of the gamma distribution with the same mean and variance, by bisection.

        The quantile q of a non-negative variable is at most mean / (1 − q), which bounds the search.
        """
        mean, q = mean[..., None], mean.new_tensor(self.levels)
        k = (mean / (1 + alpha[..., None] * mean)).expand(*mean.shape[:-1], len(q))  # mean² / variance
        low, high = torch.zeros_like(k), mean / (1 - q)
        for _ in range(40):
            middle = (low + high) / 2
            left = torch.special.gammainc(k, k * middle / mean) < q
            low, high = torch.where(left, middle, low), torch.where(left, high, middle)
        return high.round()

    def _counted(self, mean: Tensor, alpha: Tensor) -> Tensor:
        """Sum the probabilities of 0, 1, 2, …, each computed from the previous one."""
        r = 1 / alpha
        log_probability, log_ratio = -r * torch.log1p(alpha * mean), -torch.log1p(1 / (alpha * mean))
        q = mean.new_tensor(self.levels)
        below, found = log_probability.exp(), mean.new_zeros(*mean.shape, len(self.levels))
        for count in range(math.ceil(COUNTED / (1 - max(self.levels)))):  # as far as such a mean allows
            left = below[..., None] < q
            if not bool(left.any()):
                break
            found += left
            log_probability = log_probability + torch.log((count + r) / (count + 1)) + log_ratio
            below = below + log_probability.exp()
        return found

    def draw(self, parameters: Tensor, unit: Tensor, generator: torch.Generator) -> Tensor:
        """Draw from a Poisson distribution with a gamma-distributed rate."""
        mean, alpha = parameters[..., 0] * unit, parameters[..., 1]
        rate = gamma_draw(1 / alpha, generator) * alpha * mean
        return torch.poisson(rate.cpu(), generator=generator).to(mean) / unit


DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "quantile": Quantiles,
    "gaussian": Gaussian,
    "student": Student,
    "negative-binomial": NegativeBinomial,
}


@lru_cache(maxsize=16)
def _levels(levels: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the levels as a tensor, cached per device: a captured training step must not copy from the host."""
    return torch.tensor(levels, dtype=dtype, device=device)


def distribution(name: str, quantiles: Sequence[float]) -> Distribution:
    if name not in DISTRIBUTIONS:
        raise OptionError(f"distribution must be one of {', '.join(DISTRIBUTIONS)}, got {name!r}")
    return DISTRIBUTIONS[name](quantiles)


def gamma_draw(shape: Tensor, generator: torch.Generator) -> Tensor:
    """Draw from gamma distributions (Marsaglia and Tsang 2000), with u^(1/a) for shapes below 1.

    The first accepted of eight proposals is taken; all eight are rejected once in 10⁹ draws.
    """
    a = shape.double().cpu()
    d = torch.where(a < 1, a + 1, a) - 1 / 3
    tries = 8
    x = torch.randn(tries, *a.shape, generator=generator, dtype=torch.float64)
    u = torch.rand(tries, *a.shape, generator=generator, dtype=torch.float64).clamp_min(1e-300)
    v = (1 + x / (3 * d.sqrt())) ** 3
    taken = (v > 0) & (u.log() < 0.5 * x**2 + d - d * v + d * v.clamp_min(1e-300).log())
    first = taken.to(torch.int8).argmax(0, keepdim=True)
    drawn = d * v.gather(0, first)[0].clamp_min(1e-300)
    small = torch.rand(a.shape, generator=generator, dtype=torch.float64).clamp_min(1e-300) ** (1 / a)
    return torch.where(a < 1, drawn * small, drawn).to(shape)


# Student's quantiles -----------------------------------------------------------------------------------------------


def student_quantiles(levels: Sequence[float], nu: Tensor) -> Tensor:
    """Return quantiles (…, Q) of t with ν ≥ 2 degrees of freedom (…, 1), interpolated in a table over 1/ν."""
    at, table = _student_table(tuple(levels))
    u = (1 / nu).clamp(0.0, 0.5)
    place = u / float(at[1])
    k = place.long().clamp(0, len(at) - 2)
    grid = torch.from_numpy(table).to(nu)  # (grid, Q)
    columns = torch.arange(len(levels), device=nu.device)
    low, high = grid[k, columns], grid[k + 1, columns]
    return low + (place - k) * (high - low)


@lru_cache(maxsize=16)
def _student_table(levels: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return 1/ν from 0 to ½ and the quantiles there.

    With t = √ν tan θ the distribution function is ½ + c ∫₀^θ cos^(ν−1), which is smooth: the integral is computed by
    Gauss–Legendre quadrature and inverted by bisection.
    """
    at = np.linspace(0, 0.5, 1025)
    nu = 1 / at[1:]
    nodes, weights = np.polynomial.legendre.leggauss(64)
    log_c = np.array([math.lgamma((n + 1) / 2) - math.lgamma(n / 2) for n in nu]) - 0.5 * math.log(math.pi)
    table = np.zeros((len(at), len(levels)))
    for k, level in enumerate(levels):
        p = abs(level - 0.5)
        low, high = np.zeros_like(nu), np.full_like(nu, math.pi / 2)
        for _ in range(60):
            middle = (low + high) / 2
            theta = middle[:, None] * (nodes + 1) / 2
            log_cos = np.log(np.cos(theta))
            area = (np.exp((nu - 1)[:, None] * log_cos + log_c[:, None]) * weights).sum(1) * middle / 2
            low, high = np.where(area < p, middle, low), np.where(area < p, high, middle)
        normal = abs(float(torch.special.ndtri(torch.tensor(level, dtype=torch.float64))))
        table[:, k] = math.copysign(1.0, level - 0.5) * np.concatenate([[normal], np.sqrt(nu) * np.tan(low)])
    return at, table
