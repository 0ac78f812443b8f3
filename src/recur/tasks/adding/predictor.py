"""Trained network of the adding problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from recur.errors import TextError
from recur.i18n import Message
from recur.models import Regressor
from recur.tasks.common.predictor import Prediction
from recur.tasks.common.synthetic import Solver
from recur.utils.types import JsonObject


class Adder(Solver[Regressor]):
    """A trained network that adds. A row is an array (T, 2) of numbers and marks, or a line: `0.3 0.9* 0.5 0.1*`."""

    takes_arrays = True

    def _answer(self, found: Prediction) -> float:
        return float(found["value"])

    @torch.no_grad()
    def _predict(self, lines: Iterable[str | np.ndarray[Any, Any]], **options: Any) -> Iterator[JsonObject]:
        self.refuse(options)
        for given in lines:
            row = _parse(given) if isinstance(given, str) else np.asarray(given, np.float32)
            if row.ndim != 2 or row.shape[1] != 2 or not len(row):
                raise TextError(f"a row is (T, 2): numbers, and marks of two of them; got {row.shape}")
            x = torch.from_numpy(np.ascontiguousarray(row))[None].to(self.device)
            value = float(self.model(x))
            shown = given if isinstance(given, str) else " + ".join(f"{u:g}" for u, marked in row if marked)
            yield {
                "input": shown,
                "output": f"{value:.4f}",
                "value": value,
                "sum": float((row[:, 0] * row[:, 1]).sum()),
            }


def _parse(line: str) -> np.ndarray[Any, Any]:
    try:
        return np.array([[float(word.rstrip("*")), word.endswith("*")] for word in line.split()], np.float32)
    except ValueError:
        raise TextError(
            Message(
                "a row is numbers, two of them marked: {example}; got {given}",
                example="0.3 0.9* 0.5 0.1*",
                given=repr(line[:40]),
            )
        ) from None


PREDICTOR = Adder
