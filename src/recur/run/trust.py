"""Whose code is executed: that which this user trained with, or has said to trust.

A run may carry a cell of its own, a Python file. It is executed only if its SHA-256 stands in the user's list,
$RECUR_STATE/trusted or recur/trusted in the user's state folder. Training with a cell of one's own puts it there, so
one's own runs open without a word; a stranger's says what it would execute, and waits for `--trust`.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from recur.errors import RunError


def state_folder() -> Path:
    """$RECUR_STATE, or recur in the user's state folder."""
    if chosen := os.environ.get("RECUR_STATE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "recur"


_HERE: set[str] = set()
"""What this process trusts, should the list not be there to be written."""


def is_trusted(source: bytes) -> bool:
    digest = hashlib.sha256(source).hexdigest()
    return digest in _HERE or digest in _trusted()


def trust(source: bytes) -> None:
    """Execute this source from now on, wherever it is found."""
    digest = hashlib.sha256(source).hexdigest()
    if digest in _trusted():
        return
    try:
        state_folder().mkdir(parents=True, exist_ok=True)
        with (state_folder() / "trusted").open("a") as out:  # a line each: several processes may do so at once
            out.write(f"{digest}\n")
    except (OSError, RuntimeError):
        _HERE.add(digest)


def check_trusted(path: Path, source: bytes) -> None:
    """Refuse a source that this user has not trained with or trusted, and say what it is."""
    if not is_trusted(source):
        lines, digest = len(source.splitlines()), hashlib.sha256(source).hexdigest()
        raise RunError(
            f"{path.parent} carries a cell of its own, which would be executed: {path}, {lines} lines, SHA-256 "
            f"{digest}; read it, and if you trust it, add --trust (in Python: trust=True)"
        )


def _trusted() -> list[str]:
    try:
        return (state_folder() / "trusted").read_text().split()
    except (OSError, UnicodeDecodeError, RuntimeError):  # no home folder, say
        return []
