"""Options that verbs share. Each group is one dataclass: its fields are the flags."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from recur.options import Seed, checked

if TYPE_CHECKING:
    from recur.text import Corpus, Vocab


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """What every verb takes."""

    json: Annotated[bool, Parameter(negative="")] = False
    """Print exactly one JSON object on standard output."""

    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False
    """Print the result only: no notes, no progress."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common(Output):
    """What every verb takes, but for those whose configuration has a seed of its own."""

    seed: int = 0
    """Where random numbers start; the same seed gives the same numbers."""

    def __post_init__(self) -> None:
        checked("seed", self.seed, Seed)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Opening:
    """For verbs that open runs."""

    trust: Annotated[bool, Parameter(negative="")] = False
    """Execute a cell that a run carries, though you have not trained with it; it is remembered by its SHA-256."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OpeningTexts(Opening):
    """… and what they learned from."""

    changed_text: Annotated[bool, Parameter(negative="")] = False
    """Go on though a text of the run was changed since."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How a text becomes tokens."""

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

    def vocab(self, train: Corpus) -> Vocab:
        from recur.text import fit_vocab

        return fit_vocab(train, **dataclasses.asdict(self))
