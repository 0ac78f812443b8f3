"""Recursive networks over trees.

A chain of τ steps has depth τ, a balanced tree of τ leaves ⌈log₂ τ⌉. A tree is given by its children: entry k holds the
children of node k in order; children come before their parent, the root is last, and () is a leaf:

    ((), (), (0, 1), (), (2, 3))        ((a b) c)

A batch of different trees is a `Forest`. Levels are counted from the roots. The children of all nodes of one level are
exactly the nodes of the next level, with siblings side by side. So a level is one product, and no earlier level is
indexed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.types import Device

from recur.cells import State
from recur.errors import ShapeError
from recur.nn.composition import Composition, check_arity, make_composition

TreeShape = Sequence[Sequence[int]]


@dataclass(frozen=True)
class TreeLevel:
    """Nodes of all trees at one distance from their roots."""

    leaves: int
    """Number of leaves among them."""
    order: Tensor
    """Position of each node of the level when leaves come first and inner nodes second."""
    owner: Tensor
    """For each node of the level below, the index of its parent among the inner nodes of this level."""


@dataclass(frozen=True)
class Forest:
    """Batch of trees of any shapes, laid out for one pass. Nodes and leaves are numbered tree after tree.

    >>> forest = recur.nn.Forest.of([((), (), (0, 1))])          # (a b): two leaves and their parent
    >>> forest.leaves, forest.nodes, forest.roots.tolist()
    (2, 3, [2])
    """

    levels: tuple[TreeLevel, ...]
    """Levels from the roots down."""
    roots: Tensor
    """(B,): index of the root of each tree."""
    leaf_order: Tensor
    """Leaves from the deepest level up."""
    node_order: Tensor
    """Position of each node in the order in which states are computed."""
    arities: tuple[int, ...]
    """All numbers of children that occur."""

    @property
    def nodes(self) -> int:
        return len(self.node_order)

    @property
    def leaves(self) -> int:
        return len(self.leaf_order)

    def to(self, device: Device) -> Forest:
        levels = tuple(TreeLevel(level.leaves, level.order.to(device), level.owner.to(device)) for level in self.levels)
        roots, leaf_order, node_order = (k.to(device) for k in (self.roots, self.leaf_order, self.node_order))
        return Forest(levels, roots, leaf_order, node_order, self.arities)

    @staticmethod
    def of(shapes: Sequence[TreeShape], device: Device = None) -> Forest:
        if not shapes:
            raise ShapeError("a forest needs at least one tree, got none")
        children, roots = _join(shapes)
        leaf_number = {k: n for n, k in enumerate(k for k, below in enumerate(children) if not below)}
        levels, leaf_order, computed = [], [], []  # all three from the deepest level up, as states are computed
        for level in reversed(_by_distance(children, roots)):
            leaves, inner = [k for k in level if not children[k]], [k for k in level if children[k]]
            place = {k: at for at, k in enumerate(leaves + inner)}
            owner = [at for at, k in enumerate(inner) for _ in children[k]]
            levels.append(TreeLevel(len(leaves), _longs([place[k] for k in level], device), _longs(owner, device)))
            leaf_order += [leaf_number[k] for k in leaves]
            computed += level
        node_order = sorted(range(len(computed)), key=computed.__getitem__)
        return Forest(
            tuple(reversed(levels)),
            _longs(roots, device),
            _longs(leaf_order, device),
            _longs(node_order, device),
            tuple(sorted({len(below) for below in children})),
        )


def _join(shapes: Sequence[TreeShape]) -> tuple[list[list[int]], list[int]]:
    """Return the children of all nodes, numbered tree after tree, and the roots."""
    children: list[list[int]] = []
    roots = []
    for b, shape in enumerate(shapes):
        _check_shape(shape, b)
        first = len(children)
        children += [[first + k for k in below] for below in shape]
        roots.append(len(children) - 1)
    return children, roots


def _by_distance(children: list[list[int]], roots: list[int]) -> list[list[int]]:
    """Group nodes by their distance from the roots."""
    levels = [roots]
    while below := [child for k in levels[-1] for child in children[k]]:
        levels.append(below)
    return levels


def _longs(values: list[int], device: Device) -> Tensor:
    return torch.tensor(values, dtype=torch.long, device=device)


def _check_shape(shape: TreeShape, b: int) -> None:
    """Raise ShapeError unless every node but the last is the child of exactly one later node."""
    found = sorted(child for k, below in enumerate(shape) for child in below if 0 <= child < k)
    if not shape or found != list(range(len(shape) - 1)) or sum(map(len, shape)) != len(found):
        raise ShapeError(
            f"tree {b} is not a tree: every node but the root, which is last, needs exactly one parent after it"
        )


class Recursive(nn.Module):
    """Recursive network over trees: leaves (n, D) to the states of all nodes.

    compose   net, rntn, lstm (tree-lstm) or child-sum; see recur.nn.composition

    >>> forest = recur.nn.Forest.of([((), (), (0, 1)), ((), (), (0, 1), (), (2, 3))])
    >>> states = recur.nn.Recursive("tree-lstm", 3, 4)(torch.randn(forest.leaves, 3), forest)
    >>> states[0][forest.roots].shape
    torch.Size([2, 4])
    """

    def __init__(
        self,
        compose: str,
        input_size: int,
        hidden_size: int,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.compose: Composition = make_composition(compose, input_size, hidden_size, device=device, dtype=dtype)

    def forward(self, x: Tensor, forest: Forest) -> State:
        """Return the states of all nodes, (nodes, H) each, the output first, in the order of the forest.

        x   (leaves, D): words of all trees, left to right, tree after tree
        """
        self._check(x, forest.leaves)
        check_arity(self.compose, forest.arities, "the forest")
        leaves = self.compose(self.compose.share(x)[forest.leaf_order], None, forest.leaf_order, forest.leaves)
        waiting = [part.split([level.leaves for level in reversed(forest.levels)]) for part in leaves]
        below: State | None = None
        computed: list[State] = []
        for k, level in enumerate(reversed(forest.levels)):
            here = tuple(part[k] for part in waiting)
            if len(level.owner):
                inner = self.compose(None, below, level.owner, len(level.order) - level.leaves)
                here = tuple(torch.cat(both)[level.order] for both in zip(here, inner, strict=True))
            below = here
            computed.append(here)
        return tuple(torch.cat(parts)[forest.node_order] for parts in zip(*computed, strict=True))

    def plain(self, x: Tensor, shape: TreeShape) -> State:
        """Compute the definition for one tree, node by node, children before their parent."""
        self._check(x, sum(not below for below in shape))
        check_arity(self.compose, [len(below) for below in shape], "the tree")
        words = iter(x)
        states: list[State] = []
        for below in shape:
            owner = torch.zeros(len(below), dtype=torch.long, device=x.device)
            if below:
                before = tuple(torch.cat(parts) for parts in zip(*(states[k] for k in below), strict=True))
                states.append(self.compose(None, before, owner, 1))
            else:
                states.append(self.compose(self.compose.share(next(words)[None]), None, owner, 1))
        return tuple(torch.cat(parts) for parts in zip(*states, strict=True))

    def _check(self, x: Tensor, leaves: int) -> None:
        D = self.compose.input_size
        if not isinstance(x, Tensor) or tuple(x.shape) != (leaves, D):
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ShapeError(f"Recursive: x must be (leaves={leaves}, D={D}), got {got}")
