"""Baselines that networks are compared with: n-grams, linear classifiers, a CRF, naive and linear forecasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.utils.imports import lazy

if TYPE_CHECKING:
    from recur.baselines import ngram as ngram

__all__ = ["ngram"]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, {name: f"{__name__}.{name}" for name in __all__})
