"""Private names of PyTorch that recur uses, in one place: a new version of PyTorch is checked here.

Each entry says what PyTorch has no public name for.
"""

from __future__ import annotations

import torch


def current_raw_stream(device: int) -> int:
    """Return the handle of the stream that PyTorch launches on now, without creating a torch.cuda.Stream."""
    stream: int = torch._C._cuda_getCurrentRawStream(device)
    return stream


def float32_precision(backend: str) -> str:
    """Return how float32 products are computed on the GPU by "matmul" or "rnn": "ieee", "tf32" or "none" (default).

    The public attribute raises an error when an older switch was set before; this function does not.
    """
    return str(torch._C._get_fp32_precision_getter("cuda", backend))


def set_float32_precision(backend: str, precision: str) -> None:
    torch._C._set_fp32_precision_setter("cuda", backend, precision)
