"""How much memory a network would take, known before any of it is made."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import torch
from torch import nn

from recur.nn.options import check_memory
from recur.utils.files import memory


def check_size(make: Callable[[], nn.Module]) -> None:
    """Refuse a network whose weights alone are more than this machine's memory."""
    check_memory(weight_bytes(make), memory())


def weight_bytes(make: Callable[[], nn.Module]) -> float:
    """Of all weights, which are made on torch's device of shapes without numbers: no memory, no random draws."""
    try:
        with torch.device("meta"):
            made = make()
    except RuntimeError as error:  # one matrix has more bytes than 64 bits count
        sizes = re.search(r"overflowed with sizes=\[([0-9, ]+)\]", str(error))
        if sizes is None:
            raise
        return 4.0 * math.prod(float(size) for size in sizes[1].split(","))
    return float(sum(p.numel() * p.element_size() for p in (*made.parameters(), *made.buffers())))
