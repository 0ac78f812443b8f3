"""What the estimators share: parameters that are the options of a task, pickling, and how inputs are taken."""

from __future__ import annotations

import inspect
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from recur.api import load
from recur.data.frames import columns_of, is_frame, values_of
from recur.errors import RecurError, TextError
from recur.tasks import options_class

Array = np.ndarray[Any, Any]

LEFT_OUT = ("texts", "valid", "test", "seed")
"""Options that fit has other names for."""


class Estimator(BaseEstimator):
    """Parameters, pickling, and what they share: a subclass names its task."""

    task: ClassVar[str]
    own: ClassVar[Mapping[str, Any]] = {"random_state": None}
    """Parameters that are no options of the task, and their defaults."""

    def __init_subclass__(cls) -> None:
        """The parameters are the task's options, where scikit-learn looks for them: in the signature."""
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
        """What was said, as options of the task."""
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
    """The model of a run whose files are here, in a folder that goes when it does."""
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
    """Inputs, one a row: a list, a series, or the only column of an array or frame."""
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
    found = values_of(X)
    if not found:
        raise TextError("0 sample(s) given, while a minimum of 1 is required")
    return found


def check_lengths(inputs: Sequence[Any], answers: Sequence[Any]) -> None:
    if len(inputs) != len(answers):
        raise TextError(f"{len(inputs)} inputs and {len(answers)} answers: one belongs to the other")
