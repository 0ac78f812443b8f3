"""One training step: forward, backward, clip, and the optimiser; nothing in it waits for the device."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recur.runs import Precision, computing_in, products_of
from recur.tasks.common.contract import Task, TrainingProgress, TrainingStep
from recur.training import optimise
from recur.training.ranks import Ranks


class Done(NamedTuple):
    """What a step of the optimiser gave."""

    loss: Tensor
    norm: Tensor
    """Of the gradient before it was clipped; infinite where float16 could not hold it."""


class Stepper:
    """The parts of a step, in their order: `gradients`, of as many batches as are added up; `clipped`; `update`."""

    def __init__(
        self,
        task: Task[Any, Any, Any, Any],
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        ranks: Ranks,
        stop: threading.Event,
    ) -> None:
        self.task, self.model, self.optimizer, self.device = task, model, optimizer, device
        self.ranks, self._stop = ranks, stop
        self.parameters = list(model.parameters())
        self.precision: Precision = task.options.precision or "float32"
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "float16")
        """Float16 has no numbers below 6e-8, so that its gradients are those of a scaled loss."""

    def gradients(
        self, batch: Any, state: tuple[Any, ...] | None, moment: TrainingProgress, last: bool = True
    ) -> TrainingStep:
        """The loss of a batch, and its gradient added to the parameters'; those of all ranks, at the `last` before the
        optimiser's step."""
        with computing_in(self.precision, self.device):
            done = self.ranks.training_step(self.task, self.model, batch, state, moment, last)
        scale = self.ranks.scale(done, self._stop, self.task.options.accumulate > 1)
        loss = (done.loss + done.penalty) / (self.task.options.accumulate / scale) if scale else 0 * done.loss
        if loss.requires_grad:
            # To wake a thread for the GPU may take most of a step.
            with torch.autograd.set_multithreading_enabled(False), products_of(self.precision, self.device):
                self.scaler.scale(loss).backward()
        agreed = self.ranks.agree(self.model, done, self._stop, last)
        return done._replace(loss=agreed.loss, predictions=agreed.predictions)

    def clipped(self, loss: Tensor) -> Done:
        """Clip what was added up, at its own scale."""
        o = self.task.options
        self.scaler.unscale_(self.optimizer)
        return Done(loss.detach(), optimise.clip_gradients(self.parameters, o.clip, o.clip_value))

    def update(self, *, skip: bool = False) -> None:
        """Move the weights, unless the batch is passed over, and forget the gradient."""
        if not skip:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
