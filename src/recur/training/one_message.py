"""Gradients that fit into one bucket, averaged by one message of a step.

There is nothing to overlap then: the bucket is whole when the way back is over. So what ranks agree on in each step
travels at its end, which spares a second meeting before the way back, and with it what the faster rank waits there; so
does which parameters had a gradient at all (a learned first state has none in the middle of a text). Each rank sends

    w g,  w,  what else is agreed on          g the gradient of its mean loss, w what that is a mean over

and divides the sum of the first by that of the second.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET = 25 * 2**20
"""Bytes; above, DistributedDataParallel has several and sends the first ones early."""


def fits_one_message(model: nn.Module) -> bool:
    """On a GPU it would have to be waited for."""
    parameters = list(model.parameters())
    alike = {(p.device.type, p.dtype) for p in parameters} in ({("cpu", torch.float32)}, {("cpu", torch.float64)})
    return alike and sum(p.numel() * p.element_size() for p in parameters) <= BUCKET


def same_start(model: nn.Module) -> None:
    """Weights drawn or read by another machine may differ in their last bits: the first rank's count."""
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), 0)


class OneMessage:
    """Memory for a step's gradients, in which they stay until the optimiser has used them."""

    def __init__(self, compress: str = "none") -> None:
        self.compress = compress
        self._memory = torch.empty(0)

    def average(self, model: nn.Module, weight: float, also: Sequence[float]) -> tuple[float, list[float]]:
        """Every gradient becomes the mean over ranks, by their weights; the sum of the weights, and that of `also`."""
        learning = [p for p in model.parameters() if p.requires_grad]
        head = [weight, *also, *(float(p.grad is not None) for p in learning)]
        memory = self._of(len(head) + sum(p.numel() for p in learning), learning[0].dtype)
        first, *parts = memory.split([len(head), *(p.numel() for p in learning)])
        first.copy_(torch.tensor(head, dtype=torch.float64))
        for p, part in zip(learning, parts, strict=True):
            part.zero_() if p.grad is None else torch.mul(p.grad, weight, out=part.view_as(p))
        self._send(memory, len(head))
        total, *rest = first.tolist()
        memory[len(head) :].mul_(1 / total if total else 0.0)
        for p, part, seen in zip(learning, parts, rest[len(also) :], strict=True):
            p.grad = part.view_as(p) if seen else None
        return total, rest[: len(also)]

    def _send(self, memory: Tensor, head: int) -> None:
        if self.compress == "none":
            dist.all_reduce(memory)
            return
        agreed, gradients = memory[:head], memory[head:]
        short = gradients.to(torch.bfloat16)
        under_way = [dist.all_reduce(part, async_op=True) for part in (agreed, short)]
        for work in under_way:
            work.wait()
        gradients.copy_(short)

    def _of(self, size: int, dtype: torch.dtype) -> Tensor:
        if self._memory.numel() != size or self._memory.dtype != dtype:
            self._memory = torch.empty(size, dtype=dtype)
        return self._memory
