"""Estimators of labels: a classifier of texts, and a tagger of their words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from recur.api import fit as fit_model
from recur.data.frames import cell, one_line
from recur.errors import OptionError, TextError
from recur.sklearn.estimator import Array, Estimator, check_lengths, column_of


class RecurClassifier(ClassifierMixin, Estimator):
    """A class for every text.

    >>> from recur.sklearn import RecurClassifier
    >>> model = RecurClassifier(hidden=8, steps=20, random_state=1).fit(["good", "bad"] * 30, ["pos", "neg"] * 30)
    >>> model.predict(["good"]).tolist()
    ['pos']
    """

    task = "classify"
    own = {"random_state": None, "validation_fraction": 0.1}

    def fit(self, X: Any, y: Any) -> Self:
        """Texts, and the class of each: of any type."""
        texts, labels = column_of(X), column_of(y)
        check_lengths(texts, labels)
        names = [one_line(cell(label)).strip() for label in labels]
        self.classes_ = np.unique(np.asarray(labels))
        by_name = {one_line(cell(label)).strip(): k for k, label in enumerate(self.classes_.tolist())}
        if len(by_name) < len(self.classes_):
            raise TextError("two classes are written alike; give them names that differ")
        if len(self.classes_) < 2:
            raise TextError(f"two classes are needed at least, and all examples are of {names[0]!r}: 1 class")
        options = self._options()
        held = _held_out(len(texts), self.validation_fraction, options.get("seed", 0), names)
        self.model_ = fit_model(task=self.task, **_parts(texts, names, held), **options)
        self._order = [by_name[name] for name in self.model_.classes]
        return self

    def predict_proba(self, X: Any) -> Array:
        """Of every class, in the order of `classes_`: (texts, classes)."""
        check_is_fitted(self, "model_")
        found = self.model_.probabilities(_texts(X))
        probabilities = np.zeros((len(found), len(self.classes_)))
        probabilities[:, self._order] = [list(one.values()) for one in found]
        return probabilities

    def predict(self, X: Any) -> Array:
        """The likeliest class of each text."""
        chances = self.predict_proba(X)
        likeliest: Array = self.classes_[chances.argmax(1)]
        return likeliest


def _texts(X: Any) -> list[Any]:
    return [text if isinstance(text, np.ndarray) else str(text) for text in column_of(X)]


class RecurTagger(Estimator):
    """A tag for every word. A sentence is a list of words, or a text whose words stand between spaces.

    >>> from recur.sklearn import RecurTagger
    >>> sentences, tags = [["the", "word"], ["a", "word"]] * 20, [["DT", "NN"], ["DT", "NN"]] * 20
    >>> RecurTagger(hidden=8, steps=30, random_state=1).fit(sentences, tags).predict([["a", "word"]])[0]
    ['DT', 'NN']
    """

    task = "tag"
    own = {"random_state": None, "validation_fraction": 0.1}

    def fit(self, X: Any, y: Any) -> Self:
        """Sentences, and a list of tags for each."""
        sentences, tags = _sentences(X), _sentences(y)
        check_lengths(sentences, tags)
        options = self._options()
        held = _held_out(len(sentences), self.validation_fraction, options.get("seed", 0))
        held = held if len(held) < len(sentences) else set()
        self.model_ = fit_model(task=self.task, **_parts(sentences, tags, held), **options)
        self.classes_ = np.array(self.model_.tags)
        return self

    def predict(self, X: Any) -> list[list[str]]:
        """The tags of every sentence's words."""
        check_is_fitted(self, "model_")
        tags: list[list[str]] = self.model_(_sentences(X))
        return tags

    def predict_proba(self, X: Any) -> list[Array]:
        """Of every tag, in the order of `classes_`, for each word: (words, tags) of each sentence."""
        check_is_fitted(self, "model_")
        found = self.model_.probabilities(_sentences(X))
        return [np.array([[word[tag] for tag in self.classes_] for word in sentence]) for sentence in found]

    def score(self, X: Any, y: Any) -> float:
        """The share of words that have their tag."""
        right = total = 0
        for made, true in zip(self.predict(X), _sentences(y), strict=True):
            right += sum(a == b for a, b in zip(made, true, strict=True))
            total += len(true)
        return right / total


def _sentences(X: Any) -> list[list[str]]:
    return [words.split() if isinstance(words, str) else [str(word) for word in words] for words in _column_of_lists(X)]


def _column_of_lists(X: Any) -> Iterable[Any]:
    return list(X) if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] > 1 else column_of(X)


def _held_out(n: int, share: float, seed: int, groups: Sequence[Any] | None = None) -> set[int]:
    """Which examples to choose the weights by: at random, and never the only one of its class that is left."""
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise OptionError(f"validation_fraction must lie inside 0 … 1, got {share!r}")
    left: dict[Any, int] = {}
    for group in groups or ():
        left[group] = left.get(group, 0) + 1
    held: set[int] = set()
    for k in np.random.default_rng(seed).permutation(n).tolist():
        if len(held) >= max(1, round(share * n)):
            break
        if groups is None or left[groups[k]] > 1:
            held.add(k)
            if groups is not None:
                left[groups[k]] -= 1
    return held


def _parts(inputs: list[Any], answers: list[Any], held: set[int]) -> dict[str, Any]:
    """Training and validation; data so small that nothing can be held out is measured on itself."""
    valid = sorted(held) or range(len(inputs))
    train = [k for k in range(len(inputs)) if k not in held]
    valid_part = [inputs[k] for k in valid], [answers[k] for k in valid]
    return {
        "texts": [inputs[k] for k in train],
        "answers": [answers[k] for k in train],
        "valid": valid_part,
        "test": valid_part,  # none is asked for, and none is held out
    }
