"""Text classification: encoded texts, and the classifier that blends a network with linear baselines."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from recur.baselines.classifiers import FittedClassifier, LinearTextClassifier, count_ngrams, fit_best_linear
from recur.data.batching import in_order, padded
from recur.data.text import LabelledText, Vocab
from recur.data.text.stream import Ids
from recur.errors import TextError
from recur.i18n import Message
from recur.models import Classifier
from recur.models.calibration import Mixture, calibrate
from recur.models.options import ClassifierOptions
from recur.runs import Vocabs
from recur.tasks.common.batching import choose_token
from recur.tasks.common.classification import (
    class_names,
    class_number,
    class_numbers,
    class_numbers_with_unseen,
    class_weights,
)


class TextExample(NamedTuple):
    ids: Ids
    label: int
    text: str

    @property
    def size(self) -> int:
        return len(self.ids)


class TextBatch(NamedTuple):
    ids: Tensor
    lengths: Tensor | None
    """(B,), on the CPU, where scans want them; None where all are as long."""
    classes: Tensor

    @classmethod
    def of(cls, examples: Sequence[TextExample]) -> Self:
        ids, lengths = padded([e.ids for e in examples])
        ends = None if bool((lengths == ids.shape[1]).all()) else lengths
        return cls(ids, ends, torch.tensor([e.label for e in examples]))


@dataclass
class Linear:
    """Linear classifier that the network is blended with, fitted at first use."""

    vocabs: Vocabs
    train: Sequence[TextExample]
    valid: Sequence[TextExample]
    balanced: bool = False

    @functools.cached_property
    def fitted(self) -> FittedClassifier:
        labels = self.vocabs["labels"]
        train, valid = ([(e.text, e.label) for e in part] for part in (self.train, self.valid))
        grams = self.vocabs["ngrams"] if "ngrams" in self.vocabs else ngram_vocab([text for text, _ in train])
        weights = class_weights(labels) if self.balanced else None
        return fit_best_linear(train, valid, grams, len(class_names(labels)), weights)


@dataclass(frozen=True)
class TextData:
    vocabs: Vocabs
    train: list[TextExample]
    valid: list[TextExample]
    linear: Linear
    """Of all of these, where a measurement takes fewer."""
    note: str = ""
    """What is worth saying of the files."""


def ngram_vocab(texts: Sequence[str]) -> Vocab:
    """The n-grams of texts: of words where they are sentences, else of characters, whatever the network reads."""
    return count_ngrams(texts, choose_token(texts))


def encode_text(vocab: Vocab, text: str, where: str) -> Ids:
    ids = vocab.encode(text).astype(np.int64)
    if not len(ids):
        raise TextError(Message("{where}: the text has no token", where=where))
    return ids


def encode(examples: Sequence[LabelledText], vocabs: Vocabs, learned: bool = False) -> list[TextExample]:
    """Those to be measured may have labels that training did not have, with numbers behind its own."""
    classes = class_numbers(vocabs["labels"])
    if not learned:
        classes = class_numbers_with_unseen((example.label for example in examples), vocabs["labels"])
    return [
        TextExample(encode_text(vocabs["vocab"], text, where), class_number(label, classes, where), text)
        for text, label, where, *_ in examples
    ]


ROWS = 256
"""Texts measured as one batch."""


class TextModel(Classifier):
    """Text classifier, optionally blended with a linear classifier."""

    def __init__(
        self,
        K: int,
        classes: int,
        options: ClassifierOptions,
        class_weights: Tensor | None = None,
        linear: LinearTextClassifier | None = None,
    ) -> None:
        super().__init__(K, classes, options, class_weights)
        self.linear = linear
        self.temperature = Mixture()
        # Naive Bayes counts what comes together as if it did not, and is too sure of itself to be trusted unheard.
        self.blend = None if linear is None else Mixture(0.5, 0.0, 0.5)

    @property
    def device(self) -> torch.device:
        return self.output.bias.device

    @torch.no_grad()
    def parts(self, examples: Sequence[TextExample]) -> list[Tensor]:
        """Log-probabilities (examples, classes), on the CPU: the network's own, and the plain models' if there
        are any."""
        batches = in_order(examples, ROWS, TextBatch.of)
        found = [[self(batch.ids.to(self.device), batch.lengths).log_softmax(-1).cpu() for batch in batches]]
        if self.linear is not None:
            found += [[log_p.cpu()] for log_p in self.linear([example.text for example in examples])]
        return [torch.cat(part) for part in found]

    def mixed(self, parts: Sequence[Tensor]) -> Tensor:
        """… as what is used."""
        mixture: Mixture = self.temperature if self.blend is None else self.blend
        log_p: Tensor = mixture(*parts)
        return log_p

    def calibrate(self, parts: Sequence[Tensor], targets: Sequence[int]) -> list[Tensor]:
        """Fit the mixtures to examples. What is returned, of the mixture and of the network alone, is of shares that
        were fitted to the other half each."""
        alone = calibrate(self.temperature, parts[:1], targets, self.class_weights)
        if self.blend is None:
            return [alone]
        return [calibrate(self.blend, parts, targets, self.class_weights), alone]


@torch.no_grad()
def log_probabilities(models: Sequence[TextModel], examples: Sequence[TextExample]) -> Tensor:
    """Return log-probabilities (examples, classes); for an ensemble, of the mean probability."""
    return mean_of([model.mixed(model.parts(examples)) for model in models])


def mean_of(log_ps: Sequence[Tensor]) -> Tensor:
    """Return the log of the mean probability."""
    return torch.stack(list(log_ps)).logsumexp(0) - torch.tensor(float(len(log_ps))).log()
