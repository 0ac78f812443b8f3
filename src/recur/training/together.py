"""A training step of several ranks: gradients are averaged by DistributedDataParallel, bucket by bucket, while the rest
of the way back is still being computed.

What is wrapped is a task's whole training step, since a loss is more than a model's `forward`. Parameters that a step
does not use (a learned first state, in the middle of a text) have no gradient on any rank, as in one process.
"""

# Without `annotations` of __future__: torch looks at those of a hook, and wants them as they are.
import inspect
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from recur.tasks.common.contract import Task, TrainingProgress, TrainingStep

_NAMES = inspect.signature(DistributedDataParallel).parameters
_BUFFERS_STAY: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False
}
"""What is fitted to the validation part is the first rank's, and no training step reads it. Its name has changed."""


class _Step(nn.Module):
    def __init__(self, task: Task[Any, Any, Any, Any], model: nn.Module) -> None:
        super().__init__()
        self.task, self.model = task, model

    def forward(self, batch: Any, state: Any, moment: TrainingProgress) -> TrainingStep:
        if batch is not None:
            return self.task.training_step(self.model, batch, state, moment)
        # Of a batch with fewer rows than there are ranks, this one has none: it brings a gradient of zero.
        some = next(p for p in self.model.parameters() if p.requires_grad)
        return TrainingStep((some * 0.0).sum(), 0, "", weight=torch.zeros(()))


class Together:
    """Steps whose gradients are those of all ranks."""

    def __init__(self, compress: str = "none") -> None:
        self.compress = compress
        self._wrapped: DistributedDataParallel | None = None
        self._learns: tuple[bool, ...] = ()

    def __call__(
        self,
        task: Task[Any, Any, Any, Any],
        model: nn.Module,
        batch: Any,
        state: Any,
        moment: TrainingProgress,
        last: bool,
    ) -> TrainingStep:
        step = self._of(task, model)
        with nullcontext() if last else step.no_sync():  # batches that are added up travel once
            done: TrainingStep = step(batch, state, moment)
        return done

    def _of(self, task: Task[Any, Any, Any, Any], model: nn.Module) -> DistributedDataParallel:
        """Made anew whenever other layers learn, which all ranks see in the same step."""
        learns = tuple(p.requires_grad for p in model.parameters())
        if self._wrapped is None or self._wrapped.module.model is not model or learns != self._learns:
            self._learns = learns
            self._wrapped = DistributedDataParallel(
                _Step(task, model), find_unused_parameters=True, gradient_as_bucket_view=True, **_BUFFERS_STAY
            )
            if self.compress == "bfloat16":
                self._wrapped.register_comm_hook(None, _in_bfloat16)
        return self._wrapped


def _in_bfloat16(_: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """Half the bytes: averaged in bfloat16, added to weights in their own precision."""
    sent = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    travelled: torch.futures.Future[list[Tensor]] = dist.all_reduce(sent, async_op=True).get_future()

    def received(future: torch.futures.Future[list[Tensor]]) -> Tensor:
        whole: Tensor = bucket.buffer()
        return whole.copy_(future.value()[0])

    return travelled.then(received)
