"""What stays plain inside the transforms of torch.func: which steps follow each other is decided from numbers."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor
from torch._C import _functorch

from recur.compiler.program_text import transformed
from recur.errors import OptionError


def outside() -> contextlib.AbstractContextManager[object]:
    """Tensors made in here are plain ones, as if no transform were under way. What is drawn, all samples share."""
    return torch._C._DisableFuncTorch() if transformed() else contextlib.nullcontext()


def plain(who: str, name: str, value: Tensor) -> Tensor:
    """A tensor without the wrappers of the transforms that are under way."""
    while _functorch.is_functorch_wrapped_tensor(value):
        if _functorch.is_batchedtensor(value):
            raise OptionError(
                f"{who}: {name} must be the same for all samples of a vmap; give the samples to scan as its rows"
            )
        value = _functorch.get_unwrapped(value)
    return value
