"""Layers with an input and a head for one task."""

from recur.models.language import LanguageModel, LanguageOptions, Predicted

__all__ = ["LanguageModel", "LanguageOptions", "Predicted"]
