"""Weights as arrays in C. A matrix lies in blocks of 32 rows, column by column: those of a column side by side. The
last block has as many rows as are left. In 8 bits it lies row after row, with a scale for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from recur.export.c_layout import TYPES, Layout
from recur.export.quantise import quantise

WIDTH = 116
"""Characters in a line."""


def blocks(matrix: Tensor) -> Tensor:
    """(rows, columns) as it lies in memory."""
    return torch.cat([part.t().reshape(-1) for part in matrix.split(32)])


def arrays(layout: Layout) -> Iterator[str]:
    """All weights, in the order in which they are read."""
    for buffer in layout.weights:
        assert buffer.value is not None
        name, value = layout.name(buffer), buffer.value
        if buffer not in layout.matrices:
            yield array(f"{TYPES[buffer.kind]} {name}", value, layout.prefix)
        elif layout.matrices[buffer]:
            q, scale = quantise(value)
            yield array(f"signed char {name}", q, layout.prefix)
            yield array(f"float {name}_scale", scale, layout.prefix)
        else:
            yield array(f"{TYPES[buffer.kind]} {name}", blocks(value), layout.prefix)


def weight_bytes(layout: Layout) -> int:
    """How much of a program's memory they are."""
    total = 0
    for buffer in layout.weights:
        assert buffer.value is not None
        rows, each = buffer.value.shape[0] if buffer.value.dim() else 1, buffer.value.element_size()
        narrow = layout.matrices.get(buffer, False)
        total += buffer.value.numel() + 4 * rows if narrow else buffer.value.numel() * (4 if each == 1 else each)
    return total


def array(declared: str, value: Tensor, prefix: str) -> str:
    flat = value.detach().cpu().reshape(-1)
    return (
        f"{prefix.upper()}_DATA {declared}[{max(flat.numel(), 1)}] = {{\n{wrapped(numbers(flat, prefix.upper()))}\n}};"
    )


def numbers(flat: Tensor, prefix: str) -> list[str]:
    """As C writes them; infinities by names of the header's own, constants everywhere."""
    if flat.dtype == torch.float64:
        return [_plain(repr(x), prefix) for x in flat.tolist()] or ["0"]
    if flat.dtype == torch.float32:
        return [_plain(f"{x:.9g}", prefix) + ("f" if np.isfinite(x) else "") for x in flat.tolist()] or ["0"]
    return [str(int(x)) for x in flat.tolist()] or ["0"]


def _plain(text: str, prefix: str) -> str:
    if "inf" in text:
        return f"{prefix}_BELOW_ALL" if text.startswith("-") else f"{prefix}_ABOVE_ALL"
    if "nan" in text:
        return "NAN"
    return text if "." in text or "e" in text else f"{text}.0"


def wrapped(parts: Sequence[str]) -> str:
    """Between commas, in lines."""
    lines, line, size = list[str](), list[str](), 0
    for part in parts:
        if size + len(part) > WIDTH and line:
            lines.append(",".join(line))
            line, size = [], 0
        line.append(part)
        size += len(part) + 1
    lines.append(",".join(line))
    return ",\n".join(lines)


def quoted(texts: Iterable[bytes]) -> str:
    """Bytes as a string of C, one literal a text, each with its end."""
    return "\n".join('"' + "".join(map(_character, text)) + '\\0"' for text in texts)


def _character(byte: int) -> str:
    if byte in b'"\\':
        return "\\" + chr(byte)
    return chr(byte) if 32 <= byte < 127 and byte != ord("?") else f"\\{byte:03o}"
