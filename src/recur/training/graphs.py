"""Training steps as CUDA graphs: recorded once for each form of a batch, and replayed by one launch.

A step of a recurrent network is some hundred kernels of a few microseconds, and Python launches one in about ten. What
a batch differs in lies in buffers that stay where they are: its tensors, the state that is carried on, and the rate,
which is a tensor on the device. The first two batches of a form are trained on as without graphs, which compiles and
allocates (two directions are one kernel from the second time on); the third is recorded. Random numbers go on where
they were: a recorded kernel reads its place in the generator's sequence at every replay, so that a replayed step draws
what the same step would have drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from recur.tasks.contract import Moment, TrainingStep
from recur.tasks.options import TaskOptions

if TYPE_CHECKING:
    from recur.training.trainer import StepResult, TrainStep

WARMUP_STEPS = 2
"""Batches of a form before one is recorded."""

MAX_GRAPHS = 128
"""Forms that are recorded at most; a batch of another one is trained on without a graph."""


def cuda_graph_blocker(stepper: TrainStep, options: TaskOptions, data: Any) -> str:
    """Why steps of these options on this data cannot be recorded; nothing where they can."""
    if stepper.device.type != "cuda":
        return f"graphs are for GPUs, and this is {stepper.device}"
    if options.accumulate > 1:
        return "gradients of several batches are added up (--accumulate)"
    if options.on_nan == "skip":
        return "each batch is looked at before its step is taken (--on-nan skip)"
    if options.optimizer == "asgd":
        return "where ASGD begins to average is decided outside of a step"
    if stepper.ranks.size > 1:
        return "several processes average their gradients on the way back"
    if len(stepper.optimizer.param_groups) > 1:
        return "layers begin to learn one after the other"
    return stepper.task.unrecordable(data)


def batch_signature(batch: Any) -> tuple[Hashable, list[Tensor]] | None:
    """All that a step's kernels depend on, and the tensors that they read; None for what is no named tuple of such."""
    if not isinstance(batch, tuple) or not hasattr(batch, "_fields"):
        return None
    form = tuple((part.shape, part.dtype) if isinstance(part, Tensor) else part for part in batch)
    try:
        hash(form)
    except TypeError:
        return None
    return form, [part for part in batch if isinstance(part, Tensor)]


class CapturedStep(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    """Where it reads a batch."""
    done: StepResult
    """Where it writes what the step gave."""
    step: TrainingStep


class CudaGraphs:
    """Steps by form; `take` trains on a batch as `whole` would, with fewer launches."""

    def __init__(self, stepper: TrainStep, set_rate: Callable[[float], None]) -> None:
        self.stepper, self._set_rate = stepper, set_rate
        self._seen: dict[Hashable, list[TrainingStep]] = {}
        """The first steps of each form, until it is recorded."""
        self._recorded: dict[Hashable, CapturedStep] = {}
        self._state: tuple[Any, ...] | None = None
        """The buffers that a state is carried on in."""
        self._stream = torch.cuda.Stream(stepper.device)
        self._pool = torch.cuda.graph_pool_handle()

    def take(
        self, batch: Any, state: tuple[Any, ...] | None, moment: Moment, rate: float
    ) -> tuple[TrainingStep, StepResult] | None:
        """One step, with the rate times the batch's own factor; None where it has no form."""
        found = batch_signature(batch)
        if found is None:
            return None
        form, tensors = (found[0], state is None), found[1]
        known = self._recorded.get(form)
        seen = self._seen.setdefault(form, []) if known is None else []
        if len(seen) == WARMUP_STEPS and len(self._recorded) < MAX_GRAPHS:
            known = self._recorded[form] = self._record(batch, tensors, state, moment, self._seen.pop(form)[0])
        if known is None:
            step, done = self._plain(batch, state, moment, rate)
            if len(seen) < WARMUP_STEPS:
                seen.append(step)
            return step, done
        for place, value in zip(known.inputs, tensors, strict=True):
            place.copy_(value, non_blocking=True)
        if state is not None and state is not self._state:
            _copy(self._state, state)
        self._set_rate(rate * known.step.rate)
        known.graph.replay()
        torch.autograd.graph.increment_version(self.stepper.parameters)  # nothing else tells that weights have changed
        return known.step, type(known.done)(*torch.stack(known.done).unbind())

    def _plain(
        self, batch: Any, state: tuple[Any, ...] | None, moment: Moment, rate: float
    ) -> tuple[TrainingStep, StepResult]:
        """As without graphs, on the stream that is recorded on later."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            step = self.stepper.gradients(batch, state, moment)
            done = self.stepper.clipped(step.loss)
            self._set_rate(rate * step.rate)
            self.stepper.update()
        torch.cuda.current_stream().wait_stream(self._stream)
        return step._replace(loss=done.loss, penalty=0.0), done

    def _record(
        self, batch: Any, tensors: list[Tensor], state: tuple[Any, ...] | None, moment: Moment, first: TrainingStep
    ) -> CapturedStep:
        """A step as a graph; nothing of it is run."""
        device = self.stepper.device
        inputs = [value.to(device, copy=True) for value in tensors]
        places = iter(inputs)
        batch = type(batch)._make(next(places) if isinstance(part, Tensor) else part for part in batch)
        if first.state is not None and self._state is None:
            self._state = _cloned(first.state)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            step = self.stepper.gradients(batch, None if state is None else self._state, moment)
            done = self.stepper.clipped(step.loss)
            self.stepper.update()
            if step.state is not None:
                _copy(self._state, step.state)
        return CapturedStep(graph, inputs, done, first._replace(state=self._state if step.state is not None else None))


def _copy(to: Any, value: Any) -> None:
    """A nest of tensors into another."""
    if isinstance(to, Tensor):
        to.copy_(value)
        return
    for place, part in zip(to, value, strict=True):
        _copy(place, part)


def _cloned(state: Any) -> Any:
    return state.clone() if isinstance(state, Tensor) else tuple(_cloned(part) for part in state)
