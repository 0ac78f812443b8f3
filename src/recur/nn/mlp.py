"""Layers of tanh before, between and behind recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.types import Device

from recur.errors import OptionError


def make_mlp(width: int, out: int, depth: int, device: Device, dtype: torch.dtype | None) -> nn.Sequential | None:
    """`depth` layers from `width` to `out` units; None for none."""
    if not depth:
        return None
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, out, device=device, dtype=dtype), nn.Tanh()]
        width = out
    return nn.Sequential(*layers)


def make_between(widths: Sequence[int], depth: int, device: Device, dtype: torch.dtype | None) -> nn.ModuleList | None:
    """One behind each recurrent layer but the last, of outputs of these widths; None for none."""
    if not depth:
        return None
    if len(widths) == 1:
        raise OptionError("depth of between acts between layers, and there is one layer")
    mlps = (make_mlp(width, width, depth, device, dtype) for width in widths[:-1])
    return nn.ModuleList(mlp for mlp in mlps if mlp is not None)


def reset_mlp(mlp: nn.Module | None) -> None:
    """Weights as Glorot and Bengio draw them; biases zero."""
    for layer in () if mlp is None else mlp.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def apply_mlp(mlp: nn.Module | None, x: Tensor, padding: Tensor | None) -> Tensor:
    """An MLP, if there is one; padding neither enters it nor comes out."""
    if mlp is None:
        return x
    if padding is None:
        return mlp(x)  # type: ignore[no-any-return]
    return mlp(x.masked_fill(padding, 0)).masked_fill(padding, 0)  # type: ignore[no-any-return]


def padding_of(x: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
    """(B, T, 1): which steps lie behind a row's length."""
    ends = torch.as_tensor(lengths, device=x.device)
    return (torch.arange(x.shape[1], device=x.device) >= ends[:, None])[..., None]
