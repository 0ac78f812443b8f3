"""How figures look: colours that the report's page knows in the dark too, type that can be read on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2f6fde", "#d9622b", "#1f9d7a", "#a44fc4", "#b8860b", "#6b7280", "#c2385a", "#3a9ad9")
IN_THE_DARK = ("#7aa7ff", "#ff9a63", "#4fd1a5", "#d58cf0", "#e3b341", "#a9b4c4", "#ff7d9c", "#7cc8f5")
"""The same ones on a dark page."""
INK, DIM, LINE = "#1c2430", "#5d6877", "#d5d9df"
SIZE = 10.0
"""Of type, in points."""

Say = Callable[[str], str]
"""A label in the language of the figure."""
Panel = Callable[["Axes", JsonObject, Say], None]


def dress(axis: Axes) -> None:
    axis.set_prop_cycle(color=COLOURS)
    axis.grid(True, lw=0.6, color=LINE)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(DIM)
    axis.tick_params(which="both", colors=DIM, labelsize=SIZE - 1)
    axis.xaxis.label.set(color=INK, fontsize=SIZE)
    axis.yaxis.label.set(color=INK, fontsize=SIZE)
    axis.title.set(color=INK, fontsize=SIZE + 1)


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain_powers(axis: Axes) -> None:
    """10⁻⁴ in letters on axes of powers: matplotlib sets them as formulas, a quarter of a report's time for figures."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Letters(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            found = re.fullmatch(r"\$\\mathdefault{(.*?)}\$", super().__call__(x, pos))
            plain = "" if found is None else found[1].replace(r"\times", "×")
            return re.sub(r"\^{(-?\d+)}", lambda power: power[1].translate(SUPERSCRIPTS), plain)

    for one in (axis.xaxis, axis.yaxis):
        if one.get_scale() == "log":
            base = one.get_transform().base  # type: ignore[attr-defined]
            one.set_major_formatter(Letters(base))
            one.set_minor_formatter(Letters(base, labelOnlyBase=False))


def legend(axis: Axes, place: Literal["best", "upper left", "lower left", "beside"] = "best") -> None:
    """Where there is more than one line to tell apart; `beside` the axes, where lines leave no room."""
    if len(axis.get_legend_handles_labels()[1]) > 1:
        made = axis.legend(fontsize=SIZE - 1, labelcolor=INK, frameon=False, loc=place if place != "beside" else "best")
        if place == "beside":
            made.set_loc("center left")
            made.set_bbox_to_anchor((1.0, 0.5))


def mark(axis: Axes, at: float | None, label: str, *, foot: bool = False) -> None:
    """A vertical line with its name at its head, or at its foot where curves are at the head."""
    if at is None:
        return
    axis.axvline(at, color=INK, lw=1.0, ls=":")
    axis.annotate(
        label,
        (at, 0.02 if foot else 1),
        xycoords=("data", "axes fraction"),
        color=INK,
        fontsize=SIZE - 1,
        rotation=90,
        ha="right",
        va="bottom" if foot else "top",
    )


def level(axis: Axes, at: float, label: str, *, above: bool = False) -> None:
    """A horizontal line with its name below or above its right end."""
    axis.axhline(at, color=DIM, lw=1.0, ls="--")
    axis.annotate(
        label,
        (1, at),
        (-2, 2 if above else -2),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        color=DIM,
        fontsize=SIZE - 1,
        ha="right",
        va="bottom" if above else "top",
    )


def plot(axis: Axes, x: Sequence[float], y: Sequence[float | None], label: str) -> None:
    """A curve with gaps where nothing was measured."""
    axis.plot(x, [np.nan if v is None else v for v in y], "o-", ms=3, lw=1.6, label=label)
