"""Plain models of sequences of numbers, for a network to stand beside. Each takes seconds.

classes            the most frequent one; a softmax of what can be said of a sequence in a few numbers (mean,
                   deviation, least, most, first, last, length); where all are as long, a softmax of all steps
a label a step     the most frequent one; a softmax of the steps around
label sequences    the most frequent sequence; the most frequent label, as often as the length says
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.i18n import Message
from recur.tasks.linear import softmax_regression
from recur.tasks.signals import Example

MOST_ENTRIES = 1 << 23
"""Numbers that a softmax is fitted to: of more, as many examples as that are taken."""
MOST_FEATURES = 1024
"""Of a vector that a softmax reads."""
AROUND = 4
"""Steps to each side."""
DECAYS = (0.001, 0.01, 0.1)


class Guesses(NamedTuple):
    """What a plain model says of the examples that it is measured on."""

    name: str
    labels: list[list[int]]
    """Of each; one, or one for each step, or as many as it takes."""


def plain_classes(
    train: Sequence[Example], valid: Sequence[Example], measured: Sequence[Example], classes: Sequence[str]
) -> Iterator[Guesses]:
    """Classes of `measured`, by what was fitted to `train` and chosen by `valid`."""
    always = Counter(example.labels[0] for example in train).most_common(1)[0][0]
    yield Guesses(Message("always {answer}", answer=classes[always]), [[always]] * len(measured))
    parts = [train, valid, measured]
    summaries = [np.stack([_summary(e.values) for e in part]) for part in parts]
    labels = [np.array([e.labels[0] for e in part]) for part in parts]
    found = _softmax(summaries, labels[0], labels[1], len(classes))
    yield Guesses("softmax of mean, deviation, ends and length", [[int(k)] for k in found])
    if len({e.values.shape for part in parts for e in part}) == 1 and train[0].values.size <= MOST_FEATURES:
        steps = [np.stack([e.values.ravel() for e in part]) for part in parts]
        found = _softmax(steps, labels[0], labels[1], len(classes))
        yield Guesses("softmax of all steps", [[int(k)] for k in found])


def plain_steps(
    train: Sequence[Example], valid: Sequence[Example], measured: Sequence[Example], classes: Sequence[str]
) -> Iterator[Guesses]:
    """A label for each step."""
    always = Counter(k for example in train for k in example.labels).most_common(1)[0][0]
    yield Guesses(Message("always {answer}", answer=classes[always]), [[always] * e.size for e in measured])
    width = train[0].values.shape[1]
    around = min(AROUND, (MOST_FEATURES // width - 1) // 2)
    if around < 0:
        return
    some = _as_many(train, MOST_ENTRIES // ((2 * around + 1) * width))
    vectors = [np.concatenate([_windows(e.values, around) for e in part]) for part in (some, valid, measured)]
    learned, chosen = (np.array([k for e in part for k in e.labels]) for part in (some, valid))
    found = _softmax(vectors, learned, chosen, len(classes)).tolist()
    ends = np.cumsum([e.size for e in measured]).tolist()
    name = f"softmax of {2 * around + 1} steps" if around else "softmax of the step"
    yield Guesses(name, [found[a:b] for a, b in zip([0, *ends], ends, strict=False)])


def plain_sequences(train: Sequence[Example], measured: Sequence[Example]) -> Iterator[Guesses]:
    """Label sequences."""
    usual = list(Counter(tuple(e.labels) for e in train).most_common(1)[0][0])
    yield Guesses("the most frequent sequence", [usual] * len(measured))
    always = Counter(k for e in train for k in e.labels).most_common(1)
    if always:
        pace = sum(len(e.labels) for e in train) / sum(e.size for e in train)
        guesses = [[always[0][0]] * round(pace * e.size) for e in measured]
        yield Guesses("the most frequent label, by length", guesses)


def _summary(values: np.ndarray) -> np.ndarray:
    x = values.astype(np.float64)
    parts = (x.mean(0), x.std(0), x.min(0), x.max(0), x[0], x[-1], [np.log(len(x))])
    return np.concatenate(parts)


def _as_many(examples: Sequence[Example], steps: int) -> list[Example]:
    """Some of them, with about so many steps in all."""
    order = np.random.default_rng(0).permutation(len(examples))
    sizes = np.cumsum([examples[k].size for k in order])
    return [examples[k] for k in order[: 1 + int((sizes < steps).sum())]]


def _windows(values: np.ndarray, around: int) -> np.ndarray:
    """(T, (2 · around + 1) · D): every step with its neighbours, the ends repeated."""
    wide = np.pad(values, ((around, around), (0, 0)), mode="edge")
    found: np.ndarray = np.lib.stride_tricks.sliding_window_view(wide, 2 * around + 1, axis=0)
    return found.transpose(0, 2, 1).reshape(len(values), -1)


def _softmax(vectors: Sequence[np.ndarray], y: np.ndarray, chosen: np.ndarray, classes: int) -> np.ndarray:
    """The class of each vector measured; how far weights are pulled to zero is what serves the validation part best."""
    train, valid, measured = vectors
    take = np.arange(len(train))
    if (most := max(classes, MOST_ENTRIES // train.shape[1])) < len(train):
        take = np.sort(np.random.default_rng(0).permutation(len(train))[:most])
    mean, deviation = train[take].mean(0), train[take].std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    x, v, m = (
        torch.from_numpy(np.clip((part - mean) / deviation, -10, 10)).float() for part in (train[take], valid, measured)
    )
    target, right = torch.from_numpy(y[take]), torch.from_numpy(chosen)
    best: tuple[float, Tensor] | None = None
    for decay in DECAYS:
        logits = softmax_regression(x, target, classes, torch.cat([v, m]), decay)
        accuracy = float((logits[: len(v)].argmax(-1) == right).float().mean())
        if best is None or accuracy > best[0]:
            best = accuracy, logits[len(v) :]
    assert best is not None
    found: np.ndarray = best[1].argmax(-1).numpy()
    return found
