"""Forecasts: quantiles of the next k values of a series, from a window of the last τ or from a state.

    window   x̂_{t+1} … x̂_{t+k} = f(x_{t−τ+1} … x_t)                an autoregressive model; f is an MLP
    state    h_t = g(h_{t−1}, x_t),  x̂_{t+1} … x̂_{t+k} = V h_t     a latent one; g is a recurrent network
    output   h_t = tanh(U x_t + b)                                 x_t, which the step before was to forecast, alone

What is known ahead (covariates, the phase of the season) of the steps to come stands beside both. Values come and go
relative to ℓ_t, the mean of the last season, so that a trend does not carry a series out of what was learned.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from recur.layers import FeedForward, Recurred, Recurrent, initialise_linear
from recur.models.options import ForecasterOptions
from recur.models.stack import State, output_fed, plain_stack


class Forecaster(nn.Module):
    """Values (B, T) and what is known ahead (B, T + k, C) to quantiles (B, T, k, Q) of the k values behind each step.

    With a window of τ the first τ − 1 steps have none, and T is less by as much.
    """

    def __init__(
        self, known: int, horizon: int, quantiles: tuple[float, ...], season: int, options: ForecasterOptions
    ) -> None:
        super().__init__()
        o = self.options = options
        self.horizon, self.quantiles, self.season = horizon, quantiles, season
        self.network: nn.Sequential | None = None
        self.recurrent: Recurrent | FeedForward | None = None
        if o.lags:
            layers: list[nn.Module] = []
            for k in range(o.layers):
                layers += [nn.Linear(o.lags if not k else o.hidden, o.hidden), nn.Tanh()]
            self.network = nn.Sequential(*layers)
        else:
            self.recurrent = output_fed(o, 1 + known) if o.recurrence == "output" else plain_stack(o, 1 + known)
        self.backend = "window"
        """Which backend ran last."""
        width = o.hidden if self.recurrent is None else self.recurrent.output_size
        self.output = nn.Linear(width + (horizon + 1) * known, horizon * len(quantiles))
        for layer in (*(self.network or ()), self.output):
            if isinstance(layer, nn.Linear):
                initialise_linear(o.init, layer.weight, layer.bias)

    @property
    def first(self) -> int:
        """The first step that forecasts."""
        return max(self.options.lags - 1, 0)

    def forward(self, values: Tensor, known: Tensor) -> Tensor:
        found, _ = self.carry(values, known)
        return found

    def carry(
        self, values: Tensor, known: Tensor, state: State | None = None, past: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        """The same, going on from a state, with the values before these as `past` (B, at least season and window)."""
        o, k = self.options, self.horizon
        T = values.shape[1]
        whole = values if past is None else torch.cat([past, values], dim=1)
        begin = whole.shape[1] - T
        level = _level(whole, self.season)
        if self.network is not None:
            start = max(begin, self.first)
            windows = whole.unfold(1, o.lags, 1)[:, start - self.first :]
            level = level[:, start:]
            hidden = self.network(windows - level[..., None])
            ahead = known[:, start - begin :]
        else:
            assert self.recurrent is not None
            before = torch.cat([whole[:, :1], level], dim=1)[:, begin : begin + T]
            inputs = torch.cat([(values - before)[..., None], known[:, 1 : T + 1]], dim=-1)
            found: Recurred = self.recurrent(inputs, state)
            self.backend = found.trace[0].backend
            hidden, state, level, ahead = found.outputs, found.state, level[:, begin:], known
        # Of step t: what is known of t, which forecasts are relative to, and of t + 1 … t + k, (B, T, (k + 1) · C).
        coming = ahead.unfold(1, k + 1, 1)[:, : hidden.shape[1]].transpose(2, 3).flatten(2)
        hidden = dropout(hidden, o.dropout_output, self.training)
        offsets: Tensor = self.output(torch.cat([hidden, coming], dim=-1))
        return level[..., None, None] + offsets.unflatten(-1, (k, len(self.quantiles))), state

    def loss(self, forecasts: Tensor, targets: Tensor) -> Tensor:
        """The mean pinball loss of forecasts (…, Q) of values (…)."""
        q = torch.tensor(self.quantiles, device=targets.device, dtype=targets.dtype)
        error = targets[..., None] - forecasts
        return torch.maximum(q * error, (q - 1) * error).mean()


def _level(values: Tensor, season: int) -> Tensor:
    """The mean of the last season up to each step, (B, T); of fewer values at the start."""
    T = values.shape[1]
    total = torch.cat([values.new_zeros(len(values), 1), values.cumsum(1)], dim=1)
    steps = torch.arange(1, T + 1, device=values.device)
    first = (steps - season).clamp_min(0)
    return (total[:, 1:] - total[:, first]) / (steps - first)
