"""Options of the task seq2seq, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from recur.models.options import EncoderDecoderOptions
from recur.options import BelowOne, Between, Count, Fraction, Natural, OneOf, Positive, Width, WidthOrNone
from recur.tasks.common.options import DecoderTaskOptions, PairOptions

Symbol = Literal["char", "word", "subword", "space"]


SENTENCES = {"hidden_size": 256, "embedding_size": 128, "embedding_init": "normal:1"}
"""Defaults for sentences. With thousands of symbols an encoder's states are all alike until its embeddings differ."""


@dataclass(frozen=True, kw_only=True)
class Seq2SeqOptions(DecoderTaskOptions, PairOptions, EncoderDecoderOptions):
    """Map sequences to sequences. Input: lines `source TAB target`, or two files."""

    title = "seq2seq"
    reads = "pairs"

    source_token: Symbol | None = None
    """Token of the source; space splits at spaces. Default: by the file."""

    target_token: Symbol | None = None
    """Token of the target."""

    batch_symbols: Count | None = None
    """Symbols per batch, sources and targets with padding; instead of a number of pairs."""

    # Defaults of its own ---------------------------------------------------------------------------------

    hidden_size: Width = 192
    embedding_size: WidthOrNone = 64
    dropout_input: Fraction = 0.2
    dropout_output: Fraction = 0.3
    label_smoothing: BelowOne = 0.1
    lr: Positive = 0.004
    warmup_steps: Natural = 100

    cpu_batch = 32
    default_epochs = 60.0
    by_token = MappingProxyType(
        {
            "word": {"punctuation": True, "min_freq": 2, **SENTENCES},
            "subword": SENTENCES,
        }
    )

    search = MappingProxyType(
        {
            "cell": OneOf(("gru", "lstm")),
            "hidden_size": Between(96, 384, log=True),
            "embedding_size": OneOf((32, 64, 128)),
            "num_encoder_layers": OneOf((1, 2)),
            "lr": Between(0.001, 0.015, log=True),
            "batch_size": OneOf((16, 32, 64)),
            "dropout_input": Between(0.0, 0.4),
            "dropout_output": Between(0.0, 0.5),
            "label_smoothing": Between(0.0, 0.2),
        }
    )


OPTIONS = Seq2SeqOptions
