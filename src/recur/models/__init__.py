"""Networks for tasks: layers with an input and an output head. Their options are in options.py, which needs no
torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.utils.imports import lazy

if TYPE_CHECKING:
    from recur.models.classifiers import Classifier as Classifier
    from recur.models.classifiers import GridClassifier as GridClassifier
    from recur.models.classifiers import Regressor as Regressor
    from recur.models.classifiers import SequenceEncoder as SequenceEncoder
    from recur.models.classifiers import TreeModel as TreeModel
    from recur.models.decoder import BatchDecoder as BatchDecoder
    from recur.models.decoder import ConditionalModel as ConditionalModel
    from recur.models.decoder import Decoder as Decoder
    from recur.models.decoder import DecoderContext as DecoderContext
    from recur.models.decoder import DecoderScores as DecoderScores
    from recur.models.decoder import Seq2Seq as Seq2Seq
    from recur.models.forecaster import Forecaster as Forecaster
    from recur.models.language import LanguageModel as LanguageModel
    from recur.models.language import LanguageModelOutput as LanguageModelOutput
    from recur.models.layers import State as State
    from recur.models.tagger import OutputTagger as OutputTagger
    from recur.models.tagger import Tagger as Tagger
    from recur.models.tagger import WordBatch as WordBatch
    from recur.models.tagger import WordTagger as WordTagger

_MODULES = {
    "classifiers": ("Classifier", "GridClassifier", "Regressor", "SequenceEncoder", "TreeModel"),
    "decoder": ("BatchDecoder", "ConditionalModel", "Decoder", "DecoderContext", "DecoderScores", "Seq2Seq"),
    "forecaster": ("Forecaster",),
    "language": ("LanguageModel", "LanguageModelOutput"),
    "layers": ("State",),
    "tagger": ("OutputTagger", "Tagger", "WordBatch", "WordTagger"),
}
_NAMES = {name: f"recur.models.{module}" for module, names in _MODULES.items() for name in names}

__all__ = list(_NAMES)
if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, _NAMES)
