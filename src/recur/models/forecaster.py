"""Forecaster: a network that forecasts around a base forecast, and its base forecasts.

last       ŷ_{t+j} = y_t
season     ŷ_{t+j} = mean of the last season
seasonal   ŷ_{t+j} = value one season before, or two where one is not known yet
linear     ŷ_{t+j} = c_j + Σ_i φ_{ij} y_{t−i}, fitted to each series before training

The part that the network adds is zero at the start of training, so that the model begins as good as its base.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

from recur.errors import OptionError
from recur.models.distributions import distribution
from recur.models.layers import State, make_output_recurrent, make_plain_recurrent, map_state
from recur.models.options import ForecasterOptions
from recur.nn import FeedForward, Recurrent, RecurrentOutput
from recur.nn.functional import initialise_linear


def recent_mean(values: Tensor, span: int) -> Tensor:
    """Return the mean of the last `span` values up to each step of (B, T, V); of fewer at the start."""
    if span == 1:
        return values
    T = values.shape[1]
    total = torch.cat([values.new_zeros(values.shape[0], 1, values.shape[2]), values.cumsum(1)], dim=1)
    steps = torch.arange(1, T + 1, device=values.device)
    first = (steps - span).clamp_min(0)
    return (total[:, 1:] - total[:, first]) / (steps - first)[:, None]


def seasonal_forecast(values: Tensor, ends: Tensor, horizon: int, season: int) -> Tensor:
    """Return the seasonal naive forecast (B, E, k, V) from the steps `ends` (E,)."""
    ahead = torch.arange(horizon, device=values.device) % season
    places = (ends[:, None] + 1 - season + ahead).clamp_min(0)
    return values[:, places]


def linear_forecast(values: Tensor, ends: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Return the forecast of linear autoregressions, shape (B, E, k, V).

    rows      (B,): index of the series of each row
    weights   (R, V, 1 + lags, k): weights of 1 and of the last values, oldest first
    The first value is repeated before the start of a row.
    """
    lags = weights.shape[2] - 1
    padded = torch.cat([values[:, :1].expand(-1, lags - 1, -1), values], dim=1)
    windows = padded.unfold(1, lags, 1)[:, ends]  # (B, E, V, lags)
    if gathers_weights_per_row(weights.shape[0], rows.shape[0]):
        own = weights[rows]
        return torch.einsum("bevl,bvlk->bekv", windows, own[:, :, 1:]) + own[:, None, :, 0].transpose(2, 3)
    found = values.new_empty(len(values), len(ends), weights.shape[3], values.shape[2])
    for row in range(len(weights)):
        mine = rows == row
        part = torch.einsum("bevl,vlk->bekv", windows[mine], weights[row, :, 1:])
        found[mine] = part + weights[row, :, 0].t()
    return found


def gathers_weights_per_row(series: int, rows: int) -> bool:
    """Return True if one matrix per row is cheaper than grouping rows by series: each series has few rows."""
    return series * 4 > rows


class SegmentNetwork(nn.Module):
    """Network from windows (N, L, F), known covariates (N, k, C) and channels (N,) to outputs (N, k, P)."""

    def __init__(self, features: int, known: int, channels: int, horizon: int, outputs: int, o: ForecasterOptions):
        super().__init__()
        self.options, self.outputs, self.horizon = o, outputs, horizon
        s = self.segment = min(o.segment or 1, o.lags or 1)
        self.coming = -(-horizon // s)
        """Number of segments that are generated."""
        self.embed = nn.Linear(s * features, o.hidden_size)
        self.recurrent = make_plain_recurrent(o, o.hidden_size)
        self.position = nn.Parameter(torch.randn(self.coming, o.hidden_size))
        self.channel = nn.Parameter(torch.randn(channels, o.hidden_size)) if channels > 1 else None
        self.known = nn.Linear(s * known, o.hidden_size, bias=False) if known else None
        self.output = nn.Linear(self.recurrent.output_size, s * outputs)
        for layer in (self.embed, self.output):
            initialise_linear(o.init, layer.weight, layer.bias)
        self.backend = ""

    def forward(self, window: Tensor, ahead: Tensor, channel: Tensor) -> Tensor:
        s, M, (N, L, _) = self.segment, self.coming, window.shape
        segments = window[:, L % s :].reshape(N, L // s, -1)
        read: RecurrentOutput = self.recurrent(torch.relu(self.embed(segments)))
        self.backend = read.trace[0].backend
        query = self.position.expand(N, -1, -1)
        if self.channel is not None:
            query = query + self.channel[channel][:, None]
        if self.known is not None:
            query = query + self.known(pad(ahead, (0, 0, 0, M * s - self.horizon)).reshape(N, M, -1))
        state = map_state(read.state, lambda part: part.repeat_interleave(M, 0))
        written: RecurrentOutput = self.recurrent(query.reshape(N * M, 1, -1), state)
        hidden = dropout(written.outputs, self.options.dropout_output, self.training)
        found: Tensor = self.output(hidden).view(N, M * s, self.outputs)
        return found[:, : self.horizon]


MIN_SPREAD = 1e-3
"""Smallest divisor of the changes of a window, in units of the scaled series."""


class ForecasterSizes(NamedTuple):
    """Sizes of the inputs and outputs of a forecaster."""

    horizon: int
    known: int = 0
    """Number of covariates known ahead, per step."""
    past: int = 0
    """Number of covariates known until now."""
    variables: int = 1
    """Number of values of a row per step."""
    channels: int = 1
    """Number of kinds of rows, if each has an embedding."""
    bands: int | None = None
    """Number of steps with prediction intervals: the horizon by default, more if forecasts are iterated."""


class SeriesBatch(NamedTuple):
    """Batch of rows of series, scaled."""

    values: Tensor
    """(B, T, V)"""
    known: Tensor
    """(B, T + k, C)"""
    past: Tensor
    """(B, T, P)"""
    channel: Tensor
    """(B,)"""
    row: Tensor
    """(B,): index of the series of each row."""
    linear: Tensor | None = None
    """(series, V, 1 + lags, k): linear autoregressions of the series."""


class Forecaster(nn.Module):
    """Network from rows of series to parameters (B, E, k, V, P) of the k values after each of the steps `ends` (E,).

    By default `ends` are all steps that have a full window before them, or a state.
    """

    share: Tensor
    """Fraction 0 … 1 of the network's addition to the base forecast that is used; chosen on the validation set."""
    offsets: Tensor
    """(k, channels · V, Q): offsets that calibrate the quantiles, fitted on the validation set."""
    form: Tensor
    """(4,): lags, direct, relative and ridge of the linear autoregressions of the base forecast."""
    residuals: Tensor
    """(512,): sorted one-step residuals of the validation set in standard deviations; used to score anomalies."""

    def __init__(
        self, sizes: ForecasterSizes, quantiles: tuple[float, ...], season: int, options: ForecasterOptions
    ) -> None:
        super().__init__()
        o = self.options = options
        self.sizes, self.quantiles, self.season, self.horizon = sizes, quantiles, season, sizes.horizon
        self.lags = o.lags or 0
        self.distribution = distribution(o.distribution, quantiles)
        self.network: nn.Sequential | None = None
        self.segments: SegmentNetwork | None = None
        self.recurrent: Recurrent | FeedForward | None = None
        self.backend = "window"
        """Backend of the last call."""
        k, V, P = sizes.horizon, sizes.variables, self.distribution.size
        inputs = V + sizes.past + sizes.known
        if self.lags and o.segment:
            self.segments = SegmentNetwork(inputs, sizes.known, sizes.channels, k, V * P, o)
            last = [self.segments.output]
        else:
            if self.lags:
                layers: list[nn.Module] = []
                width = self.lags * (V + sizes.past) + sizes.known
                for n in range(o.num_layers):
                    layers += [nn.Linear(o.hidden_size if n else width, o.hidden_size), nn.Tanh()]
                self.network = nn.Sequential(*layers)
                width = o.hidden_size
            else:
                make = make_output_recurrent if o.recurrence == "output" else make_plain_recurrent
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
        """Number of variables of a series."""
        return self.sizes.channels * self.sizes.variables

    @property
    def first(self) -> int:
        """First step from which a forecast can be made."""
        return max(self.lags - 1, 0)

    def forward(self, seen: SeriesBatch, ends: Tensor | None = None) -> Tensor:
        if ends is None:
            ends = torch.arange(self.first, seen.values.shape[1], device=seen.values.device)
        if self.lags:
            return self.place(self._of_windows(seen, ends), self.base(seen, ends))
        states, _ = self.states(seen)
        return self.place(self.from_states(states[:, ends], seen.known, ends), self.base(seen, ends))

    def carry(self, seen: SeriesBatch, state: State, before: Tensor) -> tuple[Tensor, State]:
        """Continue from a state; `before` (B, at least one season, V) are the values before the batch."""
        ends = torch.arange(seen.values.shape[1], device=seen.values.device)
        states, state = self.states(seen, state, before)
        whole = seen._replace(values=torch.cat([before, seen.values], dim=1))
        return self.place(self.from_states(states, seen.known, ends), self.base(whole, before.shape[1] + ends)), state

    # From a state -------------------------------------------------------------------------------------------

    def states(
        self, seen: SeriesBatch, state: State | None = None, before: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Return outputs (B, T, H) after each step in one pass, and the final state."""
        if self.recurrent is None:
            raise OptionError("a forecaster that sees a window has no state")
        T = seen.values.shape[1]
        whole = seen.values if before is None else torch.cat([before, seen.values], dim=1)
        begin = whole.shape[1] - T
        level = recent_mean(whole, self._span)
        relative = seen.values - torch.cat([whole[:, :1], level], dim=1)[:, begin : begin + T]
        found: RecurrentOutput = self.recurrent(
            torch.cat([relative, seen.past, seen.known[:, 1 : T + 1]], dim=-1), state
        )
        self.backend = found.trace[0].backend
        return found.outputs, found.state

    def from_states(self, hidden: Tensor, known: Tensor, ends: Tensor) -> Tensor:
        """Return raw outputs (B, E, k, V, P) for hidden states at the steps `ends`."""
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

    def _of_windows(self, seen: SeriesBatch, ends: Tensor) -> Tensor:
        """Return raw outputs (B, E, k, V, P) for the windows that end at `ends`."""
        L, k, V, P = self.lags, self.horizon, self.sizes.variables, self.distribution.size
        B, E = seen.values.shape[0], len(ends)
        reached = ends[:, None] + torch.arange(1 - L, 1, device=ends.device)
        windows = seen.values[:, reached]  # (B, E, L, V)
        level = windows[:, :, L - self._span :].mean(2, keepdim=True)
        relative, spread = windows - level, None
        if self.options.spread:
            spread = windows.diff(dim=2).abs().mean(2, keepdim=True).clamp_min(MIN_SPREAD)  # (B, E, 1, V)
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
        """Number of steps over which the level is averaged."""
        if self.options.level == "last":
            return 1
        if self.lags:
            return self.lags if self.options.level == "window" else min(self.season, self.lags)
        return self.season

    def base(self, seen: SeriesBatch, ends: Tensor) -> Tensor:
        """Return the base forecast (B, E, k, V)."""
        kind = self.options.base
        if kind == "linear":
            if seen.linear is None:
                raise OptionError("--base linear needs the linear autoregression of each series")
            return linear_forecast(seen.values, ends, seen.row, seen.linear)
        if kind == "seasonal":
            return seasonal_forecast(seen.values, ends, self.horizon, self.season)
        level = recent_mean(seen.values, self._span)
        return level[:, ends][:, :, None].expand(-1, -1, self.horizon, -1)

    def place(self, raw: Tensor, base: Tensor) -> Tensor:
        """Return parameters (…, P); in evaluation, with the fraction of the network's part that validation chose."""
        return self.distribution.place(raw if self.training else raw * self.share, base)

    def loss(self, parameters: Tensor, targets: Tensor, unit: Tensor) -> Tensor:
        """The mean over targets (…); those that are not a number are left out."""
        there = ~targets.isnan()
        loss = self.distribution.loss(parameters, targets.nan_to_num(), unit)
        return (loss * there).sum() / there.sum().clamp_min(1)
