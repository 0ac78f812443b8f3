"""Calibration: the error against its definition bin by bin, shares against a general minimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from recur.models.calibration import WEIGHT_PENALTY, Mixture, calibration_error, cross_fit_mixture, fit_mixture_weights


def drawn(n: int, classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities, and classes drawn by them."""
    torch.manual_seed(seed)
    log_p = (2 * torch.randn(n, classes, dtype=torch.double)).log_softmax(-1)
    return log_p, torch.multinomial(log_p.exp(), 1)[:, 0]


def test_the_calibration_error_is_the_mean_gap_of_its_bins() -> None:
    log_p, targets = drawn(500, 4)
    p = log_p.exp()
    expected = 0.0
    for b in range(15):
        inside = [i for i in range(500) if b / 15 < float(p[i].max()) <= (b + 1) / 15]
        if inside:
            right = sum(int(p[i].argmax()) == int(targets[i]) for i in inside) / len(inside)
            sure = sum(float(p[i].max()) for i in inside) / len(inside)
            expected += len(inside) / 500 * abs(right - sure)
    assert calibration_error(p, targets) == pytest.approx(expected, abs=1e-12)
    assert calibration_error(torch.eye(3), torch.arange(3)) == 0
    assert calibration_error(torch.eye(3), torch.tensor([1, 2, 0])) == 1


@pytest.mark.parametrize(("weighted", "start"), [(False, ()), (True, ()), (False, (1.0, 0.2))])
def test_shares_are_the_least_of_loss_and_pull(weighted: bool, start: tuple[float, ...]) -> None:
    (a, targets), (b, _) = drawn(300, 3), drawn(300, 3, seed=1)
    parts = [2.5 * a, b + 0.5 * a]
    weights = torch.rand(300, dtype=torch.double) if weighted else None
    x, w = np.stack([part.numpy() for part in parts], -1), np.ones(300) if weights is None else weights.numpy()

    def loss(shares: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        z = x @ shares
        right = z[np.arange(300), targets.numpy()] - np.log(np.exp(z).sum(-1))
        return float(-(w * right).sum() + WEIGHT_PENALTY / 2 * ((shares - np.array(start or (0.5, 0.5))) ** 2).sum())

    expected = minimize(loss, [0.5, 0.5], bounds=[(0, None)] * 2, options={"ftol": 1e-15, "gtol": 1e-9}).x
    assert fit_mixture_weights(parts, targets, weights, start).numpy() == pytest.approx(expected, abs=1e-4)


def test_what_tells_nothing_has_no_share_and_few_examples_decide_little() -> None:
    log_p, targets = drawn(2000, 3)
    against = (-log_p).log_softmax(-1)
    shares = fit_mixture_weights([0.5 * log_p, against], targets)
    assert shares[1] == 0
    assert shares[0] == pytest.approx(2.0, abs=0.15)
    few = fit_mixture_weights([log_p[:2], against[:2]], targets[:2])
    assert few.numpy() == pytest.approx([0.5, 0.5], abs=0.3)


def test_a_network_that_is_too_sure_is_mended() -> None:
    log_p, targets = drawn(4000, 5)
    sure = 3 * log_p
    mended = Mixture().double().fit([sure], targets)
    assert float(mended.shares) == pytest.approx(1 / 3, abs=0.02)
    assert calibration_error(mended(sure).exp(), targets) < 0.03 < calibration_error(sure.softmax(-1), targets)


def test_figures_of_a_half_come_from_shares_of_the_other() -> None:
    log_p, targets = drawn(101, 3)
    made = cross_fit_mixture([3 * log_p], targets)
    even, odd = slice(0, None, 2), slice(1, None, 2)
    for mine, other in ((even, odd), (odd, even)):
        expected = (3 * log_p[mine] * fit_mixture_weights([3 * log_p[other]], targets[other])).log_softmax(-1)
        assert torch.allclose(made[mine], expected, rtol=1e-12)
    alone = cross_fit_mixture([log_p[:1]], targets[:1])  # the other half is empty
    assert torch.allclose(alone, log_p[:1])
