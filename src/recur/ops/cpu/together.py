"""Two scans of one x, from its start and from its end, as one node of autograd: an implementation may launch both at
once. Where gradients are themselves recorded, `again` computes them by operations of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recur.compiler.signature import Signature
from recur.ops.cpu import operators

Again = Callable[[Sequence[Tensor | None], Sequence[Tensor], Sequence[bool]], list[Tensor | None]]
"""Gradients that arrive, what was given and what is wanted → the gradients of what was given."""


class Both(NamedTuple):
    signature: Signature
    """Of each of them."""
    again: Again

    def split(self, given: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """x and the rest of both → what each is given."""
        count = self.signature.given
        return list(given[:count]), [given[0], *given[count:]]


class Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: Both, *given: Tensor) -> tuple[Tensor, ...]:
        of = both.signature
        results = operators.implementation(given[0]).forward_together(of, *both.split(given), True)
        outputs, visible = operators.counts(of)
        here, there = results[: len(results) // 2], results[len(results) // 2 :]
        ctx.both = both
        ctx.save_for_backward(*given, *here[:outputs], *here[visible:], *there[:outputs], *there[visible:])
        ctx.set_materialize_grads(False)
        return (*here[:visible], *there[:visible])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        both: Both = ctx.both
        of, saved, wanted = both.signature, ctx.saved_tensors, ctx.needs_input_grad[1:]
        count, middle = 2 * of.given - 1, len(gradients) // 2
        given, rest = saved[:count], saved[count:]
        if torch.is_grad_enabled():
            return None, *both.again(gradients, given, wanted)
        each = [
            [*part, *results]
            for part, results in zip(both.split(given), (rest[: len(rest) // 2], rest[len(rest) // 2 :]), strict=True)
        ]
        for_state = any(wanted[of.given - of.states : of.given]) or any(wanted[count - of.states :])
        last = not torch._C._autograd._get_current_graph_task_keep_graph()
        here, there = operators.implementation(given[0]).backward_together(
            of, each, (gradients[:middle], gradients[middle:]), wanted[0], bool(of.states) and for_state, last
        )
        return None, *here, *there[1:]


def run(of: Signature, again: Again, given: Sequence[Tensor]) -> Sequence[Tensor]:
    """Outputs and final states of both. `given`: x, then the weights and states of the one, then of the other."""
    if operators.is_recorded(list(given)):
        found: tuple[Tensor, ...] = Together.apply(Both(of, again), *given)
        return found
    here, there = Both(of, again).split(given)
    results: list[Tensor] = operators.implementation(given[0]).forward_together(of, here, there, False)
    return results
