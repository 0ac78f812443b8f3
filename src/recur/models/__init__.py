"""Layers with an input and a head for one task."""

from recur.models.decoder import Context, Decoder, DecoderOptions, Scores
from recur.models.forecast import Forecaster, ForecastOptions, parse_quantiles
from recur.models.labelled import Labelled
from recur.models.language import LanguageModel, LanguageOptions, Predicted
from recur.models.reader import Classifier, Reader, ReaderOptions, Tagger
from recur.models.regress import Regressor
from recur.models.seq2seq import Seq2Seq, Seq2SeqOptions
from recur.models.tree import TreeModel, TreeOptions
from recur.models.writing import Writing

__all__ = [
    "Classifier",
    "Context",
    "Decoder",
    "DecoderOptions",
    "ForecastOptions",
    "Forecaster",
    "Labelled",
    "LanguageModel",
    "LanguageOptions",
    "Predicted",
    "Reader",
    "ReaderOptions",
    "Regressor",
    "Scores",
    "Seq2Seq",
    "Seq2SeqOptions",
    "Tagger",
    "TreeModel",
    "TreeOptions",
    "Writing",
    "parse_quantiles",
]
