"""How far predicted sequences are from their targets, and losses as perplexities."""

from __future__ import annotations

import math
from collections.abc import Sequence

Sequences = Sequence[Sequence[str]]


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions that make a into b (Levenshtein 1966)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def error_rates(targets: Sequences, predictions: Sequences) -> dict[str, float]:
    """The share of sequences that are wrong, and edits for each symbol of the targets."""
    wrong = sum(list(a) != list(b) for a, b in zip(targets, predictions, strict=True))
    return {
        "sequence_error_rate": wrong / max(len(targets), 1),
        "symbol_error_rate": edits_per_symbol(targets, predictions),
    }


def edits_per_symbol(targets: Sequences, predictions: Sequences) -> float:
    """Of sequences of words, the word error rate of speech recognition."""
    edits = sum(edit_distance(b, a) for a, b in zip(targets, predictions, strict=True))
    return edits / max(sum(map(len, targets)), 1)


def perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf
