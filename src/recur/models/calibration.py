"""Calibration of class probabilities: expected calibration error, and temperature scaling of one or several models.

    ECE = Σ_b n_b / n · |accuracy in bin b − mean confidence in bin b|,   15 bins of the highest probability

Guo et al., On calibration of modern neural networks, ICML 2017. An overconfident network is divided by a temperature;
several models are mixed in the same way:

    log P = Σ_i a_i log p_i + const,   a ≥ 0 minimises −log P of the validation set plus WEIGHT_PENALTY/2 ‖a − start‖²

With one model, a is 1/temperature.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

CALIBRATION_BINS = 15

WEIGHT_PENALTY = 10.0
"""Strength with which weights are pulled to their start: worth some tens of examples, so that a few change little."""


def calibration_error(p: Tensor, targets: Tensor, bins: int = CALIBRATION_BINS) -> float:
    """Return the expected calibration error of probabilities (n, classes), as a fraction."""
    confidence, guess = p.double().max(-1)
    off = (guess == targets).double() - confidence
    at = (confidence * bins).ceil().long().clamp(1, bins) - 1
    return float(torch.zeros(bins, dtype=torch.double).index_add_(0, at, off).abs().sum() / max(len(targets), 1))


class Mixture(nn.Module):
    """Log-linear mixture of the log-probabilities (n, classes) of one or several models."""

    shares: Tensor

    def __init__(self, *start: float) -> None:
        """Set the initial weights, one per model; by default weight 1 for one model."""
        super().__init__()
        self.start = start or (1.0,)
        self.register_buffer("shares", torch.tensor(self.start))

    def forward(self, *log_ps: Tensor) -> Tensor:
        shares = self.shares.to(log_ps[0])
        return (torch.stack(log_ps, -1) @ shares).log_softmax(-1)

    @torch.no_grad()
    def fit(self, log_ps: Sequence[Tensor], targets: Tensor, weights: Tensor | None = None) -> Mixture:
        """Fit the weights to the classes of examples, each of which may have a weight."""
        self.shares.copy_(fit_mixture_weights([log_p.cpu() for log_p in log_ps], targets, weights, self.start))
        return self


def calibrate(
    mixture: Mixture, log_ps: Sequence[Tensor], targets: Sequence[int], class_weights: Tensor | None = None
) -> Tensor:
    """Fit a mixture to the validation set and return log-probabilities of the same examples for evaluation.

    Each half of the examples is mixed with weights fitted to the other half, so that the metrics are not optimistic.
    """
    classes, known = torch.tensor(targets), log_ps[0].shape[1]
    seen = classes < known  # a label that training did not have tells nothing
    weights = None if class_weights is None else class_weights.cpu()[classes[seen]]
    mixture.fit([log_p[seen] for log_p in log_ps], classes[seen], weights)
    made: Tensor = mixture(*(log_p.cpu() for log_p in log_ps))
    made[seen] = cross_fit_mixture([log_p[seen] for log_p in log_ps], classes[seen], weights, mixture.start)
    return made


def fit_mixture_weights(
    log_ps: Sequence[Tensor], targets: Tensor, weights: Tensor | None = None, start: Sequence[float] = ()
) -> Tensor:
    """Fit the weights of a mixture by Newton's method; the problem is convex. They start from `start`, or from equal
    weights.
    """
    x = torch.stack(list(log_ps), -1).double()  # (n, classes, parts)
    w = torch.ones(len(x), dtype=torch.double) if weights is None else weights.double().cpu()
    right, rows, parts = targets.cpu(), torch.arange(len(x)), x.shape[-1]
    begin = torch.tensor(start or [1 / parts] * parts, dtype=torch.double)
    a = begin.clone()

    def loss(a: Tensor) -> Tensor:
        return WEIGHT_PENALTY / 2 * (a - begin).square().sum() - (w * (x @ a).log_softmax(-1)[rows, right]).sum()

    for _ in range(50):
        p = (x @ a).softmax(-1)
        mean = torch.einsum("nk,nki->ni", p, x)
        slope = w @ (mean - x[rows, right]) + WEIGHT_PENALTY * (a - begin)
        spread = torch.einsum("n,nk,nki,nkj->ij", w, p, x, x) - torch.einsum("n,ni,nj->ij", w, mean, mean)
        curvature = spread + WEIGHT_PENALTY * torch.eye(parts, dtype=torch.double)
        free = (a > 0) | (slope < 0)  # a share of nothing stays so, unless the loss falls with more of it
        if not free.any():
            break
        step = torch.zeros_like(a)
        step[free] = torch.linalg.solve(curvature[free][:, free], slope[free])
        size, before = 1.0, loss(a)
        while size > 1e-6 and loss((a - size * step).clamp_min(0)) > before:
            size /= 2
        moved = (a - size * step).clamp_min(0)
        if float((moved - a).abs().max()) < 1e-9:
            break
        a = moved
    return a


def cross_fit_mixture(
    log_ps: Sequence[Tensor], targets: Tensor, weights: Tensor | None = None, start: Sequence[float] = ()
) -> Tensor:
    """Return the mixture of each half of the examples with weights fitted to the other half."""
    made = torch.empty_like(log_ps[0])
    for half in (0, 1):
        mine, other = slice(half, None, 2), slice(1 - half, None, 2)
        if not len(targets[mine]):
            continue
        some = None if weights is None else weights[other]
        shares = fit_mixture_weights([p[other] for p in log_ps], targets[other], some, start)
        made[mine] = (torch.stack([p[mine] for p in log_ps], -1) @ shares.to(made)).log_softmax(-1)
    return made
