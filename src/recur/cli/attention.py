"""Where a model that writes looked: in words, and as a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from recur.utils.plotting import new_figure, save
from recur.utils.types import JsonObject

PANELS = 6
"""Sequences that a figure shows at most."""

INCHES = 0.28
"""For each symbol."""


def in_words(attention: JsonObject) -> Iterator[str]:
    """For each symbol written the one of the source that it looked at most, and how much."""
    for symbol, row in zip(attention["target"], attention["weights"], strict=True):
        most = max(range(len(row)), key=row.__getitem__)
        yield f"  {symbol} ← {attention['source'][most]} {row[most]:.2f}"


def draw(found: Sequence[JsonObject], path: Path) -> None:
    """The weights of some sequences, one below the other: what was written downwards, the source across."""
    found = found[:PANELS]
    across, down = (max(len(one[side]) for one in found) for side in ("source", "target"))
    figure, axes = new_figure(
        len(found), width=max(3.0, INCHES * across + 1.5), height=len(found) * (INCHES * down + 1.2)
    )
    for axis, one in zip(axes, found, strict=True):
        axis.imshow(one["weights"], cmap="Greys", vmin=0, vmax=1)
        axis.set_xticks(range(len(one["source"])), one["source"], rotation=90)
        axis.set_yticks(range(len(one["target"])), one["target"])
        axis.xaxis.tick_top()
    save(figure, path)
