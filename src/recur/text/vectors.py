"""Word vectors from files: GloVe's text, word2vec's and fastText's, each also as a .gz.

    the 0.418 0.24968 -0.41242 …          a line a token: GloVe
    400000 300                            … behind a line with how many and how wide: word2vec, fastText .vec

A file is read once, line by line, and only the rows of tokens that are asked for are kept. A token that the file has
in lower case only takes that row.
"""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from recur.errors import TextError, shown
from recur.text.sources import find_sources

PIECE = 1 << 20
"""Bytes read at once, and of a line at most."""

WIDEST = 1 << 14
"""Numbers of a vector at most."""

ALIASES = {"</s>": "<eos>", "<s>": "<bos>"}
"""What others call the special tokens."""

Table = np.ndarray[tuple[int, int], np.dtype[np.float32]]


class Vectors(NamedTuple):
    """The rows of a file for some tokens."""

    found: list[int]
    """Which of the tokens asked for have one, in their order."""
    rows: Table
    """(found, width)"""


def vectors_width(name: str) -> int:
    """How wide the vectors of a file are."""
    return VectorFile(name).width


def first_tokens(name: str, count: int) -> list[str]:
    """So many tokens of a file from its start, where the frequent ones stand."""
    return list(itertools.islice((token for token, _, _ in VectorFile(name)), count))


def read_vectors(name: str, tokens: Sequence[str]) -> Vectors:
    """The vectors that a file has for tokens: of a token itself or, where it has none, of the same in lower case."""
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
    """Every token of a file, its numbers as they are written, and where they stand."""

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
            yield self._text(token), numbers, where

    def _parts(self, line: bytes, where: str) -> tuple[bytes, bytes]:
        token, *numbers = line.rsplit(None, self.width)
        more = token.split()[1:]
        if len(numbers) != self.width or (more and all(_is_number(field) for field in more)):
            count = len(numbers) + len(more)
            raise TextError(f"{where}: a vector of {count:,} numbers, where the others have {self.width:,}")
        return token, b" ".join(numbers)

    def _text(self, token: bytes) -> str:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise self._no_text() from None
        return ALIASES.get(text, text) if text.isascii() else unicodedata.normalize("NFC", text)

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
