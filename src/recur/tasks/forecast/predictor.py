"""What a trained forecaster can do: forecast what follows a table, and be measured beside plain forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from recur.errors import OptionError, TextError
from recur.models import Forecaster
from recur.run import Run
from recur.series import Rolling, baselines, mean_scores, parse_table
from recur.series.figure import draw
from recur.tasks.classes import classes_of
from recur.tasks.contract import Predictor, source_name
from recur.tasks.forecast.quantiles import forecasts
from recur.tasks.forecast.task import ForecastTask, check_columns
from recur.tasks.predictions import Prediction, Predictions
from recur.typedefs import JsonObject


class SeriesForecaster(Predictor[Forecaster]):
    """A trained forecaster."""

    takes_lines = False
    task: ForecastTask

    def __init__(self, task: ForecastTask, runs: Sequence[Run], device: str = "auto") -> None:
        super().__init__(task, runs, device)
        self.columns = classes_of(self.run.vocabs["columns"])

    def _answer(self, found: Prediction) -> float:
        return float(found["quantiles"]["0.5"])

    def _table_answer(self, found: Predictions) -> np.ndarray[Any, Any]:
        """The medians: (horizon,) of one column, (horizon, columns) of several."""
        values = np.array([self._answer(row) for row in found])
        return values if len(self.columns) == 1 else values.reshape(-1, len(self.columns))

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Rolling origin over the end of the series: MASE, sMAPE, pinball loss and coverage; others' beside them."""
        figure = options.pop("figure", None)
        self.refuse(options)
        task, lags = self.task, self.task.options.lags
        tables = [task.table(name) for name in texts or task.options.texts]
        results = []
        others: dict[str, list[Rolling]] = {}
        for table in tables:
            check_columns(table, str(self.run.path), self.columns)
            n = len(table) - task.holdout
            if n <= max(lags, task.season):
                raise OptionError(f"{table.name} has {len(table)} values, too few to hold out {task.holdout} of them")
            results.append(task.rolled(self.model, table, max(n - task.holdout, task.season + 1)))
            for name, rolled in baselines(table, n, task.horizon, task.season, lags).items():
                others.setdefault(name, []).append(rolled)
        found = {
            "model": self.name,
            **mean_scores(results),
            "origins": sum(len(table) - r.first for table, r in zip(tables, results, strict=True)),
        }
        if "coverage" in found:
            found["nominal_coverage"] = self.model.quantiles[-1] - self.model.quantiles[0]
        found["beside"] = [{"model": name, **mean_scores(rolled)} for name, rolled in others.items()]
        if figure is not None:
            draw(tables[0], results[0], str(figure))
        return found

    def _predict(self, lines: Iterable[str], **options: Any) -> Iterator[JsonObject]:
        """A CSV, line by line: the quantiles of the steps behind its last value."""
        self.refuse(options)
        task, o = self.task, self.task.options
        table = parse_table(lines, source_name(lines), o.target, o.covariates, o.date)
        check_columns(table, str(self.run.path), self.columns)
        if table.covariates and table.ahead < task.horizon:
            raise TextError(
                f"covariates are known {table.ahead} steps ahead, and --horizon is {task.horizon}; add rows"
            )
        least = max(o.lags, task.season) + 1
        if len(table) < least:
            raise TextError(f"{len(table)} values are too few to forecast from; {least} are needed")
        (found,) = forecasts(self.model, table, [len(table)], len(table), task.settings)
        for step, row in enumerate(found, start=1):
            for column, quantiles in zip(table.targets, row, strict=True):
                at = {f"{q:g}": float(x) for q, x in zip(self.model.quantiles, quantiles, strict=True)}
                yield {"input": f"{column} + {step}", "output": f"{at['0.5']:g}", "quantiles": at, "step": step}


PREDICTOR = SeriesForecaster
