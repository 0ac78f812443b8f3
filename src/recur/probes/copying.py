"""Does it write, or does it recite? The share of sampled n-grams that stand in the training text."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from recur.decode import Choice, generate
from recur.errors import OptionError
from recur.probes.finding import Finding, Level, Seen
from recur.probes.subject import Subject
from recur.train.data import corpora

Ids = np.ndarray[Any, np.dtype[Any]]

EXCESS = 0.3
"""How much larger the share may be than that of text held out from training, at the longest n."""


def hashes(ids: Ids, n: int) -> Ids:
    """One number for each n-gram; equal ones get equal numbers, and different ones practically never do."""
    if len(ids) < n:
        return np.empty(0, np.uint64)
    total = np.zeros(len(ids) - n + 1, np.uint64)
    with np.errstate(over="ignore"):
        for k in range(n):
            total = (
                total * np.uint64(0x9E3779B97F4A7C15) + ids[k : len(ids) - n + 1 + k].astype(np.uint64) + np.uint64(1)
            )
            total ^= total >> np.uint64(29)
    return total


def shares(written: list[Ids], training: Ids, orders: tuple[int, ...]) -> list[float]:
    """For each n, how many of the n-grams written stand in the training text."""
    found = []
    for n in orders:
        mine = np.concatenate([hashes(ids, n) for ids in written])
        found.append(float(np.isin(mine, hashes(training, n)).mean()) if len(mine) else 0.0)
    return found


def copied(
    written: list[Ids], held_out: Ids, training: Ids, orders: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 24, 32)
) -> Seen:
    mine, base = shares(written, training, orders), shares([held_out], training, orders)
    numbers = {"orders": list(orders), "written": mine, "held_out": base}
    at = max(range(len(orders)), key=lambda k: mine[k] - base[k])
    excess, n = mine[at] - base[at], orders[at]
    said = (
        f"{mine[at]:.0%} of the {n}-grams written stand in the training text, {base[at]:.0%} of those in text held out"
    )
    longest = [k for k in range(len(orders)) if orders[k] >= 16] or [len(orders) - 1]
    worst = max(mine[k] - base[k] for k in longest)
    if worst > EXCESS:
        advice = "more dropout (--dropout-output 0.5), a smaller network, stopping earlier, more text"
        return Seen(Finding("copying", Level.CONCERN, worst, EXCESS, f"it recites: {said}", advice), numbers)
    return Seen(Finding("copying", Level.SOUND, max(excess, worst), EXCESS, f"it writes of its own: {said}"), numbers)


def copying(subject: Subject, *, samples: int = 8, length: int = 200) -> Seen:
    """Write, and look for what was written in the text it learnt from."""
    if subject.run is None or subject.vocab is None:
        raise OptionError("copying is looked for in the text of a run; load one with recur.load")
    train, valid, _ = corpora(subject.run.config)
    columns = list(generate(subject.model, [subject.first], length, Choice(), samples, subject.seed))  # type: ignore[arg-type]
    written = [np.array([row[k] for row in columns]) for k in range(samples)]
    with torch.no_grad():
        held = subject.vocab.encode_corpus(valid)[: samples * length]
    return copied(written, held, subject.vocab.encode_corpus(train))
