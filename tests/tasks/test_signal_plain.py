"""Plain models of sequences of numbers, beside scikit-learn's and counts by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from recur.baselines import classifiers
from recur.baselines.classifiers import class_baselines, sequence_baselines, step_baselines
from recur.tasks.common.signals import SignalExample

DRAW = np.random.default_rng(3)


def example(values: np.ndarray, labels: list[int]) -> SignalExample:
    return SignalExample(values.astype(np.float32), labels, tuple(map(str, labels)), "")


def some(count: int, T: int | None = None) -> list[SignalExample]:
    """Three classes that differ in their mean and in how they begin."""
    found = []
    for _ in range(count):
        k, n = int(DRAW.integers(3)), T or int(DRAW.integers(3, 9))
        x = DRAW.normal(size=(n, 2)) + np.array([0.6 * k, 0])
        x[0, 1] += k
        found.append(example(x, [k]))
    return found


def summary(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x.mean(0), x.std(0), x.min(0), x.max(0), x[0], x[-1], [np.log(len(x))]])


def sklearn_of(x: np.ndarray, y: np.ndarray, measured: np.ndarray, decay: float) -> np.ndarray:
    scaler = StandardScaler().fit(x)
    fitted = LogisticRegression(C=1 / (decay * len(x)), tol=1e-8, max_iter=1000).fit(scaler.transform(x), y)
    found: np.ndarray = fitted.predict(scaler.transform(measured))
    return found


@pytest.mark.parametrize("T", [None, 5])
def test_classes(T: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifiers, "DECAYS", (0.01,))
    train, valid, measured = some(200, T), some(40, T), some(60, T)
    found = {guess.name: [k for (k,) in guess.labels] for guess in class_baselines(train, valid, measured, "abc")}
    counts = np.bincount([e.labels[0] for e in train])
    assert found[f"always {'abc'[counts.argmax()]}"] == [int(counts.argmax())] * 60
    kinds = {"softmax of mean, deviation, ends and length": lambda e: summary(e.values.astype(float))}
    if T:
        kinds["softmax of all steps"] = lambda e: e.values.ravel().astype(float)
    assert len(found) == 1 + len(kinds)
    y = np.array([e.labels[0] for e in train])
    for name, vector in kinds.items():
        x, m = (np.stack([vector(e) for e in part]) for part in (train, measured))
        expected = sklearn_of(x, y, m, 0.01)
        assert np.mean(np.array(found[name]) == expected) > 0.98  # the solvers end a hair apart
        assert np.mean(expected == [e.labels[0] for e in measured]) > 0.6


def test_steps_see_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A label that stands four steps before: one step alone does not tell it, nine do."""
    monkeypatch.setattr(classifiers, "DECAYS", (0.001,))

    def parts(count: int) -> list[SignalExample]:
        rows = [DRAW.integers(0, 2, 30) for _ in range(count)]
        return [example(row[:, None].astype(float), np.roll(row, 4).tolist()) for row in rows]

    train, valid, measured = parts(40), parts(10), parts(10)
    always, softmax = step_baselines(train, valid, measured, "ab")
    assert (always.name[:6], softmax.name) == ("always", "softmax of 9 steps")
    right = [
        a == b
        for guess, e in zip(softmax.labels, measured, strict=True)
        for a, b in zip(guess[4:], e.labels[4:], strict=True)
    ]
    assert np.mean(right) == 1.0
    assert [len(guess) for guess in always.labels] == [30] * 10


def test_label_sequences() -> None:
    train = [
        example(np.zeros((10, 1)), [0, 1]),
        example(np.zeros((10, 1)), [0, 1]),
        example(np.zeros((20, 1)), [1, 1, 1, 0]),
    ]
    usual, length = sequence_baselines(train, [example(np.zeros((15, 1)), []), example(np.zeros((1, 1)), [])])
    assert usual.labels == [[0, 1], [0, 1]]
    assert length.labels == [[1, 1, 1], []]  # a label in five steps; 1 is the most frequent
