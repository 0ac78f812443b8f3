"""Forecasts: distributions of the next k values of series, from a window of the last τ or from a state.

    state      h_t = g(h_{t−1}, [x_t; known_{t+1}])        a latent model; g is a recurrent network
    window     h_t = f(x_{t−τ+1} … x_t)                    an autoregressive model; f is an MLP
    segments   h_t = g over the segments of that window    segments.py; it writes segments too
    output     h_t = tanh(U x_t + b)                       x_t, which the step before was to forecast, alone

    x̂_{t+j} = b_{t+j} + V_j h_t + (A h_t) · [known_{t+j}; known_t] + Σ_i φ_{ij} x_{t−i}

The last is the highway of a window, a linear map that all series share, as LSTNet has one (Lai et al. 2018).
b is a base forecast (bases.py), and values come relative to a level ℓ_t (the last value, or the mean of the last season
or of the window), so that a trend does not carry a series out of what was learned. What is known ahead (covariates,
calendar, the phase of the season) stands beside all of them. V variables of a row are inputs to each other.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from recur.errors import OptionError
from recur.models import bases
from recur.models.distributions import distribution
from recur.models.forecast_options import ForecasterOptions
from recur.models.segments import SegmentNetwork
from recur.models.stack import State, output_fed, plain_stack
from recur.nn import FeedForward, Recurred, Recurrent, initialise_linear

LEAST_SPREAD = 1e-3
"""What a window's changes are divided by at least, in units of what its series is scaled by."""


class Sizes(NamedTuple):
    """Of what a forecaster reads and writes."""

    horizon: int
    known: int = 0
    """Numbers that are known ahead, at each step."""
    past: int = 0
    """Numbers that are known until now."""
    variables: int = 1
    """Values of a row at each step."""
    channels: int = 1
    """Kinds of rows, where each has an embedding."""
    bands: int | None = None
    """Steps that bands are for; as many as the horizon, if not given, and more where forecasts are iterated."""


class Seen(NamedTuple):
    """Rows of series, scaled."""

    values: Tensor
    """(B, T, V)"""
    known: Tensor
    """(B, T + k, C)"""
    past: Tensor
    """(B, T, P)"""
    channel: Tensor
    """(B,)"""
    row: Tensor
    """(B,): which series each is of."""
    linear: Tensor | None = None
    """(series, V, 1 + lags, k): their linear autoregressions."""


class Forecaster(nn.Module):
    """Rows to parameters (B, E, k, V, P) of the k values behind each of the steps `ends` (E,).

    Without them these are all steps that have a window before them, or a state.
    """

    share: Tensor
    """How much of what the network adds to a base forecast is taken, 0 … 1: chosen on the validation part."""
    offsets: Tensor
    """(k, channels · V, Q): by how much quantiles are moved so that bands cover what they say; from the same part."""
    form: Tensor
    """(4,): lags, direct, relative and ridge of the linear autoregressions that it was learned around."""
    residuals: Tensor
    """(512,): how far values lay from their forecasts one step ahead there, in deviations of these, from the least to
    the most; anomalies are judged by them."""

    def __init__(self, sizes: Sizes, quantiles: tuple[float, ...], season: int, options: ForecasterOptions) -> None:
        super().__init__()
        o = self.options = options
        self.sizes, self.quantiles, self.season, self.horizon = sizes, quantiles, season, sizes.horizon
        self.lags = o.lags or 0
        self.distribution = distribution(o.distribution, quantiles)
        self.network: nn.Sequential | None = None
        self.segments: SegmentNetwork | None = None
        self.recurrent: Recurrent | FeedForward | None = None
        self.backend = "window"
        """Which backend ran last."""
        k, V, P = sizes.horizon, sizes.variables, self.distribution.size
        inputs = V + sizes.past + sizes.known
        if self.lags and o.segment:
            self.segments = SegmentNetwork(inputs, sizes.known, sizes.channels, k, V * P, o)
            last = [self.segments.output]
        else:
            if self.lags:
                layers: list[nn.Module] = []
                width = self.lags * (V + sizes.past) + sizes.known
                for n in range(o.layers):
                    layers += [nn.Linear(o.hidden if n else width, o.hidden), nn.Tanh()]
                self.network = nn.Sequential(*layers)
                width = o.hidden
            else:
                make = output_fed if o.recurrence == "output" else plain_stack
                self.recurrent = make(o, inputs)
                width = self.recurrent.output_size
            self.output = nn.Linear(width, k * V * P)
            self.effect = nn.Linear(width, 2 * sizes.known * V * P) if sizes.known else None
            last = [self.output, *([self.effect] if self.effect is not None else [])]
            for layer in (*(self.network or ()), *last):
                if isinstance(layer, nn.Linear):
                    initialise_linear(o.init, layer.weight, layer.bias)
        self.highway = nn.Linear(self.lags, k) if self.lags and o.highway else None
        if self.highway is not None:
            nn.init.zeros_(self.highway.weight)
            nn.init.zeros_(self.highway.bias)
        if o.base not in (None, "none"):  # it begins as the base forecast
            for layer in last:
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.register_buffer("share", torch.ones(()))
        self.register_buffer("offsets", torch.zeros(sizes.bands or k, sizes.channels * V, len(quantiles)))
        self.register_buffer("form", torch.zeros(4))
        self.register_buffer("residuals", torch.zeros(512))

    @property
    def device(self) -> torch.device:
        return self.share.device

    @property
    def targets(self) -> int:
        """Variables of a series."""
        return self.sizes.channels * self.sizes.variables

    @property
    def first(self) -> int:
        """The first step that forecasts."""
        return max(self.lags - 1, 0)

    def forward(self, seen: Seen, ends: Tensor | None = None) -> Tensor:
        if ends is None:
            ends = torch.arange(self.first, seen.values.shape[1], device=seen.values.device)
        if self.lags:
            return self.place(self._of_windows(seen, ends), self.base(seen, ends))
        states, _ = self.states(seen)
        return self.place(self.from_states(states[:, ends], seen.known, ends), self.base(seen, ends))

    def carry(self, seen: Seen, state: State, before: Tensor) -> tuple[Tensor, State]:
        """The same, going on from a state; `before` (B, at least a season, V) are the values before these."""
        ends = torch.arange(seen.values.shape[1], device=seen.values.device)
        states, state = self.states(seen, state, before)
        whole = seen._replace(values=torch.cat([before, seen.values], dim=1))
        return self.place(self.from_states(states, seen.known, ends), self.base(whole, before.shape[1] + ends)), state

    # From a state -------------------------------------------------------------------------------------------

    def states(self, seen: Seen, state: State | None = None, before: Tensor | None = None) -> tuple[Tensor, State]:
        """The network's outputs (B, T, H) after each step, one pass for all of them, and the state behind the last."""
        if self.recurrent is None:
            raise OptionError("a forecaster that sees a window has no state")
        T = seen.values.shape[1]
        whole = seen.values if before is None else torch.cat([before, seen.values], dim=1)
        begin = whole.shape[1] - T
        level = bases.recent_mean(whole, self._span)
        relative = seen.values - torch.cat([whole[:, :1], level], dim=1)[:, begin : begin + T]
        found: Recurred = self.recurrent(torch.cat([relative, seen.past, seen.known[:, 1 : T + 1]], dim=-1), state)
        self.backend = found.trace[0].backend
        return found.outputs, found.state

    def from_states(self, hidden: Tensor, known: Tensor, ends: Tensor) -> Tensor:
        """Raw outputs (B, E, k, V, P) of what the network has at the steps `ends`."""
        k, V, P = self.horizon, self.sizes.variables, self.distribution.size
        hidden = dropout(hidden, self.options.dropout_output, self.training)
        raw: Tensor = self.output(hidden).unflatten(-1, (k, V, P))
        if self.effect is not None:
            steps = ends[:, None] + 1 + torch.arange(k, device=ends.device)
            now = known[:, ends][:, :, None].expand(-1, -1, k, -1)
            both = torch.cat([known[:, steps], now], dim=-1)  # (B, E, k, 2 C)
            raw = raw + torch.einsum("bekc,becvp->bekvp", both, self.effect(hidden).unflatten(-1, (-1, V, P)))
        return raw

    # From a window ------------------------------------------------------------------------------------------

    def _of_windows(self, seen: Seen, ends: Tensor) -> Tensor:
        """Raw outputs (B, E, k, V, P)."""
        L, k, V, P = self.lags, self.horizon, self.sizes.variables, self.distribution.size
        B, E = seen.values.shape[0], len(ends)
        reached = ends[:, None] + torch.arange(1 - L, 1, device=ends.device)
        windows = seen.values[:, reached]  # (B, E, L, V)
        level = windows[:, :, L - self._span :].mean(2, keepdim=True)
        relative, spread = windows - level, None
        if self.options.spread:
            spread = windows.diff(dim=2).abs().mean(2, keepdim=True).clamp_min(LEAST_SPREAD)  # (B, E, 1, V)
            relative = relative / spread
        past = seen.past[:, reached]
        if self.segments is None:
            assert self.network is not None
            hidden = self.network(torch.cat([relative.flatten(2), past.flatten(2), seen.known[:, ends]], dim=-1))
            raw = self.from_states(hidden, seen.known, ends)
        else:
            ahead = seen.known[:, ends[:, None] + 1 + torch.arange(k, device=ends.device)]
            inputs = torch.cat([relative, past, seen.known[:, reached]], dim=-1).flatten(0, 1)
            raw = self.segments(inputs, ahead.flatten(0, 1), seen.channel.repeat_interleave(E))
            self.backend = self.segments.backend
            raw = raw.view(B, E, k, V, P)
        if self.highway is not None:
            raw = self.distribution.moved(raw, self.highway(relative.transpose(2, 3)).transpose(2, 3))
        return raw if spread is None else raw * spread[..., None]

    # Around a base ------------------------------------------------------------------------------------------

    @property
    def _span(self) -> int:
        """How many steps the level is the mean of."""
        if self.options.level == "last":
            return 1
        if self.lags:
            return self.lags if self.options.level == "window" else min(self.season, self.lags)
        return self.season

    def base(self, seen: Seen, ends: Tensor) -> Tensor:
        """(B, E, k, V)"""
        kind = self.options.base
        if kind == "linear":
            if seen.linear is None:
                raise OptionError("--base linear needs the linear autoregression of each series")
            return bases.linear(seen.values, ends, seen.row, seen.linear)
        if kind == "seasonal":
            return bases.seasonal(seen.values, ends, self.horizon, self.season)
        level = bases.recent_mean(seen.values, self._span)
        return level[:, ends][:, :, None].expand(-1, -1, self.horizon, -1)

    def place(self, raw: Tensor, base: Tensor) -> Tensor:
        """Parameters (…, P); in use, with the share of the network's part that validation chose."""
        return self.distribution.place(raw if self.training else raw * self.share, base)

    def loss(self, parameters: Tensor, targets: Tensor, unit: Tensor) -> Tensor:
        """The mean over targets (…); those that are not a number are left out."""
        there = ~targets.isnan()
        loss = self.distribution.loss(parameters, targets.nan_to_num(), unit)
        return (loss * there).sum() / there.sum().clamp_min(1)
