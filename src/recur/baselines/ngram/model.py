"""Back-off n-gram model: the common form of all smoothing methods, and of ARPA files.

    log P(w | context)  =  log p of the n-gram, if observed
                        =  log b(context) + log P(w | context without its first token), if not

Interpolated estimates have this form too: p includes the lower orders, and b is the weight left for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from recur.baselines.ngram.counts import Sequences, find_keys, ngram_indices
from recur.data.text.corpus import Corpus, normalised
from recur.data.text.stream import Floats, Ids
from recur.data.text.tokenizers import BOS, UNK, without_leading_marks
from recur.data.text.vocabulary import Vocab
from recur.errors import OptionError, TextError


class ProbabilityLevel(NamedTuple):
    """k-grams sorted by key, with log-probabilities and log back-off weights; natural logarithms."""

    keys: Ids
    logp: Floats
    backoff: Floats


class Evaluation(NamedTuple):
    """Evaluation of a model on a text.

    >>> text = recur.data.text.Corpus.of("book.txt")
    >>> model = recur.baselines.ngram.fit(text, recur.data.text.fit_vocab(text, "word"), order=2)
    >>> found = model.evaluate(text)
    >>> found.oov, found.perplexity < 2
    (0, True)
    """

    perplexity: float
    """exp of the mean negative log-probability; infinite if a token was impossible, see `impossible`."""
    tokens: int
    oov: int
    """Tokens of the text that are not in the vocabulary; each is predicted as <unk>."""
    bits_per_token: float
    bits_per_character: float
    impossible: str | None


@dataclass(frozen=True)
class NGram:
    """n-gram model over a vocabulary.

    >>> text = recur.data.text.Corpus.of("book.txt")
    >>> model = recur.baselines.ngram.fit(text, recur.data.text.fit_vocab(text, "char"), order=3)
    >>> float(model.distribution(model.vocab.encode("wo")).sum().round(6))
    1.0
    """

    vocab: Vocab
    levels: list[ProbabilityLevel] = field(repr=False)
    smoothing: str = "unknown"
    notes: tuple[str, ...] = ()
    backward: bool = False
    """Whether texts are read from the end: P(w | following tokens)."""

    @property
    def order(self) -> int:
        return len(self.levels)

    def __len__(self) -> int:
        return sum(len(level.keys) for level in self.levels)

    # Scoring --------------------------------------------------------------------------------------------

    def sequences(self, ids: Ids) -> Sequences:
        """Return a text as the model reads it."""
        return Sequences.of(ids, self.vocab.tokenizer.lines, self.backward)

    def logprobs(self, ids: Ids) -> Floats:
        """Return log P of every token given the tokens before it, in reading order; one more if the last line has no
        end.
        """
        return self._score(self.sequences(ids))

    def _score(self, sequences: Sequences) -> Floats:
        walk = ngram_indices([level.keys for level in self.levels], len(self.vocab), sequences)
        logp = self.levels[0].logp[next(walk)[1]]
        for (before, place), level, below in zip(walk, self.levels[1:], self.levels, strict=False):
            known = before >= 0
            logp[known] += below.backoff[before[known]]
            seen = place >= 0
            logp[seen] = level.logp[place[seen]]
        return logp[sequences.predicted]

    def logprob(self, text: str) -> float:
        """Return log P of a whole text in nats; if lines are sequences, including the end of the last line."""
        return sum(logp for _, logp in self.token_logprobs(text))

    def token_logprobs(self, text: str) -> list[tuple[str, float]]:
        """Return the tokens of a text in reading order, each with its log P."""
        ids = self.vocab.encode(normalised(text))
        if not len(ids):
            raise TextError("there is no token to measure")
        sequences = self.sequences(ids)
        tokens = (self.vocab.tokens[k] for k in sequences.ids[sequences.predicted])
        return list(zip(tokens, self._score(sequences).tolist(), strict=True))

    def perplexity(self, text: str | Corpus) -> float:
        return self.evaluate(text).perplexity

    def evaluate(self, text: str | Corpus) -> Evaluation:
        pieces = [text] if isinstance(text, str) else list(text.pieces())
        found = list(self.vocab.encode_pieces(pieces))
        ids = np.concatenate(found) if found else np.empty(0, np.int32)
        if not len(ids):
            raise TextError("there is no token to evaluate on")
        sequences = self.sequences(ids)
        logp = self._score(sequences)
        tokens, characters = len(logp), sum(map(len, pieces))
        impossible = None
        if np.isneginf(logp).any():
            at = int(np.argmax(np.isneginf(logp)))
            words = [token for piece in self.vocab.whole_tokens(pieces) for token in self.vocab.tokenizer.split(piece)]
            place = len(words) - 1 - at - (words[-1:] == ["<eos>"]) if self.backward else at
            impossible = f"{words[place] if 0 <= place < len(words) else '<eos>'!r}, token {at + 1} of {tokens}"
        oov = 0
        if (ids == UNK).any():  # texts such as the Penn Treebank say <unk> themselves; that token is known
            oov = sum(sum(self.vocab.unknown_tokens(piece).values()) for piece in self.vocab.whole_tokens(pieces))
        mean = -float(logp.mean())
        bits = mean / float(np.log(2))
        return Evaluation(float(np.exp(mean)), tokens, oov, bits, bits * tokens / characters, impossible)

    # The whole distribution -----------------------------------------------------------------------------

    def distribution(self, context: Iterable[int]) -> Floats:
        """Return P(w | context) for every w, shape (K,); the context is ids of one sequence in reading order."""
        K = len(self.vocab)
        context = list(context)[-(self.order - 1) :] if self.order > 1 else []
        p: Floats = np.exp(self.levels[0].logp)
        for k in range(1, len(context) + 1):
            place = self._place(context[-k:])
            if place < 0:
                break  # a longer context was not seen either
            # A back-off may be above 1, and one of another program's files far above: what it gives stays a number.
            p = np.minimum(p * np.exp(min(self.levels[k - 1].backoff[place], 690.0)), 1e300)
            keys = self.levels[k].keys
            low, high = np.searchsorted(keys, [place * K, (place + 1) * K])
            p[keys[low:high] - place * K] = np.exp(self.levels[k].logp[low:high])
        return p

    def _place(self, gram: list[int]) -> int:
        place = gram[0]
        for k, token in enumerate(gram[1:], start=1):
            place = int(find_keys(self.levels[k].keys, np.array([place * len(self.vocab) + token]))[0])
            if place < 0:
                break
        return place

    def sample(self, length: int, seed: int = 0, prompt: str = "", temperature: float = 1.0) -> str:
        """Draw a text token by token. If lines are sequences, a new one starts after each end.

        A backward model writes the text before the prompt.
        """
        if length < 0:
            raise OptionError(f"length must not be negative, got {length}")
        if not 0 < temperature < float("inf"):
            raise OptionError(f"temperature must be above 0, got {temperature}")
        if seed < 0:
            raise OptionError(f"seed must not be negative, got {seed}")
        if unknown := self.vocab.unknown_tokens(prompt):
            raise TextError(
                f"the prompt has tokens that are not in the vocabulary: {', '.join(map(repr, list(unknown)[:5]))}"
            )
        draw = np.random.default_rng(seed)
        turn = slice(None, None, -1) if self.backward else slice(None)
        written = [int(k) for k in self.vocab.encode(prompt)][turn] if prompt else []
        context = self._opening(draw) if not written else self._open_line(written)
        for _ in range(length):
            token = self._drawn(self.distribution(context), temperature, draw)
            written.append(token)
            context = self._open_line([]) if token == self.vocab.line_end else [*context, token][-self.order :]
        text = self.vocab.decode(written[turn])
        return without_leading_marks(text) if self.backward else text

    def _opening(self, draw: np.random.Generator) -> list[int]:
        """Return the context of a sample without a prompt: the start of a line, else a random position of the text."""
        if self.vocab.tokenizer.lines or self.order == 1:
            return self._open_line([])
        k = self.order - 2
        place, gram = int(draw.integers(len(self.levels[k].keys) or 1)), []
        for level in self.levels[k:0:-1]:
            if not len(level.keys):
                return []
            place, token = divmod(int(level.keys[place]), len(self.vocab))
            gram.append(token)
        return [place, *gram[::-1]]

    def _open_line(self, written: list[int]) -> list[int]:
        """Return the context that ids leave: if lines are sequences, the tokens after the last line end."""
        end = self.vocab.line_end
        if end is None:
            return list(written)
        since = written[::-1].index(end) if end in written else len(written)
        return [BOS, *written[len(written) - since :]]

    def _drawn(self, p: Floats, temperature: float, draw: np.random.Generator) -> int:
        p[UNK] = 0.0  # what it stands for cannot be written
        if not p.any():
            p = self.vocab.predictable().astype(np.float64)
            p[UNK] = 0.0
        with np.errstate(divide="ignore"):
            logits = np.log(p) / temperature
        weights = np.exp(logits - logits.max())
        return int(draw.choice(len(p), p=weights / weights.sum()))
