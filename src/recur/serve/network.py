"""What can be stepped: one input of each of many sessions in, one row of scores each out.

A network here is a model and how it is called; what it carries from step to step is a list of tensors, one row a
session. Only language models read many inputs of a session at once: the others' states pass through more than layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recur.errors import OptionError
from recur.layers import FeedForward, Recurrent
from recur.models import LanguageModel
from recur.models.numbers import SignalInput
from recur.models.reader import Classifier, Reader
from recur.models.signals import Numbers, SignalTagger
from recur.models.tagger import OutputTagger, Tagger, WordTagger
from recur.tasks.classify.model import TextModel
from recur.tasks.contract import Predictor
from recur.tasks.language.predictor import Language

Carried = Any
"""Tuples of tuples of tensors, as a model's step takes and returns them."""
Parts = list[Tensor]
"""The same as a list: (n, …) each."""


class Network(ABC):
    """A model that takes one step at a time."""

    numbers: ClassVar[bool] = False
    """Whether an input is a vector, and no token."""
    reads: ClassVar[bool] = False
    """Whether it reads many inputs at once."""

    def __init__(self, device: torch.device, width: int) -> None:
        self.device, self.width = device, width
        """Of `width`: how many tokens there are, or how many numbers an input has."""
        _, parts = self.step(self.inputs([self._blank()]), None)
        self.forms = [(tuple(part.shape[1:]), part.dtype) for part in parts]

    def _blank(self) -> Any:
        return np.zeros(self.width, np.float32) if self.numbers else 0

    def inputs(self, given: Sequence[Any]) -> Tensor:
        if self.numbers:
            return torch.from_numpy(np.stack(given)).to(self.device)
        return torch.tensor(given, device=self.device)

    @abstractmethod
    def step(self, x: Tensor, carried: Parts | None) -> tuple[Tensor, Parts]:
        """Scores (n, K) of what was read so far, and what to carry on; None is where sessions begin."""

    def plain_layers(self) -> tuple[Recurrent, Any, Any] | None:
        """The layers, what makes vectors of inputs and what makes scores of outputs, if these three are all of it."""
        return None


class LanguageNetwork(Network):
    """Tokens to logits of the next. Where the last output cannot be told from the state, it is carried along: a text
    that is to be continued goes on from it."""

    reads = True

    def __init__(self, model: LanguageModel, device: torch.device) -> None:
        self.model = model
        net = model.recurrent
        if isinstance(net, FeedForward):
            self._layers, self._keeps_output = list[int](), True
        else:
            joined = net.connections.residual or net.connections.skip or net.output_mlp or net.cell.outputs
            self._layers, self._keeps_output = [len(net.cell.states)] * net.layers, bool(joined)
        super().__init__(device, model.K)

    def step(self, x: Tensor, carried: Parts | None) -> tuple[Tensor, Parts]:
        out, state = self.model.output_step(x, self._state(carried))
        return self.model.logits_of(out), self._parts(state, out)

    def scan(self, x: Tensor, lengths: Tensor, carried: Parts | None) -> tuple[Tensor, Parts]:
        """Inputs (n, T), of which each row has so many, to outputs (n, T, H), for `scores`."""
        out, state = self.model.output_scan(x, lengths, self._state(carried))
        last = out[torch.arange(len(out), device=out.device), lengths.to(out.device) - 1]
        return out, self._parts(state, last)

    def scores(self, outputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self.model.logits_of(outputs)

    def last_output(self, carried: Parts) -> Tensor:
        """(n, H): what the step that left this state put out."""
        if self._keeps_output:
            return carried[-1]
        return carried[sum(self._layers[:-1])]

    def _state(self, parts: Parts | None) -> Carried:
        if parts is None:
            return None
        made, at = [], 0
        for states in self._layers:
            made.append(tuple(parts[at : at + states]))
            at += states
        if self.model.clock is not None:
            made.append((parts[at],))
        return tuple(made)

    def _parts(self, state: Carried, out: Tensor) -> Parts:
        return [part for layer in state for part in layer] + [out] * self._keeps_output

    def plain_layers(self) -> tuple[Recurrent, Any, Any] | None:
        net = self.model.recurrent
        if isinstance(net, FeedForward) or self.model.clock is not None or self._keeps_output:
            return None
        return net, self.model.embedding.vectors, self.model.logits_of


class ReaderNetwork(Network):
    """Taggers and classifiers: scores of classes, of the last input or of all so far."""

    def __init__(self, model: Reader | OutputTagger, device: torch.device, width: int) -> None:
        self.model = model
        self._like: Carried = None
        super().__init__(device, width)

    def step(self, x: Tensor, carried: Parts | None) -> tuple[Tensor, Parts]:
        assert isinstance(self.model, Classifier | Tagger | SignalTagger | OutputTagger)
        given = None if carried is None else _rebuilt(self._like, iter(carried))
        scores, after = self.model.step(x, given)
        if isinstance(self.model, TextModel):
            scores = self.model.temperature(scores.log_softmax(-1))
        self._like = _shape(after) if self._like is None else self._like
        return scores, list(_flat(after))

    def plain_layers(self) -> tuple[Recurrent, Any, Any] | None:
        model = self.model
        if not isinstance(model, Tagger | SignalTagger) or model.clock is not None:
            return None
        return model.recurrent, model.embedding.vectors, model.output


class SignalNetwork(ReaderNetwork):
    numbers = True


def network_of(predictor: Predictor[Any]) -> Network:
    """A trained model's network as sessions step it, or why it cannot be."""
    name, model = predictor.run.path.name, predictor.model
    if isinstance(predictor, Language):
        if predictor.backward:
            raise OptionError(f"{name} reads texts from their end, which a session comes to last")
        return LanguageNetwork(model, predictor.device)
    if not isinstance(model, Classifier | Tagger | SignalTagger | OutputTagger):
        raise OptionError(f"{name} is of the task {predictor.task.name}, whose models take no single steps")
    if (direction := model.options.direction) != "forward":
        raise OptionError(f"{name} reads in direction {direction!r}: it has to see the end before it answers")
    if isinstance(model, Numbers):
        assert isinstance(model.embedding, SignalInput)
        return SignalNetwork(model, predictor.device, model.embedding.D)
    if isinstance(model, WordTagger) and (model.options.crf or model.forms is not None):
        raise OptionError(f"{name} tags whole sentences (a CRF, or letters of words); train with --no-crf for sessions")
    return ReaderNetwork(model, predictor.device, len(predictor.run.vocab))


def _flat(carried: Carried) -> Any:
    for part in carried:
        if isinstance(part, Tensor):
            yield part
        else:
            yield from _flat(part)


def _shape(carried: Carried) -> Carried:
    """How tensors are nested, with None in their places."""
    return tuple(None if isinstance(part, Tensor) else _shape(part) for part in carried)


def _rebuilt(like: Carried, parts: Any) -> Carried:
    return tuple(next(parts) if part is None else _rebuilt(part, parts) for part in like)
