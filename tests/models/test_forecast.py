"""Forecasters: nothing is seen before its time, a state can be carried, and forecasts stand around their base."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from recur.errors import OptionError
from recur.models import forecaster
from recur.models.forecaster import Forecaster, ForecasterSizes, SeriesBatch
from recur.models.options import ForecasterOptions
from tests.support import close

QUANTILES = (0.1, 0.5, 0.9)
KINDS: dict[str, dict[str, Any]] = {
    "state": {},
    "window": {"lags": 5},
    "segments": {"lags": 6, "segment": 2},
    "lstm segments": {"lags": 6, "segment": 3, "cell": "lstm", "num_layers": 2, "level": "last"},
    "output": {"recurrence": "output"},
    "mixed": {"lags": 6, "segment": 2, "level": "window"},
}
SIZES = {"mixed": ForecasterSizes(3, known=2, past=1, variables=2)}


def model(kind: str, seed: int = 1, **more: Any) -> Forecaster:
    torch.manual_seed(seed)
    options = ForecasterOptions(**{"cell": "gru", "hidden_size": 5, **KINDS[kind], **more})
    return Forecaster(SIZES.get(kind, ForecasterSizes(3, known=2, past=1, channels=3)), QUANTILES, 4, options).double()


def rows(net: Forecaster, B: int = 2, T: int = 12) -> SeriesBatch:
    torch.manual_seed(0)
    s = net.sizes

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64)

    return SeriesBatch(
        draw(B, T, s.variables),
        draw(B, T + s.horizon, s.known),
        draw(B, T, s.past),
        torch.arange(B) % s.channels,
        torch.arange(B),
        draw(B, s.variables, 4, s.horizon),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_forecast_sees_a_value_that_comes_later_or_what_is_known_beyond_its_horizon(kind: str) -> None:
    net = model(kind)
    seen = rows(net)
    values, known, past = (part.requires_grad_() for part in seen[:3])
    found = net(seen)
    assert found.shape == (2, 12 - net.first, 3, net.sizes.variables, 3)
    for t in (net.first, 8, 11):
        total = found[0, t - net.first].sum()
        grads = torch.autograd.grad(total, (values, known, past), retain_graph=True)
        by_value, by_known, by_past = (grad.abs().sum(-1) > 0 for grad in grads)
        assert bool(by_value[0, t])
        assert not bool(by_value[0, t + 1 :].any() or by_past[0, t + 1 :].any())
        assert not bool(by_value[1].any() or by_known[1].any() or by_past[1].any())
        assert bool(by_known[0, t : t + 4].all())
        assert not bool(by_known[0, t + 4 :].any())
        reach = net.lags or (1 if kind == "output" else 99)
        assert not bool(by_past[0, : max(t + 1 - reach, 0)].any())
        if net.lags:
            assert not bool(by_value[0, : t + 1 - net.lags].any())
        elif kind == "state":
            assert bool(by_value[0, 0])


@pytest.mark.parametrize("kind", ["state", "output"])
@pytest.mark.parametrize("base", ["none", "seasonal", "linear"])
def test_going_on_from_a_state_gives_the_same_forecasts(kind: str, base: str) -> None:
    net = model(kind, base=base)
    for part in net.parameters():
        torch.nn.init.normal_(part, std=0.3)
    seen = rows(net)
    whole = net(seen)

    def part(begin: int, end: int) -> SeriesBatch:
        known, past = seen.known[:, begin : end + 3], seen.past[:, begin:end]
        return seen._replace(values=seen.values[:, begin:end], known=known, past=past)

    first, (_, state) = net(part(0, 7)), net.states(part(0, 7))
    second, state = net.carry(part(7, 9), state, seen.values[:, :7])
    third, _ = net.carry(part(9, 12), state, seen.values[:, :9])
    close(torch.cat([first, second, third], dim=1).detach(), whole.detach())


@pytest.mark.parametrize("kind", KINDS)
def test_some_steps_are_as_among_all(kind: str) -> None:
    net = model(kind)
    seen = rows(net)
    ends = torch.tensor([net.first, 10])
    close(net(seen, ends).detach(), net(seen)[:, ends - net.first].detach())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", ["none", "seasonal"])
def test_a_series_that_stands_higher_is_forecast_as_much_higher(kind: str, base: str) -> None:
    net = model(kind, base=base, spread="lags" in KINDS[kind])
    for part in net.parameters():
        torch.nn.init.normal_(part, std=0.3)
    seen = rows(net)
    close(net(seen._replace(values=seen.values + 100)).detach(), net(seen).detach() + 100)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "lags" in KINDS[kind]])
def test_a_series_that_moves_more_is_forecast_to_move_as_much_more(kind: str) -> None:
    net = model(kind, spread=True)
    seen = rows(net)
    close(net(seen._replace(values=seen.values * 1000)).detach(), net(seen).detach() * 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_it_begins_as_its_base_and_returns_to_it_by_its_share(kind: str) -> None:
    for base in ("seasonal", "linear"):
        net = model(kind, base=base)
        seen = rows(net)
        ends = torch.arange(net.first, 12)
        plain = net.base(seen, ends)[..., None].expand(-1, -1, -1, -1, 3)
        close(net(seen).detach(), plain)
        for part in net.parameters():
            torch.nn.init.normal_(part)
        assert not torch.allclose(net(seen), plain)
        whole, training = net.eval()(seen), net.train()(seen)
        net.share.fill_(0.25)
        close(net.eval()(seen).detach(), (plain + 0.25 * (whole - plain)).detach())
        close(net.train()(seen).detach(), training.detach())


def test_bases_by_hand() -> None:
    values = torch.tensor([1.0, 2, 3, 4, 5, 6, 7])[None, :, None]
    assert forecaster.recent_mean(values, 3)[0, :, 0].tolist() == [1, 1.5, 2, 3, 4, 5, 6]
    made = forecaster.seasonal_forecast(values, torch.tensor([3, 6]), 5, 3)[0, :, :, 0]
    assert made.tolist() == [[2, 3, 4, 2, 3], [5, 6, 7, 5, 6]]
    # y + 2 and twice the value before it, for two series; a window that begins before the first value
    weights = torch.tensor([[[[2.0], [0.0], [1.0]]], [[[0.0], [2.0], [0.0]]]])
    both = values.expand(2, -1, -1)
    for series in (torch.tensor([0, 1]), torch.tensor([0, 1]).repeat(9)):
        made = forecaster.linear_forecast(both.repeat(len(series) // 2, 1, 1), torch.tensor([0, 6]), series, weights)
        assert made[:2, :, 0, 0].tolist() == [[3, 9], [2, 12]]
        assert torch.equal(made, made[:2].repeat(len(series) // 2, 1, 1, 1))


def test_channels_are_told_apart_and_gaps_are_left_out() -> None:
    net = model("segments")
    seen = rows(net)
    same = seen._replace(channel=torch.tensor([1, 1]))
    assert torch.equal(net(seen)[1], net(same)[1])
    assert not torch.allclose(net(seen)[0], net(same)[0])
    found = net(seen)
    targets = torch.randn(found.shape[:-1], dtype=torch.float64)
    gaps = torch.rand(targets.shape) < 0.3
    whole = net.distribution.loss(found, targets, torch.tensor(1.0))
    close(
        net.loss(found, targets.masked_fill(gaps, torch.nan), torch.tensor(1.0)).detach(), whole[~gaps].mean().detach()
    )


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(OptionError, match="sees a window has no state"):
        model("window").states(rows(model("window")))
    net = model("state", base="linear")
    with pytest.raises(OptionError, match="needs the linear autoregression of each series"):
        net(rows(net)._replace(linear=None))
