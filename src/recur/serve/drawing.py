"""Tokens for many rows at once, each drawn in its own way and from random numbers of its own.

A row's number depends on its seed and on how many it has drawn, not on which other rows are in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recur.decode.sampling import chances
from recur.serve.rows import Column, Reading, Row, StepRow


def draw_tokens(rows: Sequence[Row | Column], logits: Tensor) -> list[int]:
    """One of each row's logits (n, K)."""
    drawing = [k for k, row in enumerate(rows) if row.random is not None]
    if not drawing:
        found: list[int] = logits.argmax(-1).tolist()
        return found
    some = logits if len(drawing) == len(rows) else logits[drawing]
    ways = [rows[k].draw for k in drawing]

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, device=some.device)[:, None]

    p = chances(
        some,
        column([way.temperature for way in ways]),
        column([way.top_k for way in ways]),
        column([way.top_p for way in ways]).double(),
        column([way.min_p for way in ways]).double(),
    )
    below = p.cumsum(-1)
    u = torch.tensor([_number(rows[k]) for k in drawing], dtype=torch.float64, device=some.device)[:, None]
    # The first token whose share of the line reaches beyond u; u < 1 of the whole, whatever the sum was rounded to.
    tokens = (below <= u * below[:, -1:]).sum(-1).clamp(max=p.shape[1] - 1).tolist()
    if len(drawing) == len(rows):
        return [int(k) for k in tokens]
    chosen: list[int] = logits.argmax(-1).tolist()
    for k, token in zip(drawing, tokens, strict=True):
        chosen[k] = int(token)
    return chosen


def _number(row: Row | Column) -> float:
    assert row.random is not None
    return row.random.random()


def likeliest(
    logp: Tensor, ids: Sequence[int], top: int, texts: Sequence[str]
) -> list[tuple[float, dict[str, float] | None]]:
    """log P of these tokens, one a row of logp (n, K), and the `top` likeliest in their places with theirs; the token
    itself is among them."""
    own = logp.gather(1, torch.tensor(ids, device=logp.device)[:, None])[:, 0].tolist()
    if not top:
        return [(each, None) for each in own]
    best = logp.topk(min(top, logp.shape[1]))
    found: list[tuple[float, dict[str, float] | None]] = []
    for k, mine, values, indices in zip(ids, own, best.values.tolist(), best.indices.tolist(), strict=True):
        named = {texts[i]: value for i, value in zip(indices, values, strict=True)}
        found.append((mine, named | {texts[k]: mine}))
    return found


def drawn(rows: Sequence[Row | Column], scores: Tensor) -> tuple[list[int], list[float]]:
    """What each row draws from its scores (n, K), and how likely that was."""
    labels = draw_tokens(rows, rows[0].served.writable(scores))
    p = scores.softmax(-1)
    return labels, p.gather(1, torch.tensor(labels, device=p.device)[:, None])[:, 0].tolist()


def readings(rows: Sequence[StepRow], scores: Tensor) -> list[Reading]:
    """What is said of scores (n, K), one a row."""
    if not rows:
        return []
    labels, own = drawn(rows, scores)
    wanted = [k for k, row in enumerate(rows) if row.all_probabilities]
    full = dict(zip(wanted, scores[wanted].softmax(-1).tolist(), strict=True)) if wanted else {}
    return [Reading(label, share, full.get(k)) for k, (label, share) in enumerate(zip(labels, own, strict=True))]
