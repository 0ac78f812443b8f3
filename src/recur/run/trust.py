"""Consent of this user: which code is executed, and which texts outside of a run are opened.

A run may come from anybody. It may carry a cell, which is Python code, and it names the texts that it was trained on,
which may be any path. The cell is executed, and a text outside of the run is opened, only if this user has trained
with it or allows it. Both are remembered as SHA-256 digests, one per line, in the files `trusted` and `texts` of
$RECUR_STATE or of recur in the user's state folder. So one's own runs open without a flag; a run of somebody else is
refused with a line that names the option to add: `--trust` or `--allow-path`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from recur.errors import RunError
from recur.run.manifest import Fingerprint


def state_folder() -> Path:
    """$RECUR_STATE, or recur in the user's state folder."""
    if chosen := os.environ.get("RECUR_STATE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "recur"


class _Digests:
    """Set of SHA-256 digests in a file of the state folder."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._here: set[str] = set()
        """What this process remembers if the file cannot be written."""

    def has(self, content: bytes) -> bool:
        digest = hashlib.sha256(content).hexdigest()
        return digest in self._here or digest in self._read()

    def add(self, content: bytes) -> None:
        digest = hashlib.sha256(content).hexdigest()
        if digest in self._read():
            return
        try:
            state_folder().mkdir(parents=True, exist_ok=True)
            with (state_folder() / self.name).open("a") as out:  # one line per digest: several processes may append
                out.write(f"{digest}\n")
        except (OSError, RuntimeError):
            self._here.add(digest)

    def _read(self) -> list[str]:
        try:
            return (state_folder() / self.name).read_text().split()
        except (OSError, UnicodeDecodeError, RuntimeError):  # no home folder, say
            return []


_CELLS, _TEXTS = _Digests("trusted"), _Digests("texts")


# Cells ----------------------------------------------------------------------------------------------------------


def is_trusted(source: bytes) -> bool:
    return _CELLS.has(source)


def trust(source: bytes) -> None:
    """Execute this source from now on, wherever it is found."""
    _CELLS.add(source)


def check_trusted(path: Path, source: bytes) -> None:
    """Refuse a source that this user has not trained with or trusted, and say what it is."""
    if not is_trusted(source):
        lines, digest = len(source.splitlines()), hashlib.sha256(source).hexdigest()
        raise RunError(
            f"{path.parent} carries a cell of its own, which would be executed: {path}, {lines} lines, SHA-256 "
            f"{digest}; read it, and if you trust it, add --trust (in Python: trust=True)"
        )


# Texts ----------------------------------------------------------------------------------------------------------


def allow_text(text: Fingerprint) -> None:
    """Open this text from now on, wherever a run names it."""
    _TEXTS.add(_key(text))


def check_allowed(run: Path, paths: Iterable[Path], text: Fingerprint, allowed: Sequence[str | Path] = ()) -> None:
    """Refuse paths that a run names for a text, unless this user has trained with the text or each path is inside of
    the run's folder, of the folder around the run, of the current folder or of an `allowed` path."""
    if _TEXTS.has(_key(text)):
        return
    inside, consented = [_real(run), _real(run.parent), _real(Path())], [_real(Path(one)) for one in allowed]
    outside = False
    for path in paths:
        found = _real(path)
        if any(found.is_relative_to(folder) for folder in inside):
            continue
        outside = True
        if not any(found.is_relative_to(one) for one in consented):
            raise RunError(
                f"{run} names a text outside of its folder, which you have not trained with: {path}; if it may be "
                f'read, add --allow-path {path} (in Python: allow_path=["{path}"])'
            )
    if outside:
        allow_text(text)


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a zero byte
        raise RunError(f"no file has such a name: {str(path)!r}") from None


def _key(text: Fingerprint) -> bytes:
    return f"{text.name}\0{text.bytes}\0{text.sha256}".encode(errors="surrogatepass")
