"""Series of numbers from CSV files: what comes next, with bands. Rolling-origin evaluation beside forecasts to beat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from recur.errors import OptionError, TextError
from recur.models import Forecaster, ForecastOptions, parse_quantiles
from recur.series import Rolling, Scale, SeriesTable, known_ahead, parse_table, read_table, roll, to_beat, together
from recur.series.figure import draw
from recur.train.config import Config
from recur.train.examples import Shuffled, names_vocab
from recur.train.forecasting import forecast
from recur.train.machine import pick_device
from recur.train.tasks.task import Learned, Measured, Moment, Opened, Task, Vocabs

if TYPE_CHECKING:
    from recur.train.run import Run


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


def batch_of(crops: list[Crop]) -> CropBatch:
    return CropBatch(torch.stack([c.values for c in crops]), torch.stack([c.known for c in crops]))


@dataclass(frozen=True)
class SeriesData:
    vocabs: Vocabs
    tables: list[SeriesTable]
    train: list[Crop]


class ForecastTask(Task):
    title = "the task forecast"
    reads = frozenset(
        {*ForecastOptions.__dataclass_fields__, "window", "target", "covariates", "date", "horizon", "holdout"}
        | {"strategy", "quantiles", "transform"}
    )
    vocab_names = ("columns",)
    curve = "valid_mase"
    likelihood = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.quantiles = parse_quantiles(config.quantiles)
        self.holdout = config.holdout or 2 * config.horizon
        if config.valid or config.test:
            raise OptionError("a forecast holds out the end of its series: --holdout says how much of it")
        if config.lags:
            for name in ("cell", "init", "forget_bias", "backend", "bptt"):
                if getattr(config, name) != getattr(Config, name):
                    raise OptionError(f"--{name.replace('_', '-')} is for a state; --lags {config.lags} has none")

    @property
    def architecture(self) -> str:
        return f"window of {self.config.lags}" if self.config.lags else self.config.cell

    @property
    def steps(self) -> int:
        """How many the model forecasts at once."""
        return self.config.horizon if self.config.strategy == "direct" else 1

    def read(self, vocabs: Vocabs | None = None) -> SeriesData:
        c = self.config
        tables = [self.table(name) for name in c.texts]
        for table in tables[1:]:
            check_columns(table, tables[0].name, (*tables[0].targets, *tables[0].covariates))
            if bool(table.dates) != bool(tables[0].dates):
                dated, other = (table, tables[0]) if table.dates else (tables[0], table)
                raise TextError(f"{dated.name} has a column of dates, and {other.name} has none")
        vocabs = vocabs or {"columns": names_vocab(dict.fromkeys((*tables[0].targets, *tables[0].covariates), 1))}
        crops = []
        for table in tables:
            n = len(table) - 2 * self.holdout
            least = max(c.lags, c.season, 2) + self.steps
            if n < max(least, c.horizon):
                raise OptionError(
                    f"{table.name} has {len(table)} values; {self.holdout} to test on and {self.holdout} to measure on "
                    f"leave {max(n, 0)} to learn from, and --horizon {c.horizon} with --season {c.season} and --lags "
                    f"{c.lags} needs {max(least, c.horizon)}: lower --horizon or --holdout"
                )
            crops += self.crops(table, n)
        return SeriesData(vocabs, tables, crops)

    def table(self, name: str) -> SeriesTable:
        return read_table(name, self.config.target, self.config.covariates, self.config.date)

    def crops(self, table: SeriesTable, n: int) -> list[Crop]:
        """All windows of the first n values, each with the values that follow it."""
        values = Scale.of(table, n, self.config.transform).forward(table.values)[:n]
        known = known_ahead(table, n, self.config.season)
        W = min(max(self.config.window, self.config.lags, self.config.season), n - self.steps)
        found = []
        for series in values.T:
            for begin in range(n - W - self.steps + 1):
                part = slice(begin, begin + W + self.steps)
                found.append(Crop(torch.tensor(series[part]).float(), torch.tensor(known[part]).float()))
        return found

    def about(self, data: SeriesData) -> str:
        first = data.tables[0]
        series = sum(len(table.targets) for table in data.tables)
        said = f"{series} series ({', '.join(first.targets[:5])}) of {len(first)} values"
        return f"{said}, {self.holdout} held out to test on and {self.holdout} to measure on"

    def new_model(self, vocabs: Vocabs) -> Forecaster:
        options = ForecastOptions(**{name: getattr(self.config, name) for name in ForecastOptions.__dataclass_fields__})
        covariates = len([part for part in self.config.covariates.split(",") if part.strip()])
        return Forecaster(covariates + 2 * (self.config.season > 1), self.steps, self.quantiles, options)

    def batches(self, data: SeriesData) -> Shuffled[Crop]:
        passes = -(-EPOCH * self.config.batch // len(data.train))  # measuring takes longer than learning from few crops
        return Shuffled(data.train * passes, self.config.batch, self.config.seed, batch_of)

    def learn(self, model: Forecaster, batch: CropBatch, state: Any, moment: Moment) -> Learned:
        device = model.output.bias.device
        values, k = batch.values.to(device), model.horizon
        forecasts = model(values[:, :-k], batch.known.to(device))
        wanted = values.unfold(1, k, 1)[:, model.first + 1 :]
        skip = 0 if self.config.lags else min(self.config.season - 1, wanted.shape[1] - 1)  # until a season is seen
        loss = model.loss(forecasts[:, skip:], wanted[:, skip:])
        return Learned(loss, wanted[:, skip:].numel(), model.backend)

    def measure(self, model: Forecaster, data: SeriesData) -> Measured:
        seen = [replace(table, values=table.values[: len(table) - self.holdout]) for table in data.tables]
        results = [self.rolled(model, table, len(table) - self.holdout) for table in seen]
        scores = together(results)
        named = ("mase", "smape", "pinball", "coverage")
        metrics = {f"valid_{name}": scores[name] for name in named if name in scores}
        return Measured(scores.get("pinball_scaled", scores["mase"]), metrics, f"valid MASE {scores['mase']:.3f}")

    def rolled(self, model: Forecaster, table: SeriesTable, learned: int) -> Rolling:
        """Forecasts from every origin of the last `holdout` values of a table, scaled by what was learned from."""
        c = self.config
        n = len(table) - self.holdout
        return roll(table, n, c.horizon, c.season, self.quantiles, lambda end: forecast(model, table, end, learned, c))

    def open(self, run: Run, device: str = "cpu", also: Sequence[Run] = ()) -> SeriesForecaster:
        if also:
            raise OptionError("forecasters do not forecast as one; name one run")
        return SeriesForecaster(run, device)


def check_columns(table: SeriesTable, name: str, columns: tuple[str, ...]) -> None:
    own = (*table.targets, *table.covariates)
    if own != columns:
        raise TextError(f"{table.name} has the columns {', '.join(own)}, where {name} has {', '.join(columns)}")


class SeriesForecaster(Opened):
    """A trained forecaster."""

    def __init__(self, run: Run, device: str = "cpu") -> None:
        self.run = run
        assert isinstance(run.task, ForecastTask)
        self.task = run.task
        self.model: Forecaster = run.load_model(str(pick_device(device)))
        self.columns = run.vocabs["columns"].tokens[4:]

    def evaluate(self, texts: list[str] | None = None, **options: Any) -> dict[str, Any]:
        """Rolling origin over the end of the series: MASE, sMAPE, pinball loss and coverage; others' beside them."""
        figure = options.pop("figure", None)
        self.refuse(options)
        c, task = self.run.config, self.task
        tables = [task.table(name) for name in texts or c.texts]
        results = []
        others: dict[str, list[Rolling]] = {}
        for table in tables:
            check_columns(table, str(self.run.path), self.columns)
            n = len(table) - task.holdout
            if n <= max(c.lags, c.season):
                raise OptionError(f"{table.name} has {len(table)} values, too few to hold out {task.holdout} of them")
            results.append(task.rolled(self.model, table, max(n - task.holdout, c.season + 1)))
            for name, rolled in to_beat(table, n, c.horizon, c.season, c.lags).items():
                others.setdefault(name, []).append(rolled)
        found = {"model": str(self.run.path), **together(results), "origins": sum(len(r.wanted) for r in results)}
        if "coverage" in found:
            found["nominal_coverage"] = self.model.quantiles[-1] - self.model.quantiles[0]
        found["beside"] = [{"model": name, **together(rolled)} for name, rolled in others.items()]
        if figure is not None:
            draw(tables[0], results[0], str(figure))
        return found

    def predict(self, lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
        """A CSV, line by line: the quantiles of the steps behind its last value."""
        self.refuse(options)
        c = self.run.config
        table = parse_table(list(lines), "the table", c.target, c.covariates, c.date)
        check_columns(table, str(self.run.path), self.columns)
        if table.covariates and table.ahead < c.horizon:
            raise TextError(f"covariates are known {table.ahead} steps ahead, and --horizon is {c.horizon}; add rows")
        if len(table) <= max(c.lags, c.season):
            raise TextError(f"{len(table)} values are too few to forecast from; {max(c.lags, c.season) + 1} are needed")
        found = forecast(self.model, table, len(table), len(table), c)
        for step, row in enumerate(found, start=1):
            for column, quantiles in zip(table.targets, row, strict=True):
                at = {f"{q:g}": float(x) for q, x in zip(self.model.quantiles, quantiles, strict=True)}
                yield {"input": f"{column} + {step}", "output": f"{at['0.5']:g}", "quantiles": at, "step": step}


TASK = ForecastTask
