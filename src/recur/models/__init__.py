"""Layers with an input and a head for one task."""

from recur.models.decoder import Context, Decoder, DecoderOptions, Scores
from recur.models.labelled import Labelled
from recur.models.language import LanguageModel, LanguageOptions, Predicted
from recur.models.seq2seq import Seq2Seq, Seq2SeqOptions
from recur.models.writing import Writing

__all__ = [
    "Context",
    "Decoder",
    "DecoderOptions",
    "Labelled",
    "LanguageModel",
    "LanguageOptions",
    "Predicted",
    "Scores",
    "Seq2Seq",
    "Seq2SeqOptions",
    "Writing",
]
