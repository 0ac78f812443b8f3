"""A decoder at work: one step at a time, for many hypotheses, with the probabilities that training gave it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from recur.data.text import EOS
from recur.models.decoder import Context, Decoder
from recur.models.stack import State, each_part


class Carried(NamedTuple):
    """What a hypothesis carries from step to step."""

    state: State | None
    step: int
    left: Tensor | None
    """(N,): how many symbols are still to come, where that is known."""
    fed: Tensor | None
    """(N, H): what the step before read its symbols from, where that is fed."""
    attended: Tensor | None = None
    """(N, S): the weights of attention, summed over the steps."""


def with_end(logits: Tensor, stop: Tensor | None, left: Tensor | None) -> Tensor:
    """Log-probabilities (N, K) of symbols from their logits, where <eos> is the end: whatever else decides on that, the
    logits (N,) of stopping or how many symbols are `left` (N,)."""
    logp = logits.log_softmax(-1)
    if left is not None:
        over = left == 0
        logp, end = logp.masked_fill(over[:, None], -torch.inf), torch.where(over, 0.0, -torch.inf).to(logp)
    elif stop is not None:
        logp, end = logp + logsigmoid(-stop)[:, None], logsigmoid(stop)
    else:
        return logp
    return torch.where(torch.arange(logp.shape[1], device=logp.device) == EOS, end[:, None], logp)


class DecoderWriter:
    """A decoder about to write for a batch of contexts: what searches and samplers drive (recur.decoding.search)."""

    def __init__(self, decoder: Decoder, context: Context, longest: int | None = None) -> None:
        """`longest` bounds what is written further than the decoder's own option, where an end is written."""
        self.decoder, self.context = decoder, context
        self.rows, self.K, self.device = len(context.vector), decoder.K, context.vector.device
        self.longest = decoder.options.longest
        if longest is not None and decoder.options.stop in ("eos", "bernoulli"):
            self.longest = min(self.longest, longest)
        if decoder.options.stop == "source":
            assert context.lengths is not None
            self.longest = int(context.lengths.max())
        self.keys = decoder.keys(context)

    def lengths(self) -> Tensor | None:
        """log P(τ), (B, longest + 1), where lengths are settled before writing."""
        if self.decoder.length is not None:
            found: Tensor = self.decoder.length(self.context.vector).log_softmax(-1)
            found[:, 0] = -torch.inf  # nothing is no sequence
            return found
        if self.decoder.options.stop == "source":
            assert self.context.lengths is not None
            table = self.context.vector.new_full((self.rows, self.longest + 1), -torch.inf)
            return table.scatter(1, self.context.lengths[:, None], 0.0)
        return None

    def begin(self, k: int, left: Tensor | None = None) -> Carried:
        """k hypotheses for each row; `left` (B · k,) are their lengths."""
        fed = self.decoder.first_fed(self.context)
        return Carried(None, 0, left, None if fed is None else fed[:, 0].repeat_interleave(k, 0))

    def step(self, tokens: Tensor, carried: Carried) -> tuple[Tensor, Carried]:
        """Tokens (B · k,) just written; log-probabilities (B · k, K) of what comes next, where <eos> is the end."""
        d, k = self.decoder, len(tokens) // self.rows
        given = d.context_input(self.context)
        if given.dim() == 3:  # behind the longest source there is nothing, and nothing is written either
            given = given[:, min(carried.step, given.shape[1] - 1)]
        x = d.inputs(tokens, None if d.count is None else carried.left, carried.step, carried.fed)
        h, state = d.network.step(x, given.repeat_interleave(k, 0), carried.state)
        step = d.attend(h.view(self.rows, k, -1), self.context, self.keys)
        symbols, stop = d.outputs(step, self.context)
        left, weights = carried.left, None if step.weights is None else step.weights.reshape(len(tokens), -1)
        logp = with_end(symbols.view(len(tokens), -1), None if stop is None else stop.reshape(-1), left)
        if left is not None:
            over = (left == 0)[:, None]
            weights = None if weights is None else weights.masked_fill(over, 0.0)  # nothing is written there
            left = (left - 1).clamp(min=0)
        fed = None if carried.fed is None else step.g.reshape(len(tokens), -1)
        if weights is not None and carried.attended is not None:
            weights = carried.attended + weights
        return logp, Carried(state, carried.step + 1, left, fed, weights)

    def pick(self, carried: Carried, index: Tensor) -> Carried:
        """The hypotheses of these numbers (B · k,), in this order."""
        state = carried.state
        if state is not None:
            state = each_part(state, lambda part: part[index])
        parts = (carried.left, carried.fed, carried.attended)
        left, fed, attended = (None if part is None else part[index] for part in parts)
        return Carried(state, carried.step, left, fed, attended)

    def attended(self, carried: Carried) -> Tensor | None:
        """(B · k, S): what attention has looked at until now, 1 at places that a row has not."""
        if carried.attended is None:
            return None
        assert self.context.lengths is not None
        N, S = carried.attended.shape
        there = torch.arange(S, device=self.device) < self.context.lengths[:, None]
        return carried.attended.masked_fill(~there.repeat_interleave(N // self.rows, 0), 1.0)
