"""The decoder: a network that writes a sequence of its own, symbol after symbol, and knows when to stop.

    x_t  = embedding of y_{t−1}                        what was written before; y_0 is <bos>
    h_t  = recurrent network of x_t and the context    see recur.layers.conditioning for the ways in
    g_t  = tanh(A [h_t; c_t])                          c_t: attention of h_t over the memory, if there is one
    P(y_t) = softmax(V g_t + b)

Attention reads h_t and does not feed the next step, as in Luong, Pham and Manning 2015: with a teacher, all steps
are one scan. A sequence ends in one of four ways:

    eos         a symbol of its own, <eos>
    bernoulli   σ(w · g_t + a) is the probability that nothing more comes: an output trained beside the symbols
    length      P(τ) is predicted from the context, and how much is left, τ − t, is fed into every step:
                P(y_1 … y_τ) = P(τ) P(y_1 … y_τ | τ)
    source      it is as long as its source
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from recur.layers import Attention, Conditioned, drop_steps, initialise_linear
from recur.models.embedding import TokenEmbedding
from recur.models.options import DecoderOptions
from recur.models.stack import writing_stack
from recur.models.time import beside
from recur.text import BOS, EOS, PAD

COUNT_SIZE = 16
"""Width of the embedding of how much is left."""


class Context(NamedTuple):
    """What the decoder knows of its source."""

    vector: Tensor
    """(B, C)"""
    memory: Tensor | None = None
    """(B, S, M), for attention, or aligned with what is written."""
    lengths: Tensor | None = None
    """(B,): how much of the memory is there."""


class Scores(NamedTuple):
    """What a pass over a batch gives."""

    symbols: Tensor
    """(B, T, K): logits."""
    stop: Tensor | None
    """(B, T): logit of ending before symbol t, for bernoulli."""
    length: Tensor | None
    """(B, longest + 1): logits of the length, for length."""
    backend: str


class Decoder(nn.Module):
    """Symbols of a vocabulary of K, from a context of width C and a memory of width M."""

    def __init__(
        self, K: int, context_size: int, memory_size: int, options: DecoderOptions, attention: str = "none"
    ) -> None:
        super().__init__()
        o = self.options = options
        self.K = K
        self.embedding = TokenEmbedding(K, o.embedding, o.embedding_init)
        self.count = nn.Embedding(o.longest + 1, COUNT_SIZE) if o.stop == "length" else None
        self.clock = o.clock
        width = o.embedding + (COUNT_SIZE if self.count is not None else 0) + (self.clock is not None)
        context_size = memory_size if o.condition == "aligned" else context_size
        layers = writing_stack(o, o.layers, o.dropout_hidden)
        self.network = Conditioned(o.cell, width, o.hidden, context_size, o.condition, o.recurrence, **layers)
        H = self.network.recurrent.output_size
        self.attention = None
        if attention != "none":
            self.attention = Attention(attention, H, memory_size, o.hidden)
            self.combine = nn.Linear(H + memory_size, H)
        self.symbols = nn.Linear(H, K)
        self.stop = nn.Linear(H, 1) if o.stop == "bernoulli" else None
        self.length = nn.Linear(context_size, o.longest + 1) if o.stop == "length" else None
        for output in (self.symbols, self.stop, self.length):
            if output is not None:
                initialise_linear(o.init, output.weight, output.bias)

    # Training -------------------------------------------------------------------------------------------

    def forward(self, context: Context, targets: Tensor, lengths: Tensor, forced: Tensor | None = None) -> Scores:
        """Scores of targets (B, T), of which lengths (B,) count.

        With a teacher, step t reads the target before it. Where `forced` (B, steps) is false it reads what the network
        itself found likeliest there. With all steps forced (None) they are computed at once.
        """
        before = self._before(targets)
        left = None
        if self.count is not None:
            left = (lengths[:, None] - torch.arange(before.shape[1], device=before.device)).clamp(min=0)
        if forced is None or not self.options.feedback or bool(forced.all()):
            h, _, trace = self.network(self.inputs(before, left), self.context_input(context))
            symbols, stop = self.outputs(h, context)
            backend = trace[0].backend
        else:
            symbols, stop, backend = self._step_by_step(context, before, left, forced)
        length = None if self.length is None else self.length(context.vector)
        return Scores(symbols, stop, length, backend)

    def _before(self, targets: Tensor) -> Tensor:
        """What each step reads with a teacher: the targets one step later, behind <bos>."""
        first = targets.new_full((len(targets), 1), BOS)
        has_end_step = self.options.stop in ("eos", "bernoulli")  # then there is one step more, which ends it
        return torch.cat([first, targets if has_end_step else targets[:, :-1]], dim=1)

    def _step_by_step(
        self, context: Context, before: Tensor, left: Tensor | None, forced: Tensor
    ) -> tuple[Tensor, Tensor | None, str]:
        given, state, backend = self.context_input(context), None, ""
        symbols, stops = [], []
        own = before[:, 0]
        for t in range(before.shape[1]):
            read = torch.where(forced[:, t], before[:, t], own) if t else own
            share = given[:, t : t + 1] if given.dim() == 3 else given
            x = self.inputs(read[:, None], None if left is None else left[:, t : t + 1], first=t)
            h, state, trace = self.network(x, share, state)
            logits, stop = self.outputs(h, context)
            symbols.append(logits)
            stops.append(stop)
            own = self._likeliest(logits[:, 0].detach())
            backend = trace[0].backend
        joined = None if self.stop is None else torch.cat([s for s in stops if s is not None], dim=1)
        return torch.cat(symbols, dim=1), joined, backend

    @staticmethod
    def _likeliest(logits: Tensor) -> Tensor:
        """The symbol to go on with; the end is none."""
        logits = logits.clone()
        logits[:, : EOS + 1] = -torch.inf
        return logits.argmax(-1)

    def loss(self, scores: Scores, targets: Tensor, lengths: Tensor, smoothing: float = 0.0) -> Tensor:
        """−log P of each row, (B,): its symbols, and its end."""
        steps = torch.arange(scores.symbols.shape[1], device=targets.device)
        gold, counted = targets, steps < lengths[:, None]
        if self.options.stop in ("eos", "bernoulli"):
            gold = torch.cat([targets, targets.new_full((len(targets), 1), PAD)], dim=1)
        if self.options.stop == "eos":
            gold = gold.masked_fill(steps == lengths[:, None], EOS)
            counted = steps <= lengths[:, None]
        each = cross_entropy(
            scores.symbols.flatten(0, 1), gold.flatten(), reduction="none", label_smoothing=smoothing
        ).view_as(gold)
        total = each.masked_fill(~counted, 0).sum(1)
        if scores.stop is not None:
            ends = steps == lengths[:, None]
            steady = softplus(torch.where(ends, -scores.stop, scores.stop))
            total = total + steady.masked_fill(steps > lengths[:, None], 0).sum(1)
        if scores.length is not None:
            total = total + cross_entropy(scores.length, lengths, reduction="none")
        return total

    def predictions(self, lengths: Tensor) -> Tensor:
        """How many a row makes: its symbols and, unless the source tells it, its end."""
        return lengths + (self.options.stop != "source")

    # Parts ----------------------------------------------------------------------------------------------

    def context_input(self, context: Context) -> Tensor:
        """What the network is given of the context: a vector, or a memory aligned with what is written."""
        if self.options.condition != "aligned":
            return context.vector
        assert context.memory is not None
        return context.memory

    def inputs(self, tokens: Tensor, left: Tensor | None, first: int = 0) -> Tensor:
        """Of tokens (B, T) that are read from step `first` on, or (B,) that are read there."""
        o = self.options
        x: Tensor = self.embedding(tokens if o.feedback else torch.full_like(tokens, BOS))
        if self.count is not None:
            x = torch.cat([x, self.count(left)], dim=-1)
        x = drop_steps(x, o.dropout_input, training=self.training, variational=False)
        if self.clock is None:
            return x
        steps = first + torch.arange(tokens.shape[1] if tokens.dim() > 1 else 1, device=x.device)
        return beside(x, steps.expand(tokens.shape), self.clock)

    def outputs(self, h: Tensor, context: Context, keys: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Logits (B, T, K) and of stopping (B, T), of hidden states (B, T, H)."""
        o = self.options
        if self.attention is not None:
            assert context.memory is not None
            assert context.lengths is not None
            there = torch.arange(context.memory.shape[1], device=h.device) < context.lengths[:, None]
            found, _ = self.attention(h, context.memory, there, keys)
            h = torch.tanh(self.combine(torch.cat([h, found], dim=-1)))
        h = drop_steps(h, o.dropout_output, training=self.training, variational=False)
        return self.symbols(h), None if self.stop is None else self.stop(h).squeeze(-1)
