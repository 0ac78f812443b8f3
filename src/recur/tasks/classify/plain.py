"""Plain classifiers of texts, for the network to stand beside: log-probabilities (texts, classes) of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recur.data.text import Tokenizer
from recur.i18n import Message
from recur.tasks.classes import LEAST, most_frequent
from recur.tasks.classify.ngrams import best_ngrams
from recur.tasks.classify.tfidf import Fitted, Labelled


class Plain(NamedTuple):
    name: str
    log_probabilities: Callable[[Sequence[str]], Tensor]


def plain_models(
    train: Labelled, valid: Labelled, tokenizer: Tokenizer, classes: Sequence[str], linear: Fitted
) -> Iterator[Plain]:
    """The most frequent class, n-grams by class, naive Bayes and TF-IDF logistic regression; the plainest first."""
    labels = [k for _, k in train]
    shares = torch.bincount(torch.tensor(labels), minlength=len(classes)) / len(labels)
    prior = shares.log().clamp_min(LEAST)
    yield Plain(
        Message("always {answer}", answer=classes[most_frequent(labels)]), lambda texts: prior.expand(len(texts), -1)
    )
    counted = best_ngrams(train, valid, tokenizer)
    yield Plain(
        Message("{n}-grams by class", n=counted.order),
        lambda texts: torch.from_numpy(counted.log_probabilities(texts, len(classes))).float(),
    )
    yield from linear_of(linear)


def linear_of(linear: Fitted) -> tuple[Plain, Plain]:
    return (
        Plain(linear.bayes, lambda texts: linear.model(texts)[0].cpu()),
        Plain(linear.regression, lambda texts: linear.model(texts)[1].cpu()),
    )
