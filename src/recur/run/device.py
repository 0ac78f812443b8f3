"""Which device a model is on."""

from __future__ import annotations

import torch

from recur.errors import OptionError


def pick_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise OptionError(f"device must be cpu, cuda or auto, got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device {name!r} was asked for, and torch sees no GPU; recur doctor says more")
    return device
