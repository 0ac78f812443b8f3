"""Corpus: text from any source, read in pieces, strictly decoded, split by position.

    Corpus.of("book.txt")                 a file; .gz is decompressed
    Corpus.of("a.txt", "b.txt")           several files, one after another
    Corpus.of("folder/")                  all text files of a folder, sorted by path
    Corpus.of("-")                        standard input
    Corpus.of("pydoc")                    the Python language reference, which comes with Python
    Corpus.of("stdlib")                   the sources of the standard library

Text is UTF-8, or in the encoding that is detected or named. A byte-order mark is removed, line ends become newlines,
and characters are composed (NFC); changes are counted in `notes`. One piece is in memory at a time, so a corpus may be
larger than memory. Files of more than LARGE_TEXT_BYTES bytes are split into shards, which several processes read, count
and encode.
"""

from __future__ import annotations

import bisect
import codecs
import functools
import hashlib
import itertools
import json
import mmap
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from recur.data.encodings import binary_error, detect_encoding, display_name, encoding_error
from recur.data.reading import Reading
from recur.data.text.sources import BUILT_IN, Source, find_sources, part_of
from recur.data.text.stream import Ids
from recur.data.text.tokenizers import composed, joins_before
from recur.errors import TextError, shown
from recur.utils.files import cache_folder, read_bounded, write_atomically
from recur.utils.processes import map_in_processes

PIECE_BYTES = 1 << 22
"""Bytes read at a time."""

REACH = 1 << 24
"""Largest distance, in characters, at which the end of a line is searched to split a text."""


@dataclass
class CorpusNotes:
    """Counts of what reading changed."""

    files: int = 0
    skipped: int = 0
    byte_order_marks: int = 0
    line_ends: int = 0
    composed: int = 0
    shards: int = 0
    """Number of shards of a large text."""
    encodings: tuple[str, ...] = ()
    """Encodings other than UTF-8."""

    def __str__(self) -> str:
        parts = [f"{self.files} file{'s' * (self.files != 1)}"]
        parts += [f"{self.skipped} skipped as not text"] * bool(self.skipped)
        parts += [f"read as {display_name(encoding)} (--encoding overrides it)" for encoding in self.encodings]
        parts += [f"{self.byte_order_marks} byte-order mark removed"] * bool(self.byte_order_marks)
        parts += [f"{self.line_ends:,} line ends made \\n"] * bool(self.line_ends)
        parts += [f"composed (NFC) in {self.composed:,} pieces"] * bool(self.composed)
        parts += [f"{self.shards} shards, encoded on disk"] * bool(self.shards)
        return ", ".join(parts)


@dataclass(frozen=True)
class Corpus:
    """Range of characters of one or more sources.

    >>> train, valid, test = recur.data.text.Corpus.of("book.txt").split()  # by position: 90 %, 5 %, 5 %
    >>> train.characters > 10 * valid.characters
    True
    """

    name: str
    """Name that the user gave."""
    sources: tuple[Source, ...]
    begin: int = 0
    end: int | None = None
    skipped: int = 0
    notes: CorpusNotes = field(default_factory=CorpusNotes, compare=False)
    progress: Callable[[int], object] | None = field(default=None, compare=False)
    """Called with the number of characters of each piece read, for a progress bar."""
    known: tuple[ShardInfo, ...] = field(default=(), compare=False)
    """For a large text, information on each shard, so that only requested shards are read."""
    ended: bool = False
    """Whether a line end is added if the last line has none."""

    @staticmethod
    def of(*names: str, reading: Reading | None = None) -> Corpus:
        sources, skipped = find_sources(names, reading)
        first = sources[0].name if len(sources) == 1 else str(names[0])
        name = first if len(names) == 1 else f"{first} and {len(names) - 1} more"
        if not is_large(sources):
            return Corpus(name, tuple(sources), skipped=skipped)
        parts = split_sources(sources)
        known = scan_shards(parts)
        marks, line_ends, composed = (sum(one.changed[k] for one in known) for k in range(3))
        notes = CorpusNotes(len(sources), skipped, marks, line_ends, composed, len(parts))
        return Corpus(name, tuple(parts), skipped=skipped, notes=notes, known=tuple(known))

    def shards(self) -> list[Corpus]:
        """Return the shards of a large text within this range, each as a corpus; their concatenation is this corpus."""
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
        """Return the character range of each source; a source without a final line end has one more, if another
        follows.
        """
        last = len(self.known) - 1
        sizes = [one.characters + (one.open_end and (self.ended or k < last)) for k, one in enumerate(self.known)]
        return list(itertools.pairwise([0, *itertools.accumulate(sizes)]))

    def pieces(self) -> Iterator[str]:
        """Yield the text piece by piece; a piece ends after a line if possible."""
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
        notes = CorpusNotes() if self.known else self.notes
        notes.files, notes.skipped = len(self.sources), self.skipped
        notes.byte_order_marks = notes.line_ends = notes.composed = 0
        notes.encodings = ()
        for k, source in enumerate(self.sources):
            last = ""
            own = source.reading is None  # else the report of the reader tells the encoding
            source = replace(source, reading=Reading()) if source.reading is None else source
            with source.open() as stream:
                for piece in _normalised(_decoded(stream, source), notes, source.name, first=not source.begin):
                    last = piece or last
                    yield piece
            if own and source.reading is not None and (encoding := source.reading.encodings.get(source.name)):
                notes.encodings = tuple(dict.fromkeys((*notes.encodings, encoding)))
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
        """Hash of exactly this text."""
        sha = hashlib.sha256()
        if self.known:
            for part in self.shards():
                sha.update(f"{part.known[0].digest} {part.begin} {part.end} {part.ended}\n".encode())
            return sha.hexdigest()
        for piece in self.pieces():
            sha.update(piece.encode())
        return sha.hexdigest()

    def split(self, train: float = 0.9, valid: float = 0.05) -> tuple[Corpus, Corpus, Corpus]:
        """Split by position into three parts, each ending after a line or a word if one ends nearby."""
        if not (0 < train <= 1 and 0 <= valid < 1 and train + valid <= 1 + 1e-12):
            raise TextError(f"the parts of a split must sum to at most 1, got train {train} and valid {valid}")
        N = self.characters
        if not N:
            raise TextError(f"{self.name} is empty: there is no text to work on")
        cuts = [0, round(N * train), round(N * min(train + valid, 1.0)), N]
        reach = min(max(N // 50, 100), REACH)
        better = [0, *(self._good_cut(cut, reach) for cut in cuts[1:3]), N]
        if all(
            (a < b) == (c < d)
            for (a, b), (c, d) in zip(itertools.pairwise(cuts), itertools.pairwise(better), strict=True)
        ):
            cuts = better  # unless that would leave a part without text
        notes = [self.notes if self.known else CorpusNotes() for _ in range(3)]
        parts = [
            replace(self, begin=self.begin + a, end=self.begin + b, notes=each)
            for (a, b), each in zip(itertools.pairwise(cuts), notes, strict=True)
        ]
        return parts[0], parts[1], parts[2]

    def _good_cut(self, position: int, reach: int) -> int:
        """Return a position near the given one to split at: after a line, else after white space, else unchanged."""
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


def _decoded(stream: BinaryIO, source: Source) -> Iterator[str]:
    """Decode a source strictly, in pieces; errors name the byte and the file.

    The encoding is detected at the first piece with bytes above ASCII.
    """
    reading = source.reading
    encoding, likely = ("", "") if reading is None else (reading.encoding, reading.likely)
    encoding = encoding or ("utf-8" if source.end is not None else "")  # only UTF-8 is split into shards
    decoder: codecs.IncrementalDecoder | None = None
    offset, settled = source.begin, bool(encoding)
    while True:
        data = source.read(stream, PIECE_BYTES)
        if decoder is None and (why := binary_error(source.name, data[:4096])) is not None:
            raise TextError(why)
        if not settled and not (data.isascii() and b"\0" not in data):
            # A source may be a part of a file, and a piece may end inside of a character.
            pending = b"" if decoder is None else decoder.getstate()[0]
            encoding = detect_encoding(pending + data, len(data) < PIECE_BYTES, likely) or "utf-8"
            settled, decoder = True, None
            data = pending + data
        if decoder is None:
            encoding = encoding or "utf-8"
            decoder = codecs.getincrementaldecoder("utf-8" if encoding == "utf-8-sig" else encoding)("strict")
            if settled and reading is not None and encoding not in ("utf-8", "utf-8-sig"):
                reading.encodings[source.name] = encoding
        state = decoder.getstate()[0]
        try:
            text = decoder.decode(data, not data)
        except UnicodeDecodeError as error:
            raise TextError(
                encoding_error(source.name, offset - len(state) + error.start, state + data, error, encoding)
            ) from None
        except UnicodeError as error:  # UTF-16 and UTF-32 of an odd length
            raise TextError(f"{source.name} is not {display_name(encoding)}: {error}") from None
        if "\0" in text:
            at = offset + data.find(b"\0")
            raise TextError(
                f"{source.name} is not text: it has a zero byte, at {at}; if it is UTF-16, say so: --encoding utf-16"
            )
        offset += len(data)
        if text:
            yield text
        if not data:
            return


def _normalised(texts: Iterator[str], notes: CorpusNotes, name: str, first: bool = True) -> Iterator[str]:
    """Remove a byte-order mark, convert line ends and compose; pieces end where composition cannot reach across."""
    carry = ""
    for text in texts:
        if first and text.startswith("\ufeff"):
            text = text[1:]
            notes.byte_order_marks += 1
        first = False
        text = carry + text
        cut = _safe_cut(text)
        carry = text[cut:]
        yield _clean(text[:cut], notes, name)
    if carry:
        yield _clean(carry, notes, name)


def normalised(text: str) -> str:
    """Return a text as if it were read from a file: \\n line ends, composed characters."""
    if not isinstance(text, str):
        raise TextError(f"a text is a str, got {type(text).__name__} {shown(text)}")
    return _clean(text, CorpusNotes(), "this")


def _clean(text: str, notes: CorpusNotes, name: str) -> str:
    if "\r" in text:
        notes.line_ends += text.count("\r")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    found = composed(text, name)
    notes.composed += found != text
    return found


def _safe_cut(text: str) -> int:
    """Return an index to split at: after the last line, else before the last character that starts anew."""
    newline = text.rfind("\n")
    if newline >= 0:
        return newline + 1
    for at in range(len(text) - 1, 0, -1):
        if not joins_before(text[at]):  # no \n is here, so that no \r is half of \r\n but the last
            return at
    return 0


READ_AHEAD_BYTES = 1 << 20
"""Bytes of a shard that the system is asked to read ahead."""


class Shards:
    """Concatenation of memory-mapped arrays. Slices are arrays; `[::-1]` is the reversed view."""

    def __init__(self, parts: Iterable[Ids], backward: bool = False) -> None:
        self.parts = [part for part in parts if len(part)]
        self.edges = [0, *itertools.accumulate(map(len, self.parts))]
        self.backward = backward
        self._asked = [-1] * len(self.parts)

    def __len__(self) -> int:
        return self.edges[-1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0].dtype if self.parts else np.dtype(np.int32)

    def __getitem__(self, at: slice) -> Any:
        begin, end, step = at.indices(len(self))
        if step == -1 and (at.start, at.stop) == (None, None):
            return Shards(self.parts, not self.backward)
        if step != 1:
            raise IndexError(f"a text of many shards is read forwards in slices, or turned round whole, not by {at}")
        if self.backward:
            return self._read(len(self) - max(begin, end), len(self) - begin)[::-1]
        return self._read(begin, max(begin, end))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Ids:
        found: Ids = self[:]
        return found if dtype is None else found.astype(dtype)

    def _read(self, begin: int, end: int) -> Ids:
        found = []
        k = max(bisect.bisect_right(self.edges, begin) - 1, 0)
        while k < len(self.parts) and self.edges[k] < end:
            low, high = max(begin - self.edges[k], 0), min(end - self.edges[k], len(self.parts[k]))
            found.append(self.parts[k][low:high])
            self._read_ahead(k, low if self.backward else high)
            k += 1
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.empty(0, self.dtype)

    def _read_ahead(self, k: int, at: int) -> None:
        """Ask the system to read the next block of a shard, once per block; it reads while the network computes."""
        part = self.parts[k]
        step = READ_AHEAD_BYTES // part.dtype.itemsize
        block = at // step + (-1 if self.backward else 1)
        kept = getattr(part, "_mmap", None)
        if kept is None or block == self._asked[k] or not 0 <= block * step < len(part) or not hasattr(kept, "madvise"):
            return
        self._asked[k] = block
        kept.madvise(
            mmap.MADV_WILLNEED, block * READ_AHEAD_BYTES, min(READ_AHEAD_BYTES, len(kept) - block * READ_AHEAD_BYTES)
        )


LARGE_TEXT_BYTES = 1 << 27
"""Size in bytes above which a text is split into shards."""

SHARD_BYTES = 1 << 25
"""Approximate size of a shard in bytes."""

MAX_DISTINCT_TOKENS = 20_000_000
"""Limit on distinct tokens while counting; beyond it, tokens seen once are dropped."""


class ShardInfo(NamedTuple):
    """Information on one shard."""

    characters: int
    open_end: bool
    """Whether its last line has no line end."""
    digest: str
    changed: tuple[int, int, int]
    """Numbers of byte-order marks, line ends and compositions that reading changes."""


def is_large(sources: Sequence[Source]) -> bool:
    """Return True if the sources are files of more than LARGE_TEXT_BYTES bytes together."""
    large = (
        all(_is_file(source) for source in sources) and sum(os.path.getsize(s.name) for s in sources) > LARGE_TEXT_BYTES
    )
    return large and all(map(_is_utf_8, sources))


def _is_utf_8(source: Source) -> bool:
    """Return True unless the beginning of a source, or its settings, say that it is in another encoding."""
    if source.reading is not None and source.reading.encoding not in ("", "utf-8", "utf-8-sig"):
        return False
    with source.open() as stream:
        return detect_encoding(source.read(stream, PIECE_BYTES), whole=False) in ("utf-8", None)


def split_sources(sources: Sequence[Source]) -> list[Source]:
    """Return files, and ranges of large files."""
    found: list[Source] = []
    for source in sources:
        size = os.path.getsize(source.name)
        if source.name.endswith((".gz", ".zst")) or size <= 2 * SHARD_BYTES:
            found.append(source)
            continue
        edges = [0, *_line_ends(source.name, size), size]
        found += [part_of(source.name, a, b) for a, b in itertools.pairwise(edges)]
    return found


def _line_ends(name: str, size: int) -> Iterator[int]:
    """Yield offsets of line ends about SHARD_BYTES apart."""
    with open(name, "rb") as file:
        at = SHARD_BYTES
        while at < size:
            file.seek(at)
            while line := file.readline(1 << 20):
                at += len(line)
                if line.endswith(b"\n"):
                    break
            if at < size:
                yield at
            at += SHARD_BYTES


def _is_file(source: Source) -> bool:
    return source.name not in BUILT_IN and Path(source.name).is_file()


# What is known of them -------------------------------------------------------------------------------------------


def scan_shard(source: Source) -> ShardInfo:
    """Read a shard once and return its information."""

    whole, sha, last = Corpus(source.name, (source,)), hashlib.sha256(), "\n"
    characters = 0
    for piece in whole.pieces():
        characters += len(piece)
        sha.update(piece.encode())
        last = piece[-1:] or last
    notes = whole.notes
    return ShardInfo(
        characters, last != "\n", sha.hexdigest(), (notes.byte_order_marks, notes.line_ends, notes.composed)
    )


def scan_shards(shards: Sequence[Source]) -> list[ShardInfo]:
    """Return the information on all shards, from the cache if they were scanned before."""
    stamps = {name: os.stat(name) for name in {shard.name for shard in shards}}
    lines = []
    for shard in shards:
        about = stamps[shard.name]
        lines.append(f"{os.path.realpath(shard.name)} {shard.begin} {shard.end} {about.st_size} {about.st_mtime_ns}")
    content = "\n".join(["1", unicodedata.unidata_version, *lines])
    path = cache_folder() / f"{hashlib.sha256(content.encode(errors='surrogateescape')).hexdigest()[:32]}.shards.json"
    with locked_file(path):
        kept = _read(path, len(shards))
        if kept is None:
            kept = list(map_in_processes(scan_shard, shards))
            _keep(path, json.dumps(kept).encode())
    return kept


def _read(path: Path, count: int) -> list[ShardInfo] | None:
    try:
        rows = json.loads(read_bounded(path, 1 << 28))
        found = [ShardInfo(int(n), bool(end), str(sha), (int(a), int(b), int(c))) for n, end, sha, (a, b, c) in rows]
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    sound = len(found) == count and all(one.characters >= 0 and len(one.digest) == 64 for one in found)
    return found if sound else None


def _keep(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        why = f"{error.strerror or error}: {error.filename or path}"
        raise TextError(
            f"the shards of a large text cannot be stored: {why}; set RECUR_CACHE to another folder"
        ) from None


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold a lock while a file of the cache is made, so that other processes wait for it.

    On a file system without locks every process makes the file.
    """
    try:
        import fcntl
    except ImportError:  # pragma: no cover  Windows
        yield
        return
    handle = -1
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def merge_counts(counts: Iterator[Counter[str]]) -> Counter[str]:
    """Sum the counts of all shards in bounded memory."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
        if len(total) > MAX_DISTINCT_TOKENS:
            total = Counter({token: n for token, n in total.items() if n > 1})
    return total
