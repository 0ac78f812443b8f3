"""Forecasters as one graph: series in their own units to quantiles of the forecast.

    forecast(values (B, T, V), …) → quantiles (B, k, V, Q)

The graph contains all that `recur predict` does with a table without gaps: scaling by the mean and spread of the
values, the season's phase, the network, the base forecast, and calibrated prediction intervals. Further inputs exist
only if the model uses them: `start` (B,), the position of the first value in the season or on the clock; `series` (B,),
the index of a training series with parameters of its own; `covariates` and `calendar` (B, T + k, ·), `static` (B, ·)
and `past` (B, T, ·).

`recur predict` refits two things to every table, which a graph keeps as fitted to the training table: the linear
autoregression of each series, and rolling prediction intervals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from recur.errors import OptionError
from recur.export.graphs import PortableModel, TensorSpec, capture, prepare_model
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


class SeriesParameters(NamedTuple):
    """Parameters of each training series."""

    channel: Tensor
    """(R,)"""
    linear: Tensor | None
    """(R, V, 1 + lags, k)"""
    offsets: Tensor
    """(R, k, V, Q)"""


class KnownFuture(nn.Module):
    """Features known for all steps including the forecast, as in the forecasting task."""

    def __init__(self, settings: RowSettings, covariates: int, calendar: int, static: int) -> None:
        super().__init__()
        self.settings, self.covariates, self.calendar, self.static = settings, covariates, calendar, static

    def inputs(self) -> list[TensorSpec]:
        s, later = self.settings, f"T+{self.settings.horizon}"
        found = [TensorSpec("start", ("B",), torch.int64)] if s.season > 1 or s.clock is not None else []
        found += [TensorSpec("covariates", ("B", later, self.covariates), DOUBLE)] if self.covariates else []
        found += [TensorSpec("calendar", ("B", later, self.calendar), DOUBLE)] if self.calendar else []
        return found + ([TensorSpec("static", ("B", self.static), DOUBLE)] if self.static else [])

    def forward(self, values: Tensor, given: dict[str, Tensor]) -> Tensor:
        """Return (B, T + k, C) in float64."""
        s, (B, T, _) = self.settings, values.shape
        columns = [values.new_zeros(B, T + s.horizon, 0)]
        if self.covariates:
            columns.append(standardize(given["covariates"], T))
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


def standardize(columns: Tensor, n: int) -> Tensor:
    """Standardize (B, T, C) by the first n steps of each row."""
    first = columns[:, :n]
    mean = first.mean(1, keepdim=True)
    spread = (first - mean).square().mean(1, keepdim=True).sqrt()
    return (columns - mean) / torch.where(spread > 0, spread, 1.0)


class ForecastGraph(nn.Module):
    channel: Tensor
    linear: Tensor | None
    offsets: Tensor

    def __init__(self, model: Forecaster, ahead: KnownFuture, own: SeriesParameters, names: list[str]) -> None:
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
        past = values.new_zeros(B, T, 0) if "past" not in given else standardize(given["past"], T)
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
        if s.transform == "log":
            return (quantiles.clamp_max(700.0).exp(),)
        negative = (values.abs() - values).mean(1)  # 0 for a series that was never negative, which its forecast is not
        least = torch.where(negative > 0, -3e38, 0.0)[:, None, :, None]
        return (torch.maximum(quantiles, least.to(DOUBLE)),)

    def _scale(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and unit (B, 1, V), as the forecasting task computes them."""
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
        """Make quantiles monotone, starting from the median."""
        levels = self.model.quantiles
        middle, parts = levels.index(0.5), list(quantiles.unbind(-1))
        for k in range(middle + 1, len(parts)):
            parts[k] = torch.maximum(parts[k], parts[k - 1])
        for k in range(middle - 1, -1, -1):
            parts[k] = torch.minimum(parts[k], parts[k + 1])
        return torch.stack(parts, dim=-1)


def build_forecaster(predictor: SeriesForecaster) -> PortableModel:
    task, model = predictor.task, prepare_model(predictor.model)
    assert isinstance(model, Forecaster)
    if task.options.strategy == "iterated":
        raise OptionError("--strategy iterated samples its forecasts and has no graph; train with --strategy direct")
    if isinstance(model.distribution, NegativeBinomial):
        raise OptionError(
            "--distribution negative-binomial has no graph (its quantiles are searched); train another distribution"
        )
    vocabs, settings = predictor.run.vocabs, task.settings_of(predictor.run.vocabs)
    own, series, notes = _series_parameters(predictor, model)
    ahead, past = _known_future(predictor, settings)
    inputs = ahead.inputs()
    if len(own.channel) > 1:
        inputs.insert(0, TensorSpec("series", ("B",), torch.int64, len(own.channel)))
    if past:
        inputs.append(TensorSpec("past", ("B", "T", past), DOUBLE))
    V, k, Q = model.sizes.variables, task.horizon, len(model.quantiles)
    values, quantiles = TensorSpec("values", ("B", "T", V), DOUBLE), TensorSpec("quantiles", ("B", k, V, Q), DOUBLE)
    module = ForecastGraph(model, ahead, own, [value.name for value in inputs])
    graph = capture("forecast", module, [values, *inputs], [quantiles], {"T": max(task.season + 1, 3)})
    o = task.options
    known = {
        "horizon": k, "season": task.season, "quantiles": list(model.quantiles), "series": series,
        "targets": list(class_names(vocabs["columns"]))[: model.targets], "known": list(class_names(vocabs["known"])),
        "past": list(class_names(vocabs["past"])), "least": task.season + 1, "lags": model.lags,
        "positive": o.transform == "log",
    }  # fmt: skip
    network = model.recurrent if isinstance(model.recurrent, Recurrent) else None
    return PortableModel(
        "forecast", "forecaster", predictor.name, {"forecast": graph}, vocabs=vocabs, settings=known, network=network,
        notes=notes,
    )  # fmt: skip


def _known_future(predictor: SeriesForecaster, settings: RowSettings) -> tuple[KnownFuture, int]:
    """Return the known features and the number of past covariates."""
    names = {name: list(class_names(predictor.run.vocabs[name])) for name in ("known", "past")}
    count = {
        kind: sum(name.startswith(kind) for name in names["known"]) for kind in ("covariate ", "calendar,", "static ")
    }
    past = len(names["past"]) - settings.gaps
    return KnownFuture(settings, *count.values()), past


def _series_parameters(
    predictor: SeriesForecaster, model: Forecaster
) -> tuple[SeriesParameters, list[str], tuple[str, ...]]:
    """Return the parameters of the training series, their names, and notes for the user."""
    task: ForecastTask = predictor.task
    rolls = task.options.bands == "rolling" and len(model.quantiles) > 1
    linear = task.options.base == "linear"
    V, channels = model.sizes.variables, model.sizes.channels
    offsets = model.offsets.view(-1, channels, V, len(model.quantiles)).transpose(0, 1)[:, : task.horizon].contiguous()
    names = list(class_names(predictor.run.vocabs["columns"]))[: model.targets]
    plain = SeriesParameters(torch.arange(channels), None, offsets), names if channels > 1 else [], ()
    if not (rolls or linear):
        return plain
    if not predictor.has_training_texts():
        if linear:
            raise OptionError("--base linear needs the training series, which were not found: restore the files")
        return *plain[:2], ("prediction intervals are those of the validation set: the training series were not found",)
    panel, _ = read_series(task.options)
    whole = [len(one) for one in panel.series]
    rows = task.rows(model, panel, predictor.run.vocabs, whole, whole)
    own = SeriesParameters(rows.channel, rows.linear, offsets[rows.channel])
    said = ["the linear autoregression of each series is fitted to its current values"] if linear else []
    learned, origins = task.learned(panel), [np.array([n]) for n in whole]
    if rolls and evaluation.can_shift(task, learned, origins):
        which, ends = evaluation.pairs(rows, origins)
        scaled = task.forecast(model, rows, which, ends)
        before = task.rows(model, panel, predictor.run.vocabs, whole, learned)
        moved = evaluation.shifted_intervals(task, model, (before, learned), (rows, origins), scaled, panel)
        own = own._replace(offsets=torch.from_numpy(moved - scaled).float())
        said.append("prediction intervals are adjusted by the errors of past forecasts")
    ids = [one.id for one in panel.series]
    named = [ids[n] if len(panel.targets) == 1 or task.options.mix else f"{ids[n]}/{panel.targets[c]}"
             for n, c in zip(rows.series, rows.channel.tolist(), strict=True)]  # fmt: skip
    return own, named, (f"{'; '.join(said)}; recur predict repeats this for every table",) if said else ()
