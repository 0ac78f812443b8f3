"""Shards of large texts: splitting, scanning and caching; and their ids as one long array that is read on demand."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
import mmap
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recur.data.text.sources import BUILT_IN, Source, part_of
from recur.data.text.stream import Ids
from recur.data.text.workers import map_in_processes
from recur.errors import TextError
from recur.utils.files import cache_folder, read_bounded, write_atomically

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
    return (
        all(_is_file(source) for source in sources) and sum(os.path.getsize(s.name) for s in sources) > LARGE_TEXT_BYTES
    )


def split_sources(sources: Sequence[Source]) -> list[Source]:
    """Return files, and ranges of large files."""
    found: list[Source] = []
    for source in sources:
        size = os.path.getsize(source.name)
        if source.name.endswith(".gz") or size <= 2 * SHARD_BYTES:
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
    from recur.data.text.corpus import Corpus

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
