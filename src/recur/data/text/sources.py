"""Sources of text: files, folders, pipes, standard input and built-in texts, as byte streams that can be reopened."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import os
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from recur.data.encodings import binary_kind, detect_encoding
from recur.data.images import split_name
from recur.data.reading import Reading
from recur.errors import TextError, shown
from recur.i18n import Message
from recur.utils.files import ends, open_stream, too_long
from recur.utils.limits import GZIP_BYTES, GZIP_RATIO, ZSTD_WINDOW

PIECE = 1 << 22


def is_there(name: str) -> bool:
    return Path(split_name(name)[0]).exists()


def files_of(name: str) -> Iterator[Path]:
    """Yield the path of a text; if it is a folder, then every file in it. The folder is read after its path is used."""
    path = Path(split_name(name)[0])
    yield path
    if path.is_dir():
        yield from files_in(path)


def fingerprint(name: str, most: int | None = None) -> tuple[int, str]:
    """Return the total size in bytes and a digest; the digest of a folder includes its file names.

    most   stop reading after this number of bytes
    """
    path = Path(split_name(name)[0])
    if not path.is_dir():
        return _digest(path, most)
    sha, size = hashlib.sha256(), 0
    for file in files_in(path):
        bytes_, digest = _digest(file, None if most is None else most - size)
        sha.update(f"{file.relative_to(path).as_posix()}\0{digest}\n".encode(errors="surrogateescape"))
        size += bytes_
        if most is not None and size > most:
            break
    return size, sha.hexdigest()


def _digest(path: Path, most: int | None) -> tuple[int, str]:
    sha, size = hashlib.sha256(), 0
    try:
        streams = [open_stream(path)] if path.is_file() else [source.open() for source in find_sources([str(path)])[0]]
        for stream in streams:
            with stream:
                while (data := stream.read(PIECE)) and (most is None or size <= most):
                    sha.update(data)
                    size += len(data)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}") from None
    return size, sha.hexdigest()


SPOOLED = 1 << 32
"""Largest number of bytes read from a pipe; they are kept, to be read again."""


@dataclass(frozen=True)
class Source:
    """Stream of bytes that can be opened any number of times."""

    name: str
    open: Callable[[], BinaryIO]
    begin: int = 0
    """For a part of a file, the first byte and the byte after the last."""
    end: int | None = None
    reading: Reading | None = field(default=None, compare=False)
    """Settings of the readers, and their report."""

    def read(self, stream: BinaryIO, size: int) -> bytes:
        """Read up to `size` bytes; errors name the source."""
        try:
            return stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise TextError(f"{self.name} cannot be read: {error}") from None

    def __reduce__(self) -> tuple[Callable[[str, int, int | None], Source], tuple[str, int, int | None]]:
        """Pickle by name, so that another process opens the source again."""
        if self.name not in BUILT_IN and not Path(self.name).is_file():
            raise TextError(f"{self.name} can be read only by this process; for workers, write it to a file first")
        return part_of, (self.name, self.begin, self.end)


def part_of(name: str, begin: int = 0, end: int | None = None) -> Source:
    """Return a source by name; of a file, optionally a range of bytes."""
    ((source,), _) = find_sources([name])
    if end is None:
        return source
    return Source(name, lambda: cast(BinaryIO, _Range(source.open(), begin, end)), begin, end)


class _Range(io.BufferedIOBase):
    def __init__(self, stream: BinaryIO, begin: int, end: int) -> None:
        self.stream, self.left = stream, end - begin
        stream.seek(begin)

    def read(self, size: int | None = -1, /) -> bytes:
        found = self.stream.read(self.left if size is None or size < 0 else min(size, self.left))
        self.left -= len(found)
        return found

    def close(self) -> None:
        self.stream.close()
        super().close()


def find_sources(names: Sequence[str], reading: Reading | None = None) -> tuple[list[Source], int]:
    """Return the sources that the names refer to, and the number of files skipped as not text."""
    found, skipped = _find_sources(names, reading)
    return found if reading is None else [replace(source, reading=reading) for source in found], skipped


def raw_source(name: str, reading: Reading | None = None) -> Source:
    """Return the source of a file as it is: of a table, not only the texts in it."""
    if too_long(name):
        raise TextError(f"no file {shown(name)}: its name is too long")
    found = _standard_input() if name in ("-", "/dev/stdin") else _file(Path(name))
    return found if reading is None else replace(found, reading=reading)


def _texts_of_table(name: str, reading: Reading | None) -> Source | None:
    """Return the texts in a column of a table, one after the other; None for a file that is text itself."""
    from recur.data.text.tables import is_delimited, is_table, text_column  # which reads the sources of this module

    if not is_table(name) or (is_delimited(name) and not (reading and reading.text)):
        return None
    texts = text_column(name, reading)
    return Source(name, lambda: cast(BinaryIO, io.BytesIO("".join(f"{text}\n" for text in texts).encode())))


def _find_sources(names: Sequence[str], reading: Reading | None = None) -> tuple[list[Source], int]:
    if not names:
        raise TextError("no text given; name a file, a folder, - for standard input, pydoc or stdlib")
    found: list[Source] = []
    skipped = 0
    for name in map(str, names):
        if too_long(name):
            raise TextError(f"no file {shown(name)}: its name is too long")
        if not name:
            raise TextError("a text's name is empty; name a file, a folder, - for standard input, pydoc or stdlib")
        if name in ("-", "/dev/stdin"):
            found.append(_standard_input())
        elif name in BUILT_IN and not Path(name).exists():
            found += BUILT_IN[name]()
        elif (table := _texts_of_table(name, reading)) is not None:
            found.append(table)
        elif Path(name).is_dir():
            texts, others = _folder(Path(name))
            found += texts
            skipped += others
        else:
            found.append(_file(Path(name)))
    return found, skipped


def _file(path: Path) -> Source:
    if not path.exists():
        raise TextError(f"no file {str(path)!r}; built-in corpora: {', '.join(BUILT_IN)}")
    if not path.is_file():  # a pipe, such as <(command): it can be read once only
        return _pipe(path, path.stat().st_ino)

    def open_file() -> BinaryIO:
        try:
            return open_unpacked(path)
        except OSError as error:
            raise TextError(Message("{name} cannot be opened: {why}", name=path, why=error.strerror)) from None

    return Source(str(path), open_file)


def open_unpacked(path: Path) -> BinaryIO:
    """Open a file for reading; .gz and .zst are decompressed, up to a limit."""
    if path.suffix == ".zst":
        return _open_zstd(path)
    return cast(BinaryIO, _Unpacked(path)) if path.suffix == ".gz" else open_stream(path)


def _open_zstd(path: Path) -> BinaryIO:
    try:
        import zstandard
    except ImportError:
        raise TextError(f"{path}: zstandard is not installed: pip install 'recur[tables]'") from None
    packed = open_stream(path)
    most = GZIP_RATIO * os.fstat(packed.fileno()).st_size + GZIP_BYTES
    unpacked = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).stream_reader(packed, closefd=True)
    return cast(BinaryIO, io.BufferedReader(_Limited(unpacked, most, zstandard.ZstdError)))


class _Limited(io.RawIOBase):
    """Stream that ends with an error after a number of bytes."""

    def __init__(self, stream: Any, most: int, error: type[Exception]) -> None:
        self.stream, self.left, self.error = stream, most, error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self.stream.read(len(buffer))
        except self.error as error:
            raise OSError(f"it is not valid Zstandard data: {error}") from None
        self.left -= len(data)
        if self.left < 0:
            raise OSError(f"it unpacks to more than {GZIP_RATIO} times its size, as no text does; unpack it yourself")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self.stream.close()
        super().close()


class _Unpacked(gzip.GzipFile):
    """Decompressed .gz with a limit on its size."""

    def __init__(self, path: Path) -> None:
        self._packed = open_stream(path)
        super().__init__(path, "rb", fileobj=self._packed)
        self.left = GZIP_RATIO * os.fstat(self._packed.fileno()).st_size + GZIP_BYTES

    def close(self) -> None:
        super().close()
        self._packed.close()

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(self.left + 1 if size is None or size < 0 else min(size, self.left + 1))
        self.left -= len(found)
        if self.left < 0:
            raise OSError(f"it unpacks to more than {GZIP_RATIO} times its size, as no text does; unpack it yourself")
        return found


def files_in(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted by path, except hidden files and run folders."""
    try:
        files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not _hidden(p.relative_to(folder))]
    except OSError as error:
        raise TextError(f"folder {str(folder)!r} cannot be read: {error}") from None
    runs = {p.parent for p in files if p.name == "manifest.json" and (p.parent / "resume").is_dir()}
    return [p for p in files if not runs & {*p.parents}]


def _folder(folder: Path) -> tuple[list[Source], int]:
    files = files_in(folder)
    texts = [p for p in files if _looks_like_text(p)]
    if not texts:
        raise TextError(f"folder {str(folder)!r} holds no text file")
    return [_file(p) for p in texts], len(files) - len(texts)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _looks_like_text(path: Path) -> bool:
    """Return True if the file is not empty and has no zero byte, which images and archives have early."""
    try:
        if not path.stat().st_size:  # or one of the system's own, whose reader may wait for ever
            return False
        with open_unpacked(path) as stream:
            start = stream.read(8192)
    except (OSError, EOFError, zlib.error):
        return False
    return bool(start) and binary_kind(start) is None and (b"\0" not in start or _is_utf_16(start))


def _is_utf_16(start: bytes) -> bool:
    return (detect_encoding(start, whole=False) or "").startswith("utf-")


@functools.cache
def _pipe(path: Path, inode: int) -> Source:
    """Return the source of a pipe, which can be read once; the inode distinguishes a later pipe of the same name."""
    try:
        with open_stream(path) as stream:
            return _spooled(str(path), stream)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror or error}") from None


@functools.cache
def _standard_input() -> Source:
    if sys.stdin is None or not ends(sys.stdin.buffer):
        raise TextError("standard input is closed or endless")
    return _spooled("standard input", sys.stdin.buffer)


def _spooled(name: str, stream: BinaryIO) -> Source:
    """Return a copy of a stream that can be read again; on disk if it is large."""
    spool = tempfile.SpooledTemporaryFile(max_size=1 << 28)  # noqa: SIM115  it lives as long as the process
    while data := stream.read(1 << 20):
        spool.write(data)
        if spool.tell() > SPOOLED:
            spool.close()
            raise TextError(f"{name} has more than {SPOOLED >> 30} GiB, all that is kept of a pipe: write a file first")

    class Again(io.BufferedIOBase):
        """Reader of the spool from its start; closing it keeps the spool."""

        def __init__(self) -> None:
            self.at = 0

        def read(self, size: int | None = -1, /) -> bytes:
            spool.seek(self.at)
            data = spool.read(-1 if size is None else size)
            self.at += len(data)
            return data

    return Source(name, lambda: cast(BinaryIO, Again()))


def _pydoc() -> list[Source]:
    def open_topics() -> BinaryIO:
        from pydoc_data.topics import topics

        return io.BytesIO("\n".join(topics[key] for key in sorted(topics)).encode())

    return [Source("pydoc", open_topics)]


def _stdlib() -> list[Source]:
    """Return the modules of the standard library without their tests."""
    root = Path(sysconfig.get_path("stdlib"))
    leave_out = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data", "lib2to3"}

    return [_file(path) for path in sorted(root.rglob("*.py")) if not leave_out & {*path.relative_to(root).parts}]


BUILT_IN: dict[str, Callable[[], list[Source]]] = {"pydoc": _pydoc, "stdlib": _stdlib}
