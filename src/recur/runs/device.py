"""Which device a model is on."""

from __future__ import annotations

import torch

from recur.errors import OptionError
from recur.options import check_device


def pick_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one."""
    check_device(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device {name!r} was asked for, and torch sees no GPU; recur doctor says more")
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise OptionError(f"device {name!r} was asked for, and torch sees {torch.cuda.device_count()} GPU(s)")
    return device
