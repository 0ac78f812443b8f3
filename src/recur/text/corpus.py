"""A corpus: any text, read in pieces, strict about its bytes, split before anything is counted.

    Corpus.of("book.txt")                 a file; .gz is opened
    Corpus.of("a.txt", "b.txt")           several, one after the other
    Corpus.of("folder/")                  all text files in it, in the order of their paths
    Corpus.of("-")                        standard input
    Corpus.of("pydoc")                    the Python language reference, which every Python carries
    Corpus.of("stdlib")                   the sources of the standard library, likewise

Text is UTF-8. A byte-order mark is taken off, line ends become "\\n", and characters are composed (NFC); what was
changed is counted in `notes`. Nothing is held but one piece at a time, so a corpus may be larger than memory; files of
more than shards.LARGE bytes are cut into shards, which several processes look through, count and encode.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import itertools
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from recur.errors import TextError, shown
from recur.text.encodings import UTF_16, not_utf8
from recur.text.marks import LONGEST, joins_before, too_many_marks
from recur.text.shards import Known, cut, is_large, known_of
from recur.text.sources import Source, find_sources

PIECE = 1 << 22
"""Bytes read at a time."""

REACH = 1 << 24
"""Characters, at most, among which the end of a line is looked for to cut a text at."""


@dataclass
class Notes:
    """What reading changed."""

    files: int = 0
    skipped: int = 0
    byte_order_marks: int = 0
    line_ends: int = 0
    composed: int = 0
    shards: int = 0
    """Of a large text, which is read and encoded by these."""

    def __str__(self) -> str:
        parts = [f"{self.files} file{'s' * (self.files != 1)}"]
        parts += [f"{self.skipped} skipped as not text"] * bool(self.skipped)
        parts += [f"{self.byte_order_marks} byte-order mark removed"] * bool(self.byte_order_marks)
        parts += [f"{self.line_ends:,} line ends made \\n"] * bool(self.line_ends)
        parts += [f"composed (NFC) in {self.composed:,} pieces"] * bool(self.composed)
        parts += [f"{self.shards} shards, encoded on disk"] * bool(self.shards)
        return ", ".join(parts)


@dataclass(frozen=True)
class Corpus:
    """A range of characters of some sources.

    >>> train, valid, test = recur.text.Corpus.of("book.txt").split()      # by position, nine parts to half a part each
    >>> train.characters > 10 * valid.characters
    True
    """

    name: str
    """What the user called it."""
    sources: tuple[Source, ...]
    begin: int = 0
    end: int | None = None
    skipped: int = 0
    notes: Notes = field(default_factory=Notes, compare=False)
    progress: Callable[[int], object] | None = field(default=None, compare=False)
    """Called with the number of characters of each piece that was read, for a progress bar."""
    known: tuple[Known, ...] = field(default=(), compare=False)
    """Of a large text: what is known of each source, so that only those are read that are asked for."""
    ended: bool = False
    """Whether its last line is, as that of a file with another behind it."""

    @staticmethod
    def of(*names: str) -> Corpus:
        sources, skipped = find_sources(names)
        first = sources[0].name if len(sources) == 1 else str(names[0])
        name = first if len(names) == 1 else f"{first} and {len(names) - 1} more"
        if not is_large(sources):
            return Corpus(name, tuple(sources), skipped=skipped)
        parts = cut(sources)
        known = known_of(parts)
        marks, line_ends, composed = (sum(one.changed[k] for one in known) for k in range(3))
        notes = Notes(len(sources), skipped, marks, line_ends, composed, len(parts))
        return Corpus(name, tuple(parts), skipped=skipped, notes=notes, known=tuple(known))

    def shards(self) -> list[Corpus]:
        """The parts of a large text that lie in this one, each a text of its own: one behind the other they are it."""
        found = []
        for k, (low, high) in enumerate(self._spans()):
            begin, end = max(self.begin - low, 0), high - low if self.end is None else min(self.end, high) - low
            if begin < end:
                ended = self.ended or k + 1 < len(self.sources)
                found.append(
                    Corpus(self.name, self.sources[k : k + 1], begin, end, known=self.known[k : k + 1], ended=ended)
                )
        return found

    def _spans(self) -> list[tuple[int, int]]:
        """From which character to which each source goes; one without an end has one more, if another is behind it."""
        last = len(self.known) - 1
        sizes = [one.characters + (one.open_end and (self.ended or k < last)) for k, one in enumerate(self.known)]
        return _pairs([0, *itertools.accumulate(sizes)])

    def pieces(self) -> Iterator[str]:
        """The text, piece by piece; a piece ends behind a line where it can."""
        if len(self.known) > 1:
            for part in self.shards():
                yield from replace(part, progress=self.progress).pieces()
            return
        at = 0
        for piece in self._all_pieces():
            if self.end is not None and at >= self.end:
                return
            low = max(self.begin - at, 0)
            high = len(piece) if self.end is None else min(self.end - at, len(piece))
            at += len(piece)
            if low < high:
                yield piece[low:high]
                if self.progress is not None:
                    self.progress(high - low)

    def _all_pieces(self) -> Iterator[str]:
        notes = Notes() if self.known else self.notes
        notes.files, notes.skipped = len(self.sources), self.skipped
        notes.byte_order_marks = notes.line_ends = notes.composed = 0
        for k, source in enumerate(self.sources):
            last = ""
            with source.open() as stream:
                for piece in _normalised(_decoded(stream, source), notes, source.name, first=not source.begin):
                    last = piece or last
                    yield piece
            if (self.ended or k + 1 < len(self.sources)) and last and not last.endswith("\n"):
                yield "\n"  # one file's last line is not the next one's first

    def text(self) -> str:
        return "".join(self.pieces())

    @functools.cached_property
    def characters(self) -> int:
        if self.known:
            spans = self._spans()
            return max(spans[-1][1] if self.end is None else min(self.end, spans[-1][1]), self.begin) - self.begin
        return sum(map(len, self.pieces()))

    @functools.cached_property
    def digest(self) -> str:
        """A name for exactly this text."""
        sha = hashlib.sha256()
        if self.known:
            for part in self.shards():
                sha.update(f"{part.known[0].digest} {part.begin} {part.end} {part.ended}\n".encode())
            return sha.hexdigest()
        for piece in self.pieces():
            sha.update(piece.encode())
        return sha.hexdigest()

    def split(self, train: float = 0.9, valid: float = 0.05) -> tuple[Corpus, Corpus, Corpus]:
        """Three parts by position, each ending behind a line or a word where one ends nearby."""
        if not (0 < train <= 1 and 0 <= valid < 1 and train + valid <= 1 + 1e-12):
            raise TextError(f"a split takes shares of at most 1 in all, got train {train} and valid {valid}")
        N = self.characters
        if not N:
            raise TextError(f"{self.name} is empty: there is no text to work on")
        cuts = [0, round(N * train), round(N * min(train + valid, 1.0)), N]
        reach = min(max(N // 50, 100), REACH)
        better = [0, *(self._good_cut(cut, reach) for cut in cuts[1:3]), N]
        if all((a < b) == (c < d) for (a, b), (c, d) in zip(_pairs(cuts), _pairs(better), strict=True)):
            cuts = better  # unless that would leave a part without text
        notes = [self.notes if self.known else Notes() for _ in range(3)]
        parts = [
            replace(self, begin=self.begin + a, end=self.begin + b, notes=each)
            for (a, b), each in zip(_pairs(cuts), notes, strict=True)
        ]
        return parts[0], parts[1], parts[2]

    def _good_cut(self, position: int, reach: int) -> int:
        """A place near a position where a text can be cut: behind a line, else behind white space, else as it is."""
        if self.known:  # only what is near
            low = max(position - 1, 0)
            near = replace(
                self, begin=self.begin + low, end=min(self.begin + position + reach, self.begin + self.characters)
            )
            found = near._good_cut_in(position - low, reach)
            return low + found
        return self._good_cut_in(position, reach)

    def _good_cut_in(self, position: int, reach: int) -> int:
        at, around, start = 0, "", -1
        for piece in self.pieces():
            if at + len(piece) > position - 1 and at < position + reach:
                low = max(position - 1 - at, 0)
                start = at + low if start < 0 else start
                around += piece[low : position + reach - at]
            at += len(piece)
        if position <= 0 or not around:
            return position
        newline = around.find("\n")
        if newline < 0:
            newline = next((k for k, c in enumerate(around) if c.isspace()), -1)
        return position if newline < 0 else start + newline + 1


def _pairs(cuts: list[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(cuts))


def _decoded(stream: BinaryIO, source: Source) -> Iterator[str]:
    """Strict UTF-8, in pieces; the error says which byte of which file."""
    pending, offset = b"", source.begin
    while True:
        read = source.read(stream, PIECE)
        data = pending + read
        try:
            text, used = codecs.utf_8_decode(data, "strict", not read)
        except UnicodeDecodeError as error:
            raise TextError(not_utf8(source.name, offset + error.start, data, error)) from None
        if (zero := data.find(b"\0")) >= 0:
            raise TextError(f"{source.name} is not text: it has a zero byte, at {offset + zero}; if it is {UTF_16}")
        pending = data[used:]
        offset += used
        if text:
            yield text
        if not read:
            return


def _normalised(texts: Iterator[str], notes: Notes, name: str, first: bool = True) -> Iterator[str]:
    """Without a byte-order mark, with \\n line ends, composed; cut only where composing cannot reach across."""
    carry = ""
    for text in texts:
        if first and text.startswith("\ufeff"):
            text = text[1:]
            notes.byte_order_marks += 1
        first = False
        text = carry + text
        if too_many_marks(text):
            raise TextError(f"{name} is not text: {_TOO_MANY}")
        cut = _safe_cut(text)
        carry = text[cut:]
        yield _clean(text[:cut], notes)
    if carry:
        yield _clean(carry, notes)


_TOO_MANY = f"it has more than {LONGEST} accents or other marks in a row"


def normalised(text: str) -> str:
    """A text as one that is read from a file: \\n line ends, composed characters."""
    if not isinstance(text, str):
        raise TextError(f"a text is a str, got {type(text).__name__} {shown(text)}")
    if too_many_marks(text):
        raise TextError(f"this is not text: {_TOO_MANY}")
    return _clean(text, Notes())


def _clean(text: str, notes: Notes) -> str:
    if "\r" in text:
        notes.line_ends += text.count("\r")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not unicodedata.is_normalized("NFC", text):
        notes.composed += 1
        text = unicodedata.normalize("NFC", text)
    return text


def _safe_cut(text: str) -> int:
    """Where a text can be cut: behind its last line, else before the last character that starts anew."""
    newline = text.rfind("\n")
    if newline >= 0:
        return newline + 1
    for at in range(len(text) - 1, 0, -1):
        if not joins_before(text[at]):  # no \n is here, so that no \r is half of \r\n but the last
            return at
    return 0
