"""Series of numbers from CSV files: what comes next, with bands. Measured from every origin beside plain forecasts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from recur.baselines.forecasts import Form
from recur.data.series import Clock, Panel, Split
from recur.data.text.stream import Ids
from recur.errors import OptionError
from recur.i18n import Message
from recur.models import Forecaster, forecaster
from recur.models.forecaster import Sizes
from recur.runs import Vocabs
from recur.tasks.classes import classes_of, names_vocab
from recur.tasks.contract import Baseline, Moment, Remark, Task, TrainingStep, Validation
from recur.tasks.forecast import measuring
from recur.tasks.forecast.batches import WindowBatches, Windows
from recur.tasks.forecast.columns import as_learned, check_lists
from recur.tasks.forecast.forecasting import forecast
from recur.tasks.forecast.options import ForecastOptions
from recur.tasks.forecast.plain import plain_scores
from recur.tasks.forecast.reading import parse_series as parse_series
from recur.tasks.forecast.reading import read_series as read_series
from recur.tasks.forecast.rows import Rows, Settings, known_names, make_rows, past_names
from recur.tasks.forecast.rules import settled
from recur.tasks.recordable import drawn_on_the_cpu
from recur.tasks.tokens import with_time_scale
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
    rows: Rows
    """As they are learned from: scaled by, and fitted to, the training part."""


class ForecastTask(Task[ForecastOptions, SeriesData, Forecaster, Windows]):
    name = "forecast"
    unit = "windows"
    likelihood = False

    def __init__(self, options: ForecastOptions) -> None:
        super().__init__(options)
        self.season, self.horizon = options.season or 1, options.horizon or options.season or 1
        self.clock = None if options.clock is None else Clock(options.time_origin or 0, options.clock)
        self.plain: dict[str, float] = {}
        """MASE of plain forecasts, where they were measured: for remarks."""

    @classmethod
    def settle(cls, options: ForecastOptions) -> ForecastOptions:
        panel, ahead = read_series(options)
        options = settled(options, panel, ahead)
        if options.time_input and options.time_origin is None:
            options = options.changed(time_origin=min(one.start for one in panel.series))
        task = cls(options.changed(time_scale=options.time_scale or 1.0)) if options.time_input else cls(options)
        origin = options.time_origin or 0
        ends = [(one.start, split.train) for one, split in zip(panel.series, task.splits(panel), strict=True)]
        options = with_time_scale(options, lambda: [max(start - origin + end, 1) for start, end in ends])
        if options.batch is None and options.lags:
            options = options.changed(batch=SEGMENT_BATCH)
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
        """How many the model forecasts at once."""
        return self.horizon if self.options.strategy == "direct" else 1

    @property
    def back(self) -> int:
        """Steps in a window, or in an example for a state."""
        return self.options.lags or max(self.options.window or 48, self.season)

    def settings(self, gaps: bool) -> Settings:
        o = self.options
        return Settings(
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

    def settings_of(self, vocabs: Vocabs) -> Settings:
        check_lists(vocabs)
        return self.settings("gaps" in classes_of(vocabs["past"]))

    # Data -----------------------------------------------------------------------------------------------------

    @property
    def held(self) -> tuple[int, int]:
        """Steps to measure on, and to test on."""
        o = self.options
        return o.valid_size or o.holdout or 2 * self.horizon, o.test_size or o.holdout or 2 * self.horizon

    def learned(self, panel: Panel) -> list[int]:
        """How many values of each series it would learn from, were it trained on this panel; none of a short one."""
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

    def read(self, vocabs: Vocabs | None = None) -> SeriesData:
        panel, _ = read_series(self.options)
        splits = self.splits(panel)
        least = max(self.season, 2) + self.horizon
        for one, split in zip(panel.series, splits, strict=True):
            if split.train < least:
                held = f"{split.test - split.valid} to test on and {split.valid - split.train} to measure on"
                raise OptionError(
                    f"{one.id} has {len(one)} values; {held} leave {max(split.train, 0)} to learn from, and --horizon "
                    f"{self.horizon} with --season {self.season} needs {least}: lower --horizon or --holdout"
                )
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
    ) -> Rows:
        """Of a panel with the columns of what was learned from, around autoregressions of the form that it was learned
        around."""
        settings = self.settings_of(vocabs)
        lags, direct, relative, ridge = model.form.tolist()
        form = Form(int(lags), bool(direct), bool(relative), ridge)
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
        known, past = (len(classes_of(vocabs[name])) for name in ("known", "past"))
        targets = len(classes_of(vocabs["columns"])) - sum(
            name.startswith("covariate ") for name in classes_of(vocabs["known"])
        )
        variables, channels = (targets, 1) if self.options.mix else (1, targets)
        sizes = Sizes(self.steps, known, past, variables, channels, self.horizon)
        return Forecaster(sizes, self.options.quantiles, self.season, self.options)

    def batches(self, data: SeriesData) -> WindowBatches:
        """Windows whose targets all lie in the training part; from a state, each with a forecast from every step. A
        short series is seen from its middle on, in windows that reach back before its first value."""
        o, rows = self.options, data.rows
        ends = [data.splits[number].train for number in rows.series]
        first = [max(min(self.back, end // 2, end - self.steps) - 1, 0) for end in ends]
        last = [end - self.steps for end in ends]
        stride = 1 if o.lags else max(self.back // 4, 1)
        return WindowBatches(rows, first, last, self.back, self.batch, o.seed, stride, o.balance)

    def training_step(
        self, model: Forecaster, batch: Windows, state: tuple[Any, ...] | None, moment: Moment
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
        if self.options.base == "linear" and not forecaster.brings_its_own(len(data.rows), self.batch):
            return "--base linear asks which rows of a batch are of one series"
        return drawn_on_the_cpu(self.options)

    # Measuring ------------------------------------------------------------------------------------------------

    def forecast(self, model: Forecaster, rows: Rows, which: Ids, ends: Ids) -> np.ndarray:
        """Quantiles (N, k, V, Q), scaled as rows are."""
        return forecast(model, rows, which, ends, self.horizon, self.options.strategy, self.options.seed)

    def part(self, panel: Panel, splits: tuple[Split, ...], name: str) -> measuring.Part:
        return measuring.Part(panel, splits, name, self.horizon, self.season)

    def baselines(self, data: SeriesData) -> Iterable[Baseline]:
        """Naive, seasonal naive and a linear autoregression, on the validation part."""
        scores = plain_scores(self.part(data.panel, data.splits, "valid"))
        self.plain = {name: found["mase"] for name, found in scores.items()}
        for name, found in scores.items():
            yield Baseline(name, found["mase"], {f"valid_{key}": found[key] for key in SHOWN if key in found})

    def remarks(self, metrics: Metrics) -> Iterator[Remark]:
        mase, base = metrics.get("mase", 0.0), self.options.base
        for name, other in (("linear autoregression", "linear"), ("seasonal naive", "seasonal")):
            if base != other and mase > 1.01 * self.plain.get(name, math.inf):
                yield Remark(Message("worse than {name}, which it can add to", name=name), f"--base {other}")
        if metrics.get("share") == 0 and base in ("linear", "seasonal"):
            name = "the linear autoregression" if base == "linear" else "the seasonal naive forecast"
            yield Remark(Message("the network adds nothing to {name} of each series: forecasts are its", name=name))
        nominal, covered = metrics.get("nominal_coverage"), metrics.get("coverage")
        if nominal is not None and covered is not None and abs(nominal - covered) > OFF:
            yield Remark(Message(
                "bands cover {covered:.0%} of values where they say {nominal:.0%}: the series has changed since",
                covered=covered, nominal=nominal))  # fmt: skip

    def validate(self, model: Forecaster, data: SeriesData) -> Validation:
        """Also chooses how much of the network to take and how wide its bands are: both are kept with its weights."""
        part, rows = self.part(data.panel, data.splits, "valid"), data.rows
        run = partial(self.forecast, model, rows)
        if rows.form is not None:
            model.form.copy_(torch.tensor([float(part) for part in rows.form]))
        measuring.choose_share(model, run, part, rows)
        which, ends = measuring.pairs(rows, part.origins())
        scaled = run(which, ends)
        measuring.fit_bands(model, part, rows, scaled, move=self.options.bands != "model")
        moved = measuring.with_bands(model, rows, which, scaled)
        scores = measuring.score(part, model.quantiles, measuring.by_series(rows, part.origins(), moved))
        metrics = {f"valid_{name}": scores[name] for name in SHOWN if name in scores}
        metrics["valid_share"] = float(model.share)
        return Validation(scores["mase"], metrics, f"valid MASE {scores['mase']:.3f}")

    def sample(self, model: Forecaster, data: SeriesData) -> str:
        part = self.part(data.panel, data.splits, "valid")
        return measuring.first_forecast(model, data.rows, part, partial(self.forecast, model, data.rows))


TASK = ForecastTask
