"""Recursive networks over trees, and the equations of one node of a tree or of a grid.

**Compositions.** A chain has one predecessor: the previous step. The predecessors of a tree node are its children;
those of a grid point are its neighbours above and to the left. They are called h_1 … h_N, and the pre-activation is a
sum over them:

    a = U x + b + Σ_k W_k h_k          x: the word of a leaf or the pixel of a grid point; a missing x or h_k adds 0

    net         h = tanh(a)                                            the recursive net
    rntn        h = tanh(a + [h_1; h_2]ᵀ Q [h_1; h_2] / 2H)            with one quadratic form Q per unit
    lstm        i, o, f_1 … f_N = σ(a_i, a_o, a_f1 … a_fN)   g = tanh(a_g)
                c = i ⊙ g + Σ_k f_k ⊙ c_k                    h = o ⊙ tanh(c)
    child-sum   lstm for any number of children in any order: i, o and g read h̃ = Σ_k h_k in place of the h_k;
                f_k = σ(U_f x + W_f h_k + b_f) reads only its own child

References: Goller and Küchler 1996 and Deep Learning, section 10.6 (net); Socher et al. 2013 (rntn); Tai, Socher and
Manning 2015 (lstm and child-sum on trees); Graves, Fernández and Schmidhuber 2007 (net and lstm on grids).

**Trees.** A chain of τ steps has depth τ, a balanced tree of τ leaves ⌈log₂ τ⌉. A tree is given by its children: entry
k holds the children of node k in order; children come before their parent, the root is last, and () is a leaf:

    ((), (), (0, 1), (), (2, 3))        ((a b) c)

A batch of different trees is a `Forest`. Levels are counted from the roots. The children of all nodes of one level are
exactly the nodes of the next level, with siblings side by side. So a level is one product, and no earlier level is
indexed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.types import Device

from recur.cells import Cell, State, Tensors
from recur.cells.tensors import named_tuple
from recur.errors import OptionError, ShapeError, unknown
from recur.nn.functional import check_weights_fit
from recur.nn.options import check_integer


class Composition(nn.Module):
    """Equations of a node, applied to n nodes at once.

    A custom composition sets `gates`, `states` and `arity` (number of predecessors; None for any number) and defines
    `equations` or `step`.

    >>> class Mean(recur.nn.Composition):
    ...     gates = ("n",)
    ...     @staticmethod
    ...     def equations(a, s):
    ...         return (0.5 * (s.h1 + s.h2) + torch.tanh(a.n),)
    >>> recur.nn.Grid(Mean, 1, 4)(torch.randn(2, 3, 3, 1)).shape
    torch.Size([2, 3, 3, 4])
    """

    arity: ClassVar[int | None] = 2
    states: ClassVar[tuple[str, ...]] = ("h",)
    gates: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, input_size: int, hidden_size: int, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        D, H = check_integer("input_size", input_size, 1), check_integer("hidden_size", hidden_size, 1)
        self.input_size, self.hidden_size, G = D, H, len(self.gates)
        check_weights_fit({"U, W": (G * H, D + (self.arity or 1) * H)}, 1, device, dtype)
        self.weight_x = nn.Parameter(torch.empty(G * H, D, device=device, dtype=dtype))  # U
        self.weight_h = nn.Parameter(torch.empty(G * H, (self.arity or 1) * H, device=device, dtype=dtype))  # W_1 … W_N
        self.bias = nn.Parameter(torch.empty(G * H, device=device, dtype=dtype))
        self._add_parameters(device, dtype)
        self.reset_parameters()

    def _add_parameters(self, device: Device, dtype: torch.dtype | None) -> None:
        """Create further parameters of a subclass."""

    def reset_parameters(self) -> None:
        """Draw U and W by Glorot initialisation, gate by gate; set the biases to zero."""
        for weight in (self.weight_x, self.weight_h):
            for block in weight.detach().chunk(len(self.gates)):
                nn.init.xavier_uniform_(block)
        nn.init.zeros_(self.bias)

    def share(self, x: Tensor) -> Tensor:
        """Return the input projection U x + b of all nodes, shape (n, G·H), in one product."""
        return linear(x, self.weight_x, self.bias)

    def forward(self, share: Tensor | None, before: State | None, owner: Tensor, n: int) -> State:
        """Return the states of n nodes, (n, H) each.

        share    input projections (n, G·H); None if the nodes have no input
        before   states of all predecessors, node after node, (m, H) each; None if there are none
        owner    (m,): index of the node to which each predecessor belongs
        """
        if before is None:
            assert share is not None
            return self.step(share, None)
        H = self.hidden_size
        together = before[0].reshape(-1, self.weight_h.shape[1])
        a = linear(together, self.weight_h, self.bias if share is None else None)
        if share is not None:
            a = a + share
        return self.step(a, tuple(part.view(len(a), -1, H) for part in before))

    def step(self, a: Tensor, before: State | None) -> State:
        """Return the states of the nodes from a (n, G·H) and the predecessors' states (n, N, H)."""
        n, N = len(a), self.arity or 1
        before = before or tuple(a.new_zeros(n, N, self.hidden_size) for _ in self.states)
        names = predecessor_state_names(type(self))
        s = named_tuple(type(self).__name__, "s", names)._make(part[:, k] for part in before for k in range(N))
        of_gates = named_tuple(type(self).__name__, "x", self.gates)
        return self.equations(of_gates._make(a.chunk(len(self.gates), dim=-1)), s)

    @staticmethod
    def equations(a: Tensors, s: Tensors) -> State:
        """Return the states of the nodes from the gates a.i, a.f1, … and the predecessors' states s.h1, s.h2, s.c1,
        s.c2.

        All tensors are (n, H). If every unit depends only on the same unit of its inputs, the composition also runs
        over grids, in C++ too.
        """
        raise NotImplementedError


def predecessor_state_names(kind: type[Composition]) -> tuple[str, ...]:
    """Return the names of the predecessors' states: h1, h2, c1, c2."""
    return tuple(f"{state}{k + 1}" for state in kind.states for k in range(kind.arity or 1))


_CELLS: dict[type[Composition], Cell] = {}


def composition_cell(kind: type[Composition]) -> Cell:
    """Return a composition as a cell for the compiler; cached.

    The cell has no recurrent product: its step receives all of a and the states of every predecessor.
    """
    if kind not in _CELLS:
        _CELLS[kind] = _cell_of(kind)
    return _CELLS[kind]


def _cell_of(kind: type[Composition]) -> Cell:

    class Joined(Cell):
        gates, state_gates, states = kind.gates, (), kind.states

        def tuple_of(self, role: str) -> type[Tensors]:
            if role == "s":
                return named_tuple(kind.__name__, role, predecessor_state_names(kind))
            return super().tuple_of(role)

        def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
            return kind.equations(x, s)

        def __reduce__(
            self,
        ) -> tuple[Callable[[type[Composition]], Cell], tuple[type[Composition]]]:  # its class is made, not imported
            return composition_cell, (kind,)

    Joined.__name__ = kind.__name__
    return Joined()


class RecursiveNet(Composition):
    gates = ("h",)

    @staticmethod
    def equations(a: Tensors, s: Tensors) -> State:
        return (torch.tanh(a.h),)


class TensorNet(Composition):
    gates = ("h",)

    def _add_parameters(self, device: Device, dtype: torch.dtype | None) -> None:
        H = self.hidden_size
        self.tensor = nn.Parameter(torch.empty(H, 2 * H, 2 * H, device=device, dtype=dtype))  # Q

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.uniform_(self.tensor, -0.5, 0.5)

    def step(self, a: Tensor, before: State | None) -> State:
        if before is not None:
            pair = before[0].flatten(1)
            H = self.hidden_size
            halves = (pair @ self.tensor.permute(1, 0, 2).reshape(2 * H, 2 * H * H)).view(-1, H, 2 * H)
            # A sum of (2H)² terms moves 2H times as far as one of 2H when all its weights take a step alike, as they do
            # under Adam: divided by 2H it keeps pace with the linear part.
            a = a + (halves @ pair[:, :, None]).squeeze(-1) / (2 * H)
        return (torch.tanh(a),)


class TreeLSTM(Composition):
    gates = ("i", "o", "f1", "f2", "g")  # what goes through σ lies together
    states = ("h", "c")

    @staticmethod
    def equations(a: Tensors, s: Tensors) -> State:
        i, o, f1, f2 = (torch.sigmoid(gate) for gate in (a.i, a.o, a.f1, a.f2))
        c = i * torch.tanh(a.g) + f1 * s.c1 + f2 * s.c2
        return o * torch.tanh(c), c

    def step(self, a: Tensor, before: State | None) -> State:
        """Compute the same as `equations`, with one sigmoid for all gates."""
        H = self.hidden_size
        gates, g = a.split([4 * H, H], dim=-1)  # split, not indexed: its gradient is put together once
        i, o, f = torch.sigmoid(gates).split([H, H, 2 * H], dim=-1)
        c = i * torch.tanh(g)
        if before is not None:
            c = c + (f.view(-1, 2, H) * before[1]).sum(1)
        return o * torch.tanh(c), c


class ChildSum(Composition):
    arity = None
    gates = ("i", "o", "g", "f")  # what sees the sum of all children lies together
    states = ("h", "c")

    def forward(self, share: Tensor | None, before: State | None, owner: Tensor, n: int) -> State:
        H = self.hidden_size
        own, forget = (self.bias if share is None else share).split([3 * H, H], dim=-1)
        memory: Tensor | float = 0.0
        if before is not None:
            h, c = before
            of_sum, of_each = self.weight_h.split([3 * H, H])
            own = own + linear(h.new_zeros(n, H).index_add(0, owner, h), of_sum)
            f = torch.sigmoid(linear(h, of_each) + (forget if share is None else forget[owner]))
            memory = h.new_zeros(n, H).index_add(0, owner, f * c)
        i, o, g = own.chunk(3, dim=-1)
        c = torch.sigmoid(i) * torch.tanh(g) + memory
        return torch.sigmoid(o) * torch.tanh(c), c


COMPOSITIONS: dict[str, type[Composition]] = {
    "net": RecursiveNet,
    "rntn": TensorNet,
    "lstm": TreeLSTM,
    "child-sum": ChildSum,
}


def make_composition(
    kind: str, input_size: int, hidden_size: int, *, device: Device = None, dtype: torch.dtype | None = None
) -> Composition:
    """Return a composition by name; `tree-lstm` is another name of `lstm`."""
    name = "lstm" if kind == "tree-lstm" else kind
    if name not in COMPOSITIONS:
        raise OptionError(unknown("composition", kind, [*COMPOSITIONS, "tree-lstm"]))
    return COMPOSITIONS[name](input_size, hidden_size, device=device, dtype=dtype)


def check_arity(composition: Composition, counts: Sequence[int], what: str) -> None:
    """Raise OptionError if the composition cannot join this number of predecessors."""
    N = composition.arity
    wrong = [n for n in counts if n and N is not None and n != N]
    if wrong:
        raise OptionError(f"{type(composition).__name__} joins {N} nodes, {what} has one of {wrong[0]}; take child-sum")


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

    compose   net, rntn, lstm (tree-lstm) or child-sum; see recur.nn.recursive

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
