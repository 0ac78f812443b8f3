"""Options of the task seq2seq, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from recur.models.options import EncoderDecoderOptions
from recur.options import BelowOne, Natural, Positive, Share, Width, WidthOrNone
from recur.tasks.options import WritingOptions

Symbol = Literal["char", "word", "subword", "space"]


@dataclass(frozen=True, kw_only=True)
class Seq2SeqOptions(WritingOptions, EncoderDecoderOptions):
    """Sequences from sequences: lines `source TAB target`, or two files."""

    title = "seq2seq"
    reads = "pairs"

    source_token: Symbol | None = None
    """What a symbol of the source is; space is whatever stands between spaces. If not given, the file decides."""

    target_token: Symbol | None = None
    """What a symbol of the target is."""

    # Defaults of its own ---------------------------------------------------------------------------------

    hidden: Width = 192
    embedding: WidthOrNone = 64
    dropout_input: Share = 0.2
    dropout_output: Share = 0.3
    smoothing: BelowOne = 0.1
    rate: Positive = 0.004
    warmup: Natural = 100

    cpu_batch = 32
    default_epochs = 60.0
    by_token = MappingProxyType({"word": {"punctuation": True, "min_freq": 2}})


OPTIONS = Seq2SeqOptions
