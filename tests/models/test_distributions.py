"""What a forecaster says of a value, against scipy: likelihoods, quantiles, and what is drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from recur.errors import OptionError
from recur.models.distributions import DISTRIBUTIONS, distribution, gamma_draw, student_quantiles
from tests.support import close

LEVELS = (0.025, 0.1, 0.5, 0.9, 0.99)


def parameters(name: str, unit: float) -> tuple[torch.Tensor, list[object]]:
    """Some, and scipy's distributions of the values times `unit`."""
    torch.manual_seed(3)
    raw, base = (
        torch.randn(6, DISTRIBUTIONS[name](LEVELS).size, dtype=torch.float64),
        torch.rand(6, dtype=torch.float64) + 0.5,
    )
    placed = distribution(name, LEVELS).place(raw, base)
    made: list[object] = []
    for row in placed.tolist():
        if name == "gaussian":
            made.append(stats.norm(row[0], row[1]))
        elif name == "student":
            made.append(stats.t(row[2], row[0], row[1]))
        else:
            mean, r = row[0] * unit, 1 / row[1]
            made.append(stats.nbinom(r, r / (r + mean)))
    return placed, made


@pytest.mark.parametrize("name", ["gaussian", "student", "negative-binomial"])
def test_likelihoods_and_quantiles_are_scipys(name: str) -> None:
    counts = name == "negative-binomial"
    unit = torch.tensor(40.0 if counts else 1.0, dtype=torch.float64)
    placed, theirs = parameters(name, float(unit))
    own = distribution(name, LEVELS)
    value = torch.tensor([0.0, 3, 17, 60, 41, 100], dtype=torch.float64) / unit
    density = [(d.logpmf if counts else d.logpdf)(float(v * unit)) for d, v in zip(theirs, value, strict=True)]  # type: ignore[attr-defined]
    close(own.loss(placed, value, unit), -torch.tensor(density, dtype=torch.float64))
    found = own.quantiles(placed, unit.expand(6)) * (unit if counts else 1)
    expected = torch.tensor(np.array([d.ppf(LEVELS) for d in theirs]))  # type: ignore[attr-defined]
    assert torch.allclose(found, expected, rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("alpha", [1e-4, 0.05, 0.5])
@pytest.mark.parametrize(("mean", "off"), [(10.0, 0.0), (500.0, 0.0), (5000.0, 0.01), (300_000.0, 0.01)])
def test_counts_of_every_size(mean: float, off: float, alpha: float) -> None:
    unit = torch.tensor([mean, 1.0], dtype=torch.float64)  # the second is small beside any
    placed = torch.tensor([[1.0, alpha], [3.0, alpha]], dtype=torch.float64)
    found = distribution("negative-binomial", LEVELS).quantiles(placed, unit) * unit[:, None]
    for row, m, tolerance in zip(found, (mean, 3.0), (off, 0.0), strict=True):
        expected = stats.nbinom(1 / alpha, 1 / (1 + alpha * m)).ppf(LEVELS)
        assert row.tolist() == pytest.approx(expected.tolist(), rel=tolerance or 1e-9, abs=1e-9)


def test_students_quantiles_from_two_degrees_of_freedom_to_the_normal_distribution() -> None:
    nu = torch.tensor([2.0, 2.3, 3.7, 5.0, 11.3, 61.0, 4000.0], dtype=torch.float64)
    expected = torch.tensor(np.stack([stats.t(float(n)).ppf(LEVELS) for n in nu]))
    assert torch.allclose(student_quantiles(LEVELS, nu[:, None]), expected, rtol=3e-6, atol=0)


@pytest.mark.parametrize("name", list(DISTRIBUTIONS))
def test_what_is_drawn_has_the_quantiles(name: str) -> None:
    own = distribution(name, (0.1, 0.5, 0.9))
    unit = torch.tensor(50.0, dtype=torch.float64)
    raw = torch.tensor([-0.3, 0.1, 0.4], dtype=torch.float64)[: own.size]
    placed = own.place(raw.expand(20_000, -1), torch.ones(20_000, dtype=torch.float64))
    drawn = own.draw(placed, unit, torch.Generator().manual_seed(1))
    quantiles = own.quantiles(placed[:1], unit.expand(1))[0]
    step = 0.5 / float(unit) if name == "negative-binomial" else 0.0  # a count at the quantile counts half
    shares = [float((drawn < q - step).double().mean() + (drawn < q + step).double().mean()) / 2 for q in quantiles]
    assert shares == pytest.approx([0.1, 0.5, 0.9], abs=0.012)  # four deviations of a share of 20,000
    assert torch.equal(drawn, own.draw(placed, unit, torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("shape", [0.3, 1.0, 4.2])
def test_gamma_draws(shape: float) -> None:
    drawn = gamma_draw(torch.full((20_000,), shape, dtype=torch.float64), torch.Generator().manual_seed(2))
    assert stats.kstest(drawn.numpy(), stats.gamma(shape).cdf).pvalue > 0.001


@pytest.mark.parametrize("name", list(DISTRIBUTIONS))
def test_raw_numbers_of_zero_put_the_middle_at_the_base(name: str) -> None:
    own = distribution(name, (0.1, 0.5, 0.9))
    base = torch.tensor([0.3, 2.0, 7.5], dtype=torch.float64)
    placed = own.place(torch.zeros(3, own.size, dtype=torch.float64), base)
    middle = placed[:, 1 if name == "quantile" else 0]
    close(middle, base)


def test_a_loss_by_hand_and_a_wrong_name() -> None:
    own = distribution("quantile", (0.1, 0.5, 0.9))
    # errors 2, 1 and −1: 0.1 · 2, 0.5 · 1 and (0.9 − 1) · −1
    loss = own.loss(torch.tensor([1.0, 2.0, 4.0]), torch.tensor(3.0), torch.tensor(1.0))
    assert float(loss) == pytest.approx((0.2 + 0.5 + 0.1) / 3)
    with pytest.raises(OptionError, match="distribution must be one of quantile, gaussian, .*, got 'normal'"):
        distribution("normal", (0.5,))
