"""What a trained tagger of sequences of numbers can do: label, be measured beside plainer ones, follow a sequence as it
comes in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recur.baselines.ngram import read_arpa
from recur.data.signals import read_signals
from recur.errors import OptionError
from recur.models.signals import SignalTagger, Transcriber
from recur.options import Count, NonNegative, checked
from recur.tasks.classes import classes_of
from recur.tasks.examples import test_part
from recur.tasks.predictions import Prediction
from recur.tasks.predictor import Predictor
from recur.tasks.signals import signals_of, steps_in_turn
from recur.tasks.tag.language import language_of
from recur.tasks.tag.signal_task import (
    SignalTag,
    Transcribe,
    beside,
    label_steps,
    sequence_scores,
    step_scores,
    transcribe,
)
from recur.utils.types import JsonObject, Metrics

Given = str | Path | np.ndarray[Any, Any]
"""A file, a folder or an archive of sequences, or the numbers of one, (T, D) or (T,)."""

LM_WEIGHT = 0.5
"""Of an n-gram model's log-probabilities beside the network's."""


class SignalTagPredictor(Predictor[SignalTagger]):
    """A trained tagger of steps."""

    takes_files = True
    task: SignalTag
    counted = "steps"

    @property
    def labels(self) -> tuple[str, ...]:
        return classes_of(self.run.vocabs["labels"])

    def _answer(self, found: Prediction) -> list[str]:
        """The labels of a sequence."""
        labels: list[str] = found["labels"]
        return labels

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Its figures, and beside them plain models'."""
        signals = read_signals(texts) if texts else test_part(self.task.options, read_signals)
        measured = self.task.encode(signals, self.run.vocabs)
        begun = time.perf_counter()
        figures = self._measure(measured, **options)
        count = sum(example.size for example in measured)
        found: JsonObject = {"model": self.name, **figures, "sequences": len(measured), "steps": count}
        found["steps_per_second"] = count / (time.perf_counter() - begun)
        if self.has_training_texts():
            data = self.task.read(self.run.vocabs)
            found["beside"] = [
                {"model": guess.name, **scores} for guess, scores in beside(self.task, data, measured, self.labels)
            ]
        return found

    def _measure(self, measured: Any, **options: Any) -> Metrics:
        self.refuse(options)
        found = label_steps(self.model, measured)
        return {**step_scores(measured, found.labels, self.labels), "loss": found.loss}

    def _predict(self, lines: Iterable[Given], **options: Any) -> Iterator[JsonObject]:
        """The likeliest label of every step."""
        self.refuse(options)
        for given in lines:
            signals = [signal._replace(target=None) for signal in signals_of(given)]
            found = label_steps(self.model, self.task.encode(signals, self.run.vocabs)).labels
            for signal, numbers in zip(signals, found, strict=True):
                labels = [self.labels[k] for k in numbers]
                yield {"input": signal.where, "output": " ".join(labels), "labels": labels}

    def stream(self, steps: Iterable[np.ndarray[Any, Any]]) -> Iterator[str]:
        """The label of each step as soon as it is read, in constant memory; for a network that reads forward."""
        state = None
        for x in steps_in_turn(steps, self.task.options.stack):
            logits, state = self.model.step(torch.from_numpy(x).to(self.device), state)
            yield self.labels[int(logits.argmax())]


class TranscriberPredictor(SignalTagPredictor):
    """A trained network of label sequences."""

    task: Transcribe

    def _measure(self, measured: Any, **options: Any) -> Metrics:
        found = transcribe(self._transcriber, measured, **self._search(options))
        labels = [list(row[0].labels) for row in found.labellings]
        return {**sequence_scores(measured, labels, self.labels), "loss": found.loss}

    def _search(self, options: JsonObject) -> dict[str, Any]:
        """How labels are looked for: by a beam of this width, ranked by an n-gram model too, as an ARPA file."""
        beam, lm = checked("beam", options.pop("beam", 1), Count), options.pop("lm", None)
        weight = options.pop("lm_weight", None)
        self.refuse(options)
        if lm is None and weight is not None:
            raise OptionError("--lm-weight is for --lm, which is not given")
        if lm is not None and beam == 1:
            raise OptionError("--lm ranks what a beam search finds: give a --beam above 1")
        language = None if lm is None else language_of(read_arpa(str(lm)), self.labels)
        weight = checked("lm_weight", LM_WEIGHT if weight is None else weight, NonNegative)
        return {"beam": beam, "language": language, "weight": weight}

    @property
    def _transcriber(self) -> Transcriber:
        assert isinstance(self.model, Transcriber)
        return self.model

    def _predict(self, lines: Iterable[Given], **options: Any) -> Iterator[JsonObject]:
        """The likeliest labels of each sequence; `nbest` of what a prefix beam of width `beam` finds."""
        nbest = checked("nbest", options.pop("nbest", 1), Count)
        search = self._search(options)
        if nbest > search["beam"]:
            raise OptionError(f"nbest must lie in 1 … {search['beam']}, the width of the beam, got {nbest}")
        for given in lines:
            signals = [signal._replace(target=None) for signal in signals_of(given)]
            found = transcribe(self._transcriber, self.task.encode(signals, self.run.vocabs), **search).labellings
            for signal, labellings in zip(signals, found, strict=True):
                made = [
                    {"output": " ".join(labels), "labels": labels, "score": logp}
                    for labels, logp in (([self.labels[k] for k in ids], logp) for ids, logp in labellings[:nbest])
                ]
                yield {"input": signal.where, **made[0], "nbest": made}

    def stream(self, steps: Iterable[np.ndarray[Any, Any]]) -> Iterator[str]:
        """Each label of the best path as soon as it begins."""
        state, before = None, self._transcriber.blank
        for x in steps_in_turn(steps, self.task.options.stack):
            logits, state = self.model.step(torch.from_numpy(x).to(self.device), state)
            label = int(logits.argmax())
            if label not in (before, self._transcriber.blank):
                yield self.labels[label]
            before = label


def predictor_for(task: SignalTag, *arguments: Any) -> SignalTagPredictor:
    """By the loss."""
    return (TranscriberPredictor if isinstance(task, Transcribe) else SignalTagPredictor)(task, *arguments)


PREDICTOR = predictor_for
