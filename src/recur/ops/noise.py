"""Random numbers of a scan by a counter-based generator.

A number depends on the seed, the row, the step and the unit, and on nothing else: not on the backend, the length of the
batch, or how a sequence is split. So a recomputed forward pass (checkpointing, a second derivative) draws the same
numbers. The generator is Philox 4×32-10 (Salmon et al. 2011): ten rounds of multiplications on a counter.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from recur.cells.cell import Cell
from recur.cells.contract import noise_mean

MULTIPLIERS, WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Return four random words of 32 bits, as int64, for a counter of four words and a key of two."""
    a, b, c, d = counter
    first, second = key
    for _ in range(10):
        left, right = a * MULTIPLIERS[0], c * MULTIPLIERS[1]  # 64 bits that wrap: the shift below drops the sign
        a, b, c, d = (
            (right >> 32 & LOW) ^ b ^ first, right & LOW, (left >> 32 & LOW) ^ d ^ second, left & LOW,
        )  # fmt: skip
        first, second = first + WEYL[0] & LOW, second + WEYL[1] & LOW
    return a, b, c, d


def draw_noise(cell: Cell, seed: int | Tensor | None, x: Tensor, units: int, first_step: int = 0) -> dict[str, Tensor]:
    """Return the noise of a cell by name, (B, T, H) each; its mean without a seed."""
    B, T, _ = x.shape
    found: dict[str, Tensor] = {}
    for index, (name, spec) in enumerate(cell.noise.items()):
        kind, _, chance = spec.partition(":")
        if seed is None:
            found[name] = x.new_full((1, 1, 1), noise_mean(spec)).expand(B, T, units)
            continue
        words = torch.as_tensor(seed, dtype=torch.int64, device=x.device)
        span = {"dtype": torch.int64, "device": x.device}
        row = torch.arange(B, **span)[:, None, None]  # type: ignore[call-overload]
        step = torch.arange(first_step, first_step + T, **span)[:, None]  # type: ignore[call-overload]
        unit = torch.arange((units + 3) // 4, **span)  # type: ignore[call-overload]
        shape = B, T, len(unit)
        counter = unit.expand(shape), step.expand(shape), row.expand(shape), torch.full(shape, index, **span)  # type: ignore[call-overload]
        drawn = philox(counter, (words & LOW, words >> 32 & LOW))
        uniform = [(word.double() + 0.5) * 2.0**-32 for word in drawn]
        if kind == "normal":  # Box and Muller, two numbers of two words
            values = []
            for one, other in (uniform[:2], uniform[2:]):
                radius = torch.sqrt(-2 * torch.log(one))
                values += [radius * torch.cos(2 * math.pi * other), radius * torch.sin(2 * math.pi * other)]
        else:
            values = uniform
        whole = torch.stack(values, dim=-1).flatten(-2)[..., :units]
        found[name] = (whole < float(chance) if kind == "bernoulli" else whole).to(x.dtype)
    return found
