"""What a tagger of words is made of, as options (options.py has those of other networks)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recur.models.options import RecurrenceOptions, TaggerOptions
from recur.options import NonNegative, Width


@dataclass(frozen=True, kw_only=True)
class WordTaggerOptions(TaggerOptions):
    """An output at every word."""

    title = "Network"

    of_hidden_states = (
        *RecurrenceOptions.of_hidden_states,
        *("crf", "constrained", "characters", "character_width", "character_embedding", "casing", "unknown"),
    )

    crf: bool = False
    """Tags of a sentence together, by a conditional random field; else each for itself, by a softmax."""

    constrained: bool = True
    """With --crf: leave out moves between tags that neither the rules of BIO and BIOES nor the training part have."""

    characters: Literal["none", "lstm", "cnn"] = "none"
    """Read a word's characters too: by an LSTM from both ends, or by a convolution and the largest over the word."""

    character_width: Width = 50
    """What characters become beside a word's embedding."""

    character_embedding: Width = 25
    """Width of the embedding of a character."""

    casing: bool = False
    """Whether a word is capitalised, a number or a sign is an input too."""

    unknown: NonNegative = 0.0
    """In training a word is <unk> with probability α / (α + how often it was seen), so that unknown words are learned;
    this is α, and 0 is never."""

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if self.characters == "none":
            found |= dict.fromkeys(("character_width", "character_embedding"), "is for --characters lstm or cnn")
        if not self.crf:
            found.setdefault("constrained", "is for --crf")
        return found
