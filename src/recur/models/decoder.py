"""The decoder: a network that writes a sequence of its own, symbol after symbol, and knows when to stop.

    x_t  = embedding of y_{t−1}                        what was written before; y_0 is <bos>
    h_t  = recurrent network of x_t and the context    see recur.layers.conditioning for the ways in
    g_t  = tanh(A [h_t; c_t])                          c_t: attention of h_t over the memory, if there is one
    P(y_t) = softmax(V g_t + b)

Attention reads h_t and does not feed the next step: with a teacher, all steps are one scan. With input feeding (Luong,
Pham and Manning 2015) x_t is [embedding of y_{t−1}; g_{t−1}], so that a step knows where the one before looked, and
steps wait for each other. With copying (See, Liu and Manning 2017) a symbol is written or taken from the source:

    P(y_t) = p_t softmax(V g_t + b) + (1 − p_t) Σ_{s: x_s = y_t} a_ts        p_t = σ(u · g_t + d)

a_ts being the weights of attention. A sequence ends in one of four ways:

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
from torch.nn.functional import cross_entropy, logsigmoid, softplus

from recur.layers import Attention, Conditioned, drop_steps, initialise_linear
from recur.models.decoder_options import DecoderOptions
from recur.models.embedding import TokenEmbedding
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
    """(B,): how much of the memory is there; all of it, if not given."""
    symbols: Tensor | None = None
    """(B, S): what can be copied from each place of it, as symbols of the target; <unk> where that has none."""


class Scores(NamedTuple):
    """What a pass over a batch gives."""

    symbols: Tensor
    """(B, T, K): logits, or log-probabilities where symbols are copied."""
    stop: Tensor | None
    """(B, T): logit of ending before symbol t, for bernoulli."""
    length: Tensor | None
    """(B, longest + 1): logits of the length, for length."""
    weights: Tensor | None
    """(B, T, S): of attention."""
    backend: str


class Step(NamedTuple):
    """What symbols are read from, at some steps."""

    g: Tensor
    """(B, T, H)"""
    weights: Tensor | None
    """(B, T, S): of attention."""


class Decoder(nn.Module):
    """Symbols of a vocabulary of K, from a context of width C and a memory of width M."""

    def __init__(
        self,
        K: int,
        context_size: int,
        memory_size: int,
        options: DecoderOptions,
        attention: str = "none",
        *,
        input_feeding: bool = False,
        copy: bool = False,
    ) -> None:
        super().__init__()
        o = self.options = options
        self.K, self.input_feeding = K, input_feeding
        self.embedding = TokenEmbedding(K, o.embedding, o.embedding_init)
        self.count = nn.Embedding(o.longest + 1, COUNT_SIZE) if o.stop == "length" else None
        self.clock = o.clock
        H = o.hidden
        width = o.embedding + (COUNT_SIZE if self.count is not None else 0) + (self.clock is not None)
        context_size = memory_size if o.condition == "aligned" else context_size
        layers = writing_stack(o, o.layers, o.dropout_hidden)
        width += H if input_feeding else 0
        self.network = Conditioned(o.cell, width, o.hidden, context_size, o.condition, o.recurrence, **layers)
        states = self.network.recurrent.output_size
        self.attention = None
        if attention != "none":
            self.attention = Attention(attention, states, memory_size, o.hidden)
            self.combine = nn.Linear(states + memory_size, H)
        else:
            H = states
        self.symbols = nn.Linear(H, K)
        self.stop = nn.Linear(H, 1) if o.stop == "bernoulli" else None
        self.length = nn.Linear(context_size, o.longest + 1) if o.stop == "length" else None
        self.written = nn.Linear(H, 1) if copy else None
        for output in (self.symbols, self.stop, self.length, self.written):
            if output is not None:
                initialise_linear(o.init, output.weight, output.bias)

    # Training -------------------------------------------------------------------------------------------

    def forward(self, context: Context, targets: Tensor, lengths: Tensor, forced: Tensor | None = None) -> Scores:
        """Scores of targets (B, T), of which lengths (B,) count.

        With a teacher, step t reads the target before it. Where `forced` (B, steps) is false it reads what the network
        itself found likeliest there. With all steps forced (None) they are computed at once, unless inputs are fed.
        """
        before = self._before(targets)
        left = None
        if self.count is not None:
            left = (lengths[:, None] - torch.arange(before.shape[1], device=before.device)).clamp(min=0)
        if not self.options.feedback or (forced is not None and bool(forced.all())):
            forced = None
        if forced is None and not self.input_feeding:
            h, _, trace = self.network(self.inputs(before, left), self.context_input(context))
            step, backend = self.attend(h, context, self.keys(context)), trace[0].backend
            symbols, stop = self.outputs(step, context)
        else:
            step, symbols, stop, backend = self._step_by_step(context, before, left, forced)
        length = None if self.length is None else self.length(context.vector)
        return Scores(symbols, stop, length, step.weights, backend)

    def _before(self, targets: Tensor) -> Tensor:
        """What each step reads with a teacher: the targets one step later, behind <bos>."""
        first = targets.new_full((len(targets), 1), BOS)
        has_end_step = self.options.stop in ("eos", "bernoulli")  # then there is one step more, which ends it
        return torch.cat([first, targets if has_end_step else targets[:, :-1]], dim=1)

    def _step_by_step(
        self, context: Context, before: Tensor, left: Tensor | None, forced: Tensor | None
    ) -> tuple[Step, Tensor, Tensor | None, str]:
        given, keys, state, backend = self.context_input(context), self.keys(context), None, ""
        own, fed = before[:, 0], self.first_fed(context)
        steps: list[Step] = []
        logits: list[Tensor] = []
        for t in range(before.shape[1]):
            read = before[:, t] if forced is None or not t else torch.where(forced[:, t], before[:, t], own)
            share = given[:, t : t + 1] if given.dim() == 3 else given
            x = self.inputs(read[:, None], None if left is None else left[:, t : t + 1], first=t, fed=fed)
            h, state, trace = self.network(x, share, state)
            step = self.attend(h, context, keys)
            steps.append(step)
            fed = step.g if self.input_feeding else None
            if forced is not None:
                logits.append(self.outputs(step, context)[0])
                own = self._likeliest(logits[-1][:, 0].detach())
            backend = trace[0].backend
        weights = [step.weights for step in steps if step.weights is not None]
        whole = Step(torch.cat([step.g for step in steps], dim=1), torch.cat(weights, dim=1) if weights else None)
        if forced is None:  # what only the end reads is one product
            symbols, stop = self.outputs(whole, context)
        else:
            symbols, stop = torch.cat(logits, dim=1), self._stop(whole)
        return whole, symbols, stop, backend

    @staticmethod
    def _likeliest(logits: Tensor) -> Tensor:
        """The symbol to go on with; the end is none."""
        logits = logits.clone()
        logits[:, : EOS + 1] = -torch.inf
        return logits.argmax(-1)

    def loss(self, scores: Scores, targets: Tensor, lengths: Tensor) -> Tensor:
        """−log P of each row, (B,): its symbols, and its end."""
        return self.losses(scores, targets, lengths)[0]

    def losses(self, scores: Scores, targets: Tensor, lengths: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """−log P of each row, (B,), and the same where `smoothing` of a target's probability goes to all symbols alike
        (Szegedy et al. 2016)."""
        steps = torch.arange(scores.symbols.shape[1], device=targets.device)
        gold, counted = targets, steps < lengths[:, None]
        if self.options.stop in ("eos", "bernoulli"):
            gold = torch.cat([targets, targets.new_full((len(targets), 1), PAD)], dim=1)
        if self.options.stop == "eos":
            gold = gold.masked_fill(steps == lengths[:, None], EOS)
            counted = steps <= lengths[:, None]
        logp = scores.symbols.log_softmax(-1)
        plain = -logp.gather(-1, gold[:, :, None])[:, :, 0].masked_fill(~counted, 0).sum(1)
        smoothed = plain
        if smoothing:
            everywhere = -logp.mean(-1).masked_fill(~counted, 0).sum(1)
            smoothed = (1 - smoothing) * plain + smoothing * everywhere
        ends = torch.zeros_like(plain)
        if scores.stop is not None:
            steady = softplus(torch.where(steps == lengths[:, None], -scores.stop, scores.stop))
            ends = ends + steady.masked_fill(steps > lengths[:, None], 0).sum(1)
        if scores.length is not None:
            ends = ends + cross_entropy(scores.length, lengths, reduction="none")
        return plain + ends, smoothed + ends

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

    def keys(self, context: Context) -> Tensor | None:
        """The memory as attention reads it, once for all steps."""
        if self.attention is None:
            return None
        assert context.memory is not None
        return self.attention.keys(context.memory)

    def first_fed(self, context: Context) -> Tensor | None:
        """What the first step reads in place of g_0, (B, 1, H)."""
        if not self.input_feeding:
            return None
        return context.vector.new_zeros(len(context.vector), 1, self.options.hidden)

    def inputs(self, tokens: Tensor, left: Tensor | None, first: int | Tensor = 0, fed: Tensor | None = None) -> Tensor:
        """Of tokens (B, T) that are read from step `first` on, of each row (B, 1) if they differ, or (B,) that are read
        there; `fed` is g before them."""
        o = self.options
        x: Tensor = self.embedding(tokens if o.feedback else torch.full_like(tokens, BOS))
        if self.count is not None:
            x = torch.cat([x, self.count(left)], dim=-1)
        x = drop_steps(x, o.dropout_input, training=self.training, variational=False)
        if fed is not None:
            x = torch.cat([x, fed], dim=-1)
        if self.clock is None:
            return x
        steps = first + torch.arange(tokens.shape[1] if tokens.dim() > 1 else 1, device=x.device)
        return beside(x, steps.expand(tokens.shape), self.clock)

    def attend(self, h: Tensor, context: Context, keys: Tensor | None) -> Step:
        """What symbols are read from, of hidden states (B, T, H)."""
        weights = None
        if self.attention is not None:
            assert context.memory is not None
            there = None
            if context.lengths is not None:
                there = torch.arange(context.memory.shape[1], device=h.device) < context.lengths[:, None]
            found, weights = self.attention(h, context.memory, there, keys)
            h = torch.tanh(self.combine(torch.cat([h, found], dim=-1)))
        return Step(drop_steps(h, self.options.dropout_output, training=self.training, variational=False), weights)

    def outputs(self, step: Step, context: Context) -> tuple[Tensor, Tensor | None]:
        """Logits (B, T, K) and of stopping (B, T)."""
        logits: Tensor = self.symbols(step.g)
        if self.written is not None:
            assert context.symbols is not None
            assert step.weights is not None
            gate = self.written(step.g)
            weights = step.weights.to(torch.promote_types(step.weights.dtype, torch.float32))
            places = context.symbols[:, None].expand(-1, weights.shape[1], -1)
            copied = weights.new_zeros(logits.shape).scatter_add(2, places, weights)
            copied = copied.clamp(min=torch.finfo(copied.dtype).tiny).log() + logsigmoid(-gate)
            logits = torch.logaddexp(logits.log_softmax(-1) + logsigmoid(gate), copied)
        return logits, self._stop(step)

    def _stop(self, step: Step) -> Tensor | None:
        return None if self.stop is None else self.stop(step.g).squeeze(-1)
