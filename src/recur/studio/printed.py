"""What a training's process printed last."""

from __future__ import annotations

import os
import re
from pathlib import Path

PRINTED = 4096
"""Bytes at its end that are read."""
MEASURED, NOTHING = re.compile(r"(recur: )?step +\d"), re.compile(r"(?!)")
"""Lines of measurements, whose numbers the page has; and none."""


def last_line(path: Path, without: re.Pattern[str] = NOTHING) -> str:
    """The last line of a file that is not empty, without some of them; nothing where there is no file."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - PRINTED))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    kept = (line.strip() for line in reversed(lines) if line.strip() and not without.match(line))
    return next(kept, "").removeprefix("recur: ")
