"""Decoder: a network that generates a sequence symbol by symbol and decides when to stop.

    x_t  = embedding of y_{t−1}                        the previous symbol; y_0 is <bos>
    h_t  = recurrent network of x_t and the context    see recur.nn.conditioning
    g_t  = tanh(A [h_t; c_t])                          c_t: attention of h_t over the memory, if there is attention
    P(y_t) = softmax(V g_t + b)

Attention reads h_t and does not feed the next step: with teacher forcing all steps are one scan. With input feeding
(Luong, Pham and Manning 2015) x_t is [embedding of y_{t−1}; g_{t−1}], and steps run one after another. With copying
(See, Liu and Manning 2017) a symbol is generated or copied from the source:

    P(y_t) = p_t softmax(V g_t + b) + (1 − p_t) Σ_{s: x_s = y_t} a_ts        p_t = σ(u · g_t + d)

where a_ts are the attention weights. A sequence ends in one of four ways:

    eos         by the symbol <eos>
    bernoulli   by an output σ(w · g_t + a), the probability of the end, trained with the symbols
    length      P(τ) is predicted from the context, and the remaining length τ − t is an input of every step:
                P(y_1 … y_τ) = P(τ) P(y_1 … y_τ | τ)
    source      at the length of the source

`ConditionalModel` generates sequences for a label, `Seq2Seq` for a source sequence (Deep Learning, sections 10.2.4 and
10.4): the context is the embedding of the label, or the encoded source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid, softplus

from recur.cells.registry import configured_cell
from recur.data.text import BOS, EOS, PAD
from recur.errors import OptionError
from recur.models.layers import State, TokenEmbedding, append_positions, append_time, decoder_network_options, map_state
from recur.models.options import DecoderOptions, EncoderDecoderOptions
from recur.nn import Attention, Conditioned, Recurrent
from recur.nn.functional import MASKED_LOGIT, MaskedLinear, initialise_linear, logit_mask, sequence_dropout

COUNT_SIZE = 16
"""Width of the embedding of the remaining length."""


class DecoderContext(NamedTuple):
    """Encoded source that a decoder reads."""

    vector: Tensor
    """(B, C)"""
    memory: Tensor | None = None
    """(B, S, M): memory for attention, or aligned with the outputs."""
    lengths: Tensor | None = None
    """(B,): lengths of the memory; the whole memory if not given."""
    symbols: Tensor | None = None
    """(B, S): target symbols that can be copied from each source position; <unk> if there is none."""


IMPOSSIBLE = MASKED_LOGIT / 2
"""Log-probability below which a symbol is one that no training target had."""


class DecoderScores(NamedTuple):
    """Scores of a batch of targets."""

    symbols: Tensor
    """(B, T, K): logits; log-probabilities if symbols can be copied."""
    stop: Tensor | None
    """(B, T): logit of the end before symbol t, for bernoulli."""
    length: Tensor | None
    """(B, longest + 1): logits of the length, for length."""
    weights: Tensor | None
    """(B, T, S): attention weights."""
    backend: str


class DecoderStep(NamedTuple):
    """Vectors from which symbols are predicted, for one or more steps."""

    g: Tensor
    """(B, T, H)"""
    weights: Tensor | None
    """(B, T, S): attention weights."""


class Decoder(nn.Module):
    """Decoder over a vocabulary of K symbols, from a context of width C and a memory of width M."""

    unwritable: Tensor | None
    """(K,): mask that is added to scores of copied symbols."""

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
        writable: Sequence[bool] | None = None,
    ) -> None:
        """Create the network. `writable` (K,) are the symbols that a target can consist of; by default, all."""
        super().__init__()
        o = self.options = options
        self.K, self.input_feeding = K, input_feeding
        self.embedding = TokenEmbedding(K, o.embedding_size, o.embedding_init)
        self.count = nn.Embedding(o.max_length + 1, COUNT_SIZE) if o.stop == "length" else None
        self.clock = o.clock
        H = o.hidden_size
        width = o.embedding_size + (COUNT_SIZE if self.count is not None else 0) + (self.clock is not None)
        context_size = memory_size if o.condition == "aligned" else context_size
        layers = decoder_network_options(o, o.num_layers, o.dropout_hidden)
        width += H if input_feeding else 0
        cell = configured_cell(o.cell)
        self.network = Conditioned(cell, width, o.hidden_size, context_size, o.condition, o.recurrence, **layers)
        states = self.network.recurrent.output_size
        self.attention = None
        if attention != "none":
            self.attention = Attention(attention, states, memory_size, o.hidden_size)
            self.combine = nn.Linear(states + memory_size, H)
        else:
            H = states
        # The end is a symbol only if it is predicted as one; elsewhere its probability is a number of its own.
        can = None if writable is None else [o.stop == "eos" if k == EOS else bool(w) for k, w in enumerate(writable)]
        mask = logit_mask(can)
        self.symbols = MaskedLinear(H, K, mask)
        self.register_buffer("unwritable", mask if copy else None, persistent=False)
        self.stop = nn.Linear(H, 1) if o.stop == "bernoulli" else None
        some = logit_mask([length > 0 for length in range(o.max_length + 1)])  # no target is empty
        self.length = MaskedLinear(context_size, o.max_length + 1, some) if o.stop == "length" else None
        self.written = nn.Linear(H, 1) if copy else None
        for output in (self.symbols, self.stop, self.length, self.written):
            if output is not None:
                initialise_linear(o.init, output.weight, output.bias)

    # Training -------------------------------------------------------------------------------------------

    def forward(
        self, context: DecoderContext, targets: Tensor, lengths: Tensor, forced: Tensor | None = None
    ) -> DecoderScores:
        """Return the scores of targets (B, T) with lengths (B,).

        forced   (B, steps), True: the step reads the previous target (teacher forcing); False: it reads its own most
                 likely symbol. None: teacher forcing at all steps, computed in parallel unless inputs are fed.
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
        return DecoderScores(symbols, stop, length, step.weights, backend)

    def _before(self, targets: Tensor) -> Tensor:
        """Return the inputs with teacher forcing: <bos>, then the targets shifted by one step."""
        first = targets.new_full((len(targets), 1), BOS)
        has_end_step = self.options.stop in ("eos", "bernoulli")  # then there is one step more, which ends it
        return torch.cat([first, targets if has_end_step else targets[:, :-1]], dim=1)

    def _step_by_step(
        self, context: DecoderContext, before: Tensor, left: Tensor | None, forced: Tensor | None
    ) -> tuple[DecoderStep, Tensor, Tensor | None, str]:
        given, keys, state, backend = self.context_input(context), self.keys(context), None, ""
        own, fed = before[:, 0], self.first_fed(context)
        steps: list[DecoderStep] = []
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
        whole = DecoderStep(
            torch.cat([step.g for step in steps], dim=1), torch.cat(weights, dim=1) if weights else None
        )
        if forced is None:  # what only the end reads is one product
            symbols, stop = self.outputs(whole, context)
        else:
            symbols, stop = torch.cat(logits, dim=1), self._stop(whole)
        return whole, symbols, stop, backend

    @staticmethod
    def _likeliest(logits: Tensor) -> Tensor:
        """Return the most likely symbol other than the end."""
        logits = logits.clone()
        logits[:, : EOS + 1] = -torch.inf
        return logits.argmax(-1)

    def loss(self, scores: DecoderScores, targets: Tensor, lengths: Tensor) -> Tensor:
        """Return −log P of each row, shape (B,): its symbols and its end."""
        return self.losses(scores, targets, lengths)[0]

    def losses(
        self, scores: DecoderScores, targets: Tensor, lengths: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Return −log P of each row, shape (B,), and the same with label smoothing (Szegedy et al. 2016)."""
        steps = torch.arange(scores.symbols.shape[1], device=targets.device)
        gold, counted = targets, steps < lengths[:, None]
        if self.options.stop in ("eos", "bernoulli"):
            gold = torch.cat([targets, targets.new_full((len(targets), 1), PAD)], dim=1)
        if self.options.stop == "eos":
            gold = gold.masked_fill(steps == lengths[:, None], EOS)
            counted = steps <= lengths[:, None]
        if self.symbols.mask is not None:  # a symbol that no training target had has no probability
            counted = counted & (self.symbols.mask[gold] == 0)
        logp = scores.symbols.log_softmax(-1)
        plain = -logp.gather(-1, gold[:, :, None])[:, :, 0].masked_fill(~counted, 0).sum(1)
        smoothed = plain
        if smoothing:
            everywhere = -self._mean_over_writable(logp).masked_fill(~counted, 0).sum(1)
            smoothed = (1 - smoothing) * plain + smoothing * everywhere
        ends = torch.zeros_like(plain)
        if scores.stop is not None:
            steady = softplus(torch.where(steps == lengths[:, None], -scores.stop, scores.stop))
            ends = ends + steady.masked_fill(steps > lengths[:, None], 0).sum(1)
        if scores.length is not None:
            ends = ends + cross_entropy(scores.length, lengths, reduction="none")
        return plain + ends, smoothed + ends

    def _mean_over_writable(self, logp: Tensor) -> Tensor:
        """Return the mean of log-probabilities (…, K) over the symbols that can be written."""
        mask = self.symbols.mask
        if mask is None:
            return logp.mean(-1)
        can = (mask == 0).to(logp)
        return logp @ (can / can.sum())

    def predictions(self, targets: Tensor, lengths: Tensor) -> Tensor:
        """Return the number of predictions per row: its symbols and, unless the source determines it, its end.

        Symbols that no training target had are not predicted.
        """
        count = lengths + (self.options.stop != "source")
        if self.symbols.mask is None:
            return count
        steps = torch.arange(targets.shape[1], device=targets.device)
        unseen = (self.symbols.mask.to(targets.device)[targets] != 0) & (steps < lengths[:, None])
        return count - unseen.sum(1)

    # Parts ----------------------------------------------------------------------------------------------

    def context_input(self, context: DecoderContext) -> Tensor:
        """Return the context that the network reads: a vector, or the aligned memory."""
        if self.options.condition != "aligned":
            return context.vector
        assert context.memory is not None
        return context.memory

    def keys(self, context: DecoderContext) -> Tensor | None:
        """Return the attention keys of the memory, computed once for all steps; None without attention."""
        if self.attention is None:
            return None
        assert context.memory is not None
        return self.attention.keys(context.memory)

    def first_fed(self, context: DecoderContext) -> Tensor | None:
        """Return g_0 of the first step, zeros (B, 1, H), if inputs are fed; else None."""
        if not self.input_feeding:
            return None
        return context.vector.new_zeros(len(context.vector), 1, self.options.hidden_size)

    def inputs(self, tokens: Tensor, left: Tensor | None, first: int | Tensor = 0, fed: Tensor | None = None) -> Tensor:
        """Return the inputs of the network for tokens (B, T) or (B,).

        left    remaining lengths, for length
        first   number of the first step, or (B, 1) if it differs by row
        fed     g of the step before, if inputs are fed
        """
        o = self.options
        x: Tensor = self.embedding(tokens if o.feedback else torch.full_like(tokens, BOS))
        if self.count is not None:
            x = torch.cat([x, self.count(left)], dim=-1)
        x = sequence_dropout(x, o.dropout_input, training=self.training, variational=False)
        if fed is not None:
            x = torch.cat([x, fed], dim=-1)
        if self.clock is None:
            return x
        steps = first + torch.arange(tokens.shape[1] if tokens.dim() > 1 else 1, device=x.device)
        return append_time(x, steps.expand(tokens.shape), self.clock)

    def attend(self, h: Tensor, context: DecoderContext, keys: Tensor | None) -> DecoderStep:
        """Return the vectors from which symbols are predicted, for hidden states (B, T, H)."""
        weights = None
        if self.attention is not None:
            assert context.memory is not None
            there = None
            if context.lengths is not None:
                there = torch.arange(context.memory.shape[1], device=h.device) < context.lengths[:, None]
            found, weights = self.attention(h, context.memory, there, keys)
            h = torch.tanh(self.combine(torch.cat([h, found], dim=-1)))
        return DecoderStep(
            sequence_dropout(h, self.options.dropout_output, training=self.training, variational=False), weights
        )

    def outputs(self, step: DecoderStep, context: DecoderContext) -> tuple[Tensor, Tensor | None]:
        """Return logits of symbols (B, T, K) and of stopping (B, T)."""
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
            if self.unwritable is not None:  # an unknown symbol of the source cannot be copied
                logits = logits + self.unwritable
        return logits, self._stop(step)

    def _stop(self, step: DecoderStep) -> Tensor | None:
        return None if self.stop is None else self.stop(step.g).squeeze(-1)


class DecoderState(NamedTuple):
    """State of hypotheses between steps."""

    state: State | None
    step: int
    left: Tensor | None
    """(N,): remaining number of symbols, if known."""
    fed: Tensor | None
    """(N, H): g of the step before, if inputs are fed."""
    attended: Tensor | None = None
    """(N, S): attention weights summed over steps."""


def add_end_probability(logits: Tensor, stop: Tensor | None, left: Tensor | None) -> Tensor:
    """Return log-probabilities (N, K) in which the entry of <eos> is the end of the sequence.

    stop   (N,): logits of stopping, for bernoulli
    left   (N,): remaining number of symbols, for length and source
    """
    logp = logits.log_softmax(-1)
    if left is not None:
        over = left == 0
        logp, end = logp.masked_fill(over[:, None], -torch.inf), torch.where(over, 0.0, -torch.inf).to(logp)
    elif stop is not None:
        logp, end = logp + logsigmoid(-stop)[:, None], logsigmoid(stop)
    else:
        return logp
    return torch.where(torch.arange(logp.shape[1], device=logp.device) == EOS, end[:, None], logp)


class BatchDecoder:
    """Decoder of a batch of contexts, one step at a time; used by recur.decoding."""

    def __init__(self, decoder: Decoder, context: DecoderContext, longest: int | None = None) -> None:
        """Prepare decoding. `longest` lowers the decoder's own limit, if sequences end by a predicted end."""
        self.decoder, self.context = decoder, context
        self.rows, self.K, self.device = len(context.vector), decoder.K, context.vector.device
        self.longest = decoder.options.max_length
        if longest is not None and decoder.options.stop in ("eos", "bernoulli"):
            self.longest = min(self.longest, longest)
        if decoder.options.stop == "source":
            assert context.lengths is not None
            self.longest = int(context.lengths.max())
        self.keys = decoder.keys(context)

    def lengths(self) -> Tensor | None:
        """Return log P(τ), shape (B, longest + 1), if the length is chosen before decoding; else None."""
        if self.decoder.length is not None:
            found: Tensor = self.decoder.length(self.context.vector).log_softmax(-1)
            found[:, 0] = -torch.inf  # no target is empty
            return found
        if self.decoder.options.stop == "source":
            assert self.context.lengths is not None
            table = self.context.vector.new_full((self.rows, self.longest + 1), -torch.inf)
            return table.scatter(1, self.context.lengths[:, None], 0.0)
        return None

    def begin(self, k: int, left: Tensor | None = None) -> DecoderState:
        """Return the state of k hypotheses per row; `left` (B · k,) are their lengths."""
        fed = self.decoder.first_fed(self.context)
        return DecoderState(None, 0, left, None if fed is None else fed[:, 0].repeat_interleave(k, 0))

    def step(self, tokens: Tensor, carried: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read tokens (B · k,). Return log-probabilities (B · k, K) of the next symbol, <eos> being the end."""
        d, k = self.decoder, len(tokens) // self.rows
        given = d.context_input(self.context)
        if given.dim() == 3:  # behind the longest source there is nothing, and nothing is written either
            given = given[:, min(carried.step, given.shape[1] - 1)]
        x = d.inputs(tokens, None if d.count is None else carried.left, carried.step, carried.fed)
        h, state = d.network.step(x, given.repeat_interleave(k, 0), carried.state)
        step = d.attend(h.view(self.rows, k, -1), self.context, self.keys)
        symbols, stop = d.outputs(step, self.context)
        left, weights = carried.left, None if step.weights is None else step.weights.reshape(len(tokens), -1)
        logp = add_end_probability(symbols.view(len(tokens), -1), None if stop is None else stop.reshape(-1), left)
        if left is not None:
            over = (left == 0)[:, None]
            weights = None if weights is None else weights.masked_fill(over, 0.0)  # nothing is written there
            left = (left - 1).clamp(min=0)
        fed = None if carried.fed is None else step.g.reshape(len(tokens), -1)
        if weights is not None and carried.attended is not None:
            weights = carried.attended + weights
        return logp, DecoderState(state, carried.step + 1, left, fed, weights)

    def pick(self, carried: DecoderState, index: Tensor) -> DecoderState:
        """Return the state of the hypotheses with these indices (B · k,), in this order."""
        state = carried.state
        if state is not None:
            state = map_state(state, lambda part: part[index])
        parts = (carried.left, carried.fed, carried.attended)
        left, fed, attended = (None if part is None else part[index] for part in parts)
        return DecoderState(state, carried.step, left, fed, attended)

    def attended(self, carried: DecoderState) -> Tensor | None:
        """Return attention weights summed over steps, shape (B · k, S), 1 at positions that a row does not have."""
        if carried.attended is None:
            return None
        assert self.context.lengths is not None
        N, S = carried.attended.shape
        there = torch.arange(S, device=self.device) < self.context.lengths[:, None]
        return carried.attended.masked_fill(~there.repeat_interleave(N // self.rows, 0), 1.0)


class ConditionalModel(nn.Module):
    """Generator of sequences over K symbols for one of N labels."""

    def __init__(self, N: int, K: int, options: DecoderOptions, writable: Sequence[bool] | None = None) -> None:
        super().__init__()
        self.options = options
        self.labels = nn.Embedding(N, options.embedding_size)
        self.decoder = Decoder(K, options.embedding_size, 0, options, writable=writable)

    def forward(self, label: Tensor, target: Tensor, lengths: Tensor, forced: Tensor | None = None) -> DecoderScores:
        """Return scores of targets (B, T) with lengths (B,) for labels (B,); as `Decoder.forward`."""
        scores: DecoderScores = self.decoder(DecoderContext(self.labels(label)), target, lengths, forced)
        return scores

    def writer(self, label: Tensor) -> BatchDecoder:
        return BatchDecoder(self.decoder, DecoderContext(self.labels(label)))


class Seq2Seq(nn.Module):
    """Encoder-decoder from sources over K_in symbols to targets over K_out symbols."""

    copies: Tensor | None

    def __init__(
        self,
        K_in: int,
        K_out: int,
        options: EncoderDecoderOptions,
        copies: Sequence[int] | None = None,
        writable: Sequence[bool] | None = None,
    ) -> None:
        """Create the network.

        copies     target symbol of every source symbol, if symbols can be copied
        writable   (K_out,): symbols that a target can consist of; by default, all
        """
        super().__init__()
        o = self.options = options
        if o.copy and copies is None:
            raise OptionError("copying needs `copies`: the target symbol of every source symbol")
        self.embedding = TokenEmbedding(K_in, o.embedding_size, o.embedding_init, drop=o.dropout_input)
        layers = decoder_network_options(o, o.num_encoder_layers, o.dropout_hidden)
        self.clock = o.clock
        read = o.embedding_size + (self.clock is not None)
        self.encoder = Recurrent(configured_cell(o.cell), read, o.hidden_size, direction=o.direction, **layers)
        width = self.encoder.output_size
        reading = {"input_feeding": o.input_feeding, "copy": o.copy}
        self.decoder = Decoder(K_out, width, width, o, o.attention, **reading, writable=writable)
        self.register_buffer("copies", torch.tensor(copies) if o.copy else None, persistent=False)

    def encode(self, source: Tensor, lengths: Tensor | None) -> DecoderContext:
        """Return the context of sources (B, S) with lengths (B,) on the CPU; the whole source if not given."""
        x = append_positions(self.embedding(source), self.clock)
        memory, state, _ = self.encoder(x, lengths=lengths)
        last = state[-2:] if self.options.direction == "both" else state[-1:]
        vector = torch.cat([self.encoder.cell.output(part) for part in last], dim=-1)
        symbols = None if self.copies is None else self.copies[source]
        return DecoderContext(vector, memory, None if lengths is None else lengths.to(source.device), symbols)

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, lengths: Tensor, forced: Tensor | None = None
    ) -> DecoderScores:
        """Return scores of targets given sources; as `Decoder.forward`."""
        scores: DecoderScores = self.decoder(self.encode(source, source_lengths), target, lengths, forced)
        return scores

    def writer(self, source: Tensor, lengths: Tensor, longest: int | None = None) -> BatchDecoder:
        return BatchDecoder(self.decoder, self.encode(source, lengths), longest)
