"""A model of n-grams that backs off: what every way of smoothing here comes down to, and what an ARPA file holds.

    log P(w | context)  =  log p of the n-gram, if it was seen
                        =  log b(context) + log P(w | context without its first token), if not

Interpolated estimates have this form too: p already holds the lower orders' share, and b is the weight left for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from recur.errors import OptionError, TextError
from recur.ngram.counts import Sequences, find, places
from recur.text.corpus import Corpus
from recur.text.tokens import BOS, UNK, Ids
from recur.text.vocab import Vocab

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Level(NamedTuple):
    """k-grams, sorted by key, with their probabilities and, as contexts, their back-off weights; natural logarithms."""

    keys: Ids
    logp: Floats
    backoff: Floats


class Evaluation(NamedTuple):
    """How well a text was predicted."""

    perplexity: float
    """exp of the mean negative log-probability; infinite if a token was impossible, which `impossible` then names."""
    tokens: int
    oov: int
    """Tokens of the text that the vocabulary does not have; each was predicted as <unk>."""
    bits_per_token: float
    bits_per_character: float
    impossible: str | None


@dataclass(frozen=True)
class NGram:
    """An n-gram model over a vocabulary."""

    vocab: Vocab
    levels: list[Level] = field(repr=False)
    smoothing: str = "unknown"
    notes: tuple[str, ...] = ()

    @property
    def order(self) -> int:
        return len(self.levels)

    def __len__(self) -> int:
        return sum(len(level.keys) for level in self.levels)

    # Scoring --------------------------------------------------------------------------------------------

    def logprobs(self, ids: Ids) -> Floats:
        """log P of every token given those before it in its sequence; one more if a last line end is missing."""
        return self._score(Sequences.of(ids, self.vocab.tokenizer.lines))

    def _score(self, sequences: Sequences) -> Floats:
        walk = places([level.keys for level in self.levels], len(self.vocab), sequences)
        logp = self.levels[0].logp[next(walk)[1]]
        for (before, place), level, below in zip(walk, self.levels[1:], self.levels, strict=False):
            known = before >= 0
            logp[known] += below.backoff[before[known]]
            seen = place >= 0
            logp[seen] = level.logp[place[seen]]
        return logp[sequences.predicted]

    def logprob(self, text: str) -> float:
        """log P of a whole text."""
        return float(self.logprobs(self.vocab.encode(text)).sum())

    def perplexity(self, text: str | Corpus) -> float:
        return self.evaluate(text).perplexity

    def evaluate(self, text: str | Corpus) -> Evaluation:
        pieces = [text] if isinstance(text, str) else list(text.pieces())
        found = list(self.vocab.encode_pieces(pieces))
        ids = np.concatenate(found) if found else np.empty(0, np.int32)
        if not len(ids):
            raise TextError("there is no token to evaluate on")
        sequences = Sequences.of(ids, self.vocab.tokenizer.lines)
        logp = self._score(sequences)
        tokens, characters = len(logp), sum(map(len, pieces))
        impossible = None
        if np.isneginf(logp).any():
            at = int(np.argmax(np.isneginf(logp)))
            token = int(sequences.ids[sequences.predicted][at])
            impossible = f"{self.vocab.tokens[token]!r}, token {at + 1} of {tokens}"
        mean = -float(logp.mean())
        oov = int((ids == UNK).sum()) - sum(piece.split().count("<unk>") for piece in self._literal_unknown(pieces))
        bits = mean / np.log(2)
        return Evaluation(float(np.exp(mean)), tokens, oov, bits, bits * tokens / characters, impossible)

    def _literal_unknown(self, pieces: list[str]) -> list[str]:
        """Texts such as the Penn Treebank say <unk> themselves; that token is known."""
        return pieces if self.vocab.tokenizer.kind == "word" else []

    # The whole distribution -----------------------------------------------------------------------------

    def distribution(self, context: Iterable[int]) -> Floats:
        """P(w | context) for every w, (V,); the context is as many ids as there are, of the same sequence."""
        V = len(self.vocab)
        context = list(context)[-(self.order - 1) :] if self.order > 1 else []
        p: Floats = np.exp(self.levels[0].logp)
        for k in range(1, len(context) + 1):
            place = self._place(context[-k:])
            if place < 0:
                break  # a longer context was not seen either
            p = p * np.exp(self.levels[k - 1].backoff[place])
            keys = self.levels[k].keys
            low, high = np.searchsorted(keys, [place * V, (place + 1) * V])
            p[keys[low:high] - place * V] = np.exp(self.levels[k].logp[low:high])
        return p

    def _place(self, gram: list[int]) -> int:
        place = gram[0]
        for k, token in enumerate(gram[1:], start=1):
            place = int(find(self.levels[k].keys, np.array([place * len(self.vocab) + token]))[0])
            if place < 0:
                break
        return place

    def sample(self, length: int, seed: int = 0, prompt: str = "", temperature: float = 1.0) -> str:
        """Tokens drawn one after the other; where lines are sequences, a new one starts behind each end."""
        if length < 0:
            raise OptionError(f"length must not be negative, got {length}")
        if not temperature > 0:
            raise OptionError(f"temperature must be above 0, got {temperature}")
        draw = np.random.default_rng(seed)
        lead = [BOS] if self.vocab.tokenizer.lines else []
        written = [int(k) for k in self.vocab.encode(prompt)] if prompt else []
        context = [*lead, *written]
        if self.vocab.line_end in written:
            context = [*lead, *written[len(written) - written[::-1].index(self.vocab.line_end or 0) :]]
        for _ in range(length):
            p = self.distribution(context)
            p[UNK] = 0.0  # what it stands for cannot be written
            p = p ** (1 / temperature)
            token = int(draw.choice(len(p), p=p / p.sum()))
            written.append(token)
            context = lead.copy() if token == self.vocab.line_end else [*context, token][-self.order :]
        return self.vocab.decode(written)
