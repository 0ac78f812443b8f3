"""What can be stepped: one input of each of many sessions in, one row of scores each out.

A network here is a model and how it is called; what it carries from step to step is a list of tensors, one row a
session. Only language models read many inputs of a session at once: the others' states pass through more than layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recur.errors import OptionError
from recur.models import LanguageModel
from recur.models.classifier import Classifier, Reader
from recur.models.inputs import SignalInput
from recur.models.signals import Numbers, SignalTagger
from recur.models.tagger import OutputTagger, Tagger, WordTagger
from recur.nn import FeedForward, Recurrent
from recur.nn.streaming import packed_for
from recur.ops.cuda.stream import Slots
from recur.tasks.classify.model import TextModel
from recur.tasks.contract import Predictor
from recur.tasks.language.predictor import Language

NestedState = Any
"""Tuples of tuples of tensors, as a model's step takes and returns them."""
StateTensors = list[Tensor]
"""The same as a list: (n, …) each."""


class StepNetwork(ABC):
    """A model that takes one step at a time."""

    numbers: ClassVar[bool] = False
    """Whether an input is a vector, and no token."""
    reads: ClassVar[bool] = False
    """Whether it reads many inputs at once."""

    def __init__(self, device: torch.device, width: int) -> None:
        self.device, self.width = device, width
        """Of `width`: how many tokens there are, or how many numbers an input has."""
        _, parts = self.step(self.inputs([self._blank()]), None)
        self.forms = [(tuple(part.shape[1:]), part.dtype) for part in parts]

    def _blank(self) -> Any:
        return np.zeros(self.width, np.float32) if self.numbers else 0

    def inputs(self, given: Sequence[Any]) -> Tensor:
        if self.numbers:
            return torch.from_numpy(np.stack(given)).to(self.device)
        return torch.tensor(given, device=self.device)

    def check(self, given: Sequence[Any]) -> None:
        """Refuse inputs that this network cannot read."""
        if self.numbers:
            if any(np.shape(each) != (self.width,) for each in given):
                raise OptionError(f"an input of this model must be {self.width} numbers")
        elif len(given) and not (min(given) >= 0 and max(given) < self.width):
            raise OptionError(f"a token of this model must lie in 0 … {self.width - 1}")

    @abstractmethod
    def step(self, x: Tensor, carried: StateTensors | None) -> tuple[Tensor, StateTensors]:
        """Scores (n, K) of what was read so far, and what to carry on; None is where sessions begin."""

    def plain_layers(self) -> tuple[Recurrent, Any, Any] | None:
        """The layers, what makes vectors of inputs and what makes scores of outputs, if these three are all of it."""
        return None


class LanguageNetwork(StepNetwork):
    """Tokens to logits of the next. Where the last output cannot be told from the state, it is carried along: a text
    that is to be continued goes on from it."""

    reads = True

    def __init__(self, model: LanguageModel, device: torch.device) -> None:
        self.model = model
        net = model.recurrent
        if isinstance(net, FeedForward):
            self._layers, self._keeps_output = list[int](), True
        else:
            joined = net.connections.residual or net.connections.skip or net.output_mlp or net.cell.outputs
            self._layers, self._keeps_output = [len(net.cell.states)] * net.layers, bool(joined)
        super().__init__(device, model.K)

    def step(self, x: Tensor, carried: StateTensors | None) -> tuple[Tensor, StateTensors]:
        out, state = self.model.output_step(x, self._state(carried))
        return self.model.logits_of(out), self._parts(state, out)

    def scan(self, x: Tensor, lengths: Tensor, carried: StateTensors | None) -> tuple[Tensor, StateTensors]:
        """Inputs (n, T), of which each row has so many, to outputs (n, T, H), for `scores`."""
        out, state = self.model.output_scan(x, lengths, self._state(carried))
        last = out[torch.arange(len(out), device=out.device), lengths.to(out.device) - 1]
        return out, self._parts(state, last)

    def scores(self, outputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self.model.logits_of(outputs)

    def last_output(self, carried: StateTensors) -> Tensor:
        """(n, H): what the step that left this state put out."""
        if self._keeps_output:
            return carried[-1]
        return carried[sum(self._layers[:-1])]

    def _state(self, parts: StateTensors | None) -> NestedState:
        if parts is None:
            return None
        made, at = [], 0
        for states in self._layers:
            made.append(tuple(parts[at : at + states]))
            at += states
        if self.model.clock is not None:
            made.append((parts[at],))
        return tuple(made)

    def _parts(self, state: NestedState, out: Tensor) -> StateTensors:
        return [part for layer in state for part in layer] + [out] * self._keeps_output

    def plain_layers(self) -> tuple[Recurrent, Any, Any] | None:
        net = self.model.recurrent
        if isinstance(net, FeedForward) or self.model.clock is not None or self._keeps_output:
            return None
        return net, self.model.embedding.vectors, self.model.logits_of


class ReaderNetwork(StepNetwork):
    """Taggers and classifiers: scores of classes, of the last input or of all so far."""

    def __init__(self, model: Reader | OutputTagger, device: torch.device, width: int) -> None:
        self.model = model
        self._like: NestedState = None
        super().__init__(device, width)

    def step(self, x: Tensor, carried: StateTensors | None) -> tuple[Tensor, StateTensors]:
        assert isinstance(self.model, Classifier | Tagger | SignalTagger | OutputTagger)
        given = None if carried is None else _rebuild(self._like, iter(carried))
        scores, after = self.model.step(x, given)
        if isinstance(self.model, TextModel):
            scores = self.model.temperature(scores.log_softmax(-1))
        self._like = _nesting(after) if self._like is None else self._like
        return scores, list(_flatten(after))

    def plain_layers(self) -> tuple[Recurrent, Any, Any] | None:
        model = self.model
        if not isinstance(model, Tagger | SignalTagger) or model.clock is not None:
            return None
        return model.recurrent, model.embedding.vectors, model.output


class SignalNetwork(ReaderNetwork):
    numbers = True


def make_step_network(predictor: Predictor[Any]) -> StepNetwork:
    """A trained model's network as sessions step it, or why it cannot be."""
    name, model = predictor.run.path.name, predictor.model
    if isinstance(predictor, Language):
        if predictor.backward:
            raise OptionError(f"{name} reads texts from their end, which a session comes to last")
        return LanguageNetwork(model, predictor.device)
    if not isinstance(model, Classifier | Tagger | SignalTagger | OutputTagger):
        raise OptionError(f"{name} is of the task {predictor.task.name}, whose models take no single steps")
    if (direction := model.options.direction) != "forward":
        raise OptionError(f"{name} reads in direction {direction!r}: it has to see the end before it answers")
    if isinstance(model, Numbers):
        assert isinstance(model.embedding, SignalInput)
        return SignalNetwork(model, predictor.device, model.embedding.D)
    if isinstance(model, WordTagger) and (model.options.crf or model.forms is not None):
        raise OptionError(f"{name} tags whole sentences (a CRF, or letters of words); train with --no-crf for sessions")
    return ReaderNetwork(model, predictor.device, len(predictor.run.vocab))


def _flatten(carried: NestedState) -> Any:
    for part in carried:
        if isinstance(part, Tensor):
            yield part
        else:
            yield from _flatten(part)


def _nesting(carried: NestedState) -> NestedState:
    """How tensors are nested, with None in their places."""
    return tuple(None if isinstance(part, Tensor) else _nesting(part) for part in carried)


def _rebuild(like: NestedState, parts: Any) -> NestedState:
    return tuple(next(parts) if part is None else _rebuild(part, parts) for part in like)


MIN_BATCH = 4
"""Rows of a step at least: fewer go through products of other kernels, whose sums end in other bits. So what a session
gets does not depend on how many others there are."""


class StatePool:
    """So many slots, taken and given back."""

    def __init__(self, network: StepNetwork, slots: int) -> None:
        self.network, self.slots = network, slots
        self._free: list[int] = []
        self._unused = 0
        """From this slot on, none was ever taken."""
        self.fresh = np.ones(slots, bool)
        """Sessions that have read nothing yet."""
        self._make()

    def _make(self) -> None:
        self._pools = [
            _lazy_zeros((self.slots, *shape), dtype, self.network.device) for shape, dtype in self.network.forms
        ]

    @property
    def taken(self) -> int:
        return self._unused - len(self._free)

    @property
    def bytes_each(self) -> int:
        """Of one session's state."""
        return sum(int(np.prod(shape, dtype=int)) * dtype.itemsize for shape, dtype in self.network.forms)

    def take(self) -> int | None:
        """A slot for a new session; None where all are taken."""
        if self._free:
            return self._free.pop()
        if self._unused == self.slots:
            return None
        self._unused += 1
        return self._unused - 1

    def give(self, slot: int) -> None:
        self._free.append(slot)

    # What the thread that steps does ----------------------------------------------------------------------------

    def reset(self, slot: int) -> None:
        self.fresh[slot] = True

    def step(self, slots: Sequence[int], inputs: Sequence[Any]) -> Tensor:
        """One input of each of these sessions: their scores (n, K). After an error all states are as before."""
        where, x = np.array(slots), self.network.inputs(inputs)
        fresh = self.fresh[where]
        if not fresh.any():
            return self._step(where, x)
        if fresh.all():
            scores = self._step(where, x, begins=True)
        else:
            # New sessions first: should the others fail, new ones are still marked so, and begin again.
            first, rest = np.flatnonzero(fresh), np.flatnonzero(~fresh)
            began, went = self._step(where[first], x[first], begins=True), self._step(where[rest], x[rest])
            scores = went.new_empty(len(where), went.shape[1])
            scores[first], scores[rest] = began, went
        self.fresh[where] = False
        return scores

    def _step(self, where: Any, x: Tensor, begins: bool = False) -> Tensor:
        n = len(where)
        if n < MIN_BATCH:
            again = np.arange(MIN_BATCH) % n
            where, x = where[again], x[again]
        index = torch.from_numpy(where).to(self.network.device)
        scores, parts = self.network.step(x, None if begins else self._gather(index))
        self._scatter(index[:n], [part[:n] for part in parts])
        return scores[:n]

    def scan(self, slots: Sequence[int], inputs: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Several inputs of each: outputs (n, T, H), for the network's `scores`, and how many each has. After an error
        all states are as before."""
        assert isinstance(self.network, LanguageNetwork)
        where = np.array(slots)
        lengths = torch.tensor([len(each) for each in inputs])
        x = torch.zeros(len(where), int(lengths.max()), dtype=torch.long)
        for row, each in zip(x, inputs, strict=True):
            row[: len(each)] = torch.tensor(each)
        x = x.to(self.network.device)
        fresh = self.fresh[where]
        outputs = None
        for rows, begins in ((np.flatnonzero(fresh), True), (np.flatnonzero(~fresh), False)):
            if not len(rows):
                continue
            index = torch.from_numpy(where[rows]).to(self.network.device)
            out, parts = self.network.scan(x[rows], lengths[rows], None if begins else self._gather(index))
            self._scatter(index, parts)
            outputs = out.new_zeros(len(where), *out.shape[1:]) if outputs is None else outputs
            outputs[torch.from_numpy(rows), : out.shape[1]] = out
        assert outputs is not None
        self.fresh[where] = False
        return outputs, lengths

    def last_scores(self, slots: Sequence[int]) -> Tensor:
        """What the last step of these sessions said, (n, K)."""
        assert isinstance(self.network, LanguageNetwork)
        return self.network.scores(self.network.last_output(self._gather(torch.tensor(slots).to(self.network.device))))

    def state(self, slot: int) -> StateTensors | None:
        """A copy of one session's state, on the CPU; None where it has read nothing."""
        if self.fresh[slot]:
            return None
        return [part[0].cpu().clone() for part in self._gather(torch.tensor([slot]).to(self.network.device))]

    def set_state(self, slot: int, parts: StateTensors | None) -> None:
        self.fresh[slot] = parts is None
        if parts is not None:
            index = torch.tensor([slot]).to(self.network.device)
            self._scatter(index, [part[None].to(self.network.device) for part in parts])

    def check(self, parts: Sequence[Tensor]) -> StateTensors:
        """A state that came from elsewhere, if it is one of this network."""
        if [(tuple(part.shape), part.dtype) for part in parts] != self.network.forms:
            raise OptionError("the state is of another network")
        return list(parts)

    def _gather(self, index: Tensor) -> StateTensors:
        return [pool.index_select(0, index) for pool in self._pools]

    def _scatter(self, index: Tensor, parts: StateTensors) -> None:
        with torch.no_grad():
            for pool, part in zip(self._pools, parts, strict=True):
                pool.index_copy_(0, index, part)


def _lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    kind = torch.zeros((), dtype=dtype).numpy().dtype
    return torch.from_numpy(np.zeros(shape, kind))  # of calloc: pages come when they are written to


def make_state_pool(network: StepNetwork, slots: int) -> StatePool:
    """On the device of the network, in the way that fits it."""
    return CudaStatePool(network, slots) if CudaStatePool.can(network) else StatePool(network, slots)


class CudaStatePool(StatePool):
    """Plain layers on a GPU, stepped where their states are."""

    @staticmethod
    def can(network: StepNetwork) -> bool:
        layers = network.plain_layers()
        if layers is None or network.device.type != "cuda":
            return False
        like = next(layers[0].parameters()).new_zeros(1, layers[0].input_size)
        return packed_for(layers[0], like, "").on_gpu is not None

    def _make(self) -> None:
        layers = self.network.plain_layers()
        assert layers is not None
        net, self._vectors, self._scores = layers
        like = next(net.parameters()).new_zeros(1, net.input_size)
        on_gpu = packed_for(net, like, "").on_gpu
        assert on_gpu is not None
        self._on_gpu = Slots(net.cell, on_gpu, self.slots)
        self._start = [[part[0] for part in layer] for layer in net.stream().state]

    @torch.no_grad()
    def _step(self, where: Any, x: Tensor, begins: bool = False) -> Tensor:
        index = torch.from_numpy(where).to(self.network.device)
        if begins:
            self._on_gpu.set_state(index, self._start)
        scores: Tensor = self._scores(self._on_gpu.launch(self._vectors(x), index))
        return scores

    def _gather(self, index: Tensor) -> StateTensors:
        forms = self.network.forms
        found = [part for layer in self._on_gpu.state(index) for part in layer]
        return [part.to(dtype) for part, (_, dtype) in zip(found, forms, strict=True)]

    def _scatter(self, index: Tensor, parts: StateTensors) -> None:
        each = len(self._on_gpu.stack.cell.states)
        layers = [parts[k : k + each] for k in range(0, len(parts), each)]
        self._on_gpu.set_state(index, layers)
