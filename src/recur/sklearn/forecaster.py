"""An estimator of what follows a series."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from recur.api import fit as fit_model
from recur.data.frames import cell, columns_of
from recur.data.series.dates import infer_frequency, parse_date
from recur.errors import TextError, shown
from recur.sklearn.estimator import Array, Estimator, check_lengths, column_of


class RecurForecaster(RegressorMixin, Estimator):
    """What follows a series.

    `fit(X, y)` learns from the values y, in the order of time. X may be None, dates, or numbers that are known ahead:
    one row for each value. `predict(X)` gives a value for each row of X, which follow the last value learned from;
    without X, `horizon` of them. Beyond the horizon it goes on from its own forecasts. For cross-validation take
    `sklearn.model_selection.TimeSeriesSplit`, whose parts follow each other.

    >>> from recur.sklearn import RecurForecaster
    >>> values = [10 + month % 12 + month / 9 for month in range(96)]
    >>> RecurForecaster(horizon=12, steps=2, random_state=1).fit(None, values).predict().shape
    (12,)
    """

    task = "forecast"

    def fit(self, X: Any, y: Any = None) -> Self:
        values = [float(value) for value in column_of(y)]
        columns, date = _known_ahead(X)
        for column in columns.values():
            check_lengths(column, values)
        options = self._options() | {"target": [VALUE]}
        if known := [name for name in columns if name != date]:
            options["covariates"] = known
        if date is not None:
            options["date"] = date
        self.model_ = fit_model(columns | {VALUE: values}, task=self.task, **options)
        self.history_ = _History(values, columns, date)
        return self

    def predict(self, X: Any = None) -> Array:
        """The medians of the steps behind what was learned from: one for each row of X."""
        return np.array([step["0.5"] for step in self._steps(X)])

    def predict_quantiles(self, X: Any = None) -> Array:
        """The quantiles of those steps: (steps, quantiles)."""
        return np.array([list(step.values()) for step in self._steps(X)])

    def _steps(self, X: Any) -> list[dict[str, float]]:
        check_is_fitted(self, "model_")
        past, horizon = self.history_, int(self.model_.task.horizon)
        columns, _ = _known_ahead(X)
        if set(columns) - {past.date} != set(past.known) or (X is None and past.known):
            raise TextError(
                f"fit had the columns {', '.join(past.columns) or 'none'}, and here are {', '.join(columns)}"
            )
        wanted = horizon if X is None else len(X)
        steps: list[dict[str, float]] = []
        while len(steps) < wanted:
            made = self.model_.predict(past.table([step["0.5"] for step in steps], columns, horizon))
            steps += [row["quantiles"] for row in made]
        return steps[:wanted]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = False
        return tags


VALUE = "y"


class _History(NamedTuple):
    """What a forecaster learned from, for forecasts to begin behind."""

    values: list[float]
    columns: dict[str, list[Any]]
    date: str | None

    @property
    def known(self) -> list[str]:
        """Columns of numbers that are known ahead."""
        return [name for name in self.columns if name != self.date]

    def table(self, made: list[float], ahead: Mapping[str, list[Any]], horizon: int) -> dict[str, list[Any]]:
        """The history and the steps forecast so far; below it what is known of the next ones."""
        n = len(made) + (horizon if self.known else 0)
        found = {name: [*column, *_continued(ahead.get(name, []), column, n)] for name, column in self.columns.items()}
        return found | {VALUE: [*self.values, *made, *[None] * (n - len(made))]}


def _continued(ahead: list[Any], past: list[Any], n: int) -> list[Any]:
    """The first n values ahead. Dates that are not given go on in step; a number stays, for steps nobody asked for."""
    found = list(ahead[:n])
    known = [*past, *found]
    if len(found) < n and isinstance(known[-1], datetime.date):
        return found + _dates_behind(known, n - len(found))
    return found + known[-1:] * (n - len(found))


def _dates_behind(known: list[Any], n: int) -> list[Any]:
    """The next n dates, in steps of these: of months, business days or time."""
    last = known[-1]
    with_time = isinstance(last, datetime.datetime)
    whole_days = not with_time or all(value.time() == datetime.time() for value in known)
    read = [date for value in known if (date := parse_date(cell(value, whole_days))) is not None]
    if len(read) < len(known):
        raise TextError(f"the dates of X do not go on behind {shown(last)}: some of them are none")
    places = np.unique([date.place for date in read])
    frequency = infer_frequency([places], read[0].form)
    begin = int(frequency.steps(places)[-1]) + 1
    ahead = [int(place) for place in frequency.places(int(places[0]), n, begin)]
    zone = (last.tzinfo if whole_days else datetime.UTC) if with_time and last.tzinfo else None  # as they are read
    found = [datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=place) for place in ahead]
    return [when.replace(tzinfo=zone) if with_time else when.date() for when in found]


def _known_ahead(X: Any) -> tuple[dict[str, list[Any]], str | None]:
    """The columns of X, and which of them has the dates. One that only counts steps says nothing."""
    columns = {} if X is None else columns_of(X)
    dates = [name for name, column in columns.items() if column and isinstance(column[0], datetime.date)]
    if len(columns) == 1 and not dates and _counts(next(iter(columns.values()))):
        return {}, None
    return columns, dates[0] if dates else None


def _counts(column: list[Any]) -> bool:
    steps = np.diff(np.asarray(column, float))
    return bool((steps == 1).all())
