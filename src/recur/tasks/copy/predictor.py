"""Trained network of the copying problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from recur.errors import TextError
from recur.i18n import Message
from recur.models import OutputTagger, Tagger
from recur.tasks.common.predictor import Prediction
from recur.tasks.common.synthetic import Solver
from recur.tasks.copy.task import MESSAGE, SYMBOLS, CopyTask
from recur.utils.types import JsonObject


class Copier(Solver[Tagger | OutputTagger]):
    """A trained network that recalls. A message is an array of ten symbols, or a line: `3 1 4 1 5 7 2 6 5 3`."""

    takes_arrays = True
    task: CopyTask

    def _answer(self, found: Prediction) -> list[int]:
        symbols: list[int] = found["symbols"]
        return symbols

    @torch.no_grad()
    def _predict(self, lines: Iterable[str | np.ndarray[Any, Any]], **options: Any) -> Iterator[JsonObject]:
        """Return what the model recalls of each message after the silence of its training."""
        self.refuse(options)
        for given in lines:
            message = _parse(given)
            logits = self.task.logits(self.model, self.task.asked(np.array([message])))
            symbols = logits.view(-1, SYMBOLS + 1)[-MESSAGE:].argmax(-1).tolist()
            right = sum(a == b for a, b in zip(message, symbols, strict=True))
            written = [" ".join(map(str, row)) for row in (message, symbols)]
            yield {"input": written[0], "output": written[1], "symbols": symbols, "right": right}


def _parse(given: str | np.ndarray[Any, Any]) -> list[int]:
    words = given.split() if isinstance(given, str) else [str(k) for k in np.asarray(given).tolist()]
    if len(words) != MESSAGE or not all(word.isdecimal() and int(word) < SYMBOLS for word in words):
        raise TextError(
            Message(
                "a message is {n} symbols of 0 … {last}, got {given}",
                n=MESSAGE,
                last=SYMBOLS - 1,
                given=repr(" ".join(words)[:40]),
            )
        )
    return [int(word) for word in words]


PREDICTOR = Copier
