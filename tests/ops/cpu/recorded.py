"""A call of the C++ core as a file, field by field, which the driver under sanitizers reads."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

READ, WRITTEN = 1, 2


class Field(NamedTuple):
    """A number or an array of a call."""

    kind: int
    """What the call does with it: READ, WRITTEN or both."""
    size: int
    """How many bytes it has."""
    held: bytes = b""
    """Those that it holds, where they are read."""
    rows: int = 1
    gap: int = 0
    """From the end of a row to the next one, in bytes: nobody may touch what lies there."""
    room: int = 0
    """Bytes behind the last row, for whatever lies there before the result does."""
    address: int = 0

    @staticmethod
    def of_number(value: int) -> Field:
        return Field(READ, 8, int(value).to_bytes(8, "little", signed=True))

    @staticmethod
    def of_memory(address: int, size: int, kind: int = READ, rows: int = 1, gap: int = 0, room: int = 0) -> Field:
        """`size` bytes in so many rows; `gap` and `room` are beyond."""
        field = Field(kind, size, b"", rows, gap, room, address)
        return field._replace(held=field.now()) if kind & READ else field

    def now(self) -> bytes:
        """What its memory holds now."""
        row = self.size // self.rows
        return b"".join(ctypes.string_at(self.address + k * (row + self.gap), row) for k in range(self.rows))


def write(path: Path, fields: Mapping[str, Field]) -> None:
    with path.open("wb") as file:
        for name, field in fields.items():
            numbers = field.kind, field.size, field.rows, field.gap, field.room
            file.write(name.encode().ljust(16, b"\0") + b"".join(n.to_bytes(8, "little") for n in numbers) + field.held)
