"""What trained a run: the machine and the versions, which a model card names. Written before the first step, so that a
run that is killed has it too."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from typing import TYPE_CHECKING

import torch

from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.training.trainer import Trainer


def machine_of(trainer: Trainer) -> JsonObject:
    device = trainer.device
    return {
        "from_step": trainer.step,
        "date": time.strftime("%Y-%m-%d"),
        "recur": _version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "processes": trainer.ranks.size,
    }


def _version() -> str:
    """Nothing where recur is not installed: its folder is on the path, and that is all it takes."""
    try:
        return metadata.version("recur")
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    """As Linux knows it; elsewhere what Python says."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
