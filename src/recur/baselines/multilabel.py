"""Baselines of classifiers with several labels: the most frequent labels, and TF-IDF logistic regressions.

P(label k | text) = σ(w_k · tfidf(text) + b_k)   with the penalty ‖w_k‖² / (2 C n), C by the validation loss
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from recur.baselines.classifiers import STRENGTHS, LinearTextClassifier, sample_texts
from recur.data.text import SPECIALS, Vocab

ITERATIONS = 60
"""Steps of L-BFGS for each C."""


class MultiLabelBaseline(NamedTuple):
    """Baseline with its function from texts to probabilities (texts, labels)."""

    name: str
    probabilities: Callable[[Sequence[str]], Tensor]


def frequent_labels(targets: Tensor) -> MultiLabelBaseline:
    """Return the baseline that predicts the frequency of each label, whatever the text."""
    share = targets.mean(0)
    return MultiLabelBaseline("label frequencies", lambda texts: share.expand(len(texts), -1))


def fit_logistic_regressions(
    train: Sequence[str], targets: Tensor, valid: Sequence[str], held: Tensor, vocab: Vocab
) -> MultiLabelBaseline:
    """Fit one logistic regression per label on TF-IDF n-grams; C rises until the validation loss does."""
    labels = targets.shape[1]
    model = LinearTextClassifier(vocab, labels)
    texts = sample_texts(list(zip(train, range(len(train)), strict=True)), model.unit)
    seen = np.array(vocab.counts[len(SPECIALS) :], np.float64)
    model.idf.copy_(torch.from_numpy(np.log((1 + len(texts)) / (1 + seen)) + 1))
    rows, y = model.rows(text for text, _ in texts), targets[[k for _, k in texts]]
    back, checked = rows.transposed(len(model.weight)), model.rows(valid)
    best, kept = math.inf, (model.weight.clone(), model.bias.clone(), 0.0)
    weight, bias = model.weight.clone(), model.bias.clone()
    for strength in STRENGTHS:
        decay = 1 / (strength * len(y))
        optimizer = torch.optim.LBFGS([weight, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

        def closure(decay: float = decay) -> Tensor:
            logits = rows.times(weight) + bias
            error = (logits.sigmoid() - y) / len(y)
            weight.grad = back.times(error) + decay * weight
            bias.grad = error.sum(0)
            loss = binary_cross_entropy_with_logits(logits, y, reduction="sum") / len(y)
            return loss + decay / 2 * weight.square().sum()

        optimizer.step(closure)
        loss = float(binary_cross_entropy_with_logits(checked.times(weight) + bias, held))
        if loss >= best:
            break
        best, kept = loss, (weight.clone(), bias.clone(), strength)
    model.weight.copy_(kept[0])
    model.bias.copy_(kept[1])
    return MultiLabelBaseline(
        f"TF-IDF logistic regressions, C = {kept[2]:g}",
        lambda texts: (model.rows(texts).times(model.weight) + model.bias).sigmoid(),
    )
