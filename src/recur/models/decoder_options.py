"""What networks that write are made of, as options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recur.errors import OptionError
from recur.models.options import Direction, EmbeddingOptions, RecurrenceOptions
from recur.options import Count, Layers, Share


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(RecurrenceOptions, EmbeddingOptions):
    """A network that writes."""

    title = "Decoder"

    condition: Literal["initial", "input", "both", "none", "aligned"] = "initial"
    """How the context reaches the decoder: as h₀, at every step, both, not at all, or symbol by symbol (aligned)."""

    feedback: bool = True
    """The decoder reads what it wrote before; without, its symbols are independent given the source."""

    stop: Literal["eos", "bernoulli", "length", "source"] = "eos"
    """How a sequence ends: by a symbol, by an output of its own, by a length predicted first, or with its source."""

    longest: Count = 100
    """Write no more symbols than this; longer targets are refused."""

    dropout_input: Share = 0.0
    """Drop parts of the embeddings."""

    dropout_hidden: Share = 0.0
    """Drop between layers."""

    dropout_output: Share = 0.0
    """Drop parts of what symbols are read from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.embedding:
            raise OptionError("embedding must be a whole number ≥ 1, got 0: a decoder reads what it wrote as vectors")
        if self.condition == "aligned" and self.stop != "source":
            raise OptionError(f"what is aligned with its source ends with it: take --stop source, got {self.stop!r}")


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderOptions(DecoderOptions):
    title = "Encoder and decoder"

    of_hidden_states = ("layers", "depth_transition")  # the encoder has hidden states all the same

    attention: Literal["additive", "dot", "none"] = "additive"
    """How the decoder looks at the source: additive, scaled dot product, or not at all."""

    input_feeding: bool = False
    """A step of the decoder also reads where the one before looked (Luong et al. 2015); steps then wait for each
    other."""

    copy: bool = False
    """A symbol may be taken from the source, from where attention looks (See et al. 2017)."""

    encoder_layers: Layers = 1
    """How many recurrent layers the encoder has."""

    direction: Direction = "both"
    """From where the encoder reads the source."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.condition == "none" and self.attention == "none":
            raise OptionError("--condition none and --attention none leave nothing to know the source by")
        for name in ("input_feeding", "copy"):
            if getattr(self, name) and self.attention == "none":
                raise OptionError(f"--{name.replace('_', '-')} needs attention; take --attention additive or dot")
