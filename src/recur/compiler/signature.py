"""Signature of a scan: all that a backend prepares a call for, apart from the values of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Signature(NamedTuple):
    """Everything that determines a call of a scan except the values of its tensors.

    The order of the tensors is: data, weights, extras, state, mask, ξ.
    """

    cell: str
    dtype: torch.dtype
    shape: Sequence[int]
    """The shape of the data: (B, T, D) if batch-major, else (N, D)."""
    sizes: Sequence[int]
    """The number of sequences that take each step; empty if batch-major, where all sequences take all steps."""
    first_rows: int
    """The number of rows of the first weight."""
    last_rows: int
    """The number of rows of the last weight."""
    weights: int
    extras: int
    states: int
    """The number of given states: 0 if sequences start from zero."""
    masked: bool
    weighted: bool
    """Whether ξ is given."""
    clip: float
    matmul_dtype: str
    """The dtype of matrix products, if not that of the data: bfloat16 or int8."""

    @property
    def differentiable(self) -> int:
        """The number of tensors that may have gradients."""
        return 1 + self.weights + self.extras + self.states

    @property
    def given(self) -> int:
        """The number of tensors."""
        return self.differentiable + self.masked + self.weighted


def make_signature(
    data: Tensor,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[Tensor],
    mask: Tensor | None,
    xi: Tensor | None,
    sizes: Sequence[int] | None,
    clip: float,
    cell: str,
    matmul_dtype: str,
) -> tuple[Signature, list[Tensor]]:
    """Return the signature of a scan and the list of its tensors. `sizes` is None if the data are batch-major."""
    of = Signature(
        cell, data.dtype, data.shape, () if sizes is None else tuple(sizes), weights[0].shape[0], weights[-1].shape[0],
        len(weights), len(extras), len(state), mask is not None, xi is not None, clip, matmul_dtype,
    )  # fmt: skip
    given = [data, *weights, *extras, *state]
    if mask is not None:
        given.append(mask)
    if xi is not None:
        given.append(xi)
    return of, given
