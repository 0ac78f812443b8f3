"""Vocabulary: tokens ordered by frequency, with their ids; encoding of texts and corpora; pretrained vectors.

The vocabulary is fitted on the training set only. <unk>, <pad>, <bos> and <eos> are always 0, 1, 2 and 3. The others
follow by frequency, ties by code points, so that the same text gives the same ids.

Word vectors come from files of GloVe, word2vec and fastText, optionally as .gz.

    the 0.418 0.24968 -0.41242 …          one token per line: GloVe
    400000 300                            after a line with count and width: word2vec, fastText .vec

A file is read once, line by line, and only the requested rows are kept. A token that the file has only in lower case
takes that row.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recur.data.text.corpus import Corpus, Shards, locked_file, merge_counts, scan_shard
from recur.data.text.sources import find_sources
from recur.data.text.stream import Ids, Mask
from recur.data.text.tokenizers import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    Characters,
    Subwords,
    Tokenizer,
    Words,
    composed,
    make_tokenizer,
    whole_words,
)
from recur.errors import OptionError, TextError, shown
from recur.i18n import Message
from recur.utils.files import cache_folder, read_bounded, replacing, write_atomically
from recur.utils.limits import VOCABULARY_BYTES, VOCABULARY_VALUES, check_json
from recur.utils.processes import map_in_processes


@contextmanager
def _real(text: object) -> Iterator[None]:
    """Raise unless the argument is a str without lone surrogates, which invalid UTF-8 bytes become."""
    if not isinstance(text, str):
        raise TextError(f"a text is a str, got {type(text).__name__} {shown(text)}")
    try:
        yield
    except UnicodeEncodeError as error:
        raise TextError(
            Message("the text holds {what}, which is no character", what=repr(error.object[error.start]))
        ) from None


@dataclass(frozen=True)
class Vocab:
    r"""Tokens in the order of their ids, their training counts, and their tokenizer.

    >>> vocab = recur.data.text.Vocab.fit(recur.data.text.Corpus.of("book.txt"), recur.data.text.Words())
    >>> vocab.decode(vocab.encode("The network keeps\n"))
    'The network keeps\n'
    """

    tokens: tuple[str, ...]
    counts: tuple[int, ...]
    tokenizer: Tokenizer

    def __len__(self) -> int:
        return len(self.tokens)

    def __getstate__(self) -> dict[str, object]:
        """Pickle without cached values, some of which are functions."""
        return {"tokens": self.tokens, "counts": self.counts, "tokenizer": self.tokenizer}

    @staticmethod
    def fit(corpus: Corpus, tokenizer: Tokenizer, min_freq: int = 1, max_vocab_size: int | None = None) -> Vocab:
        """Count a corpus. `max_vocab_size` includes the four special tokens; other tokens become <unk>."""
        if min_freq < 1:
            raise OptionError(
                Message("{name} must be a whole number ≥ {low}, got {value}", name="min_freq", low="1", value=min_freq)
            )
        if max_vocab_size is not None and max_vocab_size <= len(SPECIALS):
            raise OptionError(f"max_vocab_size must be above {len(SPECIALS)}, the special tokens, got {max_vocab_size}")
        counts = count_corpus(corpus, tokenizer)
        if not counts:
            raise TextError(f"{corpus.name} holds no {tokenizer.kind}: there is nothing to count")
        if isinstance(tokenizer, Subwords):
            return Vocab.of_pieces(tokenizer, counts)
        return Vocab.from_counts(counts, tokenizer, min_freq, max_vocab_size)

    @staticmethod
    def of_pieces(tokenizer: Subwords, counts: Counter[str]) -> Vocab:
        pieces = tokenizer.pieces()
        return Vocab(tuple(pieces), tuple(counts[piece] for piece in pieces), tokenizer)

    @staticmethod
    def from_counts(
        counts: Counter[str], tokenizer: Tokenizer, min_freq: int = 1, max_vocab_size: int | None = None
    ) -> Vocab:
        kept = [(token, n) for token, n in counts.items() if n >= min_freq and token not in SPECIALS]
        kept.sort(key=lambda item: (-item[1], item[0]))
        kept = kept[: None if max_vocab_size is None else max_vocab_size - len(SPECIALS)]
        left_out = counts.total() - sum(n for _, n in kept) - sum(counts[special] for special in SPECIALS)
        special = [counts[token] + (left_out if token == "<unk>" else 0) for token in SPECIALS]
        return Vocab((*SPECIALS, *(t for t, _ in kept)), (*special, *(n for _, n in kept)), tokenizer)

    def joined(self, other: Vocab) -> Vocab:
        """Return this vocabulary followed by the tokens that only the other has."""
        counts = dict(zip(self.tokens, self.counts, strict=True))
        for token, n in zip(other.tokens, other.counts, strict=True):
            counts[token] = counts.get(token, 0) + n
        return Vocab(tuple(counts), tuple(counts.values()), self.tokenizer)

    def with_unseen(self, tokens: Iterable[str]) -> Vocab:
        """Return this vocabulary followed by further tokens; tokens that the tokenizer would split are left out."""
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
        """Return the ids of a text, int32; unknown tokens are <unk>."""
        with _real(text):
            return self._encoder(text)

    def encode_lines(self, lines: Sequence[str]) -> list[Ids]:
        """Return the ids of many lines, each by itself; for subwords in one call, which is ten times as fast."""
        if isinstance(self.tokenizer, Subwords) and all(isinstance(line, str) for line in lines):
            with suppress(UnicodeEncodeError):  # which line it is, the slow way says
                return self.tokenizer.encode_lines(lines)
        return [self.encode(line) for line in lines]

    def whole_tokens(self, pieces: Iterable[str]) -> Iterable[str]:
        """Return pieces that do not split a token."""
        return pieces if isinstance(self.tokenizer, Characters) else whole_words(pieces)

    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[Ids]:
        """Yield the ids of a text in pieces; no word is split."""
        return map(self._encoder, self.whole_tokens(pieces))

    def encode_corpus(self, corpus: Corpus) -> Ids:
        found = list(self.encode_pieces(corpus.pieces()))
        return np.concatenate(found) if found else np.empty(0, np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        tokens = self.tokens
        return self.tokenizer.join(tokens[k] for k in ids)

    def unknown_tokens(self, text: str) -> Counter[str]:
        """Count the tokens of a text that are not in the vocabulary."""
        with _real(text):
            return Counter(token for token in self.tokenizer.split(text) if token not in self.ids)

    def named(self, text: str, ids: Ids) -> list[str]:
        """Return the tokens of a text and its ids; tokens that are not in the vocabulary by their own names."""
        if (ids == UNK).any() and len(pieces := self.tokenizer.split(text)) == len(ids):
            return pieces
        return [self.tokens[k] for k in ids]

    # Sequences ------------------------------------------------------------------------------------------

    @property
    def line_end(self) -> int | None:
        """Id that ends a sequence, if lines are separate sequences; else None."""
        return EOS if self.tokenizer.lines else None

    def predictable(self) -> Mask:
        """Return a mask (K,) of ids that an n-gram predicts: tokens seen in training, <unk>, and the line end.

        All subwords can be predicted, because any string can be written with them.
        """
        can = np.array(self.counts) > 0
        if isinstance(self.tokenizer, Subwords):
            can[:] = True
            can[[PAD, BOS]] = False
        can[UNK] = True
        can[EOS] |= self.tokenizer.lines
        return can

    def writable(self) -> Mask:
        """Return a mask (K,) of ids that a text can consist of: all tokens but special ones that were never seen.

        <unk> is a token of the text where training read rare tokens as <unk>; <eos> is one where lines end in it.
        """
        can: Mask = np.ones(len(self), bool)
        specials = len(SPECIALS)
        can[:specials] = np.array(self.counts[:specials]) > 0
        return can

    def without_unseen(self, ids: Ids) -> Ids:
        """Return the ids that have a probability, without symbols that no training text had."""
        can = self.writable()[ids]
        return ids if can.all() else ids[can]

    # Files ----------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        content: dict[str, object] = {"tokenizer": {"kind": self.tokenizer.kind, **self.tokenizer.options()}}
        content |= {"tokens": self.tokens, "counts": self.counts}
        return json.dumps(content, ensure_ascii=False)

    @staticmethod
    def from_json(text: str, name: str = "vocabulary") -> Vocab:
        try:
            check_json(name, text, VOCABULARY_VALUES)
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
            return Vocab.from_json(read_bounded(path, VOCABULARY_BYTES).decode("utf-8"), str(path))
        except OSError as error:
            raise TextError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise TextError(f"{path} cannot be read: {error}") from None

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _check(tokens: object, counts: object, tokenizer: Tokenizer) -> None:
    """Raise unless there are as many counts as tokens, the special tokens come first, and no token is repeated."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise TextError("its tokens are not a list of texts")
    if not isinstance(counts, list) or not all(type(n) is int and 0 <= n < 2**63 for n in counts):
        raise TextError("its counts are not a list of whole numbers")
    if tuple(tokens[:4]) != SPECIALS or len(tokens) != len(counts):
        raise TextError("its tokens and counts do not fit")
    if len(set(tokens)) != len(tokens):
        raise TextError("a token is repeated")
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
    max_vocab_size: int | None = None,
    pieces: int = 2000,
) -> Vocab:
    """Fit a vocabulary of characters, words or subwords, with the options of the command line.

    >>> vocab = recur.data.text.fit_vocab(recur.data.text.Corpus.of("book.txt"), "word", lower=True)
    >>> "the" in vocab.tokens, "The" in vocab.tokens
    (True, False)
    """
    if len(corpus.known) < 2:
        return Vocab.fit(
            corpus, _tokenizer(corpus.pieces(), token, punctuation, lower, pieces), min_freq, max_vocab_size
        )
    asked = f"1 {corpus.digest} {token} {punctuation} {lower} {min_freq} {max_vocab_size} {pieces}"
    path = cache_folder() / f"{hashlib.sha256(asked.encode()).hexdigest()[:32]}.vocab.json"
    with locked_file(path):
        with suppress(TextError):  # it is not there, or damaged
            return Vocab.load(path)
        made = Vocab.fit(
            corpus, _tokenizer(some_of(corpus), token, punctuation, lower, pieces), min_freq, max_vocab_size
        )
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
    max_vocab_size: int | None = None,
    pieces: int = 2000,
) -> Vocab:
    """Fit a vocabulary to separate lines; line ends are not tokens."""
    lines = list(lines)
    tokenizer = _tokenizer(lines, token, punctuation, lower, pieces)
    if isinstance(tokenizer, Subwords):
        return Vocab.of_pieces(tokenizer, Counter(itertools.chain.from_iterable(tokenizer.split_lines(lines))))
    counts = Counter(token for line in lines for token in tokenizer.split(line))
    return Vocab.from_counts(counts, tokenizer, min_freq, max_vocab_size)


def _tokenizer(texts: Iterable[str], token: str, punctuation: bool, lower: bool, pieces: int) -> Tokenizer:
    if token == "subword":
        return Subwords.train(texts, pieces)
    if token == "word":
        return Words(punctuation, lower)
    return make_tokenizer(token)


SAMPLE = 1 << 25
"""Number of characters from which subwords of a large text are trained, drawn equally from its shards."""


def some_of(corpus: Corpus) -> Iterator[str]:
    parts = corpus.shards()
    if corpus.characters <= SAMPLE:
        yield from corpus.pieces()
        return
    for part in parts:
        left = SAMPLE // len(parts)
        for piece in whole_words(part.pieces()):
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                break


def count_corpus(corpus: Corpus, tokenizer: Tokenizer) -> Counter[str]:
    """Count the tokens of a corpus; of a large text, in several processes."""
    if len(corpus.known) < 2:
        return tokenizer.count(corpus.pieces())
    return merge_counts(map_in_processes(_count_shard, [(part, tokenizer) for part in corpus.shards()]))


def _count_shard(job: tuple[Corpus, Tokenizer]) -> Counter[str]:
    part, tokenizer = job
    return tokenizer.count(part.pieces())


CHUNK = 1 << 20
"""Number of ids checked at a time."""

LEFT = 3600.0
"""Seconds after which an unfinished file is considered left by a killed process."""


def encoded(corpus: Corpus, vocab: Vocab, folder: Path | None = None) -> Ids:
    """Return the ids of a corpus as a read-only memory map."""
    folder = folder or cache_folder()
    if len(corpus.known) > 1:
        written = map_in_processes(_encode_shard, [(part, vocab, folder) for part in corpus.shards()])
        return Shards(_mapped(path, np.dtype(dtype)) for path, dtype in written)  # type: ignore[return-value]
    return _mapped(*_kept(corpus, vocab, folder))


def _encode_shard(job: tuple[Corpus, Vocab, Path]) -> tuple[Path, str]:
    path, dtype = _kept(*job)
    return path, dtype.str


def _kept(corpus: Corpus, vocab: Vocab, folder: Path) -> tuple[Path, np.dtype[Any]]:
    """Return the cached file of a text's ids; one process at a time makes it."""
    key = hashlib.sha256(f"2 {corpus.digest} {vocab.digest}".encode()).hexdigest()[:32]
    data, about = folder / f"{key}.ids", folder / f"{key}.json"
    dtype = np.dtype("<u2" if len(vocab) <= 1 << 16 else "<i4")
    with locked_file(data):
        if _found(data, about, key, dtype, len(vocab)) is None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                _sweep(folder)
                written = _write(corpus, vocab, data, dtype)
                write_atomically(about, json.dumps({"key": key, "sha256": written, "text": corpus.name}).encode())
            except OSError as error:
                why = f"{error.strerror or error}: {error.filename or folder}"
                raise TextError(f"{corpus.name} cannot be encoded: {why}; set RECUR_CACHE to another folder") from None
    return data, dtype


def _found(data: Path, about: Path, key: str, dtype: np.dtype[np.generic], K: int) -> Ids | None:
    """Return the ids of a finished file; None if it is missing or damaged."""
    try:
        content = json.loads(read_bounded(about, 1 << 20))
        if not isinstance(content, dict) or content.get("key") != key or data.stat().st_size % dtype.itemsize:
            return None
        ids = _mapped(data, dtype)
    except (OSError, ValueError, RecursionError):
        return None
    sha = hashlib.sha256()
    for at in range(0, len(ids), CHUNK):
        chunk = np.asarray(ids[at : at + CHUNK])
        if int(chunk.max()) >= K or int(chunk.min()) < 0:
            return None
        sha.update(chunk.tobytes())
    return ids if sha.hexdigest() == content.get("sha256") else None


def _mapped(data: Path, dtype: np.dtype[np.generic]) -> Ids:
    if not data.stat().st_size:  # which cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(data, dtype, "r")


def _write(corpus: Corpus, vocab: Vocab, data: Path, dtype: np.dtype[np.generic]) -> str:
    """Write the ids; return their hash."""
    text, written = hashlib.sha256(), hashlib.sha256()

    def hashed() -> Iterator[str]:
        for piece in corpus.pieces():
            text.update(piece.encode())
            yield piece

    # Of a shard all is read, though a part is taken: its digest is that of what it was when it was looked at.
    if corpus.known and scan_shard(corpus.sources[0]).digest != corpus.known[0].digest:
        raise TextError(f"{corpus.sources[0].name} changed while it was being read")
    with replacing(data) as out:
        for ids in vocab.encode_pieces(hashed()):
            content = ids.astype(dtype).tobytes()
            out.write(content)
            written.update(content)
        if not corpus.known and text.hexdigest() != corpus.digest:
            raise TextError(f"{corpus.name} changed while it was being read")
    return written.hexdigest()


def _sweep(folder: Path) -> None:
    """Remove files that killed processes left; files being written are younger."""
    for part in folder.glob(".*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > LEFT:
                part.unlink()


PIECE = 1 << 20
"""Bytes read at once, and largest size of a line."""

WIDEST = 1 << 14
"""Largest width of a vector."""

ALIASES = {"</s>": "<eos>", "<s>": "<bos>"}
"""Names of the special tokens in other files."""

Table = np.ndarray[tuple[int, int], np.dtype[np.float32]]


class Vectors(NamedTuple):
    """Rows of a file for some tokens."""

    found: list[int]
    """Requested tokens that the file has, in order."""
    rows: Table
    """Array of shape (found, width)."""


def vectors_width(name: str) -> int:
    """Return the width of the vectors of a file."""
    return VectorFile(name).width


def first_tokens(name: str, count: int) -> list[str]:
    """Return the first tokens of a file, which are usually the most frequent."""
    return list(itertools.islice((token for token, _, _ in VectorFile(name)), count))


def read_vectors(name: str, tokens: Sequence[str]) -> Vectors:
    """Return the vectors of tokens: of the token itself or, if missing, of its lower-case form."""
    file = VectorFile(name)
    exact = {token: k for k, token in enumerate(tokens)}
    cased: dict[str, list[int]] = {}
    for k, token in enumerate(tokens):
        if (lower := token.lower()) != token:
            cased.setdefault(lower, []).append(k)
    own: dict[int, list[float]] = {}
    borrowed: dict[int, list[float]] = {}
    for token, numbers, where in file:
        at, others = exact.get(token), cased.get(token, ())
        if at is not None or others:
            row = _parsed(numbers, file.width, where)
            for k in others:
                borrowed.setdefault(k, row)
            if at is not None:
                own.setdefault(at, row)  # of a token that stands there twice, the first
    rows = borrowed | own
    found = sorted(rows)
    return Vectors(found, np.array([rows[k] for k in found], np.float32).reshape(len(found), file.width))


class VectorFile:
    """Iterator over the tokens of a file, their numbers as text, and their line."""

    def __init__(self, name: str) -> None:
        sources, _ = find_sources([name])
        if len(sources) != 1:
            raise TextError(f"{name} has several files; vectors come in one")
        self.source = sources[0]
        first, second = (line.split() for line in [*itertools.islice(self._lines(), 2), b"", b""][:2])
        self.has_header = len(first) == 2 and all(field.isdigit() for field in first)
        row = second if self.has_header else first
        if not row:
            raise TextError(f"{name} holds no vector; a line is a token and its numbers")
        self.width = len(row) - 1
        if self.has_header:
            said = int(first[1]) if len(first[1]) < 9 else WIDEST + 1
            self.width = said if self.width >= said else self.width  # a token may hold spaces
            if self.width != said:
                raise TextError(f"{name} says that its vectors have {said:,} numbers, and the first has {self.width:,}")
        if not 0 < self.width <= WIDEST:
            line = b" ".join(row)[:60].decode(errors="replace")
            raise TextError(f"{name}: a line is a token and its numbers, at most {WIDEST:,}, got {shown(line)}")

    def __iter__(self) -> Iterator[tuple[str, bytes, str]]:
        for number, line in enumerate(self._lines(), start=1):
            if number == 1 and self.has_header:
                continue
            where = f"{self.source.name}:{number}"
            if line.count(b" ") == self.width and line[-1:] != b" ":
                token, _, numbers = line.partition(b" ")
            else:  # other spaces than those between numbers: behind them, as fastText has one, or in a token
                token, numbers = self._parts(line, where)
            yield self._text(token, where), numbers, where

    def _parts(self, line: bytes, where: str) -> tuple[bytes, bytes]:
        token, *numbers = line.rsplit(None, self.width)
        more = token.split()[1:]
        if len(numbers) != self.width or (more and all(_is_number(field) for field in more)):
            count = len(numbers) + len(more)
            raise TextError(f"{where}: a vector of {count:,} numbers, where the others have {self.width:,}")
        return token, b" ".join(numbers)

    def _text(self, token: bytes, where: str) -> str:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise self._no_text() from None
        return ALIASES.get(text, text) if text.isascii() else composed(text, where)

    def _lines(self) -> Iterator[bytes]:
        with self.source.open() as stream:
            rest = b""
            while piece := self.source.read(stream, PIECE):
                if b"\0" in piece:
                    raise self._no_text()
                *whole, rest = (rest + piece).split(b"\n")
                if len(rest) > PIECE:
                    raise self._no_text()
                yield from (line for line in whole if line.strip())
            if rest.strip():
                yield rest

    def _no_text(self) -> TextError:
        return TextError(
            f"{self.source.name} is no text: a line is a token and its numbers. Vectors in word2vec's binary format "
            "become text with gensim: KeyedVectors.load_word2vec_format(FILE, binary=True).save_word2vec_format(OTHER)"
        )


def _is_number(field: bytes) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False


def _parsed(numbers: bytes, width: int, where: str) -> list[float]:
    try:
        row = [float(field) for field in numbers.split()]
    except ValueError:
        row = [math.nan] * width
    if len(row) != width:  # other white space between them than what was counted
        raise TextError(f"{where}: a vector of {len(row):,} numbers, where the others have {width:,}")
    if not all(abs(number) < 1e30 for number in row):
        raise TextError(
            f"{where}: a vector of something else than numbers: {shown(numbers[:40].decode(errors='replace'))}"
        )
    return row
