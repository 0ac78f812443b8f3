"""Tensors on disk: safetensors, which can hold nothing but numbers, and what is checked before they are used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from recur.errors import RunError
from recur.typedefs import JsonObject


def to_bytes(tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> bytes:
    """In an order of its own, so that the same content is the same bytes."""
    packed = {name: tensors[name].contiguous() for name in sorted(tensors)}
    return save(packed, {"about": json.dumps(about)})  # one entry: several would be written in any order


def from_bytes(content: bytes, path: Path) -> tuple[dict[str, Tensor], JsonObject]:
    try:
        tensors = load(content)
        length = int.from_bytes(content[:8], "little")
        about = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["about"])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    if not isinstance(about, dict):
        raise RunError(f"{path} is damaged: it does not say what it is")
    return tensors, about


def check_weights(expected: Mapping[str, Tensor], got: Mapping[str, Tensor], complaint: str) -> None:
    """Refuse tensors of other names, shapes or dtypes, and numbers that are not finite."""
    wanted = {name: (tuple(value.shape), value.dtype) for name, value in expected.items()}
    found = {name: (tuple(value.shape), value.dtype) for name, value in got.items()}
    if wanted != found:
        first = next(name for name in sorted({*wanted, *found}) if wanted.get(name) != found.get(name))
        raise RunError(f"{complaint}: {first} is {_form(found, first)} where {_form(wanted, first)} is expected")
    for name, value in got.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise RunError(f"{complaint}: {name} holds numbers that are not finite")


def _form(forms: Mapping[str, tuple[tuple[int, ...], torch.dtype]], name: str) -> str:
    if name not in forms:
        return "nothing"
    shape, dtype = forms[name]
    return f"{shape} of {str(dtype).removeprefix('torch.')}"
