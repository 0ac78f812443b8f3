"""Signature of a scan: all that a backend prepares a call for, apart from the values of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Signature(NamedTuple):
    """What scans have in common that differ in the numbers of their tensors alone.

    The tensors stand in one order: data, weights, extras, state, mask, ξ.
    """

    cell: str
    dtype: torch.dtype
    shape: Sequence[int]
    """Of the data: (B, T, D) batch-major, else (N, D)."""
    sizes: Sequence[int]
    """How many sequences take each step; nothing batch-major, where all take all of them."""
    first_rows: int
    """Of the first weight; and of the last."""
    last_rows: int
    weights: int
    extras: int
    states: int
    """How many are given: none where sequences start from zero."""
    masked: bool
    weighted: bool
    """Whether ξ is given."""
    clip: float
    products: str

    @property
    def differentiable(self) -> int:
        """How many of the tensors may have gradients."""
        return 1 + self.weights + self.extras + self.states

    @property
    def given(self) -> int:
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
    products: str,
) -> tuple[Signature, list[Tensor]]:
    """Return the signature of a scan and the list of its tensors. `sizes` is None if the data are batch-major."""
    of = Signature(
        cell, data.dtype, data.shape, () if sizes is None else tuple(sizes), weights[0].shape[0], weights[-1].shape[0],
        len(weights), len(extras), len(state), mask is not None, xi is not None, clip, products,
    )  # fmt: skip
    given = [data, *weights, *extras, *state]
    if mask is not None:
        given.append(mask)
    if xi is not None:
        given.append(xi)
    return of, given
