"""Files written whole or not at all.

A file is written beside its place, flushed to disk and renamed. A process that is killed at any moment, or a machine
that loses its power, leaves the old file or the new one, never half of one.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by this content."""
    with replacing(path) as out:
        out.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream for what shall stand at `path`; it stands there once the block has ended without an error.

    A link is followed: the file it points to is replaced. A device or a pipe cannot be, and is written to.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as out:
            yield out
        return
    # Not from tempfile: its files are for their owner's eyes only, and these are as readable as any other.
    part = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        with _naming(path):
            out = part.open("xb")
        with out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        with _naming(path):
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors name the file that was asked for: nobody knows the part."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(folder: Path) -> None:
    """Bring the names of a folder to disk, renames among them, where the system has a way to."""
    with suppress(OSError):  # Windows opens no folder, and some file systems sync none
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
