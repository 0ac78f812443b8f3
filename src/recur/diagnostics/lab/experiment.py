"""What an experiment gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Experiment:
    figure: Figure
    paragraph: str
    """The conclusion in words, with the numbers that came out."""
    numbers: JsonObject
