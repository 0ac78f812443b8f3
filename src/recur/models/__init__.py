"""Layers with an input and a head for one task. What they are made of stands in options.py, which needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.utils.lazy import lazy

if TYPE_CHECKING:
    from recur.models.classifier import Classifier as Classifier
    from recur.models.classifier import Reader as Reader
    from recur.models.decoder import Context as Context
    from recur.models.decoder import Decoder as Decoder
    from recur.models.decoder import DecoderWriter as DecoderWriter
    from recur.models.decoder import Scores as Scores
    from recur.models.forecaster import Forecaster as Forecaster
    from recur.models.language import LanguageModel as LanguageModel
    from recur.models.language import Predicted as Predicted
    from recur.models.seq2seq import ConditionalModel as ConditionalModel
    from recur.models.seq2seq import Seq2Seq as Seq2Seq
    from recur.models.signals import Regressor as Regressor
    from recur.models.stack import State as State
    from recur.models.structures import GridClassifier as GridClassifier
    from recur.models.structures import TreeModel as TreeModel
    from recur.models.tagger import OutputTagger as OutputTagger
    from recur.models.tagger import Tagger as Tagger
    from recur.models.tagger import Words as Words
    from recur.models.tagger import WordTagger as WordTagger

_NAMES = {
    "Classifier": "recur.models.classifier",
    "ConditionalModel": "recur.models.seq2seq",
    "Context": "recur.models.decoder",
    "Decoder": "recur.models.decoder",
    "DecoderWriter": "recur.models.decoder",
    "Forecaster": "recur.models.forecaster",
    "GridClassifier": "recur.models.structures",
    "LanguageModel": "recur.models.language",
    "OutputTagger": "recur.models.tagger",
    "Predicted": "recur.models.language",
    "Reader": "recur.models.classifier",
    "Regressor": "recur.models.signals",
    "Scores": "recur.models.decoder",
    "Seq2Seq": "recur.models.seq2seq",
    "State": "recur.models.stack",
    "Tagger": "recur.models.tagger",
    "TreeModel": "recur.models.structures",
    "WordTagger": "recur.models.tagger",
    "Words": "recur.models.tagger",
}

__all__ = list(_NAMES)
if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, _NAMES)
