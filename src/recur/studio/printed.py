"""What a training's process printed last."""

from __future__ import annotations

import re

from recur.errors import RecurError
from recur.runs.safe_dir import SafeDir

PRINTED = 4096
"""Bytes at its end that are read."""
MEASURED, NOTHING = re.compile(r"(recur: )?step +\d"), re.compile(r"(?!)")
"""Lines of measurements, whose numbers the page has; and none."""


def last_line(place: SafeDir, name: str, without: re.Pattern[str] = NOTHING) -> str:
    """Return the last line of a file that is not empty and does not match `without`; "" if there is no such file."""
    try:
        lines = place.read_from(name, -PRINTED, PRINTED)[0].decode(errors="replace").splitlines()
    except (OSError, RecurError):
        return ""
    kept = (line.strip() for line in reversed(lines) if line.strip() and not without.match(line))
    return next(kept, "").removeprefix("recur: ")
