"""n-gram language models: counting, smoothing and scoring.

Counts are sorted arrays. Level k holds every observed k-gram once, encoded as an integer: the index of its first k − 1
tokens in level k − 1, times K, plus its last token. So a level is one sorted array of keys, the k-grams of a context
are adjacent, and lookup is a binary search for a whole text at once.

If lines are separate sequences, a sequence is <bos> w₁ … w_m <eos>, and no n-gram crosses its start. Read backwards it
is <bos> w_m … w₁ <eos>.

A fitted model has the back-off form, which all smoothing methods and ARPA files share:

    log P(w | context)  =  log p of the n-gram, if observed
                        =  log b(context) + log P(w | context without its first token), if not

Interpolated estimates have this form too: p includes the lower orders, and b is the weight left for them.

Smoothing: from n-gram counts to probabilities.

n(·) counts; c is a context, c⁻ the context without its first token; m the number of tokens that can be predicted.

laplace      P(w)     = (n(w) + ε₁/m) / (n + ε₁)
             P(w | c) = (n(c, w) + ε_k P(w | c⁻)) / (n(c) + ε_k)          the recursion of D2L, section 9.3
             (The book writes P̂(x) in the numerator of the second line; only P̂(x') makes it sum to one.)
add-k        P(w | c) = (n(c, w) + k) / (n(c) + k m)
kneser-ney   P(w | c) = (a(c, w) − D(a)) / a(c) + γ(c) P(w | c⁻)          modified, Chen and Goodman 1999
             a is n for the highest order and at the start of a sequence; below, the number of distinct contexts of
             the n-gram. D has three values per order, for a = 1, 2 and more:
             Y = t₁/(t₁ + 2 t₂),  D_j = j − (j + 1) Y t_{j+1}/t_j,  where t_j is the number of n-grams with a = j.

n(c) is the sum of n(c, w) over w, so that every context sums to one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recur.data.text.corpus import Corpus, normalised
from recur.data.text.stream import Floats, Ids, Mask
from recur.data.text.tokenizers import BOS, EOS, UNK, without_leading_marks
from recur.data.text.vocabulary import Vocab
from recur.errors import OptionError, TextError, TooLargeError, unknown
from recur.utils.files import memory


def bytes_needed(tokens: int, order: int) -> int:
    """Return an upper bound of the memory for counting: nine arrays while sorting a level, plus all levels."""
    return tokens * (72 + 25 * order)


def check_memory(tokens: int, order: int) -> None:
    """Raise TooLargeError if counting needs more than half of the memory; the message names an alternative."""
    needed, there = bytes_needed(tokens, order), memory()
    if needed > there / 2:
        raise TooLargeError(
            f"counting {tokens:,} tokens up to order {order} takes up to {needed / 1e9:,.0f} GB, and this machine has "
            f"{there / 1e9:,.0f}: KenLM counts on disk (lmplz -o {order} <TEXT >MODEL.arpa), whose file is read here: "
            "recur eval RUN MODEL.arpa TEXT, recur ngram --load MODEL.arpa"
        )


@dataclass(frozen=True)
class Sequences:
    """Concatenated ids; if lines are sequences, each starts with <bos>."""

    ids: Ids
    """(N,), int64."""
    depth: Ids
    """(N,): number of tokens of the same sequence before a token; 0 for <bos>."""
    has_bos: bool
    """Whether each sequence begins with <bos>."""

    @staticmethod
    def of(ids: Ids, by_line: bool, backward: bool = False) -> Sequences:
        """Return the sequences of a text; `backward` reads it from the end, each line with <eos> last."""
        ids = np.asarray(ids, np.int64)
        if not by_line:
            return Sequences(ids[::-1] if backward else ids, np.arange(len(ids)), has_bos=False)
        if len(ids) and ids[-1] != EOS:  # a last line without its end
            ids = np.append(ids, EOS)
        if backward:
            ids = np.append(ids[:-1][::-1], ids[-1:])
        ends = np.nonzero(ids == EOS)[0]
        starts = np.concatenate([[0], ends[:-1] + 1])
        ids = np.insert(ids, starts, BOS)
        first = starts + np.arange(len(starts))
        depth = np.arange(len(ids)) - np.repeat(first, np.diff(np.append(first, len(ids))))
        return Sequences(ids, depth, has_bos=True)

    def inside(self, k: int) -> Mask:
        """Return a mask (N,): whether the k-gram ending here is inside its sequence, not counting <bos>."""
        return self.depth >= k - 1 + self.has_bos

    @property
    def predicted(self) -> Mask:
        """Mask (N,) of all tokens but <bos>, which is never predicted."""
        predicted: Mask = self.ids != BOS
        return predicted


@dataclass(frozen=True)
class CountLevel:
    """All k-grams of one k."""

    keys: Ids
    """(n,), sorted: index of the context in the level below · K + last token."""
    counts: Ids
    suffix: Ids
    """(n,): index of the last k − 1 tokens in the level below."""
    from_start: Mask
    """(n,): whether it begins with <bos>, so that nothing can come before it."""

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Counts:
    """Levels 1 … n of a text over a vocabulary of K tokens."""

    order: int
    K: int
    predictable: Mask
    """(K,): tokens that can be predicted."""
    levels: list[CountLevel] = field(repr=False)

    @staticmethod
    def of(sequences: Sequences, order: int, K: int, predictable: Mask) -> Counts:
        if isinstance(order, bool) or not isinstance(order, int) or order < 1:
            raise OptionError(f"order must be a whole number ≥ 1, got {order!r}")
        ids, depth = sequences.ids, sequences.depth
        if not len(ids):
            raise TextError("there is no token to count")
        one = np.arange(K)
        levels = [CountLevel(one, np.bincount(ids, minlength=K), np.zeros(K, np.int64), one == BOS)]
        place = ids  # of the k-gram that ends at each token, in level k
        for k in range(2, order + 1):
            ends = np.nonzero(depth >= k - 1)[0]
            keys, at, counts = _unique(place[ends - 1] * K + ids[ends])
            suffix = np.empty(len(keys), np.int64)
            suffix[at] = place[ends]
            levels.append(CountLevel(keys, counts, suffix, levels[-1].from_start[keys // K]))
            place = np.full(len(ids), -1)
            place[ends] = at
        return Counts(order, K, predictable, levels)

    @property
    def m(self) -> int:
        """Number of tokens that can be predicted."""
        return int(self.predictable.sum())


def ngram_indices(keys: Sequence[Ids], K: int, sequences: Sequences) -> Iterator[tuple[Ids, Ids]]:
    """Yield, for k = 1, 2, …, the index of the context of each token in level k − 1 and of its k-gram in level k.

    The index is −1 for n-grams that were not observed. `keys` are the keys of the levels.
    """
    ids, depth = sequences.ids, sequences.depth
    place = ids
    yield np.full(len(ids), -1), place
    for k, level in enumerate(keys[1:], start=2):
        before = np.append(-1, place[:-1])
        before[depth < k - 1] = -1
        known = before >= 0
        place = np.full(len(ids), -1)
        place[known] = find_keys(level, before[known] * K + ids[known])
        yield before, place


def find_keys(keys: Ids, queries: Ids) -> Ids:
    """Return the index of each query among sorted keys, or −1."""
    if not len(keys):
        return np.full(len(queries), -1)
    at = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[at] == queries, at, -1)


def _unique(keys: Ids) -> tuple[Ids, Ids, Ids]:
    """Compute np.unique with inverse and counts from one sort."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.append(np.ones(min(len(keys), 1), bool), ordered[1:] != ordered[:-1])
    inverse = np.empty(len(keys), np.int64)
    inverse[order] = np.cumsum(first) - 1
    starts = np.nonzero(first)[0]
    return ordered[starts], inverse, np.diff(np.append(starts, len(keys)))


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

    def evaluate(self, text: str | Corpus, unseen: bool = True) -> Evaluation:
        """Evaluate a text; without `unseen`, symbols that a network cannot predict are left out, as a network does."""
        pieces = [text] if isinstance(text, str) else list(text.pieces())
        found = list(self.vocab.encode_pieces(pieces))
        ids = np.concatenate(found) if found else np.empty(0, np.int32)
        if not len(ids):
            raise TextError("there is no token to evaluate on")
        whole, ids = ids, ids if unseen else self.vocab.without_unseen(ids)
        if not len(ids):
            raise TextError("no token of the text is in the vocabulary")
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
        if (whole == UNK).any():  # texts such as the Penn Treebank say <unk> themselves; that token is known
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


SMOOTHINGS = ("kneser-ney", "laplace", "add-k")


def fit(
    corpus: Corpus | str,
    vocab: Vocab,
    order: int = 5,
    smoothing: str = "kneser-ney",
    epsilon: float | Sequence[float] = 1.0,
    k: float = 1.0,
    backward: bool = False,
) -> NGram:
    """Count a text and estimate a model.

    epsilon    one number for all orders, or ε₁, ε₂, …, for laplace
    k          for add-k
    backward   read the text from its end

    >>> from recur.baselines import ngram
    >>> text = recur.data.text.Corpus.of("book.txt")
    >>> words = recur.data.text.fit_vocab(text, "word")
    >>> model = ngram.fit(text, words, order=2, smoothing="laplace", epsilon=0.5)
    >>> model.order
    2
    """
    if not isinstance(corpus, str):
        check_memory(sum(vocab.counts), order)
    ids = vocab.encode(corpus) if isinstance(corpus, str) else vocab.encode_corpus(corpus)
    sequences = Sequences.of(ids, vocab.tokenizer.lines, backward)
    counts = Counts.of(sequences, order, len(vocab), vocab.predictable())
    return replace(estimate(counts, vocab, smoothing, epsilon, k), backward=backward)


def estimate(
    counts: Counts, vocab: Vocab, smoothing: str, epsilon: float | Sequence[float] = 1.0, k: float = 1.0
) -> NGram:
    if smoothing == "kneser-ney":
        levels, notes = _kneser_ney(counts)
        return NGram(vocab, levels, smoothing, notes)
    if smoothing == "laplace":
        return NGram(vocab, _laplace(counts, _epsilons(epsilon, counts.order)), smoothing)
    if smoothing == "add-k":
        if not (np.isfinite(k) and k >= 0):
            raise OptionError(f"add-k needs k ≥ 0, got {k}")
        return NGram(vocab, _add_k(counts, k), smoothing)
    raise OptionError(unknown("smoothing", smoothing, SMOOTHINGS))


def _epsilons(epsilon: float | Sequence[float], order: int) -> list[float]:
    values = list(epsilon) if isinstance(epsilon, Sequence) else [epsilon]
    if len(values) == 1:
        values *= order
    if len(values) != order:
        raise OptionError(f"epsilon must be one number, or {order} of them, ε₁ … ε_{order}; got {len(values)}")
    if not all(np.isfinite(e) and e >= 0 for e in values):
        raise OptionError(f"epsilon must not be negative, got {values}")
    return values


def _by_context(values: Ids | Floats, context: Ids, contexts: int) -> Floats:
    summed: Floats = np.bincount(context, weights=values, minlength=contexts).astype(np.float64)
    return summed


def _log(p: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        logp: Floats = np.log(p)
    return logp


def _ratio(a: NDArray[np.floating], b: Floats | float) -> Floats:
    """Return a / b, and 0 where nothing was observed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(b) > 0, a / b, 0.0)


def _interpolated(counts: Counts, p: list[Floats], share: list[Floats]) -> list[ProbabilityLevel]:
    """Return levels from the probability of each n-gram and the weight that its context leaves to the lower order.

    p[k] is the estimate without lower orders; share[k] the weight of the contexts of the n-grams of level k + 1.
    """
    levels = []
    interpolated = p[0]
    for k, level in enumerate(counts.levels):
        if k:
            context = level.keys // counts.K
            interpolated = p[k] + share[k - 1][context] * interpolated[level.suffix]
        backoff = share[k] if k + 1 < counts.order else np.ones(len(level))
        levels.append(ProbabilityLevel(level.keys, _log(interpolated), _log(backoff)))
    return levels


def _laplace(counts: Counts, epsilons: list[float]) -> list[ProbabilityLevel]:
    n = np.where(counts.predictable, counts.levels[0].counts, 0)
    p = [_ratio(n + np.where(counts.predictable, epsilons[0] / counts.m, 0.0), n.sum() + epsilons[0])]
    share = []
    for level, epsilon in zip(counts.levels[1:], epsilons[1:], strict=True):
        context = level.keys // counts.K
        total = _by_context(level.counts, context, len(p[-1]))
        p.append(level.counts / (total[context] + epsilon))
        share.append(np.where(total > 0, _ratio(np.full(len(total), epsilon), total + epsilon), 1.0))
    return _interpolated(counts, p, share)


def _add_k(counts: Counts, k: float) -> list[ProbabilityLevel]:
    """Interpolate directly with the uniform distribution: λ P + (1 − λ)/m with λ = n(c) / (n(c) + k m).

    Lower orders are uniform, except for contexts at the start of a sequence, which have no longer context.
    """
    m = counts.m
    uniform = np.where(counts.predictable, 1 / m, 0.0)
    levels = []
    for at, level in enumerate(counts.levels):
        highest = at + 1 == counts.order
        if at:
            context = level.keys // counts.K
            last = level.keys % counts.K
            total = _by_context(level.counts, context, len(counts.levels[at - 1]))[context]
            estimated = np.full(len(level), highest) | level.from_start
            p = np.where(estimated, _ratio(level.counts + k, total + k * m), uniform[last])
        else:
            n = np.where(counts.predictable, level.counts, 0)
            p = np.where(counts.predictable, _ratio(n + k, n.sum() + k * m), 0.0) if highest else uniform
        backoff = np.ones(len(level))
        if not highest:
            above = counts.levels[at + 1]
            total = _by_context(above.counts, above.keys // counts.K, len(level))
            full = np.full(len(level), at + 2 == counts.order) | level.from_start
            backoff = np.where(full & (total > 0), _ratio(np.full(len(level), k * m), total + k * m), 1.0)
        levels.append(ProbabilityLevel(level.keys, _log(p), _log(backoff)))
    return levels


def _kneser_ney(counts: Counts) -> tuple[list[ProbabilityLevel], tuple[str, ...]]:
    p: list[Floats] = []
    share: list[Floats] = []
    notes = []
    for at, level in enumerate(counts.levels):
        a = _adjusted(counts, at)
        discounts, fell_back = _discounts(a)
        if fell_back:
            notes.append(f"order {at + 1}: too few counts for discounts, took 0.5, 1, 1.5")
        discount = discounts[np.minimum(a, 3)]
        if at == 0:
            total = float(a.sum())
            left = float(discount.sum()) / total if total else 1.0
            p.append(np.where(counts.predictable, _ratio(a - discount, total) + left / counts.m, 0.0))
        else:
            context = level.keys // counts.K
            contexts = len(counts.levels[at - 1])
            total_of = _by_context(a, context, contexts)
            p.append((a - discount) / total_of[context])
            share.append(np.where(total_of > 0, _ratio(_by_context(discount, context, contexts), total_of), 1.0))
    return _interpolated(counts, p, share), tuple(notes)


def _adjusted(counts: Counts, at: int) -> Ids:
    """Return counts for the highest order and sequence starts; below, the number of distinct preceding tokens."""
    level = counts.levels[at]
    a = level.counts
    if at + 1 < counts.order:
        preceded = np.bincount(counts.levels[at + 1].suffix, minlength=len(level))
        # What opens a text without <bos> may have nothing before it; it was seen all the same.
        a = np.where(level.from_start, a, np.maximum(preceded, np.minimum(a, 1)))
    return np.where(counts.predictable, a, 0) if at == 0 else a


def _discounts(a: Ids) -> tuple[Floats, bool]:
    """Return D for a = 0, 1, 2, and 3 or more; and whether the usual fallback was used."""
    t = np.bincount(np.minimum(a, 5), minlength=6)[1:5].astype(float)
    if (t[:3] > 0).all():
        Y = t[0] / (t[0] + 2 * t[1])
        D = np.array([0.0] + [j - (j + 1) * Y * t[j] / t[j - 1] for j in (1, 2, 3)])
        if all(0 <= D[j] <= j for j in (1, 2, 3)):
            return D, False
    return np.array([0.0, 0.5, 1.0, 1.5]), True
