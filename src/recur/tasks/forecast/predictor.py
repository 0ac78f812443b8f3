"""Trained forecaster: forecasts, anomalies, and evaluation against baselines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from recur.data.series import Panel, Series, owa
from recur.data.series.evaluation import anomalies, draw, draw_future, residuals
from recur.data.text.stream import Floats, Ids
from recur.data.text.tables import table_lines
from recur.errors import OptionError, TextError
from recur.i18n import Message
from recur.models import Forecaster
from recur.options import Fraction, checked
from recur.runs import Run
from recur.tasks.common.predictor import NamedLines, Prediction, Predictions, Predictor, source_name
from recur.tasks.common.runs import task_of_run
from recur.tasks.forecast import evaluation
from recur.tasks.forecast.evaluation import baseline_scores
from recur.tasks.forecast.task import ForecastTask, parse_series, read_series
from recur.utils.types import JsonObject

THRESHOLD = 0.01
"""p-value below which a value counts as an anomaly: one in a hundred usual values is as far off."""

SEASONS_READ = 4
"""Seasons that a network with a state reads before it is judged, as many as a training window has."""

MOST_STEPS = 48
"""Up to this horizon MASE is given step by step."""


class SeriesForecaster(Predictor[Forecaster]):
    """Trained forecaster; an ensemble averages the quantiles."""

    takes_lines = False
    ensembles = True
    task: ForecastTask

    def __init__(self, task: ForecastTask, runs: Sequence[Run], device: str = "auto") -> None:
        super().__init__(task, runs, device)
        self.tasks: list[ForecastTask] = [task, *(task_of_run(run) for run in runs[1:])]
        for other in self.tasks[1:]:
            same = ("horizon", "season", "quantiles")
            if any(getattr(other.options, name) != getattr(task.options, name) for name in same):
                raise OptionError(f"{self.name} differ in horizon, season or quantiles: they are not one model")

    def _answer(self, found: Prediction) -> float:
        return float(found["quantiles"]["0.5"])

    def _table_answer(self, found: Predictions) -> np.ndarray[Any, Any]:
        """Return the medians: (horizon,) of one variable, (horizon, variables), or (series, …)."""
        values = np.array([self._answer(row) for row in found]).reshape(-1, self.task.horizon, self.model.targets)
        values = values[..., 0] if self.model.targets == 1 else values
        return values[0] if len(values) == 1 else values

    def header(self, **options: Any) -> str:
        """Return the names of the columns of `write`."""
        if options.get("anomalies"):
            return "id,date,value,expected,score,p_value,anomaly"
        return ",".join(["id", "date", "mean", *(name for name, _ in interval_columns(self.task.options.quantiles))])

    def write(self, found: JsonObject, made: JsonObject, score: float | None = None) -> str:
        """Format a forecast with its median and prediction intervals, or a value with its anomaly score, as CSV."""
        begin = [found["id"], found["date"]]
        if "p_value" in made:
            numbers = [
                f"{made['value']:g}",
                f"{made['expected']:.6g}",
                f"{made['score']:+.3g}",
                f"{made['p_value']:.3g}",
            ]
            return csv_line([*begin, *numbers, str(int(made["anomaly"]))])
        at = made["quantiles"]
        columns = [f"{at[f'{q:g}']:.6g}" for _, q in interval_columns(self.task.options.quantiles)]
        return csv_line([*begin, f"{at['0.5']:.6g}", *columns])

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Return MASE, sMAPE, scaled errors, weighted quantile loss and coverage over all origins, with baselines."""
        figure = options.pop("figure", None)
        self.refuse(options)
        task = self.task
        if texts:
            panel, _ = read_series(task.options.changed(texts=tuple(texts), test=()), self.new_reading())
        else:
            self.find_texts("texts", "test")
            self.reading = task.new_reading()
            panel, _ = read_series(task.options, self.reading)
        if not texts or len(panel) > 1:  # a single series of another file needs no training part
            panel = task.without_short(panel, self.reading)
        splits = task.splits(panel)
        part = task.part(panel, splits, "test")
        for one, split in zip(panel.series, splits, strict=True):
            if split.valid <= task.season + 1:
                held = split.test - split.valid
                raise OptionError(f"{one.id} has {len(one)} values, too few to hold out {held} of them")
        origins, before = part.origins(), [split.valid for split in splits]
        trained = [split.train if split.train > task.season else split.valid for split in splits]
        made = self._quantiles(panel, trained, before, origins, trained)
        found: JsonObject = {"model": self.name, **evaluation.score(part, task.options.quantiles, made)}
        found["origins"] = sum(map(len, origins))
        if "coverage" in found:
            found["nominal_coverage"] = task.options.quantiles[-1] - task.options.quantiles[0]
        if task.horizon > MOST_STEPS:
            del found["mase_by_step"]
        beside = baseline_scores(part)
        task.plain = {name: scores["mase"] for name, scores in beside.items()}
        yardstick = beside.get("naive 2", beside["naive"])  # without a season they are the same
        for row in (found, *beside.values()):
            if (ratio := owa(row, yardstick)) is not None:
                row["owa"] = ratio
        found["beside"] = [{"model": name, **scores} for name, scores in beside.items()]
        if figure is not None:
            draw(panel, origins, made, task.options.quantiles, str(figure))
        return found

    def _quantiles(
        self,
        panel: Panel,
        scaled_by: Sequence[int],
        fitted_on: Sequence[int],
        origins: Sequence[Ids],
        learned: Sequence[int] | None = None,
    ) -> list[Floats]:
        """Return quantiles (origins, k, targets, Q) of each series, in its units; the mean of all models.

        Rolling intervals start with the values behind those `learned` from.
        """
        sums: list[Floats] = []
        for task, model in zip(self.tasks, self.models, strict=True):
            rows = task.rows(model, panel, self.run.vocabs, scaled_by, fitted_on)
            which, ends = evaluation.pairs(rows, origins)
            scaled = task.forecast(model, rows, which, ends)
            if task.options.bands == "rolling" and learned is not None and evaluation.can_shift(task, learned, origins):
                before = task.rows(model, panel, self.run.vocabs, scaled_by, learned)
                moved = evaluation.shifted_intervals(task, model, (before, learned), (rows, origins), scaled, panel)
            else:
                moved = evaluation.with_intervals(model, rows, which, scaled)
            found = list(evaluation.by_series(rows, origins, moved))
            sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else found
        return [total / len(self.models) for total in sums]

    def _predict(self, lines: Iterable[str], **options: Any) -> Iterator[JsonObject]:
        """Yield the quantiles after the last value of each series, or with `anomalies` a score of each value."""
        judge, threshold = options.pop("anomalies", False), options.pop("threshold", None)
        figure = options.pop("figure", None)
        self.refuse(options)
        if threshold is not None and not judge:
            raise OptionError("a threshold is for anomalies: --anomalies")
        panel = self._panel(lines)
        if judge:
            if figure is not None:
                raise OptionError("--figure draws forecasts, and --anomalies has none")
            yield from self._judged(
                panel, checked("threshold", THRESHOLD if threshold is None else threshold, Fraction)
            )
            return
        yield from self._ahead(panel, figure)

    def read_inputs(self, name: str) -> Iterable[str]:
        """Return the lines of a table, of a CSV or another kind of file."""
        return NamedLines(table_lines(name, self.new_reading()), name)

    def _panel(self, lines: Iterable[str]) -> Panel:
        """Parse a table. A series that nothing can be forecast from is left out and reported, or stops the job."""
        reading = self.new_reading()
        panel = parse_series(self.task.options, lines, source_name(lines), reading)
        found = []
        for one in panel.series:
            try:
                self._check(panel, one)
            except TextError as error:
                if len(panel) == 1:
                    raise
                reading.reject(TextError(f"{one.id}: {error}"))
            else:
                found.append(one)
        if not found:
            raise TextError(reading.bad[0])
        return panel if len(found) == len(panel) else replace(panel, series=tuple(found))

    def _check(self, panel: Panel, one: Series) -> None:
        task = self.task
        if panel.future and one.ahead < task.horizon:
            raise TextError(
                Message(
                    "covariates are known {n} steps ahead, and --horizon is {horizon}; add rows",
                    n=one.ahead,
                    horizon=task.horizon,
                )
            )
        least = task.season + 1
        if len(one) < least:
            raise TextError(
                Message("{n} values are too few to forecast from; {least} are needed", n=len(one), least=least)
            )

    def _ahead(self, panel: Panel, figure: object = None) -> Iterator[JsonObject]:
        """Yield the steps after the last value of each series; also draw them after its history, if requested."""
        whole = [len(one) for one in panel.series]
        found = self._quantiles(panel, whole, whole, [np.array([n]) for n in whole], self.task.learned(panel))
        if figure is not None:
            draw_future(panel, found, self.task.options.quantiles, str(figure))
        levels = [f"{q:g}" for q in self.task.options.quantiles]
        for one, made in zip(panel.series, found, strict=True):
            dates = panel.dates(one, len(one), self.task.horizon)
            for step, row in enumerate(made[0], start=1):
                for column, quantiles in zip(panel.targets, row, strict=True):
                    at = dict(zip(levels, map(float, quantiles), strict=True))
                    name = _label(panel, one, column)
                    yield {
                        "input": f"{name} {dates[step - 1]}" if dates else f"{name} + {step}",
                        "output": f"{at['0.5']:g}",
                        "id": name,
                        "series": one.id,
                        "target": column,
                        "step": step,
                        "date": dates[step - 1] if dates else str(len(one) + step),
                        "quantiles": at,
                    }

    def _judged(self, panel: Panel, threshold: float) -> Iterator[JsonObject]:
        """Yield each value with its one-step forecast, its relative error, and the probability of such an error.

        The first values are left out: the network has not read a whole window, or four seasons, before them.
        """
        levels = self.task.options.quantiles
        whole = [len(one) for one in panel.series]
        origins = [np.arange(min(self._warm_up, n), n) for n in whole]
        if not any(map(len, origins)):
            raise TextError(
                Message("{n} values are too few to judge; {least} are needed", n=max(whole), least=self._warm_up + 1)
            )
        usual = np.mean([model.residuals.cpu().numpy() for model in self.models], axis=0)
        if not usual.any():
            raise OptionError(
                f"{self.name} has not kept which errors are usual; train it again, with several --quantiles"
            )
        found = self._quantiles(panel, whole, whole, origins)
        for one, at, made in zip(panel.series, origins, found, strict=True):
            judged = anomalies(residuals(one.values[at], made[:, 0], levels), usual)
            dates = panel.dates(one)
            for k, row in enumerate(at):
                for c, column in enumerate(panel.targets):
                    if np.isnan(one.values[row, c]):
                        continue
                    name = _label(panel, one, column)
                    yield {
                        "input": f"{name} {dates[row]}" if dates else f"{name} {row + 1}",
                        "output": f"{judged.residual[k, c]:.3g}",
                        "id": name,
                        "series": one.id,
                        "target": column,
                        "row": int(row) + 1,
                        "date": dates[row] if dates else str(int(row) + 1),
                        "value": float(one.values[row, c]),
                        "expected": float(made[k, 0, c, levels.index(0.5)]),
                        "score": float(judged.residual[k, c]),
                        "p_value": float(judged.p_value[k, c]),
                        "anomaly": bool(judged.p_value[k, c] < threshold),
                    }

    @property
    def _warm_up(self) -> int:
        """Number of values that are read before the first one is judged."""
        return max(self.task.season + 1, *(model.lags or SEASONS_READ * self.task.season for model in self.models))


def interval_columns(quantiles: Sequence[float]) -> list[tuple[str, float]]:
    """Return the columns of a forecast beside its median, each with its quantile; the widest interval first.

    >>> interval_columns((0.1, 0.25, 0.5, 0.9))
    [('lo80', 0.1), ('hi80', 0.9), ('q25', 0.25)]
    """
    found, others = list[tuple[str, float]](), []
    for q in quantiles:
        above = next((p for p in quantiles if abs(p + q - 1) < 1e-9), None)
        if above is None:
            others.append((f"q{100 * q:g}", q))
        elif q < 0.5:
            width = f"{round(100 * (above - q), 6):g}"
            found += [(f"lo{width}", q), (f"hi{width}", above)]
    return found + others


def csv_line(cells: Sequence[str]) -> str:
    """Return cells as one line of a CSV file, quoted where needed."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


def _label(panel: Panel, one: Series, column: str) -> str:
    if len(panel) == 1:
        return column
    return one.id if len(panel.targets) == 1 else f"{one.id}/{column}"


PREDICTOR = SeriesForecaster
