"""The lines of standard input as they come in."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from recur.data.text.corpus import normalised
from recur.errors import TextError
from recur.utils.files import ends

LONGEST = 1 << 26
"""Bytes of a line at most."""


def arriving(blank: bool = False) -> Iterator[list[str]]:
    """Those that have arrived together, so that nobody waits for a batch to fill; one that is `blank` is refused, if
    not allowed."""
    held, number = b"", 0
    if sys.stdin is None or not ends(sys.stdin.buffer):
        raise TextError("standard input is closed, or a device without an end")
    while True:
        read = sys.stdin.buffer.read1(1 << 16)  # type: ignore[union-attr]
        *lines, held = (held + read).split(b"\n") if read else (held, b"")
        if len(held) > LONGEST:
            raise TextError(f"standard input:{number + len(lines) + 1}: a line of more than {LONGEST:,} bytes")
        texts = []
        for line in lines if read or lines[0] else []:
            number += 1
            try:
                text = normalised(line.decode().rstrip("\r"))
            except UnicodeDecodeError:
                raise TextError(f"standard input:{number} is not UTF-8") from None
            except TextError as error:
                raise TextError(f"standard input:{number}: {error}") from None
            if not blank and not text.strip():
                raise TextError(f"standard input:{number}: the source is empty")
            texts.append(text)
        if texts:
            yield texts
        if not read:
            return
