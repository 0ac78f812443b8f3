"""Options of a layer, checked before anything is made of them."""

from __future__ import annotations

import operator
from typing import Any

from recur.errors import OptionError


def parse_initial(initial: str) -> tuple[str, float]:
    kind, colon, scale = str(initial).partition(":")
    if kind in ("zero", "learned") and not colon:
        return kind, 0.0
    try:
        if kind == "random" and 0 < float(scale) < float("inf"):
            return kind, float(scale)
    except ValueError:
        pass  # said below
    raise OptionError(f"initial must be zero, learned, or random:σ with σ > 0, got {initial!r}")


def whole(name: str, value: Any, least: int) -> int:
    """A whole number, of Python's or NumPy's, that is large enough."""
    if not isinstance(value, bool) and hasattr(value, "__index__") and operator.index(value) >= least:
        return operator.index(value)
    raise OptionError(f"{name} must be a whole number ≥ {least}, got {value!r}")
