"""Figures: how they are made and saved, where matplotlib is installed.

Without pyplot and without choosing a backend: nothing here changes how a notebook or a program draws its own.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from recur.errors import OptionError, RecurError
from recur.i18n import Message
from recur.utils.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(
    rows: int = 1, columns: int = 1, *, width: float = 6.4, height: float = 3.2
) -> tuple[Figure, list[Axes]]:
    """A figure so many inches wide and high, and its axes, row by row."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise RecurError(Message("figures need matplotlib: pip install 'recur[plot]'")) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save(figure: Figure, path: Path | str) -> None:
    """To a file in the format that its name ends in, such as .png, .svg or .pdf."""
    path = Path(path)
    ending = path.suffix.removeprefix(".").lower()
    known = figure.canvas.get_supported_filetypes()
    if ending not in known:
        raise OptionError(f"{path}: a figure's name ends in its format, one of {', '.join(sorted(known))}")
    content = io.BytesIO()
    figure.savefig(content, format=ending, dpi=150)
    write_atomically(path, content.getvalue())
