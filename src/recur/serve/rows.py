"""From tokens to text as it is written: pieces that stand for themselves, and where to stop.

A piece is held back while it may still change: half a character of bytes, or what may turn out to begin a stop.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from torch import Tensor

from recur.data.text import Vocab
from recur.errors import RecurError, RunError
from recur.serve.state_pool import StateTensors

if TYPE_CHECKING:
    from recur.serve.models import ServedModel


class TokenLogprob(NamedTuple):
    """One token, and what is known of it."""

    id: int
    text: str
    offset: int
    """Where it begins, in characters of the text."""
    logprob: float | None
    """log P given all before it; None where nothing was asked for, or nothing stands before."""
    top: dict[str, float] | None
    """The likeliest in its place."""


class Detokenizer:
    """The text of tokens, one after the other, in constant time each."""

    def __init__(self, vocab: Vocab, before: Sequence[int] = ()) -> None:
        """`before`: the last few tokens that were read, which decide whether a space comes first."""
        self._vocab, self._plain = vocab, vocab.tokenizer.kind == "char"
        self._ids = [*before[-4:]]
        self._known, self._read = 0, len(self._ids)

    def add(self, token: int) -> str:
        """What this token adds; nothing while its character is not whole."""
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
    """A text that grows token by token, until one of its stops comes up."""

    def __init__(self, pieces: Detokenizer, stops: Sequence[str], offset: int = 0) -> None:
        """`offset`: how many characters stand before it."""
        self._pieces, self._stops, self._offset = pieces, [stop for stop in stops if stop], offset
        self._longest = max(map(len, self._stops), default=0)
        self._text, self._shown = "", 0
        self._held: list[TokenLogprob] = []
        self.stopped = False

    def add(self, token: TokenLogprob) -> tuple[str, list[TokenLogprob]]:
        """What can be shown of the text now, and the tokens that begin in it."""
        begin = len(self._text)
        self._held.append(token._replace(offset=self._offset + begin))
        piece = self._pieces.add(token.id)
        if not self._stops:
            return self._release_plain(piece)
        self._text += piece
        found = [at for stop in self._stops if (at := self._text.find(stop, max(0, begin - self._longest + 1))) >= 0]
        if found:
            self.stopped = True
            return self._release(min(found))
        return self._release(len(self._text) - self._may_begin())

    def end(self) -> tuple[str, list[TokenLogprob]]:
        """What was held back, once no more comes."""
        return ("", []) if self.stopped else self._release(len(self._text))

    def _release_plain(self, piece: str) -> tuple[str, list[TokenLogprob]]:
        self._offset += len(piece)
        held, self._held = self._held, []
        return piece, held

    def _may_begin(self) -> int:
        """How many characters at the end may begin a stop."""
        most = min(self._longest - 1, len(self._text) - self._shown)
        for k in range(most, 0, -1):
            tail = self._text[-k:]
            if any(len(stop) > k and stop.startswith(tail) for stop in self._stops):
                return k
        return 0

    def _release(self, end: int) -> tuple[str, list[TokenLogprob]]:
        piece = self._text[self._shown : end]
        self._shown = max(self._shown, end)
        released = [token for token in self._held if token.offset - self._offset < end]
        self._held = self._held[len(released) :]
        return piece, released


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is drawn; temperature 0 is the likeliest."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


GREEDY = SamplingParams()


class TextDelta(NamedTuple):
    """Text that was written."""

    text: str
    tokens: list[TokenLogprob]
    """Those that begin in it."""
    token: int
    """What was written just now; its text may be held back."""


class PromptLogprobs(NamedTuple):
    """Tokens that were read, each with how likely it was."""

    tokens: list[TokenLogprob]


class StepOutput(NamedTuple):
    """What a network said behind one input."""

    label: int
    """The likeliest class, or the token that was drawn."""
    probability: float
    probabilities: list[float] | None
    """Of all, where they were asked for."""


class RowEnd(NamedTuple):
    """The last that is heard of a row."""

    reason: str
    """length, stop, read (there was nothing to write), cancelled or failed."""
    state: StateTensors | None = None
    """What was carried at the end, where it was asked for."""
    outputs: Sequence[StepOutput] = ()
    error: Exception | None = None


class StepBatchOutput(NamedTuple):
    """What a network said behind the inputs of a column; a probability that is no number stands for what failed."""

    labels: list[int]
    probabilities: list[float]


RowEvent = TextDelta | PromptLogprobs | StepBatchOutput | RowEnd
EventSink = Callable[[RowEvent], None]


def _make_random(sampling: SamplingParams, seed: str | int | None) -> random.Random | None:
    return None if sampling.temperature == 0 else random.Random(seed)


class StepBatch:
    """One input each of many sessions of one model, which are stepped in the next batch and answered as one."""

    __slots__ = ("inputs", "random", "sampling", "served", "sink", "slots")

    def __init__(
        self,
        served: ServedModel,
        slots: Sequence[int],
        inputs: Sequence[Any],
        sink: EventSink,
        sampling: SamplingParams = GREEDY,
        seed: str | int | None = None,
    ) -> None:
        self.served, self.slots, self.inputs, self.sink = served, slots, inputs, sink
        self.sampling, self.random = sampling, _make_random(sampling, seed)


class BatchRow:
    """Inputs of one session, read one after the other; `every` has all of them reported, and not the last alone."""

    __slots__ = (
        "at",
        "cancelled",
        "every",
        "fresh",
        "inputs",
        "keep",
        "paused",
        "random",
        "reason",
        "sampling",
        "served",
        "sink",
        "slot",
        "start",
    )  # fmt: skip

    def __init__(
        self,
        served: ServedModel,
        slot: int,
        inputs: Sequence[Any],
        sink: EventSink,
        sampling: SamplingParams = GREEDY,
        seed: str | int | None = None,
        every: bool = False,
    ) -> None:
        self.served, self.slot, self.inputs, self.at, self.sink = served, slot, inputs, 0, sink
        self.sampling, self.random = sampling, _make_random(sampling, seed)
        self.every, self.reason = every, "read"
        self.fresh = self.keep = self.paused = self.cancelled = False
        """Whether its slot begins anew, and not with what is in it; whether its state is handed out at the end; whether
        it is passed over for now, or for good."""
        self.start: StateTensors | None = None
        """What its slot begins with."""

    @property
    def left(self) -> int:
        return len(self.inputs) - self.at


class StepRow(BatchRow):
    """Says what the network makes of its inputs."""

    __slots__ = ("all_probabilities", "outputs")

    def __init__(self, *given: Any, all_probabilities: bool = False, **options: Any) -> None:
        super().__init__(*given, **options)
        self.all_probabilities = all_probabilities
        self.outputs: list[StepOutput] = []


class GenerationRow(BatchRow):
    """Writes `writes` tokens behind what it has read, which it judges if `every` token is to be reported."""

    __slots__ = ("before", "logprobs", "stays", "text", "writes")

    def __init__(
        self,
        *given: Any,
        writes: int,
        text: StopBuffer,
        logprobs: int | None = None,
        stays: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.writes, self.text, self.logprobs = writes, text, logprobs
        self.stays = stays
        """Whether somebody goes on from its state, which then has to have read the last token too."""
        self.before: Tensor | None = None
        """log P of what may follow what was read so far."""


log = logging.getLogger("recur.serve")
RowEvents = list[tuple[BatchRow | StepBatch, RowEvent]]
Unit = TypeVar("Unit")
Result = TypeVar("Result")


class BatchEvents:
    """RowEvents that one turn reports, and the rows and columns that end with it."""

    def __init__(self) -> None:
        self.events: RowEvents = []
        self.ended: set[BatchRow | StepBatch] = set()
        self._logged = False

    def say(self, row: BatchRow, event: RowEvent) -> None:
        self.events.append((row, event))

    def end(self, row: BatchRow | StepBatch, end: RowEnd | StepBatchOutput) -> None:
        self.events.append((row, end))
        self.ended.add(row)

    def fail(self, row: BatchRow | StepBatch, error: Exception) -> None:
        """RowEnd a row with an error; an unexpected one is logged once per turn, and its text stays on the server."""
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

    `work` must change nothing when it raises. Of n units, b of which fail, it is called O(b log n) times.

    Returns groups of units in their order, each with its result; units that failed are in none of them.
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
