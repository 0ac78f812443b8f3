"""/v1/predict: what any run's model makes of inputs, whatever its task.

Inputs come in the request. A name of a file is none: nobody reads this machine's files from elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from anyio import to_thread

from recur.errors import OptionError, RecurError
from recur.serve.asked import given, word
from recur.serve.models import Served
from recur.tasks.inputs import Lines, table_of
from recur.typedefs import JsonObject
from recur.web.answers import BusyError

if TYPE_CHECKING:
    from recur.serve.hub import Hub

INPUTS = 1024
"""Of one request."""
OPTIONS: dict[str, tuple[type, float, float]] = {
    "length": (int, 0, 4096),
    "samples": (int, 1, 64),
    "width": (int, 0, 64),
    "beam": (int, 1, 64),
    "nbest": (int, 1, 64),
    "seed": (int, 0, 2**63 - 1),
    "temperature": (float, 0.01, 100),
    "top_k": (int, 0, 10**9),
    "top_p": (float, 1e-9, 1),
    "min_p": (float, 0, 1),
    "stop": (str, 0, 0),
    "marginals": (bool, 0, 0),
    "anomalies": (bool, 0, 0),
}
"""What may be asked of predictors from elsewhere: none of these names a file."""


async def predict(hub: Hub, body: JsonObject) -> tuple[Served, list[JsonObject]]:
    body = given(body)
    served = hub.models.get(word(body, "model"))
    options = options_of(body.get("options", {}))
    inputs = inputs_of(body, served)
    if hub.predicting.statistics().tasks_waiting >= hub.limits.requests // 4:
        raise BusyError("too many predictions wait already; try again in a moment")

    def work() -> list[JsonObject]:
        try:
            return [plain(found) for found in served.predictor.predictions(inputs, **options)]
        except (TypeError, ValueError) as error:  # an option, or an input, that this task has no use for
            if isinstance(error, RecurError):
                raise
            raise OptionError(f"{served.name} cannot read this: {error}") from None

    return served, await to_thread.run_sync(work, limiter=hub.predicting)


def options_of(asked: object) -> JsonObject:
    if not isinstance(asked, dict):
        raise OptionError("options must be an object")
    options: JsonObject = given(asked)
    for name, value in options.items():
        if name not in OPTIONS:
            raise OptionError(f"unknown option {name[:100]!r}; there are {', '.join(OPTIONS)}")
        kind, low, high = OPTIONS[name]
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise OptionError(f"{name} must be {kind.__name__}, got {type(value).__name__}")
        if isinstance(value, int | float) and high and not low <= value <= high:
            raise OptionError(f"{name} must lie in {low:g} … {high:g}")
        if isinstance(value, str) and len(value) > 1000:
            raise OptionError(f"{name} is too long")
    return options


def inputs_of(body: JsonObject, served: Served) -> Any:
    """As `Predictor.predictions` takes them: lines, arrays, or the lines of one table."""
    predictor = served.predictor
    if ("input" in body) == ("inputs" in body):
        raise OptionError("give input, one text, table or array of numbers; or inputs, a list of them")
    if not predictor.takes_lines:
        return table_lines(body.get("input"))
    several = body["inputs"] if "inputs" in body else [body["input"]]
    if not isinstance(several, list) or len(several) > INPUTS:
        raise OptionError(f"inputs must be a list of at most {INPUTS:,}")
    if predictor.takes_files:  # images, or sequences of numbers
        return [_array(one) for one in several]
    for one in several:
        words = predictor.takes_words and isinstance(one, list) and all(isinstance(word, str) for word in one)
        if not isinstance(one, str) and not words:
            raise OptionError("an input must be a text")
    return several


def table_lines(asked: Any) -> Lines:
    """A table as lines of CSV: a text of them, columns by name, or a list of rows."""
    if isinstance(asked, str):
        return Lines([f"{line}\n" for line in asked.splitlines()], "the table")
    if isinstance(asked, dict | list) and asked and not _names_file(asked):
        tables, kind = table_of(asked)
        if kind != "several" and len(tables) == 1:
            return tables[0]
    raise OptionError("input must be a table: lines of CSV in one text, an object of columns, or a list of rows")


def _names_file(asked: Any) -> bool:
    """A list of texts would be files' names."""
    return isinstance(asked, list) and any(not isinstance(row, dict | int | float) for row in asked)


def _array(one: Any) -> np.ndarray[Any, Any]:
    try:
        found = np.asarray(one, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        found = np.zeros(0, np.float32)
    if not found.size or not np.isfinite(found).all():
        raise OptionError("an input must be numbers: a sequence or an image as lists of lists")
    return found


def plain(found: Any) -> Any:
    """As JSON has it."""
    if isinstance(found, dict):
        return {str(name): plain(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [plain(value) for value in found]
    return found.item() if isinstance(found, np.generic) else found.tolist() if isinstance(found, np.ndarray) else found
