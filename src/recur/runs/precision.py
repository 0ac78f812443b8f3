"""In which numbers a device multiplies: what is asked for, what it has, and what is the fastest that costs no quality.

float32     products of float32, exactly
tf32        an NVIDIA GPU's matrix units read the first 10 bits of float32's mantissa; everything else is float32
bfloat16    products of bfloat16 under torch.autocast; weights, sums, losses and the optimiser are float32
float16     the same with float16, whose small gradients would be zero: the loss is scaled while training
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from recur.errors import OptionError

Precision = Literal["float32", "tf32", "bfloat16", "float16"]

SWITCHES = ("matmul", "rnn")
"""torch's switches for what products of float32 read on a GPU."""

AMPERE = (8, 0)
"""The compute capability from which on GPUs multiply tf32 and bfloat16."""


def check_precision(precision: Precision, device: torch.device) -> None:
    """Refuse what a device has not."""
    if device.type == "cpu" and precision == "tf32":
        raise OptionError("precision tf32 is a format of NVIDIA GPUs; on the CPU take float32 or bfloat16")
    if device.type == "cuda" and precision in ("tf32", "bfloat16") and not _has_wide_units(device):
        name = torch.cuda.get_device_name(device)
        raise OptionError(f"precision {precision} needs compute capability 8.0, and {name} has less; take float16")


def pick_precision(device: torch.device, in_16_bits: bool) -> Precision:
    """The fastest of a device; of 16 bits only where a task says that its figures hold there."""
    if device.type == "cuda":
        wide = _has_wide_units(device)
        return ("bfloat16" if in_16_bits else "tf32") if wide else "float32"
    return "bfloat16" if in_16_bits and device.type == "cpu" and _multiplies_bfloat16() else "float32"


def _has_wide_units(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= AMPERE


def _multiplies_bfloat16() -> bool:
    """Whether this processor has an instruction for it; without one the same numbers take longer."""
    asked = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(asked is not None and asked())


@contextmanager
def products_of(precision: Precision, device: torch.device) -> Iterator[None]:
    """While this lasts, a GPU's products of float32 read what this says; torch's switches are put back after it."""
    number = "ieee" if precision == "float32" else "tf32"
    before = {op: torch._C._get_fp32_precision_getter("cuda", op) for op in SWITCHES if device.type == "cuda"}
    try:
        for op in before:
            torch._C._set_fp32_precision_setter("cuda", op, number)
        yield
    finally:
        for op, value in before.items():
            torch._C._set_fp32_precision_setter("cuda", op, value)


@contextmanager
def computing_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """… and what is computed is of 16 bits, where it says so. A way back belongs into `products_of` alone: its numbers
    are those of the way there."""
    with products_of(precision, device):
        if precision in ("bfloat16", "float16"):
            with torch.autocast(device.type, getattr(torch, precision)):
                yield
        else:
            yield
