"""Progress of long work: the time that is left, and one line on standard error."""

from __future__ import annotations

import sys
import time
from typing import TextIO

QUIET = 10.0
"""Seconds between two lines where the output is no terminal."""


def remaining(seconds: float, share: float) -> float | None:
    """Return the seconds that are left after a share (0 … 1) of the work; None at its start.

    >>> remaining(10.0, 0.25)
    30.0
    """
    return seconds * (1 - share) / share if 0 < share <= 1 else None


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(42.4), duration(125), duration(7400)
    ('42 s', '2 min 5 s', '2 h 3 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def left_of(seconds: float, share: float) -> str:
    """Return `, 30 s left`; empty where nothing is known.

    >>> left_of(10.0, 0.25), left_of(10.0, 0.0)
    (', 30 s left', '')
    """
    left = remaining(seconds, share)
    return "" if left is None else f", {duration(left)} left"


class ProgressLine:
    """One line on standard error that is rewritten on a terminal, and a line every ten seconds elsewhere."""

    def __init__(self, what: str, out: TextIO | None = None) -> None:
        self.what, self.out = what, out or sys.stderr
        self.begun, self.written = time.monotonic(), 0.0
        self.width = 0

    def __call__(self, detail: str, share: float) -> None:
        """Show the share (0 … 1) of the work that is done, and what is done now."""
        now = time.monotonic()
        text = f"{self.what} {share:4.0%}{left_of(now - self.begun, share)}  {detail}"[:79]
        if self.out.isatty():
            self.out.write(f"\r{text:<{self.width}}")
            self.width = len(text)
            self.out.flush()
        elif now - max(self.begun, self.written) > QUIET:
            self.out.write(text + "\n")
            self.written = now

    def close(self) -> None:
        """Clear the line."""
        if self.width:
            self.out.write(f"\r{'':<{self.width}}\r")
            self.width = 0
