"""Weights of a language model, put into another network: rows by token, layers by name.

A network of both directions has wider inputs than the language models that it is made of: what its forward half reads
of a backward half, and the other way round, begins at zero. So each half computes what its language model does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

LAYER = re.compile(r"(.*)_l(\d+)$")


def put_rows(table: Tensor, rows: Sequence[int], values: Tensor, like: Tensor | None = None) -> None:
    """Rows of a table (K, width) or (K,), given; the others are drawn with the mean and deviation of `like`, which are
    those given, or some of them."""
    like = values if like is None else like
    mean, deviation = like.mean(0), like.std(0, correction=0)
    drawn = mean + deviation * torch.randn(table.shape) if table.dim() > 1 else mean.expand(table.shape)
    given = torch.zeros(len(table), dtype=torch.bool)
    given[list(rows)] = True
    table[~given] = drawn[~given].to(table)
    table[list(rows)] = values.to(table)


def put_layers(
    parameters: Mapping[str, Tensor], prefix: str, given: Mapping[str, Tensor], *, backward: bool, columns: slice
) -> list[int]:
    """The layers of a network by their names; those that were put, from 1. `columns` of what the lowest layer reads is
    what the given one reads: other embeddings are none of its business."""
    put = []
    for name, value in given.items():
        found = LAYER.fullmatch(name)
        target = parameters.get(f"{prefix}.{name}{'_reverse' * (backward and found is not None)}")
        if target is None:
            continue
        if target.shape == value.shape:
            target.copy_(value)
        elif found is None or target.shape[:-1] != value.shape[:-1] or target.shape[-1] < value.shape[-1]:
            continue
        elif found[2] == "0":
            target[..., : columns.stop] = 0
            target[..., columns.start : columns.start + value.shape[-1]] = value.to(target)
        else:
            target.zero_()
            half = slice(-value.shape[-1], None) if backward else slice(value.shape[-1])
            target[..., half] = value.to(target)
        if found is not None and int(found[2]) + 1 not in put:
            put.append(int(found[2]) + 1)
    return put
