"""What a recurrent network returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from recur.cells import Tensors
from recur.ops.trace import Trace, register_result

NetworkState = tuple[Tensors, ...]
"""The states of a network's cells, layer by layer, forward before backward."""


class Recurred(NamedTuple):
    """What a recurrent network returns. States and traces: layer by layer, forward before backward.

    >>> outputs, state, trace = recur.Recurrent("lstm", 3, 4, layers=2)(torch.randn(2, 5, 3))
    >>> outputs.shape, len(state), trace[0].backend
    (torch.Size([2, 5, 4]), 2, 'native')
    """

    outputs: Tensor
    state: NetworkState
    trace: tuple[Trace, ...]


register_result(Recurred)
