"""A model in memory, ready for the views of the page."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

from recur.errors import RunError
from recur.probes import Subject
from recur.run import Run
from recur.tasks import predictor_of
from recur.tasks.contract import Predictor
from recur.tasks.language.data import first_input
from recur.tasks.language.predictor import Language
from recur.text import SPECIALS

State = tuple[tuple[Tensor, ...], ...]
"""Of a network: for each layer, the states of its cell."""
PREFIXES = 64
"""Texts whose state is kept, so that one more character costs one step."""
AHEAD = 8
"""How many tokens longer than a kept prefix a text may be to start from it."""


class LoadedModel:
    """One model to generate with, and a copy of it for probes, whose hooks would disturb a request at the same time."""

    def __init__(self, run: Run) -> None:
        self.predictor: Predictor[Any] = predictor_of([run], "cpu")  # a keystroke is a step: a GPU is slower at that
        self._probed: Language | None = None
        self._example: str | None = None
        self._read: OrderedDict[tuple[int, ...], tuple[Tensor, State]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def language(self) -> Language:
        """The language model that it is, for views that read nothing else."""
        if isinstance(self.predictor, Language):
            return self.predictor
        name, task = self.predictor.run.path.name, self.predictor.task.name
        raise RunError(f"{name} is a run of the task {task}; this view reads runs of the task language")

    def subject(self, text: str) -> Subject:
        """The model reading a text, for probes."""
        if self._probed is None:
            self._probed = copy.copy(self.language)  # and not from its files, which may be others by now
            self._probed.models = [copy.deepcopy(self.language.model)]
        return Subject.of(self._probed, text)

    def example(self) -> str:
        """A text that the model generates, made of tokens that it knows."""
        if self._example is None:
            tokens = 240 if self.language.vocab.tokenizer.kind == "char" else 60
            drawn = self.language.generate("", tokens, temperature=0.7, seed=0)[0]
            self._example = without_specials(drawn).strip() + "\n"
        return self._example

    @torch.no_grad()
    def logits(self, ids: list[int]) -> Tensor:
        """(K,) after a text; a prefix of it that was read before is not read again."""
        whole = (first_input(self.language.vocab), *(ids[::-1] if self.language.backward else ids))
        model = self.language.model
        known, found = self._longest_prefix(whole)
        if found is None:
            out = model(torch.tensor([whole]))
            found = out.logits[0, -1:], out.state
        else:
            for k in whole[known:]:
                found = model.step(torch.tensor([k]), found[1])
        with self._lock:
            self._read[whole] = found
            while len(self._read) > PREFIXES:
                self._read.popitem(last=False)
        return found[0][0]

    def _longest_prefix(self, whole: tuple[int, ...]) -> tuple[int, tuple[Tensor, State] | None]:
        """How long the longest prefix is that was read before, if it is nearly all, and its logits and state."""
        for known in range(len(whole), max(0, len(whole) - AHEAD - 1), -1):
            with self._lock:
                found = self._read.get(whole[:known])
            if found is not None:
                return known, found
        return 0, None


def display_text(token: str) -> str:
    """A token as text: an end of line for <eos>, nothing for the other special tokens."""
    return "\n" if token == "<eos>" else "" if token in SPECIALS else token


def without_specials(text: str) -> str:
    """Text as a person would have typed it, without special tokens."""
    for special in SPECIALS:
        text = text.replace(special, "")
    return text
