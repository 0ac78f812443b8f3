"""Estimators with the interface of scikit-learn: classifier, tagger and forecaster.

Their parameters are the options of a task. Pickling stores the files of the run as bytes.
"""

from __future__ import annotations

import datetime
import inspect
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from recur.api import fit as fit_model
from recur.api import load
from recur.data.csv_files import parse_date
from recur.data.frames import column_values, columns_of, format_cell, is_frame, single_line
from recur.data.series.dates import infer_frequency
from recur.errors import OptionError, RecurError, TextError, shown
from recur.tasks import options_class

Array = np.ndarray[Any, Any]

LEFT_OUT = (
    *(
        "texts",
        "valid",
        "test",
        "seed",
        "encoding",
        "on_bad_rows",
        "delimiter",
        "header",
        "text",
        "label",
        "id",
        "group",
    ),
    *("words", "tags", "sentence", "valid_fraction", "test_fraction", "multi_label", "decimal", "date_format"),
)
"""Options of the task that `fit` has under other names, or that are for files."""


class Estimator(BaseEstimator):
    """Base class of the estimators; a subclass names its task."""

    task: ClassVar[str]
    own: ClassVar[Mapping[str, Any]] = {"random_state": None}
    """Parameters that are not options of the task, and their defaults."""

    def __init_subclass__(cls) -> None:
        """Put the task's options into the signature, where scikit-learn looks for parameters."""
        super().__init_subclass__()
        names = [name for name in options_class(cls.task).names() if name not in LEFT_OUT]
        defaults = dict.fromkeys(names) | dict(cls.own)
        parameters = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in defaults.items()
        ]
        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)

        def initialise(self: Any, **given: Any) -> None:
            for name in given:
                if name not in defaults:
                    raise TypeError(f"{cls.__name__} has no parameter {name!r}")
            for name, default in defaults.items():
                setattr(self, name, given.get(name, default))

        initialise.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
        cls.__init__ = initialise  # type: ignore[method-assign]

    def _options(self) -> dict[str, Any]:
        """Return the parameters as options of the task."""
        given = {name: value for name, value in self.get_params(deep=False).items() if name not in self.own}
        found = {name: value for name, value in given.items() if value is not None}
        if self.random_state is not None:
            found["seed"] = _seed(self.random_state)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags

    # Pickling: a run is files -------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        model = state.pop("model_", None)
        if model is not None:
            state["_files"] = {
                path.name: path.read_bytes()
                for path in model.run.path.iterdir()
                if path.is_file() and path.name != "lock"
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.get("_files")
        super().__setstate__({name: value for name, value in state.items() if name != "_files"})
        if files is not None:
            self.model_ = _restored(files)


def _restored(files: Mapping[str, bytes]) -> Any:
    """Return the model of a run with these files, in a temporary folder that is deleted with the model."""
    folder = tempfile.mkdtemp(prefix="recur-")
    try:
        for name, content in files.items():
            if Path(name).name != name:
                raise RecurError(f"this is no file of a run: {name!r}")
            (Path(folder) / name).write_bytes(content)
        model = load(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(model, shutil.rmtree, folder, ignore_errors=True)
    return model


def _seed(random_state: Any) -> int:
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)


def column_of(X: Any) -> list[Any]:
    """Return the inputs, one per row, of a list, a series, or the only column of an array or frame."""
    if is_frame(X):
        columns = columns_of(X)
        if len(columns) != 1:
            raise TextError(f"one column of texts is expected, got {len(columns)}: {', '.join(columns)}")
        return next(iter(columns.values()))
    if isinstance(X, np.ndarray):
        if X.ndim == 2 and X.shape[1] == 1:
            X = X[:, 0]
        if X.ndim == 3 and X.dtype.kind in "buif":  # sequences of numbers
            return list(X)
        if X.ndim != 1:
            raise TextError(f"Reshape your data: a list of inputs is expected, got an array of {X.shape}")
    found = column_values(X)
    if not found:
        raise TextError("0 sample(s) given, while a minimum of 1 is required")
    return found


def check_lengths(inputs: Sequence[Any], answers: Sequence[Any]) -> None:
    if len(inputs) != len(answers):
        raise TextError(f"expected as many targets as inputs, got {len(inputs)} inputs and {len(answers)} targets")


class RecurClassifier(ClassifierMixin, Estimator):
    """Text classifier.

    >>> from recur.sklearn import RecurClassifier
    >>> model = RecurClassifier(hidden_size=8, steps=20, random_state=1).fit(["good", "bad"] * 30, ["pos", "neg"] * 30)
    >>> model.predict(["good"]).tolist()
    ['pos']
    """

    task = "classify"
    own = {"random_state": None, "validation_fraction": 0.1}

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to texts X and their classes y, of any type.

        For several labels per text, y is a matrix (texts, labels) of 0 and 1, as scikit-learn has it, or a list of
        lists of labels; `predict` returns the same kind.
        """
        if (several := _label_sets(y)) is not None:
            return self._fit_several(column_of(X), *several)
        self.multilabel_ = False
        texts, labels = column_of(X), column_of(y)
        check_lengths(texts, labels)
        names = [single_line(format_cell(label)).strip() for label in labels]
        self.classes_ = np.unique(np.asarray(labels))
        by_name = {single_line(format_cell(label)).strip(): k for k, label in enumerate(self.classes_.tolist())}
        if len(by_name) < len(self.classes_):
            raise TextError("two classes have the same text; give them different names")
        if len(self.classes_) < 2:
            raise TextError(f"at least two classes are needed, and all examples are of {names[0]!r}: 1 class")
        options = self._options()
        held = _held_out(len(texts), self.validation_fraction, options.get("seed", 0), names)
        self.model_ = fit_model(task=self.task, **_parts(texts, names, held), **options)
        self._order = [by_name[name] for name in self.model_.classes]
        return self

    def _fit_several(self, texts: list[Any], sets: list[list[str]], classes: list[Any], matrix: bool) -> Self:
        check_lengths(texts, sets)
        self.multilabel_, self._matrix = True, matrix
        self.classes_ = np.asarray(classes)
        options = self._options()
        groups = [labels[0] if labels else "" for labels in sets]
        held = _held_out(len(texts), self.validation_fraction, options.get("seed", 0), groups)
        self.model_ = fit_model(task=self.task, multi_label=True, **_parts(texts, sets, held), **options)
        names = [single_line(format_cell(label)).strip() for label in classes]
        self._order = [names.index(name) for name in self.model_.classes]
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return probabilities (texts, classes) in the order of `classes_`; rows sum to 1 unless texts have several
        labels."""
        check_is_fitted(self, "model_")
        found = self.model_.probabilities(_texts(X))
        probabilities = np.zeros((len(found), len(self.classes_)))
        probabilities[:, self._order] = [list(one.values()) for one in found]
        return probabilities

    def predict(self, X: Any) -> Any:
        """Return the most likely class of each text; for several labels per text, what `fit` was given: a matrix of 0
        and 1, or lists of labels."""
        chances = self.predict_proba(X)
        if self.multilabel_:
            thresholds = np.full(len(self.classes_), 2.0)  # a label that no training text has is never predicted
            thresholds[self._order] = self.model_.thresholds.numpy()
            chosen = chances >= thresholds
            if self._matrix:
                return chosen.astype(np.int64)
            return [self.classes_[row].tolist() for row in chosen]
        likeliest: Array = self.classes_[chances.argmax(1)]
        return likeliest


def _label_sets(y: Any) -> tuple[list[list[str]], list[Any], bool] | None:
    """Return the labels of each text, all labels, and whether y is a matrix; None if each text has one label."""
    if is_frame(y) and len(y.columns) > 1:
        names: list[Any] = [str(name) for name in y.columns]
        matrix = np.stack([np.asarray(column) for column in columns_of(y).values()], axis=1)
    elif isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] > 1:
        matrix, names = y, list(range(y.shape[1]))
    elif isinstance(y, Sequence) and not isinstance(y, str) and any(isinstance(v, list | tuple | set) for v in y):
        sets = [sorted({single_line(format_cell(label)).strip() for label in labels}) for labels in y]
        return sets, sorted({label for labels in sets for label in labels}), False
    else:
        return None
    if not np.isin(matrix, (0, 1)).all():
        raise TextError("y of several columns must be 0 or 1: a column for each label")
    written = [single_line(format_cell(name)).strip() for name in names]
    return [[written[k] for k in np.flatnonzero(row)] for row in matrix], names, True


def _texts(X: Any) -> list[Any]:
    return [text if isinstance(text, np.ndarray) else str(text) for text in column_of(X)]


class RecurTagger(Estimator):
    """Tagger of words. A sentence is a list of words, or a text with words separated by spaces.

    >>> from recur.sklearn import RecurTagger
    >>> sentences, tags = [["the", "word"], ["a", "word"]] * 20, [["DT", "NN"], ["DT", "NN"]] * 20
    >>> RecurTagger(hidden_size=8, steps=30, random_state=1).fit(sentences, tags).predict([["a", "word"]])[0]
    ['DT', 'NN']
    """

    task = "tag"
    own = {"random_state": None, "validation_fraction": 0.1}

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to sentences X and one list of tags per sentence."""
        sentences, tags = _sentences(X), _sentences(y)
        check_lengths(sentences, tags)
        options = self._options()
        held = _held_out(len(sentences), self.validation_fraction, options.get("seed", 0))
        held = held if len(held) < len(sentences) else set()
        self.model_ = fit_model(task=self.task, **_parts(sentences, tags, held), **options)
        self.classes_ = np.array(self.model_.tags)
        return self

    def predict(self, X: Any) -> list[list[str]]:
        """Return the tags of each sentence."""
        check_is_fitted(self, "model_")
        tags: list[list[str]] = self.model_(_sentences(X))
        return tags

    def predict_proba(self, X: Any) -> list[Array]:
        """Return probabilities (words, tags) of each sentence, in the order of `classes_`."""
        check_is_fitted(self, "model_")
        found = self.model_.probabilities(_sentences(X))
        return [np.array([[word[tag] for tag in self.classes_] for word in sentence]) for sentence in found]

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy over words."""
        right = total = 0
        for made, true in zip(self.predict(X), _sentences(y), strict=True):
            right += sum(a == b for a, b in zip(made, true, strict=True))
            total += len(true)
        return right / total


def _sentences(X: Any) -> list[list[str]]:
    return [words.split() if isinstance(words, str) else [str(word) for word in words] for words in _column_of_lists(X)]


def _column_of_lists(X: Any) -> Iterable[Any]:
    return list(X) if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] > 1 else column_of(X)


def _held_out(n: int, share: float, seed: int, groups: Sequence[Any] | None = None) -> set[int]:
    """Return the indices of a random validation set that never takes the last example of a class."""
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise OptionError(f"validation_fraction must lie inside 0 … 1, got {share!r}")
    left: dict[Any, int] = {}
    for group in groups or ():
        left[group] = left.get(group, 0) + 1
    held: set[int] = set()
    for k in np.random.default_rng(seed).permutation(n).tolist():
        if len(held) >= max(1, round(share * n)):
            break
        if groups is None or left[groups[k]] > 1:
            held.add(k)
            if groups is not None:
                left[groups[k]] -= 1
    return held


def _parts(inputs: list[Any], answers: list[Any], held: set[int]) -> dict[str, Any]:
    """Return training and validation sets; too little data for a split is used for both."""
    valid = sorted(held) or range(len(inputs))
    train = [k for k in range(len(inputs)) if k not in held]
    valid_part = [inputs[k] for k in valid], [answers[k] for k in valid]
    return {
        "texts": [inputs[k] for k in train],
        "answers": [answers[k] for k in train],
        "valid": valid_part,
        "test": valid_part,  # none is asked for, and none is held out
    }


class RecurForecaster(RegressorMixin, Estimator):
    """Forecaster of a series.

    `fit(X, y)` fits to the values y in order of time. X is None, dates, or covariates known ahead, one row per value.
    `predict(X)` returns one value per row of X, which follow the last training value; without X, `horizon` values.
    Beyond the horizon it continues from its own forecasts. For cross-validation use
    `sklearn.model_selection.TimeSeriesSplit`.

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
        """Return the medians of the steps after the training values, one per row of X."""
        return np.array([step["0.5"] for step in self._steps(X)])

    def predict_quantiles(self, X: Any = None) -> Array:
        """Return the quantiles of these steps, shape (steps, quantiles)."""
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
    """Training values and columns, after which forecasts begin."""

    values: list[float]
    columns: dict[str, list[Any]]
    date: str | None

    @property
    def known(self) -> list[str]:
        """Columns of covariates known ahead."""
        return [name for name in self.columns if name != self.date]

    def table(self, made: list[float], ahead: Mapping[str, list[Any]], horizon: int) -> dict[str, list[Any]]:
        """Return the history, the forecasts so far, and the covariates of the next steps."""
        n = len(made) + (horizon if self.known else 0)
        found = {name: [*column, *_continued(ahead.get(name, []), column, n)] for name, column in self.columns.items()}
        return found | {VALUE: [*self.values, *made, *[None] * (n - len(made))]}


def _continued(ahead: list[Any], past: list[Any], n: int) -> list[Any]:
    """Return the first n values ahead; missing dates continue regularly, a missing number repeats the last one."""
    found = list(ahead[:n])
    known = [*past, *found]
    if len(found) < n and isinstance(known[-1], datetime.date):
        return found + _dates_behind(known, n - len(found))
    return found + known[-1:] * (n - len(found))


def _dates_behind(known: list[Any], n: int) -> list[Any]:
    """Return the next n dates at the frequency of the known ones."""
    last = known[-1]
    with_time = isinstance(last, datetime.datetime)
    whole_days = not with_time or all(value.time() == datetime.time() for value in known)
    read = [date for value in known if (date := parse_date(format_cell(value, whole_days))) is not None]
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
    """Return the columns of X and the name of its date column; a column that only counts steps is dropped."""
    columns = {} if X is None else columns_of(X)
    dates = [name for name, column in columns.items() if column and isinstance(column[0], datetime.date)]
    if len(columns) == 1 and not dates and _counts(next(iter(columns.values()))):
        return {}, None
    return columns, dates[0] if dates else None


def _counts(column: list[Any]) -> bool:
    steps = np.diff(np.asarray(column, float))
    return bool((steps == 1).all())
