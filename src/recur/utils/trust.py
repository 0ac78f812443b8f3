"""Decision which custom cells, Python files, may be executed.

A cell's file is executed in two cases only:

    named      the user typed its name: --cell FILE.py:Class, `recur cell FILE.py:Class`, or a call in Python
    trusted    its SHA-256 is in the user's list, $RECUR_STATE/trusted or recur/trusted in the user's state folder

Training with a cell adds it to the list, and so does --trust. A name that was read from a file (the configuration of
a run, a sweep folder, a file of --config) may be a stranger's: it is never enough by itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from recur.errors import RunError
from recur.utils.files import read_bounded

CELL_BYTES = 1 << 24
"""Bytes of a cell's file at most."""


def state_folder() -> Path:
    """Return $RECUR_STATE, or recur in the user's state folder."""
    if chosen := os.environ.get("RECUR_STATE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "recur"


class DigestFile:
    """Set of SHA-256 digests in a file of the state folder, one per line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._in_process: set[str] = set()

    def has(self, content: bytes) -> bool:
        digest = hashlib.sha256(content).hexdigest()
        return digest in self._in_process or digest in self._read()

    def add(self, content: bytes) -> None:
        """Remember a content in the file; where it cannot be written, in this process."""
        digest = hashlib.sha256(content).hexdigest()
        if digest in self._read():
            return
        try:
            state_folder().mkdir(parents=True, exist_ok=True)
            with (state_folder() / self.name).open("a") as out:  # one line each: several processes may append at once
                out.write(f"{digest}\n")
        except (OSError, RuntimeError):
            self._in_process.add(digest)

    def add_in_process(self, content: bytes) -> None:
        """Remember a content until this process ends."""
        self._in_process.add(hashlib.sha256(content).hexdigest())

    def _read(self) -> list[str]:
        try:
            return (state_folder() / self.name).read_text().split()
        except (OSError, UnicodeDecodeError, RuntimeError):  # no home folder, say
            return []


_CELLS = DigestFile("trusted")


def cell_file(cell: object) -> str:
    """Return the file of a cell that is written `file.py:Class`; empty for the name of a registered cell."""
    path, in_file, _ = cell.partition(".py:") if isinstance(cell, str) else ("", "", "")
    return f"{path}.py" if in_file else ""


def name_cell(cell: object) -> None:
    """Permit a cell that the user named, for this process. The file as it is now: a later change is refused."""
    if (source := _source(cell)) is not None:
        _CELLS.add_in_process(source)


def check_cells(cells: Iterable[object], trusting: bool = False) -> None:
    """Refuse cells that a file names, unless their sources are trusted; with `trusting`, trust them from now on."""
    for cell in cells:
        if (source := _source(cell)) is not None:
            check_trusted(Path(cell_file(cell)), source, trusting)


def check_trusted(path: Path, source: bytes, trusting: bool = False) -> None:
    """Refuse a source that the user has neither named nor trusted; with `trusting`, trust it from now on."""
    if trusting:
        trust(source)
    if not is_trusted(source):
        lines, digest = len(source.splitlines()), hashlib.sha256(source).hexdigest()
        raise RunError(
            f"a custom cell would be executed: {path}, {lines} lines, SHA-256 {digest}; read it, and if you trust it, "
            "add --trust (in Python: trust=True)"
        )


def is_trusted(source: bytes) -> bool:
    return _CELLS.has(source)


def trust(source: bytes) -> None:
    """Execute this source from now on, wherever it is found."""
    _CELLS.add(source)


def read_source(path: str | Path) -> bytes:
    """Return the bytes of a cell's file, which must be a regular file of at most CELL_BYTES."""
    return read_bounded(Path(path), CELL_BYTES)


def _source(cell: object) -> bytes | None:
    """Return what a cell's file holds; None where there is no file, which is reported when the cell is made."""
    file = cell_file(cell)
    try:
        return read_source(file) if file and Path(file).is_file() else None
    except (OSError, ValueError):
        return None
