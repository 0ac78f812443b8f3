"""Data readers: text, time series, signals, images and data frames. Nothing here imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.utils.imports import lazy

if TYPE_CHECKING:
    from recur.data import frames as frames
    from recur.data import images as images
    from recur.data import series as series
    from recur.data import signals as signals
    from recur.data import text as text

__all__ = ["frames", "images", "series", "signals", "text"]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, {name: f"{__name__}.{name}" for name in __all__})
