"""Networks for tasks: layers with an input and an output head. Their options are in options.py, which needs no
torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.utils.lazy import lazy

if TYPE_CHECKING:
    from recur.models.classifier import Classifier as Classifier
    from recur.models.classifier import SequenceEncoder as SequenceEncoder
    from recur.models.decoder import BatchDecoder as BatchDecoder
    from recur.models.decoder import Decoder as Decoder
    from recur.models.decoder import DecoderContext as DecoderContext
    from recur.models.decoder import DecoderScores as DecoderScores
    from recur.models.forecaster import Forecaster as Forecaster
    from recur.models.language import LanguageModel as LanguageModel
    from recur.models.language import LanguageModelOutput as LanguageModelOutput
    from recur.models.seq2seq import ConditionalModel as ConditionalModel
    from recur.models.seq2seq import Seq2Seq as Seq2Seq
    from recur.models.signals import Regressor as Regressor
    from recur.models.stack import State as State
    from recur.models.structures import GridClassifier as GridClassifier
    from recur.models.structures import TreeModel as TreeModel
    from recur.models.tagger import OutputTagger as OutputTagger
    from recur.models.tagger import Tagger as Tagger
    from recur.models.tagger import WordBatch as WordBatch
    from recur.models.tagger import WordTagger as WordTagger

_NAMES = {
    "Classifier": "recur.models.classifier",
    "ConditionalModel": "recur.models.seq2seq",
    "DecoderContext": "recur.models.decoder",
    "Decoder": "recur.models.decoder",
    "BatchDecoder": "recur.models.decoder",
    "Forecaster": "recur.models.forecaster",
    "GridClassifier": "recur.models.structures",
    "LanguageModel": "recur.models.language",
    "OutputTagger": "recur.models.tagger",
    "LanguageModelOutput": "recur.models.language",
    "SequenceEncoder": "recur.models.classifier",
    "Regressor": "recur.models.signals",
    "DecoderScores": "recur.models.decoder",
    "Seq2Seq": "recur.models.seq2seq",
    "State": "recur.models.stack",
    "Tagger": "recur.models.tagger",
    "TreeModel": "recur.models.structures",
    "WordTagger": "recur.models.tagger",
    "WordBatch": "recur.models.tagger",
}

__all__ = list(_NAMES)
if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, _NAMES)
