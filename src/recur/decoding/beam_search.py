"""Greedy decoding, sampling and beam search for step decoders: seq2seq decoders, their ensembles, language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from recur.data.text import BOS, EOS, PAD, UNK
from recur.decoding.sampling import FORBIDDEN_TOKENS, SamplingOptions, forbidden_tokens, make_generator, read_prompt
from recur.errors import OptionError
from recur.models import LanguageModel, State
from recur.models.decoder import IMPOSSIBLE
from recur.models.layers import map_state
from recur.options import Count, Natural, NonNegative, checked

DecoderStateT = TypeVar("DecoderStateT")
"""State that hypotheses carry from step to step; opaque to the search."""


class StepDecoder(Protocol[DecoderStateT]):
    """Decoder of a batch of rows, one step at a time: `recur.models.BatchDecoder`, or a `DecoderEnsemble`."""

    @property
    def rows(self) -> int: ...

    @property
    def K(self) -> int:  # noqa: N802
        """Size of the vocabulary."""

    @property
    def longest(self) -> int:
        """Largest number of symbols that are generated."""

    @property
    def device(self) -> torch.device: ...

    def lengths(self) -> Tensor | None:
        """Return log P(τ), shape (B, longest + 1), if the length is chosen before decoding; else None."""

    def begin(self, k: int, left: Tensor | None = None) -> DecoderStateT:
        """Return the initial state of k hypotheses per row; `left` (B · k,) are their lengths."""

    def step(self, tokens: Tensor, carried: DecoderStateT) -> tuple[Tensor, DecoderStateT]:
        """Read tokens (B · k,). Return log-probabilities (B · k, K) of the next symbol, <eos> being the end."""

    def pick(self, carried: DecoderStateT, index: Tensor) -> DecoderStateT:
        """Return the state of the hypotheses with these indices (B · k,), in this order."""

    def attended(self, carried: DecoderStateT) -> Tensor | None:
        """Return the attention weights summed over all steps so far, shape (B · k, S); None without attention.

        Positions beyond the source of a row have the value 1.
        """


class DecodedSequence(NamedTuple):
    """One decoded sequence."""

    ids: list[int]
    score: float
    """Log-probability, including the end."""
    cut: bool
    """Whether the sequence reached the largest length before it ended."""


class DecoderEnsemble(Generic[DecoderStateT]):
    """Ensemble of step decoders: the mean of their probabilities at every step."""

    def __init__(self, writers: Sequence[StepDecoder[DecoderStateT]]) -> None:
        self.writers = writers
        first = writers[0]
        self.rows, self.K, self.device = first.rows, first.K, first.device
        self.longest = min(writer.longest for writer in writers)
        if len({(writer.K, writer.lengths() is None) for writer in writers}) > 1:
            raise OptionError("an ensemble needs models with the same vocabulary and the same way of stopping")

    def lengths(self) -> Tensor | None:
        tables = [table for writer in self.writers if (table := writer.lengths()) is not None]
        return _mean([table[:, : self.longest + 1] for table in tables]) if tables else None

    def begin(self, k: int, left: Tensor | None = None) -> list[DecoderStateT]:
        return [writer.begin(k, left) for writer in self.writers]

    def step(self, tokens: Tensor, carried: list[DecoderStateT]) -> tuple[Tensor, list[DecoderStateT]]:
        steps = [writer.step(tokens, own) for writer, own in zip(self.writers, carried, strict=True)]
        return _mean([logp for logp, _ in steps]), [own for _, own in steps]

    def pick(self, carried: list[DecoderStateT], index: Tensor) -> list[DecoderStateT]:
        return [writer.pick(own, index) for writer, own in zip(self.writers, carried, strict=True)]

    def attended(self, carried: list[DecoderStateT]) -> Tensor | None:
        """Return the mean over the members that have attention."""
        found = [writer.attended(own) for writer, own in zip(self.writers, carried, strict=True)]
        there = [one for one in found if one is not None]
        return torch.stack(there).mean(0) if there else None


def _mean(tables: list[Tensor]) -> Tensor:
    """Return the logarithm of the mean probability."""
    return torch.stack(tables).exp().mean(0).log()


def greedy_decode(writer: StepDecoder[DecoderStateT]) -> list[DecodedSequence]:
    """Decode each row by taking the most likely symbol at every step."""
    return [row[0] for row in _decode(writer, 1, lambda logp: logp.argmax(-1))]


def sample_decode(
    writer: StepDecoder[DecoderStateT], choice: SamplingOptions, samples: int = 1, seed: int | None = None
) -> list[list[DecodedSequence]]:
    """Draw this number of sequences for each row."""
    samples, generator = checked("samples", samples, Count), make_generator(seed)
    return _decode(writer, samples, lambda logp: choice.draw(logp, generator).to(logp.device))


@torch.no_grad()
def _decode(
    writer: StepDecoder[DecoderStateT], k: int, choose: Callable[[Tensor], Tensor]
) -> list[list[DecodedSequence]]:
    N = writer.rows * k
    scores = torch.zeros(N, dtype=torch.float64, device=writer.device)
    left, lengths = None, writer.lengths()
    if lengths is not None:
        lengths = lengths.repeat_interleave(k, 0)
        left = choose(lengths)
        scores += lengths.gather(1, left[:, None])[:, 0]
    tokens = torch.full((N,), BOS, device=writer.device)
    alive = torch.ones(N, dtype=torch.bool, device=writer.device)
    carried = writer.begin(k, left)
    written = []
    for t in range(writer.longest + 1):
        logp, carried = writer.step(tokens, carried)
        logp[:, list(FORBIDDEN_TOKENS)] = -torch.inf
        tokens = choose(logp)
        ended = tokens == EOS
        counted = alive & ended if t == writer.longest else alive  # the last step can only end what is written
        scores += logp.gather(1, tokens[:, None])[:, 0].masked_fill(~counted, 0)
        alive = alive & ~ended
        written.append(tokens.masked_fill(~alive, PAD))
        if not bool(alive.any()):
            break
    rows = torch.stack(written, dim=1)[:, : writer.longest].tolist()
    made = [
        DecodedSequence(_without_padding(ids), score, cut)
        for ids, score, cut in zip(rows, scores.tolist(), alive.tolist(), strict=True)
    ]
    return [made[at : at + k] for at in range(0, N, k)]


@torch.no_grad()
def beam_search(
    writer: StepDecoder[DecoderStateT],
    width: int,
    nbest: int = 1,
    penalty: float = 0.0,
    coverage: float = 0.0,
    *,
    end: int = EOS,
    never: Sequence[int] = FORBIDDEN_TOKENS,
) -> list[list[DecodedSequence]]:
    """Return the `nbest` best sequences found by a beam of this width for each row, best first.

    Sequences are ranked by log P / ((5 + |y|) / 6)^penalty + coverage · Σ_s log min(Σ_t a_ts, 1) (Wu et al. 2016). |y|
    counts the end; a_ts is the attention weight of source position s at step t, so positions that were hardly attended
    to lower the rank. With penalty 0 and coverage 0 the rank is log P. A row is finished when no open hypothesis can
    become better than the finished ones.

    end     id that ends a sequence
    never   ids that are never generated
    """
    width, nbest = checked("beam", width, Count), checked("nbest", nbest, Count)
    if nbest > width:
        raise OptionError(f"nbest must lie in 1 … {width}, the width of the beam, got {nbest}")
    penalty = checked("length_penalty", penalty, NonNegative)
    coverage = checked("coverage", coverage, NonNegative)
    B, k, longest, device = writer.rows, width, writer.longest, writer.device
    scores, left = _start(writer, k)
    carried = writer.begin(k, left)
    tokens = torch.full((B * k,), BOS, device=device)
    history = torch.empty(B, k, 0, dtype=torch.long, device=device)
    finished = _Finished(scores, longest, penalty)
    first, n = torch.arange(B, device=device)[:, None] * k, min(k, writer.K)
    for t in range(1, longest + 2):  # the last step can only end what is written
        logp, carried = writer.step(tokens, carried)
        logp[:, list(never)] = -torch.inf
        left_out = coverage * _coverage_penalty(writer, carried).view(B, k) if coverage else 0.0
        finished.add(history, scores + logp[:, end].double().view(B, k), left_out)
        if t > longest:
            break
        logp[:, end] = -torch.inf
        likeliest, ids = logp.topk(n)  # no hypothesis has more than k of the k best
        scores, flat = (scores[:, :, None] + likeliest.double().view(B, k, n)).flatten(1).topk(k)
        rows, tokens = flat // n, ids.view(B, k * n).gather(1, flat)
        history = torch.cat([history.gather(1, rows[:, :, None].expand(-1, -1, t - 1)), tokens[:, :, None]], dim=2)
        if finished.unbeatable(scores[:, 0], nbest):
            break
        tokens, carried = tokens.flatten(), writer.pick(carried, (first + rows).flatten())
    found = finished.best(nbest)
    for row, cut, score in zip(found, history[:, 0].tolist(), scores[:, 0].tolist(), strict=True):
        if not row:  # nothing ended: the best there is, cut
            row.append(DecodedSequence(cut, score, True))
    return found


class _Finished:
    """The k best finished sequences of each row, best first."""

    def __init__(self, scores: Tensor, longest: int, penalty: float) -> None:
        self.longest, self.penalty = longest, penalty
        self.rank = torch.full_like(scores, -torch.inf)
        """(B, k): rank values."""
        self.logp = torch.full_like(scores, -torch.inf)
        """(B, k): log-probabilities; −inf if fewer sequences are finished."""
        self.ids = torch.full((*scores.shape, longest), PAD, device=scores.device)

    def add(self, history: Tensor, logp: Tensor, left_out: Tensor | float = 0.0) -> None:
        """Add hypotheses (B, k, t) that end now, with log-probabilities (B, k) and coverage penalties."""
        k, t = logp.shape[1], history.shape[2]
        self.rank, best = torch.cat([self.rank, logp / self._excused(t + 1) + left_out], dim=1).topk(k)
        self.logp = torch.cat([self.logp, logp], dim=1).gather(1, best)
        ids = torch.cat([self.ids, pad(history, (0, self.longest - t), value=PAD)], dim=1)
        self.ids = ids.gather(1, best[:, :, None].expand(-1, -1, self.longest))

    def unbeatable(self, logp: Tensor, nbest: int) -> bool:
        """Return True if the best open hypothesis (B,) of no row can still be among its `nbest`.

        The bound assumes the largest length and full coverage.
        """
        return bool((self.rank[:, nbest - 1] >= logp / self._excused(self.longest + 1)).all())

    def best(self, nbest: int) -> list[list[DecodedSequence]]:
        rows = zip(self.ids[:, :nbest].tolist(), self.logp[:, :nbest].tolist(), strict=True)
        return [
            [
                DecodedSequence(_without_padding(ids), logp, False)
                for ids, logp in zip(*row, strict=True)
                if logp > -torch.inf
            ]
            for row in rows
        ]

    def _excused(self, t: int) -> float:
        """Return the divisor of log P for a sequence of t symbols."""
        return float(((5 + t) / 6) ** self.penalty)


def _coverage_penalty(writer: StepDecoder[DecoderStateT], carried: DecoderStateT) -> Tensor:
    """Return Σ_s log min(Σ_t a_ts, 1), shape (B · k,); 0 if the whole source was attended to."""
    attended = writer.attended(carried)
    if attended is None:
        raise OptionError("coverage needs attention, and this model has none")
    return attended.double().clamp(torch.finfo(attended.dtype).tiny, 1.0).log().sum(1)


def _start(writer: StepDecoder[DecoderStateT], k: int) -> tuple[Tensor, Tensor | None]:
    """Return initial scores (B, k) and, if lengths are chosen first, the lengths (B · k,) of the hypotheses."""
    scores = torch.full((writer.rows, k), -torch.inf, dtype=torch.float64, device=writer.device)
    lengths = writer.lengths()
    if lengths is None:
        scores[:, 0] = 0.0
        return scores, None
    n = min(k, lengths.shape[1])
    scores[:, :n], left = lengths.double().topk(n)
    return scores, pad(left, (0, k - n)).flatten()


def _without_padding(ids: list[int]) -> list[int]:
    return [k for k in ids if k != PAD]


def likelihood(writer: StepDecoder[DecoderStateT], targets: Tensor, lengths: Tensor) -> Tensor:
    """Return log P of one sequence per row, shape (B,), for targets (B, T) with lengths (B,), including the end."""
    return likelihoods(writer, targets, lengths).sum(1)


@torch.no_grad()
def likelihoods(writer: StepDecoder[DecoderStateT], targets: Tensor, lengths: Tensor) -> Tensor:
    """Return log P of each symbol given the symbols before it, shape (B, T + 1).

    The entry after the last symbol is log P of the end, or of the length if lengths are chosen before decoding. An
    <unk> that the decoder cannot write has the entry 0.
    """
    steps = torch.zeros(writer.rows, targets.shape[1] + 1, dtype=torch.float64, device=writer.device)
    table = writer.lengths()
    carried = writer.begin(1, None if table is None else lengths)
    tokens = torch.full((writer.rows,), BOS, device=writer.device)
    for t in range(targets.shape[1] + 1):
        logp, carried = writer.step(tokens, carried)
        tokens = targets[:, t] if t < targets.shape[1] else torch.full_like(tokens, EOS)
        tokens = tokens.masked_fill(lengths == t, EOS)
        own = logp.gather(1, tokens[:, None])[:, 0]
        impossible = (tokens == UNK) & (own < IMPOSSIBLE)
        steps[:, t] = own.masked_fill((lengths < t) | impossible, 0)
    if table is not None:
        steps.scatter_add_(1, lengths[:, None], table.gather(1, lengths[:, None]).double())
    return steps


CONTINUATION_END = PAD
"""Id that ends a continuation. For a language model <eos> is a normal token: it ends a line, not the text. <pad> is
never generated, so its id is free.
"""


def beam_continuations(model: LanguageModel, lead: list[int], length: int, width: int) -> list[tuple[list[int], float]]:
    """Return the most likely continuations found by a beam of this width, best first, with log-probabilities."""
    length = checked("length", length, Natural)
    model.eval()
    (found,) = beam_search(ContinuationDecoder(model, lead, length), width, nbest=width, end=CONTINUATION_END, never=())
    return [(written.ids, written.score) for written in found]


class LanguageModelBeams(NamedTuple):
    logits: Tensor
    """(N, K): logits of the next token, if already computed."""
    state: State
    written: int
    """Number of generated tokens, the same for all hypotheses."""


class ContinuationDecoder:
    """Step decoder of a language model that generates exactly `length` tokens after a lead.

    The end has probability 0 before that length, and probability 1 there.
    """

    def __init__(self, model: LanguageModel, lead: list[int], length: int) -> None:
        self.model, self.longest = model, length
        self.rows, self.K, self.device = 1, model.K, model.device
        self.logits, self.state = read_prompt(model, lead)
        self.never = forbidden_tokens(model)

    def lengths(self) -> None:
        return None

    def begin(self, k: int, left: Tensor | None = None) -> LanguageModelBeams:
        first = LanguageModelBeams(self.logits, self.state, 0)
        return self.pick(first, torch.zeros(k, dtype=torch.long, device=self.device))

    def step(self, tokens: Tensor, carried: LanguageModelBeams) -> tuple[Tensor, LanguageModelBeams]:
        logits, state, written = carried
        if written == self.longest:
            logp = torch.full((len(tokens), self.K), -torch.inf, dtype=torch.float64, device=self.device)
            logp[:, CONTINUATION_END] = 0.0
            return logp, carried
        if written:  # the first token follows the lead, which was read at once
            logits, state = self.model.step(tokens, state)
        logits[:, self.never] = -torch.inf
        return logits.double().log_softmax(-1), LanguageModelBeams(logits, state, written + 1)

    def pick(self, carried: LanguageModelBeams, index: Tensor) -> LanguageModelBeams:
        state = map_state(carried.state, lambda part: part[index])
        return LanguageModelBeams(carried.logits[index], state, carried.written)

    def attended(self, carried: LanguageModelBeams) -> None:
        return None
