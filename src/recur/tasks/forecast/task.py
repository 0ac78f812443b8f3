"""Forecasting: series from CSV files, evaluated from every origin and compared with baselines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from recur.baselines.forecasts import AutoregressionOptions
from recur.data.reading import Reading
from recur.data.series import Panel, Split, TimeFeature
from recur.data.text.stream import Ids
from recur.errors import OptionError, TextError
from recur.i18n import Message
from recur.models import Forecaster, forecaster
from recur.models.forecaster import ForecasterSizes
from recur.runs import Vocabs
from recur.tasks.common.batching import with_time_scale
from recur.tasks.common.classification import class_names, names_vocab
from recur.tasks.common.contract import (
    Baseline,
    Remark,
    Task,
    TrainingProgress,
    TrainingStep,
    Validation,
    cpu_sampling_blocker,
)
from recur.tasks.common.splits import reading_of
from recur.tasks.forecast import evaluation
from recur.tasks.forecast.data import (
    RowSettings,
    SeriesRows,
    SeriesWindowBatches,
    SeriesWindows,
    as_learned,
    check_lists,
    known_names,
    make_rows,
    past_names,
)
from recur.tasks.forecast.data import parse_series as parse_series
from recur.tasks.forecast.data import read_series as read_series
from recur.tasks.forecast.evaluation import baseline_scores, forecast
from recur.tasks.forecast.options import ForecastOptions
from recur.tasks.forecast.rules import settle_options
from recur.utils.types import Metrics

SEGMENT_BATCH = 256
"""Windows in a batch of those that forecast from their end only, where a state forecasts from every step."""

OFF = 0.15
"""From which on coverage is remarked on."""

SHOWN = ("mase", "smape", "mse", "mae", "wql", "pinball", "coverage")
"""Scores that a measurement logs."""


@dataclass(frozen=True)
class SeriesData:
    vocabs: Vocabs
    panel: Panel
    splits: tuple[Split, ...]
    rows: SeriesRows
    """As they are learned from: scaled by, and fitted to, the training part."""


class ForecastTask(Task[ForecastOptions, SeriesData, Forecaster, SeriesWindows]):
    name = "forecast"
    unit = "windows"
    likelihood = False

    def __init__(self, options: ForecastOptions) -> None:
        super().__init__(options)
        self.season, self.horizon = options.season or 1, options.horizon or options.season or 1
        self.clock = None if options.clock is None else TimeFeature(options.time_origin or 0, options.clock)
        self.plain: dict[str, float] = {}
        """MASE of plain forecasts, where they were measured: for remarks."""

    @classmethod
    def settle(cls, options: ForecastOptions) -> ForecastOptions:
        reading = reading_of(options)
        panel, ahead = read_series(options, reading)
        options = options.changed(decimal=reading.decimal, date_format=reading.date_format)
        settled = settle_options(options, panel, ahead)
        scaled = settled.changed(time_scale=settled.time_scale or 1.0) if settled.time_input else settled
        long = cls(scaled).without_short(panel, reading)
        options = settled if len(long) == len(panel) else settle_options(options, long, ahead)
        panel = long
        if options.time_input and options.time_origin is None:
            options = options.changed(time_origin=min(one.start for one in panel.series))
        task = cls(options.changed(time_scale=options.time_scale or 1.0)) if options.time_input else cls(options)
        origin = options.time_origin or 0
        ends = [(one.start, split.train) for one, split in zip(panel.series, task.splits(panel), strict=True)]
        options = with_time_scale(options, lambda: [max(start - origin + end, 1) for start, end in ends])
        if options.batch_size is None and options.lags:
            options = options.changed(batch_size=SEGMENT_BATCH)
        return super().settle(options)

    @property
    def curve(self) -> str:
        return "valid_mase"

    @property
    def architecture(self) -> str:
        o = self.options
        if o.lags and o.segment:
            return f"{o.cell} over {o.lags // o.segment} segments of {o.segment}"
        return f"window of {o.lags}" if o.lags else super().architecture

    @property
    def steps(self) -> int:
        """Number of steps that the model forecasts at once."""
        return self.horizon if self.options.strategy == "direct" else 1

    @property
    def back(self) -> int:
        """Number of steps in a window, or in an example of a recurrent state."""
        return self.options.lags or max(self.options.window or 48, self.season)

    def settings(self, gaps: bool) -> RowSettings:
        o = self.options
        return RowSettings(
            self.horizon,
            self.season,
            self.steps,
            self.back,
            o.mix,
            bool(o.calendar),
            o.transform or "none",
            o.scale or "deviation",
            o.base == "linear",
            gaps,
            self.clock,
        )

    def settings_of(self, vocabs: Vocabs) -> RowSettings:
        check_lists(vocabs)
        return self.settings("gaps" in class_names(vocabs["past"]))

    # Data -----------------------------------------------------------------------------------------------------

    @property
    def held(self) -> tuple[int, int]:
        """Number of validation and test steps."""
        o = self.options
        return o.valid_size or o.holdout or 2 * self.horizon, o.test_size or o.holdout or 2 * self.horizon

    def learned(self, panel: Panel) -> list[int]:
        """Return the number of training values of each series of a panel; 0 for a short series."""
        return [self.options.train_size or max(len(one) - sum(self.held), 0) for one in panel.series]

    def splits(self, panel: Panel) -> tuple[Split, ...]:
        o, (valid, test) = self.options, self.held
        found = []
        for one in panel.series:
            if o.train_size is not None:
                split = Split.of_rows((o.train_size, valid, test), len(one))
            else:
                split = Split.of(len(one), valid=valid, test=test)
            found.append(split)
        return tuple(found)

    def without_short(self, panel: Panel, reading: Reading) -> Panel:
        """Return the panel without series that are too short to learn from, which are reported.

        An error is raised if bad rows stop the job, and if this leaves less than half of the series.
        """
        least = max(self.season, 2) + self.horizon
        found, first = [], ""
        for one, split in zip(panel.series, self.splits(panel), strict=True):
            if split.train >= least:
                found.append(one)
                continue
            held = f"{split.test - split.valid} for the test and {split.valid - split.train} for validation"
            error = OptionError(
                f"{one.id} has {len(one)} values; {held} leave {max(split.train, 0)} for training, and --horizon "
                f"{self.horizon} with --season {self.season} needs {least}: lower --horizon or --holdout"
            )
            if reading.on_bad_rows == "error" or len(panel) == 1:
                raise error
            first = first or str(error)
            reading.reject(TextError(str(error)))
        if 2 * len(found) < len(panel):
            raise OptionError(first)
        return panel if len(found) == len(panel) else replace(panel, series=tuple(found))

    def read(self, vocabs: Vocabs | None = None) -> SeriesData:
        panel, _ = read_series(self.options, self.new_reading())
        if vocabs is None or len(panel) > 1:  # a single series of another file is evaluated, whatever its length
            panel = self.without_short(panel, self.reading)
        splits = self.splits(panel)
        first = splits[0]
        for option, rows_held in (("valid", first.valid - first.train), ("test", first.test - first.valid)):
            if rows_held < self.horizon:
                raise OptionError(
                    f"--{option}-size {rows_held} holds no whole --horizon {self.horizon}: raise it, or lower --horizon"
                )
        if vocabs is None:
            settings = self.settings(gaps=any(np.isnan(one.values).any() for one in panel.series))
            found = {
                "columns": [*panel.targets, *panel.future],
                "known": known_names(panel, settings),
                "past": past_names(panel, settings),
            }
            vocabs = {name: names_vocab(dict.fromkeys(names, 1)) for name, names in found.items()}
        settings = self.settings_of(vocabs)
        panel = as_learned(panel, vocabs, settings)
        ends = [split.train for split in splits]
        rows = make_rows(panel, ends, ends, settings, [split.valid for split in splits])
        return SeriesData(vocabs, panel, splits, rows)

    def rows(
        self, model: Forecaster, panel: Panel, vocabs: Vocabs, scaled_by: Sequence[int], fitted_on: Sequence[int]
    ) -> SeriesRows:
        """Return the rows of a panel with the columns and the autoregression form of training."""
        settings = self.settings_of(vocabs)
        lags, direct, relative, ridge = model.form.tolist()
        form = AutoregressionOptions(int(lags), bool(direct), bool(relative), ridge)
        return make_rows(as_learned(panel, vocabs, settings), scaled_by, fitted_on, settings, form)

    def describe(self, data: SeriesData) -> str:
        panel, first = data.panel, data.splits[0]
        names = panel.targets if len(panel) == 1 else tuple(one.id for one in panel.series)
        count = len(panel) * len(panel.targets)
        lengths = panel.lengths
        long = f"{lengths[0]:,}" if lengths.min() == lengths.max() else f"{lengths.min():,} to {lengths.max():,}"
        season = f"a season of {self.season} steps" if self.season > 1 else "no season"
        return (
            f"{count} series ({', '.join(names[:5])}{', …' * (len(names) > 5)}) of {long} values, {season}, forecast "
            f"{self.horizon} ahead; {first.test - first.valid} held out to test on and {first.valid - first.train} to "
            "measure on"
        )

    # The model ------------------------------------------------------------------------------------------------

    def new_model(self, vocabs: Vocabs) -> Forecaster:
        check_lists(vocabs)
        known, past = (len(class_names(vocabs[name])) for name in ("known", "past"))
        targets = len(class_names(vocabs["columns"])) - sum(
            name.startswith("covariate ") for name in class_names(vocabs["known"])
        )
        variables, channels = (targets, 1) if self.options.mix else (1, targets)
        sizes = ForecasterSizes(self.steps, known, past, variables, channels, self.horizon)
        return Forecaster(sizes, self.options.quantiles, self.season, self.options)

    def batches(self, data: SeriesData) -> SeriesWindowBatches:
        """Return windows whose targets are in the training part.

        With a recurrent state, each has a forecast from every step. A short series is read from its middle, with
        padding before its first value.
        """
        o, rows = self.options, data.rows
        ends = [data.splits[number].train for number in rows.series]
        first = [max(min(self.back, end // 2, end - self.steps) - 1, 0) for end in ends]
        last = [end - self.steps for end in ends]
        stride = 1 if o.lags else max(self.back // 4, 1)
        return SeriesWindowBatches(rows, first, last, self.back, self.batch, o.seed, stride, o.balance)

    def training_step(
        self, model: Forecaster, batch: SeriesWindows, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        rows = batch.rows.on(model.device)
        which, ends = batch.which.to(model.device), batch.ends.to(model.device)
        back, k = batch.back, model.horizon
        skip = model.lags - 1 if model.lags else min(self.season - 1, back - 1)  # until a season is seen
        targets = rows.coming(which, ends, back - skip, k)
        parameters = model(rows.seen(which, ends, back, k), torch.arange(skip, back, device=model.device))
        unit = rows.unit[which][:, None, None].expand(targets.shape)
        loss, weight = model.loss(parameters, targets, unit), (~targets.isnan()).sum()
        return TrainingStep(loss, len(which), model.backend, weight=weight)

    def unrecordable(self, data: SeriesData) -> str:
        if self.options.base == "linear" and not forecaster.gathers_weights_per_row(len(data.rows), self.batch):
            return "--base linear asks which rows of a batch are of one series"
        return cpu_sampling_blocker(self.options)

    # Measuring ------------------------------------------------------------------------------------------------

    def forecast(self, model: Forecaster, rows: SeriesRows, which: Ids, ends: Ids) -> np.ndarray:
        """Return quantiles (N, k, V, Q), in the scale of the rows."""
        return forecast(model, rows, which, ends, self.horizon, self.options.strategy, self.options.seed)

    def part(self, panel: Panel, splits: tuple[Split, ...], name: str) -> evaluation.EvaluationPart:
        return evaluation.EvaluationPart(panel, splits, name, self.horizon, self.season)

    def baselines(self, data: SeriesData) -> Iterable[Baseline]:
        """Return the naive, seasonal naive and linear baselines on the validation set."""
        scores = baseline_scores(self.part(data.panel, data.splits, "valid"))
        self.plain = {name: found["mase"] for name, found in scores.items()}
        for name, found in scores.items():
            yield Baseline(name, found["mase"], {f"valid_{key}": found[key] for key in SHOWN if key in found})

    def remarks(self, metrics: Metrics) -> Iterator[Remark]:
        mase, base = metrics.get("mase", 0.0), self.options.base
        for name, other in (("linear autoregression", "linear"), ("seasonal naive", "seasonal")):
            if base != other and mase > 1.01 * self.plain.get(name, math.inf):
                yield Remark(
                    Message("worse than {name}, which the network can be trained to correct", name=name),
                    f"--base {other}",
                )
        if metrics.get("share") == 0 and base in ("linear", "seasonal"):
            name = "the linear autoregression" if base == "linear" else "the seasonal naive forecast"
            yield Remark(Message("the network does not improve on {name} of each series and is not used", name=name))
        nominal, covered = metrics.get("nominal_coverage"), metrics.get("coverage")
        if nominal is not None and covered is not None and abs(nominal - covered) > OFF:
            yield Remark(Message(
                "prediction intervals of {nominal:.0%} cover {covered:.0%} of the values: the series has changed",
                covered=covered, nominal=nominal))  # fmt: skip

    def validate(self, model: Forecaster, data: SeriesData) -> Validation:
        """Evaluate the model; also fit the share of the network and the prediction intervals, which it stores."""
        part, rows = self.part(data.panel, data.splits, "valid"), data.rows
        run = partial(self.forecast, model, rows)
        if rows.form is not None:
            model.form.copy_(torch.tensor([float(part) for part in rows.form]))
        evaluation.choose_share(model, run, part, rows)
        which, ends = evaluation.pairs(rows, part.origins())
        scaled = run(which, ends)
        evaluation.fit_intervals(model, part, rows, scaled, move=self.options.bands != "model")
        moved = evaluation.with_intervals(model, rows, which, scaled)
        scores = evaluation.score(part, model.quantiles, evaluation.by_series(rows, part.origins(), moved))
        metrics = {f"valid_{name}": scores[name] for name in SHOWN if name in scores}
        metrics["valid_share"] = float(model.share)
        return Validation(scores["mase"], metrics, f"valid MASE {scores['mase']:.3f}")

    def sample(self, model: Forecaster, data: SeriesData) -> str:
        part = self.part(data.panel, data.splits, "valid")
        return evaluation.first_forecast(model, data.rows, part, partial(self.forecast, model, data.rows))


TASK = ForecastTask
