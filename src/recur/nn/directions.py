"""A network that reads sequences from their start, from their end, or both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from recur.ops import GivenState, ScanOutput, scan_both

if TYPE_CHECKING:
    from recur.nn.recurrent import Recurrent

MERGED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "concat": lambda forward, backward: torch.cat([forward, backward], dim=-1),
    "sum": torch.add,
    "mean": lambda forward, backward: (forward + backward) / 2,
    "product": torch.mul,
}
SUFFIXES = {"forward": ("",), "backward": ("_reverse",), "both": ("", "_reverse")}
"""What torch's names of weights end in, by direction."""


def scan_at_once(net: Recurrent, layer: int, x: Tensor, states: Mapping[str, GivenState]) -> list[ScanOutput] | None:
    """Both directions of a layer by one launch, where there is one; states start at those given, or at zero."""
    if net.direction != "both" or (net.init.state != "zero" and (net.init.learned or net.training)):
        return None
    first, second = (f"_l{layer}{suffix}" for suffix in SUFFIXES["both"])
    weights, given = (net.weights(first), net.weights(second)), (states.get(first), states.get(second))
    return scan_both(net.cell, weights, x, given, net.bptt, net.backend)
