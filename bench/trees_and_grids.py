"""Trees by levels against plain recursion, grids in one call against the double loop; forward and backward."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from bench.side_by_side import Contest, Tensors
from recur.nn import Forest, Grid, Recursive
from recur.nn.recursive import TreeShape

BATCH, WORDS, WIDTH = 64, 19, 150
"""Trees as in the sentiment treebank, where a sentence has 19 words."""

WIDTHS, SIDES, BATCHES, CORNERS = (16, 32, 64, 128), (8, 28), (1, 16, 64), (1, 4)


def contests() -> Iterator[Contest]:
    for name in ("net", "rntn", "lstm", "child-sum"):
        yield trees(name, WIDTH if name != "rntn" else 45)
    for name in ("net", "lstm"):
        for side, corners, B, width in itertools.product(SIDES, CORNERS, BATCHES, WIDTHS):
            yield grids(name, side, corners, B, width)


def trees(name: str, H: int) -> Contest:
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    shapes = [random_tree(random, int(random.integers(WORDS - 10, WORDS + 11))) for _ in range(BATCH)]
    leaves = [sum(not below for below in shape) for shape in shapes]
    net = Recursive(name, H, H)
    x = torch.randn(sum(leaves), H, requires_grad=True)
    weight = torch.randn(sum(map(len, shapes)), H)

    def by_levels() -> Tensors:
        return _everything(net, x, net(x, Forest.of(shapes))[0], weight)  # laying out the forest is part of the job

    def recursion() -> Tensors:
        parts = [net.plain(words, shape)[0] for words, shape in zip(x.split(leaves), shapes, strict=True)]
        return _everything(net, x, torch.cat(parts), weight)

    return Contest(f"{name} by levels / plain recursion, {BATCH} trees, H {H}", by_levels, recursion, tolerance=2e-4)


def random_tree(random: np.random.Generator, leaves: int) -> TreeShape:
    """Neighbours joined at random until one node is left: neither a chain nor balanced."""
    children: list[tuple[int, ...]] = []

    def grow(n: int) -> int:
        below: tuple[int, ...] = ()
        if n > 1:
            left = int(random.integers(1, n))
            below = (grow(left), grow(n - left))
        children.append(below)
        return len(children) - 1

    grow(leaves)
    return children


def grids(name: str, side: int, corners: int, B: int, H: int) -> Contest:
    torch.manual_seed(0)
    net = Grid(name, 1, H, corners=corners, backend="native")
    with torch.no_grad():  # as they start, rounding grows over a wide grid until the double loop is no judge of it
        for p in net.parameters():
            p.mul_(0.5)
    x = torch.randn(B, side, side, 1, requires_grad=True)
    weight = torch.randn(B, side, side, corners * H)
    what = f"grid {name} / double loop, {side} × {side}, corners {corners}, B {B} H {H}"
    return Contest(
        what,
        lambda: _everything(net, x, net(x), weight),
        lambda: _everything(net, x, net.plain(x), weight),
        tolerance=1e-3,
        flops=3 * 2 * sum(p.numel() for p in net.parameters()) * B * side**2,  # forward, and twice as much back
    )


def _everything(net: nn.Module, x: Tensor, outputs: Tensor, weight: Tensor) -> Tensors:
    names, leaves = zip(*[("x", x), *net.named_parameters()], strict=True)
    grads = torch.autograd.grad((outputs * weight).sum(), leaves)
    found = {f"grad {name}": grad for name, grad in zip(names, grads, strict=True)}
    return {"outputs": outputs.detach()} | found
