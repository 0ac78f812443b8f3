"""The likeliest continuations of a text: a language model as a writer, driven by the beam search of search.py."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from recur.data.text import PAD
from recur.decoding.sampling import NEVER_WRITTEN, read
from recur.decoding.search import search
from recur.models import LanguageModel, State
from recur.models.stack import each_part
from recur.options import Natural, checked

END = PAD
"""What ends a continuation. To a language model <eos> is a token as any other: it ends a line, and the text goes on.
<pad> is never written, so that its place is free."""


def beam(model: LanguageModel, lead: list[int], length: int, width: int) -> list[tuple[list[int], float]]:
    """The likeliest continuations that a beam of this width finds, best first, each with its log-probability."""
    length = checked("length", length, Natural)
    model.eval()
    (found,) = search(Continuation(model, lead, length), width, nbest=width, end=END, never=())
    return [(written.ids, written.score) for written in found]


class Carried(NamedTuple):
    logits: Tensor
    """(N, K): of the token that comes next, where that has been computed already."""
    state: State
    written: int
    """How many tokens were written, the same for all hypotheses."""


class Continuation:
    """A language model about to write exactly `length` tokens behind a lead: the end is impossible before, and certain
    there."""

    def __init__(self, model: LanguageModel, lead: list[int], length: int) -> None:
        self.model, self.longest = model, length
        self.rows, self.K, self.device = 1, model.K, model.device
        self.logits, self.state = read(model, lead)

    def lengths(self) -> None:
        return None

    def begin(self, k: int, left: Tensor | None = None) -> Carried:
        first = Carried(self.logits, self.state, 0)
        return self.pick(first, torch.zeros(k, dtype=torch.long, device=self.device))

    def step(self, tokens: Tensor, carried: Carried) -> tuple[Tensor, Carried]:
        logits, state, written = carried
        if written == self.longest:
            logp = torch.full((len(tokens), self.K), -torch.inf, dtype=torch.float64, device=self.device)
            logp[:, END] = 0.0
            return logp, carried
        if written:  # the first token follows the lead, which was read at once
            logits, state = self.model.step(tokens, state)
        logits[:, list(NEVER_WRITTEN)] = -torch.inf
        return logits.double().log_softmax(-1), Carried(logits, state, written + 1)

    def pick(self, carried: Carried, index: Tensor) -> Carried:
        state = each_part(carried.state, lambda part: part[index])
        return Carried(carried.logits[index], state, carried.written)

    def attended(self, carried: Carried) -> None:
        return None
