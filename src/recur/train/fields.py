"""Groups of options that Config is made of: what is read, and what the tasks that write sequences take."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TextFields:
    """What is read, and what a token is."""

    texts: tuple[str, ...] = ("pydoc",)
    """What to learn from: files, folders, pydoc or stdlib; pairs as one TSV file, or as two files line by line."""

    _: dataclasses.KW_ONLY

    task: str = "language"
    """What to train: language (what comes next), seq2seq (pairs), classify, tag, tree, forecast, adding or copy."""

    valid: str | None = None
    """Measure on this text; a part of `texts` held out, if not given. Two files of pairs: with a comma between."""

    test: str | None = None
    """Measured once, by `recur eval`; a part of `texts` held out, if not given."""

    token: Literal["char", "word", "subword"] = "char"
    """What a token is."""

    punctuation: bool = False
    """Words: punctuation marks are tokens too, and each Chinese character is one."""

    lower: bool = False
    """Words: drop case."""

    min_freq: int = 1
    """Tokens seen less often in training are unknown."""

    max_size: int | None = None
    """Keep this many tokens at most, the four special ones included."""

    pieces: int = 2000
    """Subwords: how many pieces sentencepiece learns."""


@dataclass(frozen=True, kw_only=True)
class WritingFields(TextFields):
    """How sequences are written."""

    context: Literal["label"] | None = None
    """Language: learn from lines `label TAB text`, and write the text of a given label."""

    source_token: Literal["char", "word", "subword", "space"] = "char"
    """Pairs: what a symbol of the source is; space is whatever stands between spaces."""

    target_token: Literal["char", "word", "subword", "space"] = "char"
    """Pairs: what a symbol of the target is."""

    attention: Literal["additive", "dot", "none"] = "additive"
    """How the decoder looks at the source: additive, scaled dot product, or not at all."""

    condition: Literal["initial", "input", "both", "none", "aligned"] = "initial"
    """How the context reaches the decoder: as h₀, at every step, both, not at all, or symbol by symbol (aligned)."""

    feedback: bool = True
    """The decoder hears what it wrote before; without, its symbols are independent given the source."""

    bidirectional: bool = True
    """The encoder reads from both ends."""

    encoder_layers: int = 1
    """How many recurrent layers the encoder has."""

    stop: Literal["eos", "bernoulli", "length", "source"] = "eos"
    """How a sequence ends: by a symbol, by an output of its own, by a length predicted first, or with its source."""

    longest: int = 100
    """Write no more symbols than this; longer targets are refused."""

    teacher: str = "always"
    """Teacher forcing: always, never, constant:p, linear:a:b, exponential:k, sigmoid:k; ,sequence mixes sequences."""

    smoothing: float = 0.0
    """Label smoothing: this much of the target's probability goes to all symbols alike."""
