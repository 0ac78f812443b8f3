"""CUDA graphs of training steps: captured once per batch signature, and replayed by one launch.

A step of a recurrent network is some hundred kernels of a few microseconds, and Python takes about ten microseconds to
launch one. The inputs of a graph are buffers at fixed addresses: the tensors of a batch, the hidden state, and the
learning rate, which is a tensor on the device. The first two batches of a signature run without a graph, which compiles
kernels and allocates memory (a bidirectional layer is one kernel from its second call on); the third is captured. A
captured kernel reads its offset in the generator's sequence at every replay, so that a replayed step draws the same
random numbers as the step without a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from recur.compat import tree_map_only
from recur.models.layers import copy_state
from recur.runs.weights import GraphCapture
from recur.tasks.common.contract import TrainingProgress, TrainingStep
from recur.tasks.common.options import TaskOptions

if TYPE_CHECKING:
    from recur.training.trainer import StepResult, TrainStep

WARMUP_STEPS = 2
"""Batches of a signature that run without a graph before one is captured."""

MAX_GRAPHS = 128
"""Graphs at most; batches of further signatures run without one."""


def cuda_graph_blocker(stepper: TrainStep, options: TaskOptions, data: Any) -> str:
    """Return why training steps cannot be captured as CUDA graphs; empty if they can."""
    if stepper.device.type != "cuda":
        return f"CUDA graphs need a GPU, and the device is {stepper.device}"
    if options.gradient_accumulation_steps > 1:
        return "gradients of several batches are accumulated (--gradient-accumulation-steps)"
    if options.on_nan == "skip":
        return "each batch is checked before its update (--on-nan skip)"
    if options.optimizer == "asgd":
        return "ASGD decides outside of a step when to start averaging"
    if stepper.group.size > 1:
        return "several processes average their gradients during the backward pass"
    if len(stepper.optimizer.param_groups) > 1:
        return "layers are unfrozen one after the other"
    return stepper.task.unrecordable(data)


def batch_signature(batch: Any) -> tuple[Hashable, list[Tensor]] | None:
    """Return the shapes, dtypes and constants of a batch, and its tensors; None if it is not a hashable named tuple."""
    if not isinstance(batch, tuple) or not hasattr(batch, "_fields"):
        return None
    signature = tuple((part.shape, part.dtype) if isinstance(part, Tensor) else part for part in batch)
    try:
        hash(signature)
    except TypeError:
        return None
    return signature, [part for part in batch if isinstance(part, Tensor)]


class CapturedStep(NamedTuple):
    """CUDA graph of a step, with the buffers that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    result: StepResult
    step: TrainingStep


class CudaGraphs:
    """Cache of captured training steps, keyed by the batch signature."""

    def __init__(self, stepper: TrainStep, set_rate: Callable[[float], None]) -> None:
        self.stepper, self._set_rate = stepper, set_rate
        self._seen: dict[Hashable, list[TrainingStep]] = {}
        """First steps of each signature, until it is captured."""
        self._captured: dict[Hashable, CapturedStep] = {}
        self._state: tuple[Any, ...] | None = None
        """Buffers of the hidden state."""
        self._graphs = GraphCapture(stepper.device)

    def take(
        self, batch: Any, state: tuple[Any, ...] | None, moment: TrainingProgress, rate: float
    ) -> tuple[TrainingStep, StepResult] | None:
        """Train on one batch, with the learning rate times the batch's factor; return None if it has no signature."""
        found = batch_signature(batch)
        if found is None:
            return None
        signature, tensors = (found[0], state is None), found[1]
        known = self._captured.get(signature)
        seen = self._seen.setdefault(signature, []) if known is None else []
        if len(seen) == WARMUP_STEPS and len(self._captured) < MAX_GRAPHS:
            known = self._captured[signature] = self._capture(
                batch, tensors, state, moment, self._seen.pop(signature)[0]
            )
        if known is None:
            step, done = self._run(batch, state, moment, rate)
            if len(seen) < WARMUP_STEPS:
                seen.append(step)
            return step, done
        for buffer, value in zip(known.inputs, tensors, strict=True):
            buffer.copy_(value, non_blocking=True)
        if state is not None and state is not self._state:
            copy_state(self._state, state)
        self._set_rate(rate * known.step.rate)
        known.graph.replay()
        torch.autograd.graph.increment_version(self.stepper.parameters)  # a replay does not
        return known.step, type(known.result)(*torch.stack(known.result).unbind())

    def _run(
        self, batch: Any, state: tuple[Any, ...] | None, moment: TrainingProgress, rate: float
    ) -> tuple[TrainingStep, StepResult]:
        """Train without a graph, on the stream that is captured later."""
        with self._graphs.warm_up():
            step = self.stepper.gradients(batch, state, moment)
            done = self.stepper.clip(step.loss)
            self._set_rate(rate * step.rate)
            self.stepper.update()
        return step._replace(loss=done.loss, penalty=0.0), done

    def _capture(
        self,
        batch: Any,
        tensors: list[Tensor],
        state: tuple[Any, ...] | None,
        moment: TrainingProgress,
        first: TrainingStep,
    ) -> CapturedStep:
        """Capture a step as a graph, without running it."""
        device = self.stepper.device
        inputs = [value.to(device, copy=True) for value in tensors]
        buffers = iter(inputs)
        batch = type(batch)._make(next(buffers) if isinstance(part, Tensor) else part for part in batch)
        if first.state is not None and self._state is None:
            self._state = tree_map_only(Tensor, Tensor.clone, first.state)

        def train() -> tuple[TrainingStep, StepResult]:
            step = self.stepper.gradients(batch, None if state is None else self._state, moment)
            done = self.stepper.clip(step.loss)
            self.stepper.update()
            if step.state is not None:
                copy_state(self._state, step.state)
            return step, done

        graph, (step, done) = self._graphs.capture(train)
        return CapturedStep(graph, inputs, done, first._replace(state=self._state if step.state is not None else None))
