"""Layers with an input and a head for one task."""

from recur.models.language import LanguageModel, LanguageOptions, Predicted
from recur.models.tree import TreeModel, TreeOptions

__all__ = ["LanguageModel", "LanguageOptions", "Predicted", "TreeModel", "TreeOptions"]
