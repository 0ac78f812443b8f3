"""Series of numbers from CSV files: what comes next, with bands. Rolling-origin evaluation beside plain forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from recur.errors import OptionError, TextError
from recur.models import Forecaster
from recur.run import Vocabs
from recur.series import Clock, Rolling, Scale, SeriesTable, baselines, known_ahead, mean_scores, read_table, roll
from recur.tasks.classes import names_vocab
from recur.tasks.contract import Baseline, Moment, Task, TrainingStep, Validation
from recur.tasks.examples import Shuffled
from recur.tasks.forecast.options import ForecastOptions
from recur.tasks.forecast.quantiles import Settings, forecasts
from recur.tasks.forecast.season import guess_season
from recur.tasks.tokens import with_time_scale

MOST_ORIGINS = 200
"""Held out of a long series, unless a horizon needs more."""

EPOCH = 50
"""Batches that an epoch has at least: it passes over a short series several times."""


class Crop(NamedTuple):
    values: Tensor
    """(W + k,)"""
    known: Tensor
    """(W + k, C)"""


class CropBatch(NamedTuple):
    values: Tensor
    known: Tensor

    @classmethod
    def of(cls, crops: Sequence[Crop]) -> Self:
        return cls(torch.stack([c.values for c in crops]), torch.stack([c.known for c in crops]))


@dataclass(frozen=True)
class SeriesData:
    vocabs: Vocabs
    tables: list[SeriesTable]
    train: list[Crop]


class ForecastTask(Task[ForecastOptions, SeriesData, Forecaster, CropBatch]):
    name = "forecast"
    curve = "valid_mase"
    unit = "values"
    likelihood = False

    def __init__(self, options: ForecastOptions) -> None:
        super().__init__(options)
        self.season, self.horizon = options.season or 1, options.horizon or options.season or 1
        self.holdout = options.holdout or 2 * self.horizon  # settled options say how much
        self.clock = None if options.clock is None else Clock(options.time_origin or 0, options.clock)
        self.settings = Settings(
            self.horizon, self.season, options.strategy, options.transform, options.seed, self.clock
        )

    @classmethod
    def settle(cls, options: ForecastOptions) -> ForecastOptions:
        tables = [_table(options, name) for name in options.texts]
        shortest = min(map(len, tables))
        season = options.season or guess_season(tables[0].dates, tables[0].values)
        horizon = options.horizon or season
        # A forecast from two or three origins would be judged by chance.
        holdout = options.holdout or max(2 * horizon, min(shortest // 10, MOST_ORIGINS))
        if options.time_input and options.time_origin is None:
            options = options.changed(time_origin=min(table.start for table in tables))
        options = with_time_scale(options, lambda: [_last_step(options, table) - 2 * holdout for table in tables])
        return super().settle(options.changed(season=season, horizon=horizon, holdout=holdout))

    @property
    def architecture(self) -> str:
        return f"window of {self.options.lags}" if self.options.lags else super().architecture

    @property
    def steps(self) -> int:
        """How many the model forecasts at once."""
        return self.horizon if self.options.strategy == "direct" else 1

    def table(self, name: str) -> SeriesTable:
        return _table(self.options, name)

    def read(self, vocabs: Vocabs | None = None) -> SeriesData:
        lags = self.options.lags
        tables = [self.table(name) for name in self.options.texts]
        for table in tables[1:]:
            check_columns(table, tables[0].name, (*tables[0].targets, *tables[0].covariates))
            if bool(table.dates) != bool(tables[0].dates):
                dated, other = (table, tables[0]) if table.dates else (tables[0], table)
                raise TextError(f"{dated.name} has a column of dates, and {other.name} has none")
        vocabs = vocabs or {"columns": names_vocab(dict.fromkeys((*tables[0].targets, *tables[0].covariates), 1))}
        crops = []
        for table in tables:
            n = len(table) - 2 * self.holdout
            least = max(max(lags, self.season, 2) + self.steps, self.horizon)
            if n < least:
                raise OptionError(
                    f"{table.name} has {len(table)} values; {self.holdout} to test on and {self.holdout} to measure on "
                    f"leave {max(n, 0)} to learn from, and --horizon {self.horizon} with --season {self.season} and "
                    f"--lags {lags} needs {least}: lower --horizon or --holdout"
                )
            crops += self.crops(table, n)
        return SeriesData(vocabs, tables, crops)

    def crops(self, table: SeriesTable, n: int) -> list[Crop]:
        """All windows of the first n values, each with the values that follow it."""
        values = torch.tensor(Scale.of(table, n, self.options.transform).forward(table.values)[:n]).float()
        known = torch.tensor(known_ahead(table, n, self.season, clock=self.clock)).float()
        W = min(max(self.options.window, self.options.lags, self.season), n - self.steps)
        parts = [slice(begin, begin + W + self.steps) for begin in range(n - W - self.steps + 1)]
        return [Crop(series[part], known[part]) for series in values.T for part in parts]

    def describe(self, data: SeriesData) -> str:
        first = data.tables[0]
        series = sum(len(table.targets) for table in data.tables)
        season = f"a season of {self.season} steps" if self.season > 1 else "no season"
        return (
            f"{series} series ({', '.join(first.targets[:5])}) of {len(first)} values, {season}, forecast "
            f"{self.horizon} ahead; {self.holdout} held out to test on and {self.holdout} to measure on"
        )

    def baselines(self, data: SeriesData) -> list[Baseline]:
        """The naive forecasts, and a linear autoregression."""
        seen = [self._without_test(table) for table in data.tables]
        rolled: dict[str, list[Rolling]] = {}
        for table in seen:
            n = len(table) - self.holdout
            for name, result in baselines(table, n, self.horizon, self.season, 0).items():
                rolled.setdefault(name, []).append(result)
        return [Baseline(name, float(mean_scores(results)["mase"])) for name, results in rolled.items()]

    def new_model(self, vocabs: Vocabs) -> Forecaster:
        known = len(self.options.covariates) + 2 * (self.season > 1) + (self.clock is not None)
        return Forecaster(known, self.steps, self.options.quantiles, self.season, self.options)

    def batches(self, data: SeriesData) -> Shuffled[Crop, CropBatch]:
        passes = -(-EPOCH * self.batch // len(data.train))  # measuring takes longer than learning from few crops
        return Shuffled(data.train * passes, self.batch, self.options.seed, CropBatch.of)

    def training_step(
        self, model: Forecaster, batch: CropBatch, state: tuple[Any, ...] | None, moment: Moment
    ) -> TrainingStep:
        device = model.output.bias.device
        values, k = batch.values.to(device), model.horizon
        predictions = model(values[:, :-k], batch.known.to(device))
        targets = values.unfold(1, k, 1)[:, model.first + 1 :]
        skip = 0 if self.options.lags else min(self.season - 1, targets.shape[1] - 1)  # until a season is seen
        loss = model.loss(predictions[:, skip:], targets[:, skip:])
        return TrainingStep(loss, targets[:, skip:].numel(), model.backend)

    def validate(self, model: Forecaster, data: SeriesData) -> Validation:
        seen = [self._without_test(table) for table in data.tables]
        scores = mean_scores([self.rolled(model, table, len(table) - self.holdout) for table in seen])
        named = ("mase", "smape", "pinball", "coverage")
        metrics = {f"valid_{name}": scores[name] for name in named if name in scores}
        return Validation(scores.get("pinball_scaled", scores["mase"]), metrics, f"valid MASE {scores['mase']:.3f}")

    def _without_test(self, table: SeriesTable) -> SeriesTable:
        return replace(table, values=table.values[: len(table) - self.holdout])

    def rolled(self, model: Forecaster, table: SeriesTable, learned: int) -> Rolling:
        """Forecasts from every origin of the last `holdout` values of a table, scaled by what was learned from."""
        n = len(table) - self.holdout
        found = forecasts(model, table, range(n, len(table)), learned, self.settings)
        return roll(table, n, self.horizon, self.season, self.options.quantiles, lambda end: found[end - n])


def _last_step(options: ForecastOptions, table: SeriesTable) -> int:
    """Where a table ends, in steps behind where t is 0."""
    return max(table.start - (options.time_origin or 0) + len(table), 1)


def _table(options: ForecastOptions, name: str) -> SeriesTable:
    return read_table(name, options.target, options.covariates, options.date)


def check_columns(table: SeriesTable, name: str, columns: tuple[str, ...]) -> None:
    own = (*table.targets, *table.covariates)
    if own != columns:
        raise TextError(f"{table.name} has the columns {', '.join(own)}, where {name} has {', '.join(columns)}")


TASK = ForecastTask
