"""The vocabulary: tokens by frequency, each with its number.

Fitted on the training part only. <unk>, <pad>, <bos> and <eos> are always 0, 1, 2 and 3; the rest follow by frequency,
the most frequent first, equal ones in the order of their characters, so that the same text gives the same numbers.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recur.errors import OptionError, TextError, shown
from recur.files import cache_folder, read_bounded, write_atomically
from recur.text.arrays import Ids, Mask
from recur.text.corpus import Corpus
from recur.text.counting import count_corpus, some_of
from recur.text.cutting import whole_words
from recur.text.shards import once
from recur.text.specials import BOS, EOS, PAD, SPECIALS, UNK
from recur.text.subwords import Subwords
from recur.text.tokens import Characters, Tokenizer, Words, make_tokenizer


@contextmanager
def _real(text: object) -> Iterator[None]:
    """A text that is one: no number, and no half of a surrogate pair, which is what bytes that are not UTF-8 become."""
    if not isinstance(text, str):
        raise TextError(f"a text is a str, got {type(text).__name__} {shown(text)}")
    try:
        yield
    except UnicodeEncodeError as error:
        raise TextError(f"the text holds {error.object[error.start]!r}, which is no character") from None


@dataclass(frozen=True)
class Vocab:
    r"""Tokens in the order of their ids, how often each was seen in training, and the tokenizer that made them.

    >>> vocab = recur.text.Vocab.fit(recur.text.Corpus.of("book.txt"), recur.text.Words())
    >>> vocab.decode(vocab.encode("The network keeps\n"))
    'The network keeps\n'
    """

    tokens: tuple[str, ...]
    counts: tuple[int, ...]
    tokenizer: Tokenizer

    def __len__(self) -> int:
        return len(self.tokens)

    def __getstate__(self) -> dict[str, object]:
        """For another process: without what is made of these, functions among it."""
        return {"tokens": self.tokens, "counts": self.counts, "tokenizer": self.tokenizer}

    @staticmethod
    def fit(corpus: Corpus, tokenizer: Tokenizer, min_freq: int = 1, max_size: int | None = None) -> Vocab:
        """Count a corpus. `max_size` counts the four special tokens too; what falls out is <unk>."""
        if min_freq < 1:
            raise OptionError(f"min_freq must be a whole number ≥ 1, got {min_freq}")
        if max_size is not None and max_size <= len(SPECIALS):
            raise OptionError(f"max_size must be above {len(SPECIALS)}, the special tokens, got {max_size}")
        counts = count_corpus(corpus, tokenizer)
        if not counts:
            raise TextError(f"{corpus.name} holds no {tokenizer.kind}: there is nothing to count")
        if isinstance(tokenizer, Subwords):
            return Vocab.of_pieces(tokenizer, counts)
        return Vocab.from_counts(counts, tokenizer, min_freq, max_size)

    @staticmethod
    def of_pieces(tokenizer: Subwords, counts: Counter[str]) -> Vocab:
        pieces = tokenizer.pieces()
        return Vocab(tuple(pieces), tuple(counts[piece] for piece in pieces), tokenizer)

    @staticmethod
    def from_counts(
        counts: Counter[str], tokenizer: Tokenizer, min_freq: int = 1, max_size: int | None = None
    ) -> Vocab:
        kept = [(token, n) for token, n in counts.items() if n >= min_freq and token not in SPECIALS]
        kept.sort(key=lambda item: (-item[1], item[0]))
        kept = kept[: None if max_size is None else max_size - len(SPECIALS)]
        left_out = counts.total() - sum(n for _, n in kept) - sum(counts[special] for special in SPECIALS)
        special = [counts[token] + (left_out if token == "<unk>" else 0) for token in SPECIALS]
        return Vocab((*SPECIALS, *(t for t, _ in kept)), (*special, *(n for _, n in kept)), tokenizer)

    def joined(self, other: Vocab) -> Vocab:
        """These tokens with their ids, and behind them those that only the other has."""
        counts = dict(zip(self.tokens, self.counts, strict=True))
        for token, n in zip(other.tokens, other.counts, strict=True):
            counts[token] = counts.get(token, 0) + n
        return Vocab(tuple(counts), tuple(counts.values()), self.tokenizer)

    def with_unseen(self, tokens: Iterable[str]) -> Vocab:
        """These tokens, and behind them others that no text had so far; what the tokenizer would cut is none."""
        new = {t: 0 for t in tokens if t not in self.ids and self.tokenizer.split(t) == [t]}
        return Vocab((*self.tokens, *new), (*self.counts, *new.values()), self.tokenizer)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        return {token: k for k, token in enumerate(self.tokens)}

    # Encoding -------------------------------------------------------------------------------------------

    @functools.cached_property
    def _encoder(self) -> Callable[[str], Ids]:
        return self.tokenizer.encoder(self.ids)

    def encode(self, text: str) -> Ids:
        """Ids of a text, int32; what is not in the vocabulary is <unk>."""
        with _real(text):
            return self._encoder(text)

    def encode_lines(self, lines: Sequence[str]) -> list[Ids]:
        """The same of many lines, each by itself: of subwords, all in one call, which is ten times as fast."""
        if isinstance(self.tokenizer, Subwords) and all(isinstance(line, str) for line in lines):
            with suppress(UnicodeEncodeError):  # which line it is, the slow way says
                return self.tokenizer.encode_lines(lines)
        return [self.encode(line) for line in lines]

    def whole_tokens(self, pieces: Iterable[str]) -> Iterable[str]:
        """Pieces that cut no token."""
        return pieces if isinstance(self.tokenizer, Characters) else whole_words(pieces)

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[Ids]:
        """Ids of a text that comes in pieces, piece by piece; no word is cut."""
        return map(self._encoder, self.whole_tokens(pieces))

    def encode_corpus(self, corpus: Corpus) -> Ids:
        found = list(self.encode_pieces(corpus.pieces()))
        return np.concatenate(found) if found else np.empty(0, np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        tokens = self.tokens
        return self.tokenizer.join(tokens[k] for k in ids)

    def unknown_tokens(self, text: str) -> Counter[str]:
        """Which tokens of a text are not in the vocabulary, and how often they stand there."""
        with _real(text):
            return Counter(token for token in self.tokenizer.split(text) if token not in self.ids)

    # Sequences ------------------------------------------------------------------------------------------

    @property
    def line_end(self) -> int | None:
        """The id that ends a sequence, if lines are sequences of their own."""
        return EOS if self.tokenizer.lines else None

    def predictable(self) -> Mask:
        """Which ids can come next: all that were seen, <unk> for what was not, and the end of a line. (K,), bool.

        Of subwords every piece can: with them any string can be written, whether or not training had the need.
        """
        can = np.array(self.counts) > 0
        if isinstance(self.tokenizer, Subwords):
            can[:] = True
            can[[PAD, BOS]] = False
        can[UNK] = True
        can[EOS] |= self.tokenizer.lines
        return can

    # Files ----------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        content: dict[str, object] = {"tokenizer": {"kind": self.tokenizer.kind, **self.tokenizer.options()}}
        content |= {"tokens": self.tokens, "counts": self.counts}
        return json.dumps(content, ensure_ascii=False)

    @staticmethod
    def from_json(text: str, name: str = "vocabulary") -> Vocab:
        try:
            content = json.loads(text)
            tokenizer = make_tokenizer(**content["tokenizer"])
            tokens, counts = content["tokens"], content["counts"]
            _check(tokens, counts, tokenizer)
        except RecursionError:
            raise TextError(f"{name} is not a vocabulary of recur: it is too deeply nested") from None
        except (ValueError, KeyError, TypeError) as error:
            what = str(error) if isinstance(error, TextError) else f"{type(error).__name__}: {error}"
            raise TextError(f"{name} is not a vocabulary of recur: {what}") from None
        return Vocab(tuple(tokens), tuple(counts), tokenizer)

    def save(self, path: Path) -> None:
        write_atomically(path, self.to_json().encode())

    @staticmethod
    def load(path: Path) -> Vocab:
        try:
            return Vocab.from_json(read_bounded(path, LARGEST).decode("utf-8"), str(path))
        except OSError as error:
            raise TextError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise TextError(f"{path} cannot be read: {error}") from None

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()


LARGEST = 1 << 30
"""Bytes of a vocabulary's file at most."""


def _check(tokens: object, counts: object, tokenizer: Tokenizer) -> None:
    """What a file says it holds: as many counts as tokens, the special ones first, none of them twice."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise TextError("its tokens are not a list of texts")
    if not isinstance(counts, list) or not all(type(n) is int and 0 <= n < 2**63 for n in counts):
        raise TextError("its counts are not a list of whole numbers")
    if tuple(tokens[:4]) != SPECIALS or len(tokens) != len(counts):
        raise TextError("its tokens and counts do not fit")
    if len(set(tokens)) != len(tokens):
        raise TextError("a token stands in it twice")
    try:
        "".join(tokens).encode()
    except UnicodeEncodeError:
        raise TextError("a token is half of a character") from None
    if isinstance(tokenizer, Subwords) and tokenizer.pieces() != tokens:
        raise TextError("its tokens are not the pieces of its sentencepiece model")


def fit_vocab(
    corpus: Corpus,
    token: str = "char",
    *,
    punctuation: bool = False,
    lower: bool = False,
    min_freq: int = 1,
    max_size: int | None = None,
    pieces: int = 2000,
) -> Vocab:
    """A vocabulary of characters, words or subwords, from options as the command line and a configuration have them.

    >>> vocab = recur.text.fit_vocab(recur.text.Corpus.of("book.txt"), "word", lower=True)
    >>> "the" in vocab.tokens, "The" in vocab.tokens
    (True, False)
    """
    if len(corpus.known) < 2:
        return Vocab.fit(corpus, _tokenizer(corpus.pieces(), token, punctuation, lower, pieces), min_freq, max_size)
    asked = f"1 {corpus.digest} {token} {punctuation} {lower} {min_freq} {max_size} {pieces}"
    path = cache_folder() / f"{hashlib.sha256(asked.encode()).hexdigest()[:32]}.vocab.json"
    with once(path):
        with suppress(TextError):  # it is not there, or damaged
            return Vocab.load(path)
        made = Vocab.fit(corpus, _tokenizer(some_of(corpus), token, punctuation, lower, pieces), min_freq, max_size)
        with suppress(OSError):  # it is counted again then
            made.save(path)
    return made


def fit_lines(
    lines: Iterable[str],
    token: str = "char",
    *,
    punctuation: bool = False,
    lower: bool = False,
    min_freq: int = 1,
    max_size: int | None = None,
    pieces: int = 2000,
) -> Vocab:
    """The same of lines that stand alone: what is between them is no token."""
    lines = list(lines)
    tokenizer = _tokenizer(lines, token, punctuation, lower, pieces)
    if isinstance(tokenizer, Subwords):
        return Vocab.of_pieces(tokenizer, Counter(itertools.chain.from_iterable(tokenizer.split_lines(lines))))
    counts = Counter(token for line in lines for token in tokenizer.split(line))
    return Vocab.from_counts(counts, tokenizer, min_freq, max_size)


def _tokenizer(texts: Iterable[str], token: str, punctuation: bool, lower: bool, pieces: int) -> Tokenizer:
    if token == "subword":
        return Subwords.train(texts, pieces)
    if token == "word":
        return Words(punctuation, lower)
    return make_tokenizer(token)
