"""s_t = A_t s_{t−1} + b_t for all t, in PyTorch operations on any device, without a step for every t.

Tensors are (T, …): time first, and all that follows is pointwise. Several states may read each other: A is then a small
matrix of such tensors, None where it is zero.

Time is cut into chunks of L steps. What a chunk does to the state that enters it is an affine map again, and all chunks
find theirs at once, in L steps; those maps, L times fewer, are the same problem. Once it is known where each chunk
starts, all take their L steps again, from there. So A and b are read twice and s is written once, and every number is
what a loop would give, but for the rounding of a chunk's start. Where little is left, doubling takes log₂ T steps.

No A is divided by: it may be 0, 1, negative or large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Matrix: TypeAlias = Sequence[Sequence[Tensor | None]]

CHUNK = {"cpu": 8, "cuda": 4}
"""L. Each level of chunks takes 3 L operations and leaves 1/L of the numbers to the next."""
SMALL = {"cpu": 2**15, "cuda": 2**23}
"""How many numbers are few: so many are doubled, not cut."""
LARGE = {"cpu": 2**13, "cuda": 2**22}
"""How many numbers of one step are enough for an operation: then steps are taken one by one.

All three were measured. Where operations are slow to start and quick to run, few large ones win.
"""


def solve(
    A: Matrix, b: Sequence[Tensor], start: Sequence[Tensor], reverse: bool, with_start: bool, bounded: bool
) -> list[Tensor]:
    """All s_t of (T, …), in the order of time; with the start, T + 1 of them. In reverse, s_t = A_t s_{t+1} + b_t.

    Unless A is `bounded`, a product of many may become infinite where the states it multiplies are zero.
    """
    T = b[0].shape[0]
    paths = [part.new_empty(T + with_start, *part.shape[1:]) for part in b]
    into = paths
    if with_start:
        into = [path[:-1] if reverse else path[1:] for path in paths]
        for path, part in zip(paths, start, strict=True):
            path[-1 if reverse else 0] = part
    L = _chunk(T, b[0])
    entering = [part.unsqueeze(0) for part in start]
    if L < T:
        entering = _entering(A, b, start, L, reverse, bounded)
    _steps(A, b, entering, into, L, reverse)
    return paths


def _chunk(T: int, b: Tensor) -> int:
    """L; T for one chunk, whose steps are taken one by one."""
    L = _of(CHUNK, b)
    return T if T <= L or b.numel() // T >= _of(LARGE, b) else L


def _of(numbers: dict[str, int], like: Tensor) -> int:
    """As measured on the kind of device that a tensor is on."""
    return numbers["cpu" if like.device.type == "cpu" else "cuda"]


def _steps(
    A: Matrix, b: Sequence[Tensor], entering: Sequence[Tensor], into: Sequence[Tensor], L: int, reverse: bool
) -> None:
    """L steps of every chunk, from where it starts. Chunks stand in the order of time, and the last may be short."""
    T, states = b[0].shape[0], list(entering)
    for step in range(min(L, T)):
        at = slice((T - 1 - step) % L, T - step, L) if reverse else slice(step, T, L)
        here = [part[at] for part in into]
        if here[0].shape[0] < states[0].shape[0]:  # the short chunk has ended
            states = [state[1:] if reverse else state[:-1] for state in states]
        _advance(A, b, at, states, here)
        states = here


def _advance(A: Matrix, b: Sequence[Tensor], at: slice, states: Sequence[Tensor], into: Sequence[Tensor]) -> None:
    for row, part, to in zip(A, b, into, strict=True):
        added = part[at]
        for a, state in zip(row, states, strict=True):
            if a is not None:
                added = torch.addcmul(added, a[at], state, out=to)
        if added is not to:
            to.copy_(added)


def _entering(
    A: Matrix, b: Sequence[Tensor], start: Sequence[Tensor], L: int, reverse: bool, bounded: bool
) -> list[Tensor]:
    """The states that enter each chunk."""
    T = b[0].shape[0]
    full = -(-T // L) - 1  # what the last one does, nobody needs
    first = T - full * L if reverse else 0
    end = T if reverse else full * L
    P: list[list[Tensor | None]] = []
    local: list[Tensor] = []
    for step in range(L):
        at = slice(first + (L - 1 - step if reverse else step), end, L)
        if step == 0:
            P = [[None if a is None else a[at] for a in row] for row in A]
            local = [part[at] for part in b]
            continue
        moved = [torch.empty_like(part) for part in local]
        _advance(A, b, at, local, moved)
        P, local = _product([[None if a is None else a[at] for a in row] for row in A], P), moved
    if not bounded or local[0].numel() <= _of(SMALL, local[0]):
        return _doubled(P, local, start, reverse, bounded)
    return solve(P, local, start, reverse, True, bounded)


def _product(A: Matrix, B: Matrix) -> list[list[Tensor | None]]:
    """Of small matrices, entry by entry."""
    found: list[list[Tensor | None]] = []
    for row in A:
        products: list[Tensor | None] = []
        for k in range(len(B)):
            total: Tensor | None = None
            for a, other in zip(row, B, strict=True):
                b = other[k]
                if a is not None and b is not None:
                    total = a * b if total is None else torch.addcmul(total, a, b)
            products.append(total)
        found.append(products)
    return found


def _doubled(A: Matrix, b: Sequence[Tensor], start: Sequence[Tensor], reverse: bool, bounded: bool) -> list[Tensor]:
    """As `solve` with the start, in log₂ T steps: after each, s_t holds twice as many of its own terms."""
    T = b[0].shape[0]
    paths = [
        torch.cat((part, first[None]) if reverse else (first[None], part)) for part, first in zip(b, start, strict=True)
    ]
    # Row t of P leads from distance d before t to t; rows nearer to the start than that have all of their terms.
    P: Matrix = A
    d = 1
    while d <= T:
        late = [path[:-d] if reverse else path[d:] for path in paths]
        early = [path[d:] if reverse else path[:-d] for path in paths]
        terms = [_applied(row, early, bounded) for row in P]
        for part, term in zip(late, terms, strict=True):
            if term is not None:
                part += term
        here: Matrix = [[None if p is None else p[:-d] if reverse else p[d:] for p in row] for row in P]
        there: Matrix = [[None if p is None else p[d:] if reverse else p[:-d] for p in row] for row in P]
        P = _product(here, there)
        d *= 2
    return paths


def _applied(row: Sequence[Tensor | None], states: Sequence[Tensor], bounded: bool) -> Tensor | None:
    """Σ_j A_ij s_j, zero where s is, even if A became infinite."""
    total: Tensor | None = None
    for a, state in zip(row, states, strict=True):
        if a is not None:
            term = a * state
            term = term if bounded else torch.where(state == 0, state, term)
            total = term if total is None else total + term
    return total
