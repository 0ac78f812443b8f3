"""Rows of a batch: one request's work on one slot, the events that it reports, and the text of its tokens.

A row belongs to the engine's thread while it is in progress; its events go to its `sink` in the event loop's thread. If
a batch fails, `run_isolated` finds the rows that fail by themselves, so that the other rows continue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from torch import Tensor

from recur.data.text import Vocab
from recur.errors import RecurError, RunError
from recur.serve.schemas import SamplingRequest
from recur.serve.state_pool import StateTensors

if TYPE_CHECKING:
    from recur.serve.models import ServedModel


class TokenLogprob(NamedTuple):
    """Token with its text, offset and log probabilities."""

    id: int
    text: str
    offset: int
    """Position of its first character in the text."""
    logprob: float | None
    """log P of the token given all before it; None if it was not requested, or if nothing precedes the token."""
    top: dict[str, float] | None
    """Log probabilities of the likeliest tokens at this position."""


class Detokenizer:
    """Incremental decoder: the text that each token adds, in constant time per token."""

    def __init__(self, vocab: Vocab, before: Sequence[int] = ()) -> None:
        """`before`: the last tokens of the prompt, which decide whether a space comes first."""
        self._vocab, self._plain = vocab, vocab.tokenizer.kind == "char"
        self._ids = [*before[-4:]]
        self._known, self._read = 0, len(self._ids)

    def add(self, token: int) -> str:
        """Return the text that a token adds; "" while the bytes of a character are incomplete."""
        if self._plain:
            return self._vocab.tokens[token]
        self._ids.append(token)
        told = self._vocab.decode(self._ids[self._known : self._read])
        whole = self._vocab.decode(self._ids[self._known :])
        if whole.endswith("\ufffd") and len(self._ids) - self._read < 8:
            return ""
        del self._ids[: self._read - self._known]
        self._known, self._read = 0, len(self._ids)
        return whole[len(told) :]


class StopBuffer:
    """Generated text up to the first stop string.

    Text is held back while it may still be the beginning of a stop string.
    """

    def __init__(self, pieces: Detokenizer, stops: Sequence[str], offset: int = 0) -> None:
        """`offset`: number of characters before the generated text."""
        self._pieces, self._stops, self._offset = pieces, [stop for stop in stops if stop], offset
        self._longest = max(map(len, self._stops), default=0)
        self._text, self._shown = "", 0
        self._held: list[TokenLogprob] = []
        self.stopped = False

    def add(self, token: TokenLogprob) -> tuple[str, list[TokenLogprob]]:
        """Add a token; return the text that can be sent now, and the tokens that begin in it."""
        begin = len(self._text)
        self._held.append(token._replace(offset=self._offset + begin))
        piece = self._pieces.add(token.id)
        if not self._stops:
            self._offset += len(piece)
            held, self._held = self._held, []
            return piece, held
        self._text += piece
        found = [at for stop in self._stops if (at := self._text.find(stop, max(0, begin - self._longest + 1))) >= 0]
        if found:
            self.stopped = True
            return self._release(min(found))
        return self._release(len(self._text) - self._may_begin())

    def end(self) -> tuple[str, list[TokenLogprob]]:
        """Return the text that was held back, when generation ends."""
        return ("", []) if self.stopped else self._release(len(self._text))

    def _may_begin(self) -> int:
        """Return how many characters at the end may be the beginning of a stop string."""
        most = min(self._longest - 1, len(self._text) - self._shown)
        begins = (k for k in range(most, 0, -1) if any(stop.startswith(self._text[-k:]) for stop in self._stops))
        return next(begins, 0)

    def _release(self, end: int) -> tuple[str, list[TokenLogprob]]:
        piece = self._text[self._shown : end]
        self._shown = max(self._shown, end)
        released = [token for token in self._held if token.offset - self._offset < end]
        self._held = self._held[len(released) :]
        return piece, released


class TextDelta(NamedTuple):
    """Event: text that was generated."""

    text: str
    tokens: list[TokenLogprob]
    """Tokens that begin in this text."""
    token: int
    """Id of the token that was generated; its text may be held back."""


class PromptLogprobs(NamedTuple):
    """Event: prompt tokens that were read, with their log probabilities."""

    tokens: list[TokenLogprob]


class StepOutput(NamedTuple):
    """Output of a network after one input."""

    label: int
    """Likeliest class, or the sampled token."""
    probability: float
    probabilities: list[float] | None
    """Probabilities of all outputs, if requested."""


class RowEnd(NamedTuple):
    """Event: the end of a row."""

    reason: str
    """length, stop, read (nothing to generate), cancelled or failed."""
    state: StateTensors | None = None
    """State at the end, if requested."""
    outputs: Sequence[StepOutput] = ()
    error: Exception | None = None


class StepBatchOutput(NamedTuple):
    """Event: outputs of a StepBatch; a probability of NaN marks a session that failed."""

    labels: list[int]
    probabilities: list[float]


RowEvent = TextDelta | PromptLogprobs | StepBatchOutput | RowEnd
EventSink = Callable[[RowEvent], None]
GREEDY = SamplingRequest()


def make_random(sampling: SamplingRequest, seed: str | int | None) -> Random | None:
    """Return the random numbers of a row; None if it takes the likeliest tokens."""
    return None if sampling.temperature == 0 else Random(seed)


@dataclass(slots=True, eq=False)
class StepBatch:
    """One input for each of many sessions of one model, stepped in the next batch and reported together."""

    served: ServedModel
    slots: Sequence[int]
    inputs: Sequence[Any]
    sink: EventSink
    sampling: SamplingRequest = GREEDY
    random: Random | None = None
    """Source of random numbers; None takes the likeliest."""


@dataclass(slots=True, eq=False, kw_only=True)
class BatchRow:
    """Inputs of one session, read one after the other; with `every` each output is reported, else the last."""

    served: ServedModel
    slot: int
    inputs: Sequence[Any]
    sink: EventSink
    sampling: SamplingRequest = GREEDY
    random: Random | None = None
    every: bool = False
    fresh: bool = False
    """Whether the row starts from the initial state or from `start`, and not from the slot's state."""
    start: StateTensors | None = None
    """State that the slot starts from."""
    keep: bool = False
    """Whether the state is reported at the end."""
    at: int = 0
    """Number of inputs that were read."""
    reason: str = "read"
    paused: bool = False
    """Whether the row is skipped until its client has read more."""
    cancelled: bool = False
    """Whether the row is dropped at the next batch."""

    @property
    def left(self) -> int:
        return len(self.inputs) - self.at


@dataclass(slots=True, eq=False, kw_only=True)
class StepRow(BatchRow):
    """Row that reports the network's outputs."""

    all_probabilities: bool = False
    outputs: list[StepOutput] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class GenerationRow(BatchRow):
    """Row that generates `writes` tokens after its inputs; with `every` it reports log probabilities of the inputs."""

    writes: int
    text: StopBuffer
    logprobs: int | None = None
    stays: bool = False
    """Whether a session resumes from its state; the state must then have read the last token too."""
    before: Tensor | None = None
    """log P of the next token given the inputs read so far."""


log = logging.getLogger("recur.serve")
RowEvents = list[tuple[BatchRow | StepBatch, RowEvent]]
Unit = TypeVar("Unit")
Result = TypeVar("Result")


class BatchEvents:
    """Events of one batch, and the rows that end with it."""

    def __init__(self) -> None:
        self.events: RowEvents = []
        self.ended: set[BatchRow | StepBatch] = set()
        self._logged = False

    def add(self, row: BatchRow, event: RowEvent) -> None:
        self.events.append((row, event))

    def end(self, row: BatchRow | StepBatch, end: RowEnd | StepBatchOutput) -> None:
        self.events.append((row, end))
        self.ended.add(row)

    def fail(self, row: BatchRow | StepBatch, error: Exception) -> None:
        """End a row with an error; an unexpected error is logged once per batch, and clients do not see its text."""
        if not isinstance(error, RecurError):
            if not self._logged:
                log.error("a row of %s failed", row.served.name, exc_info=error)
                self._logged = True
            error = RunError("the model failed; the server's log says why")
        if row not in self.ended:
            self.end(row, RowEnd("failed", error=error))


def run_isolated(
    work: Callable[[Sequence[Unit]], Result], units: Sequence[Unit], fail: Callable[[Unit, Exception], None]
) -> list[tuple[Sequence[Unit], Result]]:
    """Call `work` on all units at once; after an error, on each half, down to the units that fail by themselves.

    One bad row must not fail the requests that share its batch. Bisection finds b failing units of n with O(b log n)
    calls, and costs nothing if none fails. `work` must change nothing when it raises.

    Return groups of units in their order, each with its result; failed units are in none of them.
    """
    if not units:
        return []
    try:
        return [(units, work(units))]
    except Exception as error:
        if len(units) == 1:
            fail(units[0], error)
            return []
    middle = len(units) // 2
    return run_isolated(work, units[:middle], fail) + run_isolated(work, units[middle:], fail)
