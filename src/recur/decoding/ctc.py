"""CTC decoding: labels from distributions over labels and a blank at every step (Graves et al. 2006).

A path has one symbol per step. Its labels are what is left after merging repeats and removing blanks.

    best_path            labels of the most likely path. The labels of many paths together may be more likely
    prefix_beam_search   most likely labels: sums over all paths of a prefix, for the `width` best prefixes per step

A prefix ends in a blank or in its last label; the same label again is a new label only after a blank. So two
probabilities are carried per prefix (Hannun et al. 2014):

    b'(l)  = y_t(blank) (b(l) + n(l))
    n'(l)  = y_t(last of l) n(l)  +  y_t(last of l) · [b(l⁻) if l⁻ ends in the same label, else b(l⁻) + n(l⁻)]

where l⁻ is l without its last label. With a language model over labels, prefixes are ranked by
log P(l) + weight · log P_language(l) + bonus · |l|.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from recur.data.text.stream import Floats
from recur.options import Count, checked

LOG_ZERO = -np.inf

LabelLanguageModel = Callable[[tuple[int, ...]], Floats]
"""Function from a prefix to log P (K,) of the next label; the entry of the blank is log P of the end."""


class Labelling(NamedTuple):
    labels: tuple[int, ...]
    logp: float
    """Log-probability of the paths that were followed."""


def collapse_path(path: list[int], blank: int) -> tuple[int, ...]:
    """Return the labels of a path: merge repeats, then remove blanks."""
    return tuple(k for k, before in zip(path, [blank, *path], strict=False) if k not in (blank, before))


def best_path(logp: Floats, blank: int) -> Labelling:
    """Return the labels of the most likely path through log-probabilities (T, K)."""
    return Labelling(collapse_path(logp.argmax(1).tolist(), blank), float(logp.max(1).sum()))


def prefix_beam_search(
    logp: Floats,
    blank: int,
    width: int,
    *,
    language: LabelLanguageModel | None = None,
    weight: float = 1.0,
    bonus: float = 0.0,
) -> list[Labelling]:
    """Return up to `width` label sequences for log-probabilities (T, K), best first."""
    width = checked("beam", width, Count)
    K = logp.shape[1]
    prefixes: list[tuple[int, ...]] = [()]
    ends_blank, ends_label = np.zeros(1), np.full(1, LOG_ZERO)
    extra = np.zeros(1)
    """Contribution of the language model and the bonus to the rank of each prefix."""
    known: dict[tuple[int, ...], Floats] = {}
    for y in logp.astype(np.float64):
        n = len(prefixes)
        total, last = np.logaddexp(ends_blank, ends_label), np.array([(*p, blank)[len(p) - 1] for p in prefixes])
        stay_blank = total + y[blank]
        stay_label = np.where(last == blank, LOG_ZERO, ends_label + y[last])
        grown = total[:, None] + y
        repeated = np.flatnonzero(last != blank)
        grown[repeated, last[repeated]] = ends_blank[repeated] + y[last[repeated]]
        grown[:, blank] = LOG_ZERO
        place = {prefix: k for k, prefix in enumerate(prefixes)}
        for k, prefix in enumerate(prefixes):  # what grows into a prefix that is there already
            parent = place.get(prefix[:-1]) if prefix else None
            if parent is not None:
                stay_label[k] = np.logaddexp(stay_label[k], grown[parent, prefix[-1]])
                grown[parent, prefix[-1]] = LOG_ZERO
        added = np.zeros((n, K)) + extra[:, None]
        if language is not None or bonus:
            added += bonus
        if language is not None:
            for k, prefix in enumerate(prefixes):
                if prefix not in known:
                    known[prefix] = language(prefix)
                added[k] += weight * known[prefix]
        ranks = np.concatenate([np.logaddexp(stay_blank, stay_label) + extra, (grown + added).ravel()])
        best = np.argsort(-ranks, kind="stable")[:width]
        best = best[ranks[best] > LOG_ZERO]
        old, (rows, symbols) = best[best < n], np.divmod(best[best >= n] - n, K)
        prefixes = [prefixes[k] for k in old] + [(*prefixes[r], int(s)) for r, s in zip(rows, symbols, strict=True)]
        ends_blank = np.concatenate([stay_blank[old], np.full(len(rows), LOG_ZERO)])
        ends_label = np.concatenate([stay_label[old], grown[rows, symbols]])
        extra = np.concatenate([extra[old], added[rows, symbols]])
    if language is not None:
        extra += weight * np.array([(known[p] if p in known else language(p))[blank] for p in prefixes])
    total = np.logaddexp(ends_blank, ends_label)
    order = np.argsort(-(total + extra), kind="stable")
    return [Labelling(prefixes[k], float(total[k])) for k in order]
