"""A model in memory, ready for the views of the page."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from recur.data.text import SPECIALS
from recur.data.text.corpus import normalised
from recur.diagnostics import Subject
from recur.diagnostics.subject import FEWEST
from recur.errors import RecurError, RunError, TextError
from recur.i18n import Message
from recur.nn import Recurrent
from recur.runs import Run
from recur.serve.http.fields import field
from recur.studio.fields import text_of
from recur.studio.reading import Reading, Readings
from recur.tasks import predictor_of
from recur.tasks.contract import Predictor
from recur.tasks.language.data import in_reading_order, valid_text
from recur.tasks.language.predictor import Language
from recur.utils.types import JsonObject

CHARACTERS, WORDS = 240, 60
"""Of an example."""
Made = TypeVar("Made")


class LoadedModel:
    """One model to generate with, and a copy of it for probes, whose hooks would disturb a request at the same time."""

    def __init__(self, run: Run) -> None:
        self.predictor: Predictor[Any] = predictor_of([run], "cpu")  # a keystroke is a step: a GPU is slower at that
        self._probed: Language | None = None
        self._kept: dict[str, Any] = {}

    @cached_property
    def readings(self) -> Readings:
        self.language.model.requires_grad_(False)  # it is used, and its copy for probes asks for gradients
        return Readings(self.language)

    @property
    def language(self) -> Language:
        """The language model that it is, for views that read nothing else."""
        if isinstance(self.predictor, Language):
            return self.predictor
        name, task = self.predictor.run.path.name, self.predictor.task.name
        raise RunError(
            Message(
                "{name} is a run of the task {task}; this view reads runs of the task language", name=name, task=task
            )
        )

    def subject(self, text: str, fewest: int = FEWEST) -> Subject:
        """The model reading a text of so many tokens at least, for probes."""
        language = self.language
        ids = in_reading_order(language.vocab.encode(normalised(text)), language.options)
        if len(ids) < fewest:
            raise TextError(
                Message(
                    "the text is too short: {n} tokens, and this view needs at least {fewest}",
                    n=len(ids),
                    fewest=fewest,
                )
            )
        return self.subject_of(torch.from_numpy(np.asarray(ids, np.int64).copy()))

    def subject_of(self, ids: Tensor) -> Subject:
        """The same of ids in the order of reading."""
        if self._probed is None:
            self._probed = copy.copy(self.language)  # and not from its files, which may be others by now
            self._probed.models = [copy.deepcopy(self.language.model).requires_grad_(True)]
        network = self._probed.model
        if not isinstance(network.recurrent, Recurrent):
            raise RunError(Message("--recurrence output has no hidden state that goes from step to step"))
        return Subject(network, network.recurrent, ids, self._probed)

    def example(self) -> str:
        """The beginning of the run's own validation text; where that is gone, a text that the model generates."""
        return self.kept("example", self._validation_text) or self.kept("generated", self._generated)

    def kept(self, name: str, make: Callable[[], Made]) -> Made:
        """What takes a while to make, made once."""
        if name not in self._kept:
            self._kept[name] = make()
        made: Made = self._kept[name]
        return made

    def _generated(self) -> str:
        tokens = CHARACTERS if self.language.vocab.tokenizer.kind == "char" else WORDS
        return without_specials(self.language.generate("", tokens, temperature=0.7, seed=0)[0]).strip() + "\n"

    def _validation_text(self) -> str:
        language = copy.copy(self.language)
        language.task = copy.copy(language.task)  # whose texts are looked up
        try:
            language.find_texts("valid" if language.options.valid else "texts")
            whole = "".join(itertools.islice(valid_text(language.options).pieces(), 1))
        except (RecurError, OSError):
            return ""
        lines = whole[: 2 * CHARACTERS].strip().split("\n")
        text = ""
        for line in lines:
            if text and len(text) + len(line) > CHARACTERS:
                break
            text += line + "\n"
        return text[:CHARACTERS].strip() + "\n" if text.strip() else ""

    def read(self, request: JsonObject) -> tuple[str, Reading]:
        """The text of a request, read: whole, or what follows one that was read before."""
        text, base = text_of(request), field(request, "base", "")
        return self.readings.read(text, base, field(request, "keep", 0) if base else 0)


def display_text(token: str) -> str:
    """A token as text: an end of line for <eos>, nothing for the other special tokens."""
    return "\n" if token == "<eos>" else "" if token in SPECIALS else token


def shown_text(token: str) -> str:
    """The same to look at: other special tokens, such as <unk>, by their names."""
    return display_text(token) or token


def without_specials(text: str) -> str:
    """Text as a person would have typed it, without special tokens."""
    for special in SPECIALS:
        text = text.replace(special, "")
    return text
