"""One request's work on one slot: inputs to read, and what to say or write behind them.

A row belongs to the thread that steps while it is under way; what it has to report goes to its `sink` in the thread of
the server.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from recur.serve.network import Parts
from recur.serve.text import Token, Writing

if TYPE_CHECKING:
    from recur.serve.models import Served


@dataclass(frozen=True, slots=True)
class Draw:
    """How a token is drawn; temperature 0 is the likeliest."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


LIKELIEST = Draw()


class Piece(NamedTuple):
    """Text that was written."""

    text: str
    tokens: list[Token]
    """Those that begin in it."""
    token: int
    """What was written just now; its text may be held back."""


class Judged(NamedTuple):
    """Tokens that were read, each with how likely it was."""

    tokens: list[Token]


class Reading(NamedTuple):
    """What a network said behind one input."""

    label: int
    """The likeliest class, or the token that was drawn."""
    probability: float
    probabilities: list[float] | None
    """Of all, where they were asked for."""


class End(NamedTuple):
    """The last that is heard of a row."""

    reason: str
    """length, stop, read (there was nothing to write), cancelled or failed."""
    state: Parts | None = None
    """What was carried at the end, where it was asked for."""
    readings: Sequence[Reading] = ()
    error: Exception | None = None


class Said(NamedTuple):
    """What a network said behind the inputs of a column; a probability that is no number stands for what failed."""

    labels: list[int]
    probabilities: list[float]


Event = Piece | Judged | Said | End
Sink = Callable[[Event], None]


def _random(draw: Draw, seed: str | int | None) -> random.Random | None:
    return None if draw.temperature == 0 else random.Random(seed)


class Column:
    """One input each of many sessions of one model, which are stepped in the next batch and answered as one."""

    __slots__ = ("draw", "inputs", "random", "served", "sink", "slots")

    def __init__(
        self,
        served: Served,
        slots: Sequence[int],
        inputs: Sequence[Any],
        sink: Sink,
        draw: Draw = LIKELIEST,
        seed: str | int | None = None,
    ) -> None:
        self.served, self.slots, self.inputs, self.sink = served, slots, inputs, sink
        self.draw, self.random = draw, _random(draw, seed)


class Row:
    """Inputs of one session, read one after the other; `every` has all of them reported, and not the last alone."""

    __slots__ = ("at", "cancelled", "draw", "every", "fresh", "inputs", "keep", "paused", "random", "reason", "served",
                 "sink", "slot", "start")  # fmt: skip

    def __init__(
        self,
        served: Served,
        slot: int,
        inputs: Sequence[Any],
        sink: Sink,
        draw: Draw = LIKELIEST,
        seed: str | int | None = None,
        every: bool = False,
    ) -> None:
        self.served, self.slot, self.inputs, self.at, self.sink = served, slot, inputs, 0, sink
        self.draw, self.random = draw, _random(draw, seed)
        self.every, self.reason = every, "read"
        self.fresh = self.keep = self.paused = self.cancelled = False
        """Whether its slot begins anew, and not with what is in it; whether its state is handed out at the end; whether
        it is passed over for now, or for good."""
        self.start: Parts | None = None
        """What its slot begins with."""

    @property
    def left(self) -> int:
        return len(self.inputs) - self.at


class StepRow(Row):
    """Says what the network makes of its inputs."""

    __slots__ = ("all_probabilities", "readings")

    def __init__(self, *given: Any, all_probabilities: bool = False, **options: Any) -> None:
        super().__init__(*given, **options)
        self.all_probabilities = all_probabilities
        self.readings: list[Reading] = []


class TextRow(Row):
    """Writes `writes` tokens behind what it has read, which it judges if `every` token is to be reported."""

    __slots__ = ("before", "logprobs", "stays", "writes", "writing")

    def __init__(
        self,
        *given: Any,
        writes: int,
        writing: Writing,
        logprobs: int | None = None,
        stays: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.writes, self.writing, self.logprobs = writes, writing, logprobs
        self.stays = stays
        """Whether somebody goes on from its state, which then has to have read the last token too."""
        self.before: Tensor | None = None
        """log P of what may follow what was read so far."""
