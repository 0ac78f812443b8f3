"""Exponential, normalised and linear cells: where they start, and that no number breaks far from zero."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from recur.cells import make_cell
from recur.errors import OptionError
from recur.nn import Init, Recurrent
from recur.ops import scan
from tests.support import DOUBLE, HERE, TOLERANCE, close, random_weights

CPU = [backend for backend in HERE if backend != "torch"]
WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "lengths": {"lengths": [4, 1, 2]},
    "resets": {"reset": torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()},
    "cut": {"bptt": "truncated:2"},
    "clipped": {"bptt": "full,clip:1"},
}
FAR = ["slstm", "slstm:forget=exp", "slstm:heads=2", "mingru:positive=True", "minlstm", "sru", "lru", "rglru", "lnlstm"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FAR)
def test_gates_far_from_zero_leave_every_gradient_finite(name: str, way: str) -> None:
    """Sums of ±50 and ±500 in float32, from the cell's own start; the same on every backend, and from T = 1 on."""
    cell = make_cell(name)
    for size in (50.0, 500.0):
        for T in (4, 1) if way == "whole" else (4,):
            torch.manual_seed(0)
            weights = {key: (torch.randn(shape) * 0.5).requires_grad_() for key, shape in cell.shapes(2 * 4, 4).items()}
            with torch.no_grad():  # every gate far out in both directions, one sign for each unit and sequence
                weights["weight_ih"].copy_(torch.cat([torch.eye(8).roll(k, 1)[:4] for k in range(len(cell.gates))]))
            x = (size * torch.randn(3, T, 8).sign()).requires_grad_()
            leaves = [x, *weights.values()]
            found = {}
            for backend in CPU if cell.pointwise else ["loop"]:
                outputs, final, _ = scan(cell, weights, x, backend=backend, **WAYS[way])
                grads = torch.autograd.grad(
                    outputs.sum() + outputs.square().sum() / size, leaves, materialize_grads=True
                )
                found[backend] = [outputs.detach(), *(part.detach() for part in final), *grads]
                assert all(part.isfinite().all() for part in found[backend]), (backend, size, T)
            for got in found.values():
                for a, b in zip(got, found["loop"], strict=True):
                    close(a, b)


@pytest.mark.parametrize("backend", [*CPU, "parallel"])
def test_rglru_far_out_in_half_precision(backend: str) -> None:
    """Where a rounds to 1 nothing of 1 − a² is left, and its root has no slope there."""
    cell, found = make_cell("rglru"), []
    torch.manual_seed(0)
    weights = {key: torch.randn(shape) * 0.5 for key, shape in cell.shapes(4, 4).items()}
    x = 60 * torch.randn(3, 5, 4)
    for dtype, way in ((torch.float16, backend), (torch.float32, "loop")):
        given = {key: weight.to(dtype).requires_grad_() for key, weight in weights.items()}
        outputs = scan(cell, given, x.to(dtype), backend=way).outputs
        found.append([outputs, *torch.autograd.grad(outputs.tanh().sum(), given.values())])
    for ours, exact in zip(*found, strict=True):
        close(ours.float(), exact, tolerance=TOLERANCE[torch.bfloat16])


@pytest.mark.parametrize("backend", CPU)
def test_slstm_forgets_its_stabiliser(backend: str) -> None:
    """h, and its gradient, are what c and n in full give: m scales both, and cancels."""
    cell = make_cell("slstm", forget="exp")
    weights = random_weights(cell, 3, 4)
    x = torch.randn(2, 5, 3, requires_grad=True, **DOUBLE)
    leaves = [x, *weights.values()]
    share = x @ weights["weight_ih"].T + weights["bias_ih"]
    h = c = n = torch.zeros(2, 4, **DOUBLE)
    seen = []
    for t in range(5):
        i, f, z, o = (share[:, t] + h @ weights["weight_hh"].T + weights["bias_hh"]).chunk(4, dim=-1)
        c, n = f.exp() * c + i.exp() * z.tanh(), f.exp() * n + i.exp()
        h = o.sigmoid() * c / n
        seen.append(h)
    expected = torch.stack(seen, 1)
    got = scan(cell, weights, x, backend=backend).outputs
    close(got, expected)
    pull = torch.randn_like(expected)
    for a, b in zip(*(torch.autograd.grad(y, leaves, pull) for y in (got, expected)), strict=True):
        close(a, b)


def test_one_outstanding_input_outweighs_all_before_it() -> None:
    """What an exponential gate is for: a sigmoid cannot write one value over a memory that is full."""
    cell = make_cell("slstm")
    weights = {name: torch.zeros(shape, **DOUBLE) for name, shape in cell.shapes(2, 1).items()}
    weights["weight_ih"][0, 0] = weights["weight_ih"][2, 1] = 1  # x = (log i, z)
    weights["bias_ih"][1] = weights["bias_ih"][3] = 50  # f = o = 1
    x = torch.tensor([[[0.0, 20.0]] * 100 + [[20.0, -20.0]]], **DOUBLE)
    outputs = scan(cell, weights, x).outputs[0, :, 0]
    close(outputs[-2], torch.tensor(1.0, **DOUBLE))
    close(outputs[-1], torch.tensor((100 - math.exp(20)) / (100 + math.exp(20)), **DOUBLE))


# Where weights start --------------------------------------------------------------------------------------


def started(cell: str, H: int = 4000, **options: Any) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {name: w.detach() for name, w in Recurrent(cell, 2, H, **DOUBLE, **options).weights().items()}


def test_slstm_starts_its_forget_biases_from_5_to_minus_7_in_every_head() -> None:
    w = started("slstm:heads=2", 10)
    f = (w["bias_ih"] + w["bias_hh"]).view(4, 2, 5)[1]
    close(f[0], 5 - 12 * (torch.arange(5, **DOUBLE) / 4) ** 0.3)
    close(f[1], f[0])
    given = started("slstm", 4, init=Init(forget_bias=2.0))
    close((given["bias_ih"] + given["bias_hh"])[4:8], torch.full((4,), 2.0, **DOUBLE))
    assert started("slstm", 4, bias=False).keys() == {"weight_ih", "weight_hh"}
    assert started("slstm:forget=exp", 400)["bias_ih"].abs().max() <= 400**-0.5


def test_lru_starts_on_its_ring() -> None:
    for cell, low, high, phase in (
        ("lru", 0, 1, 2 * math.pi),
        ("lru:r_min=0.9,r_max=0.999,max_phase=0.3", 0.9, 0.999, 0.3),
    ):
        w = started(cell)
        radius, angle = torch.exp(-torch.exp(w["nu"])), torch.exp(w["theta"])
        assert low <= radius.min()
        assert radius.max() <= high
        assert angle.max() <= phase
        # Uniform over the area of the ring: the square of the radius is uniform, and so is the angle.
        for part, a, b in ((radius.square(), low**2, high**2), (angle, 0.0, phase)):
            assert abs(part.mean().item() - (a + b) / 2) < 4 * (b - a) / math.sqrt(12 * 4000)
        close(torch.exp(w["gamma"]).square(), 1 - radius.square())


def test_lru_starts_with_numbers_on_the_narrowest_ring() -> None:
    """In float32 1 − |λ|² of some units there is 0, which has no logarithm."""
    cell = make_cell("lru:r_min=0.9999999")
    weights = {name: torch.empty(4000) for name in cell.extras}
    cell.init_extras(weights)
    assert all(w.isfinite().all() for w in weights.values())


def test_rglru_starts_between_09_and_0999() -> None:
    kept = torch.exp(-8 * torch.nn.functional.softplus(started("rglru")["Lambda"]))
    assert kept.min() >= 0.9
    assert kept.max() <= 0.999
    assert abs(kept.mean().item() - 0.9495) < 4 * 0.099 / math.sqrt(12 * 4000)


def test_sru_starts_as_its_authors_do() -> None:
    w = started("sru:highway_bias=-2")
    assert (w["bias_ih"].chunk(4)[2] == -2).all()
    for name in ("v_f", "v_r"):
        assert abs(w[name].var().item() - 0.5) < 0.05
        assert w[name].abs().max() <= math.sqrt(1.5)
    assert "v_f" not in started("sru:peephole=False", 4)


def test_lnlstm_starts_open() -> None:
    w = started("lnlstm:forget_bias=3", 4)
    assert (w["a_x"] == 1).all()
    assert w["b"].tolist() == [[0.0] * 4, [3.0] * 4, [0.0] * 4, [0.0] * 4]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("slstm:forget=tanh", "SLSTM: unknown forget gate 'tanh'"),
        ("lru:r_min=0.9,r_max=0.5", "0 ≤ r_min < r_max ≤ 1 is wanted"),
        ("lru:r_min=abc", "LRU: r_min must be a number, got 'abc'"),
        ("sru:peephole=no", "SRU: peephole must be True or False, got 'no'"),
        ("sru:highway_bias=inf", "SRU: highway_bias must be a number, got 'inf'"),
        ("mingru:positive=1", "MinGRU: positive must be True or False, got 1"),
        ("minlstm:positive=g", "MinLSTM: positive must be True or False, got 'g'"),
        ("lnlstm:forget_bias=None", "LNLSTM: forget_bias must be a number, got None"),
        ("lru:max_phase=7", "max_phase must lie in 0 … 2π, got 7"),
    ],
)
def test_options_out_of_range_are_refused(cell: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_cell(cell)
