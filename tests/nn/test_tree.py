"""Recursive networks: levels against plain recursion, equations against NumPy, bad shapes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from recur.errors import OptionError, ShapeError
from recur.nn.recursive import COMPOSITIONS, Forest, Recursive, TreeShape
from tests.support import close

D, H = 3, 4
LONE, PAIR, CHAIN = ((),), ((), (), (0, 1)), ((), (), (0, 1), (), (2, 3), (), (4, 5))
BALANCED = ((), (), (0, 1), (), (), (3, 4), (2, 5))
WIDE = ((), (), (), (0, 1, 2), (), (4,), (3, 5))
"""Nodes of one, two and three children."""


def network(name: str) -> Recursive:
    made = Recursive(name, D, H, dtype=torch.float64)
    for p in made.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return made


def both(net: Recursive, shapes: list[TreeShape]) -> tuple[list[Tensor], list[Tensor]]:
    """Every state, and every gradient of a loss that weighs each node differently: by levels, and by recursion."""
    leaves = [sum(not below for below in shape) for shape in shapes]
    x = torch.randn(sum(leaves), D, dtype=torch.float64, requires_grad=True)
    wanted = [x, *net.parameters()]
    forest = Forest.of(shapes)
    weights = [torch.randn(forest.nodes, H, dtype=torch.float64) for _ in net.compose.states]
    by_levels = net(x, forest)
    parts = [net.plain(piece, shape) for piece, shape in zip(x.split(leaves), shapes, strict=True)]
    recursed = tuple(torch.cat(states) for states in zip(*parts, strict=True))
    found = []
    for states in (by_levels, recursed):
        loss = sum((state * weight).sum() for state, weight in zip(states, weights, strict=True))
        assert isinstance(loss, Tensor)
        grads = torch.autograd.grad(loss, wanted, allow_unused=True)
        filled = [torch.zeros_like(p) if g is None else g for g, p in zip(grads, wanted, strict=True)]
        found.append([*(state.detach() for state in states), *filled])
    return found[0], found[1]


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_levels_are_plain_recursion_in_value_and_gradient(name: str) -> None:
    shapes: list[TreeShape] = [PAIR, CHAIN, LONE, BALANCED, CHAIN]
    if name == "child-sum":
        shapes.append(WIDE)
    for got, expected in zip(*both(network(name), shapes), strict=True):
        close(got, expected)


def test_a_forest_of_single_words() -> None:
    for got, expected in zip(*both(network("lstm"), [LONE, LONE]), strict=True):
        close(got, expected)


@st.composite
def binary_trees(draw: st.DrawFn) -> TreeShape:
    nodes: list[tuple[int, ...]] = []
    roots: list[int] = []
    for _ in range(draw(st.integers(1, 9))):
        nodes.append(())
        roots.append(len(nodes) - 1)
        while len(roots) > 1 and draw(st.booleans()):
            nodes.append(tuple(roots[-2:]))
            roots[-2:] = [len(nodes) - 1]
    while len(roots) > 1:
        nodes.append(tuple(roots[-2:]))
        roots[-2:] = [len(nodes) - 1]
    return tuple(nodes)


@given(st.lists(binary_trees(), min_size=1, max_size=5), st.sampled_from(list(COMPOSITIONS)))
def test_levels_are_plain_recursion_for_trees_of_any_shape(shapes: list[TreeShape], name: str) -> None:
    for got, expected in zip(*both(network(name), shapes), strict=True):
        close(got, expected)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_gradcheck(name: str) -> None:
    net, forest = network(name), Forest.of([CHAIN, LONE])
    x = torch.randn(forest.leaves, D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: net(x, forest), (x, *net.parameters()))


def weights(net: Recursive) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in net.compose.named_parameters()}


def sigma(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def test_the_equations_of_the_net_and_the_tensor_net() -> None:
    for name in ("net", "rntn"):
        net = network(name)
        w, x = weights(net), np.random.default_rng(0).normal(size=(2, D))
        left, right = (np.tanh(w["weight_x"] @ word + w["bias"]) for word in x)
        a = w["weight_h"][:, :H] @ left + w["weight_h"][:, H:] @ right + w["bias"]
        if name == "rntn":
            pair = np.concatenate([left, right])
            a = a + np.array([pair @ form @ pair for form in w["tensor"]]) / (2 * H)
        close(net(torch.tensor(x), Forest.of([PAIR]))[0], torch.tensor(np.stack([left, right, np.tanh(a)])))


def test_the_equations_of_the_tree_lstm() -> None:
    net = network("lstm")
    w, x = weights(net), np.random.default_rng(0).normal(size=(2, D))
    gate = {name: slice(k * H, (k + 1) * H) for k, name in enumerate(("i", "o", "f1", "f2", "g"))}

    def leaf(word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        a = w["weight_x"] @ word + w["bias"]
        c = sigma(a[gate["i"]]) * np.tanh(a[gate["g"]])
        return sigma(a[gate["o"]]) * np.tanh(c), c

    (h1, c1), (h2, c2) = map(leaf, x)
    a = w["weight_h"][:, :H] @ h1 + w["weight_h"][:, H:] @ h2 + w["bias"]
    c = sigma(a[gate["i"]]) * np.tanh(a[gate["g"]]) + sigma(a[gate["f1"]]) * c1 + sigma(a[gate["f2"]]) * c2
    h = sigma(a[gate["o"]]) * np.tanh(c)
    states = net(torch.tensor(x), Forest.of([PAIR]))
    close(states[0], torch.tensor(np.stack([h1, h2, h])))
    close(states[1], torch.tensor(np.stack([c1, c2, c])))


def test_the_equations_of_the_child_sum_tree_lstm() -> None:
    net = network("child-sum")
    w, x = weights(net), np.random.default_rng(0).normal(size=(3, D))
    gate = {name: slice(k * H, (k + 1) * H) for k, name in enumerate(("i", "o", "g", "f"))}
    W, b = w["weight_h"], w["bias"]
    children = []
    for word in x:
        a = w["weight_x"] @ word + b
        c = sigma(a[gate["i"]]) * np.tanh(a[gate["g"]])
        children.append((sigma(a[gate["o"]]) * np.tanh(c), c))
    total = sum(h for h, _ in children)
    i, o, g = (W[gate[name]] @ total + b[gate[name]] for name in ("i", "o", "g"))
    c = sigma(i) * np.tanh(g) + sum(sigma(W[gate["f"]] @ h + b[gate["f"]]) * c for h, c in children)
    h = sigma(o) * np.tanh(c)
    states = net(torch.tensor(x), Forest.of([((), (), (), (0, 1, 2))]))
    close(states[0][-1], torch.tensor(h))
    close(states[1][-1], torch.tensor(c))


def test_child_sum_does_not_see_the_order_of_children_and_the_others_do() -> None:
    x = torch.randn(2, D, dtype=torch.float64)
    for name in COMPOSITIONS:
        net = network(name)
        one, other = (net(words, Forest.of([PAIR]))[0][-1] for words in (x, x.flip(0)))
        assert torch.allclose(one, other) == (name == "child-sum"), name


def test_levels_are_as_many_as_the_deepest_tree_has() -> None:
    assert len(Forest.of([CHAIN, LONE]).levels) == 4
    assert len(Forest.of([BALANCED]).levels) == 3


def test_a_wrong_tree_is_refused() -> None:
    for shape in [(), ((), ()), ((1,), ()), ((), (0, 0)), ((), (), (0, 1), (2, 1)), ((), (0, 5)), ((0,),), ((), (-1,))]:
        with pytest.raises(ShapeError, match="needs exactly one parent"):
            Forest.of([shape])
    with pytest.raises(ShapeError, match="at least one tree"):
        Forest.of([])


def test_what_does_not_fit_is_refused_in_words() -> None:
    forest = Forest.of([PAIR])
    with pytest.raises(ShapeError, match=r"x must be \(leaves=2, D=3\), got \(3, 3\)"):
        network("net")(torch.zeros(3, D, dtype=torch.float64), forest)
    for name, shape in itertools.product(("net", "rntn", "lstm"), (WIDE, ((), (0,)))):
        with pytest.raises(OptionError, match="joins 2 nodes, the forest has one of [13]; take child-sum"):
            network(name)(torch.zeros(sum(not b for b in shape), D, dtype=torch.float64), Forest.of([shape]))
    with pytest.raises(OptionError, match="unknown composition 'treelstm'; did you mean 'tree-lstm'?"):
        Recursive("treelstm", D, H)
