"""Spans in tags, and how many of them were found: precision, recall and F1 as conlleval and seqeval have them.

    BIO     B-NP I-NP O         a span begins with B-, goes on with I-
    BIOES   B-NP I-NP E-NP S-NP and ends with E-, or is one word, S-

Tags that break these rules are read as conlleval reads them: a span begins where its type changes or nothing stood
before, whatever its letter is. So IOB1, in which a span begins with I- unless it touches another of its type, is read
right too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from recur.utils.types import Metrics

_TAG = re.compile(r"([BIES])(?:-(.+))?", re.DOTALL)

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class Span(NamedTuple):
    type: str
    start: int
    end: int
    """Its last word."""


def are_spans(tags: Iterable[str]) -> bool:
    """Whether these are all the tags of a set that marks spans: beside O nothing but letters and types, of which some
    begin."""
    found = {tag: _TAG.fullmatch(tag) for tag in set(tags) - {"O"}}
    letters = {match[1] for match in found.values() if match}
    typed = {match[2] is not None for match in found.values() if match}
    return bool(found) and all(found.values()) and len(typed) == 1 and bool(letters & {"B", "I"})


def cut(tag: str) -> tuple[str, str]:
    """A tag's letter and type: `B-NP` → B, NP; `B` → B, _. What is no tag of a span is outside of any."""
    match = _TAG.fullmatch(tag)
    return (match[1], match[2] or "_") if match else ("O", "")


def spans(tags: Sequence[str]) -> list[Span]:
    """Of one sentence."""
    found: list[Span] = []
    letter, kind, start = "O", "", 0
    for t, tag in enumerate((*tags, "O")):
        before, type_before = letter, kind
        letter, kind = cut(tag)
        begins = letter in "BS" or before in "OES" or kind != type_before
        if before != "O" and (letter == "O" or begins):
            found.append(Span(type_before, start, t - 1))
        if begins:
            start = t
    return found


class Found(NamedTuple):
    """Spans by type: how many there are, were predicted, and are right."""

    there: Counter[str]
    predicted: Counter[str]
    right: Counter[str]


def compare(targets: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]]) -> Found:
    """Of sentences."""
    found = Found(Counter(), Counter(), Counter())
    for a, b in zip(targets, predictions, strict=True):
        there, predicted = spans(a), spans(b)
        found.there.update(span.type for span in there)
        found.predicted.update(span.type for span in predicted)
        found.right.update(span.type for span in set(there) & set(predicted))
    return found


def span_scores(found: Found) -> Metrics:
    """Of all types together."""
    return _scores(found.right.total(), found.predicted.total(), found.there.total())


def by_type(found: Found) -> dict[str, dict[str, float]]:
    """The same for each type, and how many spans there are of it."""
    types = sorted(found.there.keys() | found.predicted.keys())
    return {t: {**_scores(found.right[t], found.predicted[t], found.there[t]), "spans": found.there[t]} for t in types}


def _scores(right: int, predicted: int, there: int) -> Metrics:
    """0 where there is nothing to divide by."""
    return {
        "f1": 2 * right / max(predicted + there, 1),
        "precision": right / max(predicted, 1),
        "recall": right / max(there, 1),
    }


# Which tag can follow which -------------------------------------------------------------------------------------


class Legal(NamedTuple):
    """Which tags can come first (K,), after one another (K, K), last (K,)."""

    start: Flags
    between: Flags
    end: Flags


def legal_moves(tags: Sequence[str]) -> Legal:
    """By the rules of BIO, or of BIOES where some tag ends a span."""
    cuts = [cut(tag) for tag in tags]
    bioes = any(letter in "ES" for letter, _ in cuts)
    opened = [letter in "BI" for letter, _ in cuts]  # a span that can go on, and in BIOES must

    def follows(i: int, j: int) -> bool:
        goes_on = cuts[j][0] in ("IE" if bioes else "I")
        if bioes and opened[i]:
            return goes_on and cuts[i][1] == cuts[j][1]
        return not goes_on or (opened[i] and cuts[i][1] == cuts[j][1])

    K = len(tags)
    start = np.array([letter not in ("IE" if bioes else "I") for letter, _ in cuts])
    between = np.array([[follows(i, j) for j in range(K)] for i in range(K)]).reshape(K, K)
    end = np.array([not (bioes and inside) for inside in opened])
    return Legal(start, between, end)
