"""States of sessions by slot, and the networks that step them.

A StepNetwork calls a model one step at a time; its state is a list of tensors with one row per session. A StatePool
holds the states of all sessions in one table: a step gathers the rows of its slots, runs the network once, and writes
them back. On a GPU, CudaStatePool steps states in their slots (SessionSlots). Memory of unused slots costs
nothing: the operating system allocates a page when it is first written.
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
from recur.models.classifiers import Classifier, SequenceEncoder, SignalEncoder, SignalTagger
from recur.models.layers import SignalInput
from recur.models.multilabel import MultiLabelClassifier
from recur.models.tagger import OutputTagger, Tagger, WordTagger
from recur.nn import FeedForward, Recurrent
from recur.nn.streaming import get_packed_weights
from recur.ops.cuda.streaming import SessionSlots
from recur.tasks.classify.data import TextModel
from recur.tasks.common.predictor import Predictor
from recur.tasks.language.predictor import Language

NestedState = Any
"""State as a model's step takes and returns it: tuples of tuples of tensors."""
StateTensors = list[Tensor]
"""State as a flat list of tensors, each (n, …)."""


class StepNetwork(ABC):
    """Model that is called one step at a time."""

    numbers: ClassVar[bool] = False
    """Whether an input is a vector of numbers and not a token."""
    _nesting: NestedState = None
    """Nesting of the model's state, with None in place of tensors; known after the first step."""

    def __init__(self, device: torch.device, width: int) -> None:
        self.device, self.width = device, width
        """width: size of the vocabulary, or numbers per input."""
        _, parts = self.step(self.inputs([self._blank()]), None)
        self.state_shapes = [(tuple(part.shape[1:]), part.dtype) for part in parts]

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
        """Return scores (n, K) after one more input, and the next state. `carried` None is the initial state."""

    def _flatten(self, state: NestedState) -> StateTensors:
        """Return the tensors of a model's state."""
        self._nesting = _nesting(state) if self._nesting is None else self._nesting
        return list(_tensors(state))

    def _nest(self, parts: StateTensors | None) -> NestedState:
        """Return a state as the model takes it; further tensors at the end are left out."""
        return None if parts is None else _rebuild(self._nesting, iter(parts))

    def plain_layers(self) -> tuple[Recurrent, Any, Any] | None:
        """Return the layers, the embedding and the output function if the network has no other parts; else None."""
        return None


class LanguageNetwork(StepNetwork):
    """Language model: tokens to logits of the next token.

    If the last output cannot be computed from the state, it is part of the state: generation resumes from it.
    """

    def __init__(self, model: LanguageModel, device: torch.device) -> None:
        self.model = model
        net = model.recurrent
        if isinstance(net, FeedForward):
            self._keeps_output, self._last_layer = True, 0
        else:
            joined = net.connections.residual or net.connections.skip or net.output_mlp or net.cell.outputs
            self._keeps_output, self._last_layer = bool(joined), len(net.cell.states) * (net.num_layers - 1)
        super().__init__(device, model.K)

    def step(self, x: Tensor, carried: StateTensors | None) -> tuple[Tensor, StateTensors]:
        out, state = self.model.output_step(x, self._nest(carried))
        return self.model.logits_of(out), self._flatten(state) + [out] * self._keeps_output

    def scan(self, x: Tensor, lengths: Tensor, carried: StateTensors | None) -> tuple[Tensor, StateTensors]:
        """Return outputs (n, T, H) for `scores`, from inputs (n, T) with the given lengths, and the next state."""
        out, state = self.model.output_scan(x, lengths, self._nest(carried))
        last = out[torch.arange(len(out), device=out.device), lengths.to(out.device) - 1]
        return out, self._flatten(state) + [last] * self._keeps_output

    def scores(self, outputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self.model.logits_of(outputs)

    def last_output(self, carried: StateTensors) -> Tensor:
        """Return the output (n, H) of the step that produced this state."""
        return carried[-1 if self._keeps_output else self._last_layer]

    def plain_layers(self) -> tuple[Recurrent, Any, Any] | None:
        net = self.model.recurrent
        if isinstance(net, FeedForward) or self.model.clock is not None or self._keeps_output:
            return None
        return net, self.model.embedding.vectors, self.model.logits_of


class ReaderNetwork(StepNetwork):
    """Tagger or classifier: scores of classes, for the last input or for all inputs so far."""

    def __init__(self, model: SequenceEncoder | OutputTagger, device: torch.device, width: int) -> None:
        self.model = model
        super().__init__(device, width)

    def step(self, x: Tensor, carried: StateTensors | None) -> tuple[Tensor, StateTensors]:
        assert isinstance(self.model, Classifier | Tagger | SignalTagger | OutputTagger)
        scores, after = self.model.step(x, self._nest(carried))
        if isinstance(self.model, TextModel):
            scores = self.model.temperature(scores.log_softmax(-1))
        return scores, self._flatten(after)

    def plain_layers(self) -> tuple[Recurrent, Any, Any] | None:
        model = self.model
        if not isinstance(model, Tagger | SignalTagger) or model.clock is not None:
            return None
        return model.recurrent, model.embedding.vectors, model.output


class SignalNetwork(ReaderNetwork):
    numbers = True


def make_step_network(predictor: Predictor[Any]) -> StepNetwork:
    """Return the network of a trained model for sessions; raise OptionError with the reason if it cannot be stepped."""
    name, model = predictor.run.path.name, predictor.model
    if isinstance(predictor, Language):
        if predictor.backward:
            raise OptionError(f"{name} reads texts from the end; a session would have to know the end first")
        return LanguageNetwork(model, predictor.device)
    if not isinstance(model, Classifier | Tagger | SignalTagger | OutputTagger):
        raise OptionError(f"{name} is of the task {predictor.task.name}, whose models cannot be stepped")
    if isinstance(model, MultiLabelClassifier):
        raise OptionError(f"{name} gives several labels per text, and a step of a session one: use /v1/predict")
    if (direction := model.options.direction) != "forward":
        raise OptionError(f"{name} reads in direction {direction!r}: it needs the whole input before its first output")
    if isinstance(model, SignalEncoder):
        assert isinstance(model.embedding, SignalInput)
        return SignalNetwork(model, predictor.device, model.embedding.D)
    if isinstance(model, WordTagger) and (model.options.crf or model.forms is not None):
        raise OptionError(f"{name} tags whole sentences (a CRF, or letters of words); train with --no-crf for sessions")
    return ReaderNetwork(model, predictor.device, len(predictor.run.vocab))


def _tensors(carried: NestedState) -> Any:
    for part in carried:
        if isinstance(part, Tensor):
            yield part
        else:
            yield from _tensors(part)


def _nesting(carried: NestedState) -> NestedState:
    """Return the nesting of a state, with None in place of tensors."""
    return tuple(None if isinstance(part, Tensor) else _nesting(part) for part in carried)


def _rebuild(like: NestedState, parts: Any) -> NestedState:
    return tuple(next(parts) if part is None else _rebuild(part, parts) for part in like)


MIN_BATCH = 4
"""Rows of a batch at least. Smaller batches use other matmul kernels, whose sums are rounded differently; padding makes
a session's numbers independent of how many sessions share the batch."""


class StatePool:
    """Table of states with a fixed number of slots."""

    def __init__(self, network: StepNetwork, slots: int) -> None:
        self.network, self.slots = network, slots
        self._free: list[int] = []
        self._unused = 0
        """First slot that was never taken."""
        self.fresh = np.ones(slots, bool)
        """Whether the session of each slot has read nothing yet."""
        self._make()

    def _make(self) -> None:
        self._pools = [
            _lazy_zeros((self.slots, *shape), dtype, self.network.device) for shape, dtype in self.network.state_shapes
        ]

    @property
    def taken(self) -> int:
        return self._unused - len(self._free)

    @property
    def bytes_each(self) -> int:
        """Bytes of one session's state."""
        return sum(int(np.prod(shape, dtype=int)) * dtype.itemsize for shape, dtype in self.network.state_shapes)

    def take(self) -> int | None:
        """Return a slot for a new session; None if all are taken."""
        if self._free:
            return self._free.pop()
        if self._unused == self.slots:
            return None
        self._unused += 1
        return self._unused - 1

    def give(self, slot: int) -> None:
        self._free.append(slot)

    # Called by the engine's thread -----------------------------------------------------------------------------

    def step(self, slots: Sequence[int], inputs: Sequence[Any]) -> Tensor:
        """Read one input per session; return their scores (n, K). After an error all states are unchanged."""
        where, x = np.array(slots), self.network.inputs(inputs)
        fresh = self.fresh[where]
        if not fresh.any():
            return self._step(where, x)
        if fresh.all():
            scores = self._step(where, x, begins=True)
        else:
            # New sessions first: if the others fail, the new ones are still marked fresh and start again.
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
        """Read several inputs per session; return outputs (n, T, H) for the network's `scores`, and their lengths.

        After an error all states are unchanged.
        """
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
        """Return the scores (n, K) of the last step of these sessions."""
        assert isinstance(self.network, LanguageNetwork)
        return self.network.scores(self.network.last_output(self._gather(torch.tensor(slots).to(self.network.device))))

    def state(self, slot: int) -> StateTensors | None:
        """Return a copy of one session's state on the CPU; None if it has read nothing."""
        if self.fresh[slot]:
            return None
        return [part[0].cpu().clone() for part in self._gather(torch.tensor([slot]).to(self.network.device))]

    def set_state(self, slot: int, parts: StateTensors | None) -> None:
        self.fresh[slot] = parts is None
        if parts is not None:
            index = torch.tensor([slot]).to(self.network.device)
            self._scatter(index, [part[None].to(self.network.device) for part in parts])

    def check(self, parts: Sequence[Tensor]) -> None:
        """Refuse a state from outside whose shapes do not fit this network."""
        if [(tuple(part.shape), part.dtype) for part in parts] != self.network.state_shapes:
            raise OptionError("the state belongs to another network")

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
    return torch.from_numpy(np.zeros(shape, kind))  # calloc: a page is allocated when it is first written


def make_state_pool(network: StepNetwork, slots: int) -> StatePool:
    """Return a state pool on the device of the network."""
    return StatePool(network, slots) if _gpu_stack(network) is None else CudaStatePool(network, slots)


def _gpu_stack(network: StepNetwork) -> Any:
    """Return the packed weights of a network that can be stepped in its slots on a GPU; None for others."""
    layers = network.plain_layers()
    if layers is None or network.device.type != "cuda":
        return None
    return get_packed_weights(layers[0], next(layers[0].parameters()).new_zeros(1, layers[0].input_size), "").on_gpu


class CudaStatePool(StatePool):
    """State pool on a GPU that steps states in their slots, without gathering them."""

    def _make(self) -> None:
        layers, on_gpu = self.network.plain_layers(), _gpu_stack(self.network)
        assert layers is not None
        assert on_gpu is not None
        net, self._vectors, self._scores = layers
        self._on_gpu = SessionSlots(net.cell, on_gpu, self.slots)
        self._start = [[part[0] for part in layer] for layer in net.stream().state]

    @torch.no_grad()
    def _step(self, where: Any, x: Tensor, begins: bool = False) -> Tensor:
        index = torch.from_numpy(where).to(self.network.device)
        if begins:
            self._on_gpu.set_state(index, self._start)
        scores: Tensor = self._scores(self._on_gpu.launch(self._vectors(x), index))
        return scores

    def _gather(self, index: Tensor) -> StateTensors:
        shapes = self.network.state_shapes
        found = [part for layer in self._on_gpu.state(index) for part in layer]
        return [part.to(dtype) for part, (_, dtype) in zip(found, shapes, strict=True)]

    def _scatter(self, index: Tensor, parts: StateTensors) -> None:
        each = len(self._on_gpu.stack.cell.states)
        layers = [parts[k : k + each] for k in range(0, len(parts), each)]
        self._on_gpu.set_state(index, layers)
