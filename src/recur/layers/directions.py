"""A network that reads sequences from their start, from their end, or both ways."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MERGED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "concat": lambda forward, backward: torch.cat([forward, backward], dim=-1),
    "sum": torch.add,
    "mean": lambda forward, backward: (forward + backward) / 2,
    "product": torch.mul,
}
SUFFIXES = {"forward": ("",), "backward": ("_reverse",), "both": ("", "_reverse")}
"""What torch's names of weights end in, by direction."""
