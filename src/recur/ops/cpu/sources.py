"""Which sources a library was built from. `setup.py` runs this file too, so it imports nothing of recur's."""

from __future__ import annotations

import hashlib
from pathlib import Path


def digest(folder: Path) -> str | None:
    """Of the C++ sources in a folder, names and contents; None where there are none, as in an installed wheel."""
    paths = sorted([*folder.glob("*.cpp"), *folder.glob("*.h")], key=lambda path: path.name)
    if not paths:
        return None
    content = hashlib.sha256()
    for path in paths:
        content.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return content.hexdigest()[:16]
