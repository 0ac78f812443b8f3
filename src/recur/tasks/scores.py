"""How far predicted sequences are from their targets, and losses as perplexities."""

from __future__ import annotations

import math
from collections import Counter
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
    """Share of wrong sequences, and edits for each symbol of the targets, in per cent."""
    pairs = list(zip(targets, predictions, strict=True))
    wrong = sum(list(a) != list(b) for a, b in pairs)
    edits = sum(edit_distance(b, a) for a, b in pairs)
    symbols = sum(map(len, targets))
    return {"word_error_rate": 100 * wrong / len(pairs), "symbol_error_rate": 100 * edits / max(symbols, 1)}


def bleu(targets: Sequences, predictions: Sequences, order: int = 4) -> float:
    """BLEU of a corpus, one reference each, in per cent (Papineni et al. 2002).

    exp(mean of log p_n, n = 1 … 4) · min(1, exp(1 − target length / predicted length)), p_n the share of predicted
    n-grams that the target has, each counted at most as often as it stands there.
    """
    matched, made = [0] * order, [0] * order
    for a, b in zip(targets, predictions, strict=True):
        for n in range(1, order + 1):
            in_a, in_b = (Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (a, b))
            matched[n - 1] += sum((in_a & in_b).values())
            made[n - 1] += sum(in_b.values())
    if not all(matched):
        return 0.0
    mean = sum(math.log(m / n) for m, n in zip(matched, made, strict=True)) / order
    short = 1 - sum(map(len, targets)) / sum(map(len, predictions))
    return 100 * math.exp(mean + min(0.0, short))


def perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf
