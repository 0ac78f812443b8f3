"""What can write a sequence, whichever way it ends, and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from recur.errors import OptionError

Carried = TypeVar("Carried")
"""What hypotheses carry from step to step; only their writer looks inside."""


class Writer(Protocol[Carried]):
    """About to write for each row of a batch: `recur.models.DecoderWriter`, or several of them as one."""

    @property
    def rows(self) -> int: ...

    @property
    def K(self) -> int:  # noqa: N802
        """Size of the vocabulary."""

    @property
    def longest(self) -> int:
        """How many symbols it writes at most."""

    @property
    def device(self) -> torch.device: ...

    def lengths(self) -> Tensor | None:
        """log P(τ), (B, longest + 1), where lengths are settled before writing."""

    def begin(self, k: int, left: Tensor | None = None) -> Carried:
        """What k hypotheses for each row start with; `left` (B · k,) are their lengths."""

    def step(self, tokens: Tensor, carried: Carried) -> tuple[Tensor, Carried]:
        """Tokens (B · k,) just written; log-probabilities (B · k, K) of what comes next, where <eos> is the end."""

    def pick(self, carried: Carried, index: Tensor) -> Carried:
        """The hypotheses of these numbers (B · k,), in this order."""

    def attended(self, carried: Carried) -> Tensor | None:
        """(B · k, S): the weights with which attention looked at each place of the source in all steps until now, 1
        where a row has no such place; None without attention."""


class Written(NamedTuple):
    """One sequence."""

    ids: list[int]
    score: float
    """Its log-probability, the end included."""
    cut: bool
    """Whether it was cut at the longest length, before it had ended."""


class Ensemble(Generic[Carried]):
    """Several writers as one: the mean of their probabilities at every step."""

    def __init__(self, writers: Sequence[Writer[Carried]]) -> None:
        self.writers = writers
        first = writers[0]
        self.rows, self.K, self.device = first.rows, first.K, first.device
        self.longest = min(writer.longest for writer in writers)
        if len({(writer.K, writer.lengths() is None) for writer in writers}) > 1:
            raise OptionError("models that write as one need the same vocabulary and the same way of stopping")

    def lengths(self) -> Tensor | None:
        tables = [table for writer in self.writers if (table := writer.lengths()) is not None]
        return _mean([table[:, : self.longest + 1] for table in tables]) if tables else None

    def begin(self, k: int, left: Tensor | None = None) -> list[Carried]:
        return [writer.begin(k, left) for writer in self.writers]

    def step(self, tokens: Tensor, carried: list[Carried]) -> tuple[Tensor, list[Carried]]:
        steps = [writer.step(tokens, own) for writer, own in zip(self.writers, carried, strict=True)]
        return _mean([logp for logp, _ in steps]), [own for _, own in steps]

    def pick(self, carried: list[Carried], index: Tensor) -> list[Carried]:
        return [writer.pick(own, index) for writer, own in zip(self.writers, carried, strict=True)]

    def attended(self, carried: list[Carried]) -> Tensor | None:
        """The mean of those that have attention."""
        found = [writer.attended(own) for writer, own in zip(self.writers, carried, strict=True)]
        there = [one for one in found if one is not None]
        return torch.stack(there).mean(0) if there else None


def _mean(tables: list[Tensor]) -> Tensor:
    """log of the mean probability."""
    return torch.stack(tables).exp().mean(0).log()
