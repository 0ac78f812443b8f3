"""Base forecasts, around which a network forecasts: what it adds starts at zero, so that it begins as good as they are.

last       ŷ_{t+j} = y_t
season     ŷ_{t+j} = the mean of the last season
seasonal   ŷ_{t+j} = the value one season before, or two where that lies ahead
linear     ŷ_{t+j} = c_j + Σ_i φ_{ij} y_{t−i}, fitted to each series by itself before anything is learned
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

from recur.errors import OptionError
from recur.models.distributions import distribution
from recur.models.options import ForecasterOptions
from recur.models.stack import State, make_output_recurrent, make_plain_recurrent, map_state
from recur.nn import FeedForward, Recurrent, RecurrentOutput, initialise_linear


def recent_mean(values: Tensor, span: int) -> Tensor:
    """The mean of the last `span` values up to each step of (B, T, V); of fewer at the start."""
    if span == 1:
        return values
    T = values.shape[1]
    total = torch.cat([values.new_zeros(values.shape[0], 1, values.shape[2]), values.cumsum(1)], dim=1)
    steps = torch.arange(1, T + 1, device=values.device)
    first = (steps - span).clamp_min(0)
    return (total[:, 1:] - total[:, first]) / (steps - first)[:, None]


def seasonal_forecast(values: Tensor, ends: Tensor, horizon: int, season: int) -> Tensor:
    """(B, E, k, V), from steps `ends` (E,)."""
    ahead = torch.arange(horizon, device=values.device) % season
    places = (ends[:, None] + 1 - season + ahead).clamp_min(0)
    return values[:, places]


def linear_forecast(values: Tensor, ends: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """(B, E, k, V), by weights (R, V, 1 + lags, k), of 1 and of the last values, the oldest first, of the series that
    each of the rows (B,) is of. Before the first value stand others like it."""
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
    """Whether a matrix for each of the rows costs less than to gather those of each series: there are few of one."""
    return series * 4 > rows


class SegmentNetwork(nn.Module):
    """Windows (N, L, F), what is known ahead (N, k, C) and channels (N,) to outputs (N, k, P)."""

    def __init__(self, features: int, known: int, channels: int, horizon: int, outputs: int, o: ForecasterOptions):
        super().__init__()
        self.options, self.outputs, self.horizon = o, outputs, horizon
        s = self.segment = min(o.segment or 1, o.lags or 1)
        self.coming = -(-horizon // s)
        """How many segments are written."""
        self.embed = nn.Linear(s * features, o.hidden)
        self.recurrent = make_plain_recurrent(o, o.hidden)
        self.position = nn.Parameter(torch.randn(self.coming, o.hidden))
        self.channel = nn.Parameter(torch.randn(channels, o.hidden)) if channels > 1 else None
        self.known = nn.Linear(s * known, o.hidden, bias=False) if known else None
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
"""What a window's changes are divided by at least, in units of what its series is scaled by."""


class ForecasterSizes(NamedTuple):
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


class SeriesBatch(NamedTuple):
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
        """Variables of a series."""
        return self.sizes.channels * self.sizes.variables

    @property
    def first(self) -> int:
        """The first step that forecasts."""
        return max(self.lags - 1, 0)

    def forward(self, seen: SeriesBatch, ends: Tensor | None = None) -> Tensor:
        if ends is None:
            ends = torch.arange(self.first, seen.values.shape[1], device=seen.values.device)
        if self.lags:
            return self.place(self._of_windows(seen, ends), self.base(seen, ends))
        states, _ = self.states(seen)
        return self.place(self.from_states(states[:, ends], seen.known, ends), self.base(seen, ends))

    def carry(self, seen: SeriesBatch, state: State, before: Tensor) -> tuple[Tensor, State]:
        """The same, going on from a state; `before` (B, at least a season, V) are the values before these."""
        ends = torch.arange(seen.values.shape[1], device=seen.values.device)
        states, state = self.states(seen, state, before)
        whole = seen._replace(values=torch.cat([before, seen.values], dim=1))
        return self.place(self.from_states(states, seen.known, ends), self.base(whole, before.shape[1] + ends)), state

    # From a state -------------------------------------------------------------------------------------------

    def states(
        self, seen: SeriesBatch, state: State | None = None, before: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """The network's outputs (B, T, H) after each step, one pass for all of them, and the state behind the last."""
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

    def _of_windows(self, seen: SeriesBatch, ends: Tensor) -> Tensor:
        """Raw outputs (B, E, k, V, P)."""
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
        """How many steps the level is the mean of."""
        if self.options.level == "last":
            return 1
        if self.lags:
            return self.lags if self.options.level == "window" else min(self.season, self.lags)
        return self.season

    def base(self, seen: SeriesBatch, ends: Tensor) -> Tensor:
        """(B, E, k, V)"""
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
        """Parameters (…, P); in use, with the share of the network's part that validation chose."""
        return self.distribution.place(raw if self.training else raw * self.share, base)

    def loss(self, parameters: Tensor, targets: Tensor, unit: Tensor) -> Tensor:
        """The mean over targets (…); those that are not a number are left out."""
        there = ~targets.isnan()
        loss = self.distribution.loss(parameters, targets.nan_to_num(), unit)
        return (loss * there).sum() / there.sum().clamp_min(1)
