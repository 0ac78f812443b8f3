"""What runs the operator on one kind of device: a module with these functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from recur.compiler.signature import Signature

Tensors = list[Tensor]


class Implementation(Protocol):
    def forward(self, of: Signature, given: Sequence[Tensor], train: bool) -> Tensors:
        """Outputs, final states, and what the backward pass needs beside them."""

    def backward(
        self,
        of: Signature,
        kept: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        for_data: bool,
        for_state: bool,
        traced: bool,
        overwrite_saved: bool = False,
    ) -> tuple[list[Tensor | None], Tensors]:
        """The gradients, None where they are not asked for; and, if traced, what a trace records."""

    def whole(self, of: Signature, results: Tensors) -> Tensors:
        """What a forward pass for training returned, with nothing in it uninitialised."""

    def shapes(self, of: Signature, data: Tensor, train: bool) -> Tensors:
        """What a forward pass returns, empty."""

    def gradient_shapes(self, of: Signature, given: Sequence[Tensor], traced: bool) -> Tensors:
        """The gradients of all that may have one, and what a trace records, empty."""
