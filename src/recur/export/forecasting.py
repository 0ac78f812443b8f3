"""Forecasters as one graph: series as they are, in their own units, to the quantiles of what follows, in theirs.

    forecast(values (B, T, V), …) → quantiles (B, k, V, Q)

Inside it is all that `recur predict` does with a table without gaps: values scaled by their own mean and spread, the
season's phase, the network, its base forecast, bands that cover what they say. What the network reads beside values is
an input of its own where it has one: `start` (B,), which step of the season or of the clock the first value is;
`series` (B,), which of the rows that were learned from, where each has something of its own; `covariates` and
`calendar` (B, T + k, ·), `static` (B, ·) and `past` (B, T, ·).

Two things `recur predict` fits anew to every table, and a graph holds as they stood for the one that was learned from:
the linear autoregression of each series, and bands that roll.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from recur.errors import OptionError
from recur.export.graphs import Portable, Value, capture, ready
from recur.models import Forecaster
from recur.models.distributions import NegativeBinomial
from recur.models.forecaster import SeriesBatch
from recur.nn import Recurrent
from recur.tasks.common.classification import class_names
from recur.tasks.forecast import evaluation
from recur.tasks.forecast.data import RowSettings
from recur.tasks.forecast.predictor import SeriesForecaster
from recur.tasks.forecast.task import ForecastTask, read_series

DOUBLE = torch.float64


class Own(NamedTuple):
    """What rows of the table that was learned from have of their own."""

    channel: Tensor
    """(R,)"""
    linear: Tensor | None
    """(R, V, 1 + lags, k)"""
    offsets: Tensor
    """(R, k, V, Q)"""


class Ahead(nn.Module):
    """What is known of the steps of rows, those to come included, as `rows.py` has it."""

    def __init__(self, settings: RowSettings, covariates: int, calendar: int, static: int) -> None:
        super().__init__()
        self.settings, self.covariates, self.calendar, self.static = settings, covariates, calendar, static

    def inputs(self) -> list[Value]:
        s, later = self.settings, f"T+{self.settings.horizon}"
        found = [Value("start", ("B",), torch.int64)] if s.season > 1 or s.clock is not None else []
        found += [Value("covariates", ("B", later, self.covariates), DOUBLE)] if self.covariates else []
        found += [Value("calendar", ("B", later, self.calendar), DOUBLE)] if self.calendar else []
        return found + ([Value("static", ("B", self.static), DOUBLE)] if self.static else [])

    def forward(self, values: Tensor, given: dict[str, Tensor]) -> Tensor:
        """(B, T + k, C), in float64."""
        s, (B, T, _) = self.settings, values.shape
        columns = [values.new_zeros(B, T + s.horizon, 0)]
        if self.covariates:
            columns.append(standardised(given["covariates"], T))
        steps = torch.arange(T + s.horizon, device=values.device)
        if s.season > 1:
            angle = 2 * np.pi * (given["start"][:, None] % s.season + steps).to(DOUBLE) / s.season
            columns += [torch.stack([angle.sin(), angle.cos()], dim=-1)]
        if self.calendar:
            columns.append(given["calendar"])
        if self.static:
            columns.append(given["static"][:, None].expand(-1, T + s.horizon, -1))
        if s.clock is not None:
            u = (given["start"][:, None] - s.clock.origin + steps).to(DOUBLE) / s.clock.scale
            columns.append((2 * torch.where(u <= 1, u, 1 + u.clamp_min(1).log()) - 1)[..., None])
        return torch.cat(columns, dim=-1)


def standardised(columns: Tensor, n: int) -> Tensor:
    """(B, T, C) by the first n steps of each row."""
    first = columns[:, :n]
    mean = first.mean(1, keepdim=True)
    spread = (first - mean).square().mean(1, keepdim=True).sqrt()
    return (columns - mean) / torch.where(spread > 0, spread, 1.0)


class Forecast(nn.Module):
    channel: Tensor
    linear: Tensor | None
    offsets: Tensor

    def __init__(self, model: Forecaster, ahead: Ahead, own: Own, names: list[str]) -> None:
        super().__init__()
        self.model, self.ahead, self.settings, self.names = model, ahead, ahead.settings, names
        for name, part in own._asdict().items():
            self.register_buffer(name, part)

    def forward(self, values: Tensor, *more: Tensor) -> tuple[Tensor]:
        given, s, model = dict(zip(self.names, more, strict=True)), self.settings, self.model
        B, T, _ = values.shape
        row = given["series"] if "series" in given else torch.zeros_like(values[:, 0, 0], dtype=torch.int64)
        linear = None if self.linear is None else self.linear[row]
        mean, unit = self._scale(values)
        scaled = ((values.log() if s.transform == "log" else values) - mean) / unit
        known = self.ahead(values, given)
        past = values.new_zeros(B, T, 0) if "past" not in given else standardised(given["past"], T)
        if s.gaps:
            past = torch.cat([past, values.new_zeros(B, T, 1)], dim=-1)
        front = s.back + s.season + (0 if linear is None else linear.shape[2])
        channel, every = self.channel[row], torch.arange(B, device=values.device)
        padded = [torch.cat([part[:, :1].expand(-1, front, -1), part], dim=1).float() for part in (scaled, known, past)]

        def seen(back: int) -> SeriesBatch:
            values, known, past = padded
            return SeriesBatch(
                values[:, -back:], known[:, -back - s.horizon :], past[:, -back:], channel, every, linear
            )

        if model.lags:
            found = model(seen(model.lags), torch.tensor([model.lags - 1]))[:, 0]
        else:
            whole = SeriesBatch(scaled.float(), known.float(), past.float(), channel, every, linear)
            states, _ = model.states(whole)
            reach = max(model.season, 0 if linear is None else linear.shape[2])
            near, zero = seen(reach), torch.zeros(1, dtype=torch.int64)
            raw = model.from_states(states[:, -1:], near.known[:, reach - 1 :], zero)
            found = model.place(raw, model.base(near, zero + reach - 1))[:, 0]
        width = unit[:, 0].float()[:, None].expand(found.shape[:-1])
        quantiles = self._in_order(model.distribution.quantiles(found, width) + self.offsets[row])
        quantiles = quantiles.to(DOUBLE) * unit[:, 0, None, :, None] + mean[:, 0, None, :, None]
        return (quantiles.clamp_max(700.0).exp() if s.transform == "log" else quantiles,)

    def _scale(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and unit (B, 1, V), as `rows.Scale` has them."""
        s = self.settings
        values = values.log() if s.transform == "log" else values
        mean = values.mean(1, keepdim=True)
        if s.scale == "mean":
            mean, unit = torch.zeros_like(mean), values.abs().mean(1, keepdim=True)
        elif s.scale == "changes":
            unit = values.diff(dim=1).abs().mean(1, keepdim=True)
        else:
            unit = (values - mean).square().mean(1, keepdim=True).sqrt()
        return mean, torch.where(unit > 1e-12 * mean.abs().clamp_min(1e-30), unit, 1.0)

    def _in_order(self, quantiles: Tensor) -> Tensor:
        """No quantile crosses the median, or one that is nearer to it."""
        levels = self.model.quantiles
        middle, parts = levels.index(0.5), list(quantiles.unbind(-1))
        for k in range(middle + 1, len(parts)):
            parts[k] = torch.maximum(parts[k], parts[k - 1])
        for k in range(middle - 1, -1, -1):
            parts[k] = torch.minimum(parts[k], parts[k + 1])
        return torch.stack(parts, dim=-1)


def forecaster(predictor: SeriesForecaster) -> Portable:
    task, model = predictor.task, ready(predictor.model)
    assert isinstance(model, Forecaster)
    if task.options.strategy == "iterated":
        raise OptionError(
            "a forecaster that draws its futures (--strategy iterated) has no graph; train one with --strategy direct"
        )
    if isinstance(model.distribution, NegativeBinomial):
        raise OptionError(
            "quantiles of --distribution negative-binomial are counted one by one, which no graph does; train another"
        )
    vocabs, settings = predictor.run.vocabs, task.settings_of(predictor.run.vocabs)
    own, series, notes = _own(predictor, model)
    ahead, past = _ahead(predictor, settings)
    inputs = ahead.inputs()
    if len(own.channel) > 1:
        inputs.insert(0, Value("series", ("B",), torch.int64, len(own.channel)))
    if past:
        inputs.append(Value("past", ("B", "T", past), DOUBLE))
    V, k, Q = model.sizes.variables, task.horizon, len(model.quantiles)
    values, quantiles = Value("values", ("B", "T", V), DOUBLE), Value("quantiles", ("B", k, V, Q), DOUBLE)
    module = Forecast(model, ahead, own, [value.name for value in inputs])
    graph = capture("forecast", module, [values, *inputs], [quantiles], {"T": max(task.season + 1, 3)})
    o = task.options
    known = {
        "horizon": k, "season": task.season, "quantiles": list(model.quantiles), "series": series,
        "targets": list(class_names(vocabs["columns"]))[: model.targets], "known": list(class_names(vocabs["known"])),
        "past": list(class_names(vocabs["past"])), "least": task.season + 1, "lags": model.lags,
        "positive": o.transform == "log",
    }  # fmt: skip
    network = model.recurrent if isinstance(model.recurrent, Recurrent) else None
    return Portable(
        "forecast", "forecaster", predictor.name, {"forecast": graph}, vocabs=vocabs, settings=known, network=network,
        notes=notes,
    )  # fmt: skip


def _ahead(predictor: SeriesForecaster, settings: RowSettings) -> tuple[Ahead, int]:
    """What is known ahead, and how many columns are known until now."""
    names = {name: list(class_names(predictor.run.vocabs[name])) for name in ("known", "past")}
    count = {
        kind: sum(name.startswith(kind) for name in names["known"]) for kind in ("covariate ", "calendar,", "static ")
    }
    past = len(names["past"]) - settings.gaps
    return Ahead(settings, *count.values()), past


def _own(predictor: SeriesForecaster, model: Forecaster) -> tuple[Own, list[str], tuple[str, ...]]:
    """What rows have of their own, their names, and what is worth saying of it."""
    task: ForecastTask = predictor.task
    rolls = task.options.bands == "rolling" and len(model.quantiles) > 1
    linear = task.options.base == "linear"
    V, channels = model.sizes.variables, model.sizes.channels
    offsets = model.offsets.view(-1, channels, V, len(model.quantiles)).transpose(0, 1)[:, : task.horizon].contiguous()
    names = list(class_names(predictor.run.vocabs["columns"]))[: model.targets]
    plain = Own(torch.arange(channels), None, offsets), names if channels > 1 else [], ()
    if not (rolls or linear):
        return plain
    if not predictor.has_training_texts():
        if linear:
            raise OptionError(
                "--base linear is fitted to the series that were learned from, and they are not here: put them back"
            )
        return *plain[:2], ("bands are those of the validation part: what they would roll over is not here",)
    panel, _ = read_series(task.options)
    whole = [len(one) for one in panel.series]
    rows = task.rows(model, panel, predictor.run.vocabs, whole, whole)
    own = Own(rows.channel, rows.linear, offsets[rows.channel])
    said = ["the linear autoregression of each series is fitted to the values that are here now"] if linear else []
    learned, origins = task.learned(panel), [np.array([n]) for n in whole]
    if rolls and evaluation.can_shift(task, learned, origins):
        which, ends = evaluation.pairs(rows, origins)
        scaled = task.forecast(model, rows, which, ends)
        before = task.rows(model, panel, predictor.run.vocabs, whole, learned)
        moved = evaluation.shifted_intervals(task, model, (before, learned), (rows, origins), scaled, panel)
        own = own._replace(offsets=torch.from_numpy(moved - scaled).float())
        said.append("bands are moved by what forecasts of these series have missed until now")
    ids = [one.id for one in panel.series]
    named = [ids[n] if len(panel.targets) == 1 or task.options.mix else f"{ids[n]}/{panel.targets[c]}"
             for n, c in zip(rows.series, rows.channel.tolist(), strict=True)]  # fmt: skip
    return own, named, (f"{'; '.join(said)}; recur predict does so for every table",) if said else ()
