"""Forecasters: nothing is seen before its time, a state can be carried, and the loss is the pinball loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from recur.models import Forecaster
from recur.models.options import ForecasterOptions
from tests.support import close

QUANTILES = (0.1, 0.5, 0.9)


def model(lags: int, known: int = 2, horizon: int = 3, season: int = 4) -> Forecaster:
    options = ForecasterOptions(cell="gru", hidden=5, lags=lags)
    return Forecaster(known, horizon, QUANTILES, season, options).double()


def series(B: int = 2, T: int = 12, k: int = 3, known: int = 2) -> tuple[Tensor, Tensor]:
    return torch.randn(B, T, dtype=torch.float64), torch.randn(B, T + k, known, dtype=torch.float64)


@pytest.mark.parametrize("lags", [0, 5])
def test_no_forecast_sees_a_value_that_comes_later_or_what_is_known_beyond_its_horizon(lags: int) -> None:
    net, (values, known) = model(lags), series()
    values.requires_grad_()
    known.requires_grad_()
    found = net(values, known)
    assert found.shape == (2, 12 - net.first, 3, 3)
    for t in (net.first, 8, 11):
        by_value, by_known = torch.autograd.grad(found[0, t - net.first].sum(), (values, known), retain_graph=True)
        seen = by_value[0].abs() > 0
        assert bool(seen[t])
        assert not bool(seen[t + 1 :].any())
        assert not bool(by_value[1].abs().any())
        assert bool((by_known[0, t : t + 4].abs() > 0).all())
        assert not bool(by_known[0, t + 4 :].abs().any())
        if lags:  # a window of 5 and a season of 4 reach no further back
            assert not bool(seen[: t - 4].any())
        else:
            assert bool(seen[0])


@pytest.mark.parametrize("lags", [0, 5])
def test_going_on_from_a_state_gives_the_same_forecasts(lags: int) -> None:
    net, (values, known) = model(lags), series()
    whole = net(values, known)
    state: Any
    first, state = net.carry(values[:, :7], known[:, : 7 + 3])
    second, state = net.carry(values[:, 7:9], known[:, 7 : 9 + 3], state, values[:, :7])
    third, _ = net.carry(values[:, 9:], known[:, 9:], state, values[:, :9])
    close(torch.cat([first, second, third], dim=1).detach(), whole.detach())


@pytest.mark.parametrize("lags", [0, 5])
def test_a_series_that_stands_higher_is_forecast_as_much_higher(lags: int) -> None:
    net, (values, known) = model(lags), series()
    close(net(values + 100, known).detach(), net(values, known).detach() + 100)


def test_the_loss_by_hand() -> None:
    net = model(0)
    forecasts = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    target = torch.tensor([3.0], dtype=torch.float64)
    # errors 2, 1 and −1: 0.1 · 2, 0.5 · 1 and (0.9 − 1) · −1
    assert float(net.loss(forecasts, target)) == pytest.approx((0.2 + 0.5 + 0.1) / 3)
