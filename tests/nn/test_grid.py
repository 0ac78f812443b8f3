"""Recurrence in two dimensions: every backend against the plain double loop, and what each corner sees."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recur.cells import State, Tensors
from recur.errors import BackendError, DtypeError, OptionError, ShapeError
from recur.nn.grid import Grid
from recur.nn.recursive import Composition, RecursiveNet, TensorNet, TreeLSTM
from tests.support import close, core

D, H = 2, 3
BACKENDS = ["torch", *(["native"] if core else [])]


class Minimum(Composition):
    """What no network here has: three states, a gate that reads all neighbours' states, kinks, constants."""

    gates = ("z", "u")
    states = ("h", "c", "m")

    @staticmethod
    def equations(a: Tensors, s: Tensors) -> State:
        z = torch.sigmoid(a.z + 0.5 * s.h1 - s.m2)
        c = z * torch.minimum(s.c1, s.c2) + (1 - z) * torch.tanh(a.u * 0.3)
        return torch.relu(c) - 0.1 * s.m1 * s.h2, c, c - 0.5 * z


KINDS = ["net", "lstm", Minimum]


def network(compose: Any, corners: int, backend: str = "auto", dtype: Any = torch.float64, width: int = H) -> Grid:
    made = Grid(compose, D, width, corners=corners, backend=backend, dtype=dtype)
    for p in made.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return made


def images(B: int, R: int, C: int, depth: int = D, dtype: Any = torch.float64) -> Tensor:
    return torch.randn(B, R, C, depth, dtype=dtype, requires_grad=True)


def everything(net: Grid, run: Any, x: Tensor, weight: Tensor) -> list[Tensor]:
    out = run(x)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), [x, *net.parameters()])]


def is_the_double_loop(net: Grid, x: Tensor) -> None:
    weight = torch.randn(*x.shape[:3], net.output_size, dtype=x.dtype)
    for got, expected in zip(everything(net, net, x, weight), everything(net, net.plain, x, weight), strict=True):
        close(got, expected)


SIZES = [(2, 4, 4), (1, 1, 1), (3, 1, 5), (2, 5, 1), (2, 3, 6), (1, 6, 3), (1, 2, 2), (70, 3, 5)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("corners", [1, 2, 4])
@pytest.mark.parametrize("compose", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_is_the_double_loop_in_value_and_gradient(
    backend: str, compose: Any, corners: int, size: tuple[int, int, int]
) -> None:
    is_the_double_loop(network(compose, corners, backend), images(*size))


@pytest.mark.parametrize("width", [1, 7, 16, 33])
@pytest.mark.parametrize("depth", [1, 17])
@pytest.mark.parametrize("backend", BACKENDS)
def test_any_number_of_units_and_inputs(backend: str, depth: int, width: int) -> None:
    net = Grid("lstm", depth, width, corners=2, backend=backend, dtype=torch.float64)
    is_the_double_loop(net, images(3, 5, 4, depth))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("compose", ["net", "lstm"])
def test_float32(compose: str, backend: str) -> None:
    net = network(compose, 4, backend, torch.float32, width=16)
    is_the_double_loop(net, images(9, 7, 5, dtype=torch.float32))


@pytest.mark.parametrize("name", ["net", "lstm"])
def test_gradcheck(name: str) -> None:
    net = network(name, 2)
    assert torch.autograd.gradcheck(lambda x, *_: net(x), (images(1, 3, 2), *net.parameters()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("compose", KINDS)
def test_gradients_of_gradients(compose: Any, backend: str) -> None:
    """They are taken in PyTorch's operations, whichever backend ran."""
    net, x = network(compose, 2, backend), images(2, 3, 2)
    leaves = [x, *net.parameters()]

    def second(run: Any) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(run(x).pow(3).sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in first), leaves)

    for got, expected in zip(second(net), second(net.plain), strict=True):
        close(got, expected)


def test_gradients_that_nobody_asked_for_are_left_out() -> None:
    net, x = network("lstm", 4), images(2, 3, 4)
    weight = torch.randn(2, 3, 4, 4 * H, dtype=torch.float64)
    whole = everything(net, net, x, weight)
    without_x = torch.autograd.grad((net(x.detach()) * weight).sum(), list(net.parameters()))
    for got, expected in zip(without_x, whole[2:], strict=True):
        assert torch.equal(got, expected)
    net.requires_grad_(False)
    assert torch.equal(torch.autograd.grad((net(x) * weight).sum(), [x])[0], whole[1])
    with torch.no_grad():
        assert torch.equal(net(x), whole[0])  # without a tape, the same numbers
    assert not net(x.detach()).requires_grad


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # which PyTorch itself calls for jvp
def test_transforms_take_the_operations_of_pytorch() -> None:
    net, x = network("lstm", 2), images(4, 3, 2).detach()
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters: dict[str, Tensor], image: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(net, parameters, (image[None],))
        return out.square().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for b, image in enumerate(x):
        expected = torch.autograd.grad(net.plain(image[None]).square().sum(), list(net.parameters()))
        for got, gradient in zip(found.values(), expected, strict=True):
            close(got[b], gradient)
    tangent = torch.randn_like(x)
    outputs, moved = torch.func.jvp(net, (x,), (tangent,))
    plain, expected_move = torch.func.jvp(net.plain, (x,), (tangent,))
    close(outputs.detach(), plain.detach())
    close(moved.detach(), expected_move.detach())


def test_which_backend_runs_is_said_and_one_asked_for_by_name_runs_or_raises() -> None:
    x = images(1, 2, 2)
    assert network("net", 1).choose(x) == ("native" if core else "torch")
    assert network("net", 1, "torch").choose(x) == "torch"
    loop = network("net", 1, "loop")
    assert loop.choose(x) == "loop"
    assert torch.equal(loop(x), loop.plain(x))
    half = network("net", 1, "native", torch.bfloat16)
    with pytest.raises(BackendError, match="'native' cannot run this: .*; take backend='auto' or 'torch'"):
        half(x.bfloat16())
    with pytest.raises(BackendError, match="unknown backend 'cuda'"):
        Grid("net", D, H, backend="cuda")
    net, under = network("net", 1), []
    torch.func.vmap(lambda image: under.append(net.choose(image)) or image)(x)
    assert under == ["torch"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_computes_in_the_dtype_of_the_weights(backend: str) -> None:
    net, x = network("lstm", 1, backend, torch.float32), images(2, 3, 3, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = net(x.bfloat16())
    assert torch.equal(out, net(x.bfloat16().float()).bfloat16())


def test_a_network_is_copied_and_pickled() -> None:
    net, x = network("lstm", 2), images(1, 2, 3)
    expected = net(x)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(x), expected)


def test_equations_are_the_step_that_trees_take() -> None:
    """Where a composition has both, for speed; with predecessors and without."""
    for kind in (RecursiveNet, TreeLSTM):
        made, a = kind(D, H, dtype=torch.float64), torch.randn(4, len(kind.gates) * H, dtype=torch.float64)
        before = tuple(torch.randn(4, 2, H, dtype=torch.float64) for _ in kind.states)
        for given in (before, None):
            for got, expected in zip(made.step(a, given), Composition.step(made, a, given), strict=True):
                close(got, expected)


def test_one_row_is_a_plain_recurrent_network() -> None:
    net, x = network("net", 1), images(2, 1, 5)
    w = {name: p.detach().numpy() for name, p in net.composes[0].named_parameters()}
    h = np.zeros((2, H))
    for t in range(5):
        h = np.tanh(x[:, 0, t].detach().numpy() @ w["weight_x"].T + h @ w["weight_h"][:, H:].T + w["bias"])
        close(net(x)[:, 0, t].detach(), torch.tensor(h))


def seen(net: Grid, i: int, j: int, corner: int | None = None) -> Tensor:
    """Which points the output at (i, j) depends on, (R, C)."""
    x = images(1, 4, 5)
    out = net(x)[0, i, j]
    out = out if corner is None else out[corner * H : (corner + 1) * H]
    (grad,) = torch.autograd.grad(out.sum(), x)
    return grad[0].abs().sum(-1) > 0


@pytest.mark.parametrize("name", ["net", "lstm"])
def test_a_corner_sees_the_rectangle_behind_it_and_four_see_all(name: str) -> None:
    i, j = 1, 3
    rows, columns = torch.arange(4)[:, None], torch.arange(5)
    behind = [(rows <= i) & (columns <= j), (rows <= i) & (columns >= j), (rows >= i) & (columns <= j)]
    behind.append((rows >= i) & (columns >= j))
    four = network(name, 4)
    for corner, expected in enumerate(behind):
        assert torch.equal(seen(four, i, j, corner), expected.expand(4, 5))
    assert bool(seen(four, i, j).all())
    assert torch.equal(seen(network(name, 1), i, j), behind[0])
    assert torch.equal(seen(network(name, 2), i, j), behind[0] | behind[3])


class Normed(RecursiveNet):
    """Units that see each other."""

    @staticmethod
    def equations(a: Tensors, s: Tensors) -> State:
        return (torch.softmax(a.h, dim=-1),)


def test_a_composition_that_is_not_pointwise_runs_in_pytorch() -> None:
    net, x = network(Normed, 2), images(2, 3, 4)
    assert net.choose(x) == "torch"
    is_the_double_loop(net, x)
    if core:
        with pytest.raises(BackendError, match="its step uses softmax, which is not among the pointwise operations"):
            network(Normed, 2, "native")(x)


def test_what_does_not_fit_is_refused_in_words() -> None:
    with pytest.raises(OptionError, match="1, 2 or 4 corners, got 3"):
        Grid("net", D, H, corners=3)
    with pytest.raises(OptionError, match="unknown composition of a grid 'rntn'"):
        Grid("rntn", D, H)
    with pytest.raises(OptionError, match="TensorNet cannot be read over a grid: it needs arity = 2 and `equations`"):
        Grid(TensorNet, D, H)
    with pytest.raises(OptionError, match="net, lstm or of a class of Composition, got 7"):
        Grid(7, D, H)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"x must be \(B, R, C, D=2\), got \(8, 8, 2\); add an axis"):
        network("net", 1)(torch.zeros(8, 8, 2, dtype=torch.float64))
    mixed = r"x is float32 and weight_x float64; convert weight_x with .to\(torch.float32\)"
    with pytest.raises(DtypeError, match=mixed):
        network("net", 1)(torch.zeros(1, 2, 2, D))
