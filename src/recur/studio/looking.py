"""A model of any task while it reads one input along time, for views that look inside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from recur.diagnostics import Subject
from recur.diagnostics.units import Series, tokens_read
from recur.errors import RunError, TextError
from recur.i18n import Message
from recur.nn import Recurrent
from recur.studio.loaded import LoadedModel, shown_text
from recur.studio.validation import kind_of
from recur.tasks.forecast.task import parse_series
from recur.tasks.language.predictor import Language

COLUMNS = 6
"""Of the numbers that a step reads, that units are compared with."""


class Looked(NamedTuple):
    """A model while it reads an input."""

    tokens: list[str]
    """What it reads, a step each."""
    subject: Subject
    words: bool = False
    """Whether there is a space between tokens."""
    features: dict[str, Series] | None = None
    """What units are compared with; those of a text, if none are given."""


def look(model: LoadedModel, text: str) -> Looked:
    """Of a language model, or of any other whose network reads its input along time."""
    predictor = model.predictor
    if isinstance(predictor, Language):
        subject = model.subject(text)
        words = predictor.vocab.tokenizer.kind in ("word", "space")
        return Looked([shown_text(token) for token in tokens_read(subject)], subject, words)
    if not text.strip():
        raise TextError(Message("the input is empty"))
    reading = model.kept("reading copy", lambda: _reading_copy(predictor))
    nets = [module for module in reading.model.modules() if isinstance(module, Recurrent)]
    if not nets:
        raise RunError(
            Message(
                "the network of a run of the task {task} has no layer that reads along time", task=predictor.task.name
            )
        )
    seen: list[Tensor] = []
    hook = nets[0].register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    kind = kind_of(predictor)
    try:
        names = READ.get(kind, _line)(reading, text)
    finally:
        hook.remove()
    subject = Subject(nets[0], nets[0], seen[0][:1])
    steps = subject.length
    tokens = names[-steps:] if len(names) >= steps else [str(k + 1) for k in range(steps)]
    split = predictor.run.vocabs[_vocab(kind)].tokenizer.kind if _vocab(kind) in predictor.run.vocabs else ""
    numbers = seen[0][0].double().cpu().numpy() if kind in NUMERIC else None
    return Looked(tokens, subject, split not in ("char", "subword"), None if numbers is None else _columns(numbers))


def numbers_of(given: str) -> NDArray[np.float32]:
    """Rows of numbers between spaces: the pixels of an image, or the steps of a sequence."""
    try:
        rows = [[float(cell) for cell in line.replace(",", " ").split()] for line in given.strip().split("\n")]
        values = np.array(rows, np.float32)
    except ValueError:
        raise TextError(Message("the input must be rows of numbers, all of one length")) from None
    if values.ndim != 2 or not np.isfinite(values).all():
        raise TextError(Message("the input must be rows of numbers, all of one length"))
    return values


def _reading_copy(predictor: Any) -> Any:
    """Whose hooks disturb no other request."""
    made = copy.copy(predictor)
    made.models = [copy.deepcopy(predictor.model)]
    if hasattr(made, "tagger"):
        made.tagger = made.models[0]
    return made


def _vocab(kind: str) -> str:
    return "source" if kind == "pairs" else "vocab"


def _columns(numbers: NDArray[np.float64]) -> dict[str, Series]:
    """Each number of a step as a feature, beside its position."""
    named = {"position": np.arange(len(numbers), dtype=np.float64)}
    named |= {f"input {k + 1}": numbers[:, k] for k in range(min(numbers.shape[1], COLUMNS))}
    return {name: series for name, series in named.items() if series.std() > 0}


# Reading, by the kind of input: each gives what the steps are called, where that is known.


def _line(reading: Any, text: str) -> list[str]:
    line = " ".join(text.split())
    reading.predict(line)
    vocab = reading.run.vocabs.get("vocab")
    return line.split() if vocab is None else list(vocab.tokenizer.split(line))


def _pair(reading: Any, text: str) -> list[str]:
    reading.predict(text.strip())
    return list(reading.run.vocabs["source"].tokenizer.split(text.strip()))


def _signal(reading: Any, text: str) -> list[str]:
    reading.predict(numbers_of(text))
    return []


def _series(reading: Any, text: str) -> list[str]:
    lines = text.strip().split("\n")
    list(reading.predictions(lines))
    panel = parse_series(reading.task.options, lines, "the table")
    return list(panel.dates(panel.series[0]))


READ: dict[str, Callable[[Any, str], list[str]]] = {"pairs": _pair, "numbers": _signal, "series": _series}
NUMERIC = ("numbers", "series", "line")
"""Kinds whose steps are numbers."""
