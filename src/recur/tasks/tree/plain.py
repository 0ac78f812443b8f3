"""Roots of trees without their structure: the most frequent class, and a logistic regression on the words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from recur.i18n import Message
from recur.tasks.classes import most_frequent
from recur.tasks.classify.tfidf import Labelled, best_linear, gram_vocab

Guess = Callable[[Sequence[str]], list[int]]
"""From the words of trees, as texts, to classes of their roots."""


def plain_models(train: Labelled, valid: Labelled, classes: Sequence[str]) -> dict[str, Guess]:
    """By name, the plainest first."""
    always = most_frequent([k for _, k in train])
    linear = best_linear(train, valid, gram_vocab([text for text, _ in train], "word"), len(classes))

    def guess(texts: Sequence[str]) -> list[int]:
        with torch.no_grad():
            found: list[int] = linear.model(texts)[1].argmax(-1).tolist()
        return found

    return {
        Message("always {answer}", answer=classes[always]): lambda texts: [always] * len(texts),
        linear.regression: guess,
    }
