"""Matrix cells against the references of their authors: fla-core's naive recurrences, and mlstm_kernels."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, silu, softplus

from recur.cells import MatrixCell, make_cell
from recur.cells.matrix import head_norm, unit
from recur.ops import scan
from tests.support import close, random_weights

B, T, H, D = 2, 37, 8, 5
FLA = importlib.util.find_spec("fla")
needs_fla = pytest.mark.skipif(
    FLA is None or importlib.util.find_spec("einops") is None, reason="needs: pip install --no-deps fla-core einops"
)


def reference(path: str, name: str) -> Any:
    """Load one file of fla-core by its path: importing the package needs Triton."""
    assert FLA is not None
    assert FLA.submodule_search_locations
    file = Path(FLA.submodule_search_locations[0]) / "ops" / f"{path}.py"
    spec = importlib.util.spec_from_file_location(f"fla_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


class Inputs:
    """A cell with random weights, and its projected inputs, (B, T, heads, size) each."""

    def __init__(self, name: str) -> None:
        cell = make_cell(f"{name}:num_heads=2,key_size=3")
        assert isinstance(cell, MatrixCell)
        self.cell = cell
        self.w = {k: v.detach().float() for k, v in random_weights(cell, D, H).items()}
        x = torch.randn(B, T, D)
        share = torch.nn.functional.linear(x, self.w["weight_ih"], self.w["bias_ih"])
        for gate, part in zip(cell.gates, cell.split(share), strict=True):
            setattr(self, "decay" if gate == "w" else gate, part)
        self.outputs = [scan(cell, self.w, x, backend=backend).outputs for backend in ("loop", "chunk")]

    def __getattr__(self, name: str) -> Tensor:  # for the type checker: a projected input
        raise AttributeError(name)

    def matches(self, expected: Tensor) -> None:
        for found in self.outputs:
            close(found, expected.flatten(-2), tolerance=1e-4)


def by_head(*parts: Tensor) -> list[Tensor]:
    return [part.transpose(1, 2) for part in parts]


@needs_fla
def test_gla() -> None:
    x = Inputs("gla")
    o = reference("gla/naive", "naive_recurrent_gla")(x.q, x.k, x.v, logsigmoid(x.a) / 16)[0]
    x.matches(head_norm(o) * silu(x.g))


@needs_fla
def test_retnet() -> None:
    x = Inputs("retnet")
    o = reference("retention/naive", "naive_retention")(*by_head(x.q, x.k, x.v)).transpose(1, 2)
    x.matches(head_norm(o) * silu(x.g))


@needs_fla
def test_hgrn2_is_gla_with_tied_keys() -> None:
    x = Inputs("hgrn2")
    scale = 3**0.5  # the reference divides q by √K
    gate = logsigmoid(x.f)
    o = reference("gla/naive", "naive_recurrent_gla")(silu(x.q) * scale, 1 - gate.exp(), x.i, gate)[0]
    x.matches(head_norm(o))


@needs_fla
def test_deltanet() -> None:
    x = Inputs("deltanet")
    q, k, v, b = by_head(unit(silu(x.q)), unit(silu(x.k)), x.v, torch.sigmoid(x.b))
    o = reference("delta_rule/naive", "delta_rule_recurrence")(q, k, v, b[..., 0])[0]
    x.matches(head_norm(o.transpose(1, 2)))


@needs_fla
def test_gated_deltanet() -> None:
    x = Inputs("gated_deltanet")
    g = (-x.w["A_log"].exp() * softplus(x.a + x.w["dt_bias"]))[..., 0]
    rule = reference("gated_delta_rule/naive", "naive_recurrent_gated_delta_rule")
    o = rule(unit(silu(x.q)), unit(silu(x.k)), x.v, torch.sigmoid(x.b)[..., 0], g)[0]
    x.matches(head_norm(o, x.w["norm"]) * silu(x.g))


@needs_fla
def test_kda() -> None:
    x = Inputs("kda")
    g = -x.w["A_log"].exp() * softplus(x.a + x.w["dt_bias"])
    rule = reference("kda/naive", "naive_recurrent_kda")
    o = rule(unit(silu(x.q)), unit(silu(x.k)), x.v, g, torch.sigmoid(x.b)[..., 0])[0]
    x.matches(head_norm(o, x.w["norm"]) * torch.sigmoid(x.g))


@needs_fla
def test_gated_deltaproduct() -> None:
    x = Inputs("gated_deltaproduct")
    g = (-x.w["A_log"].exp() * softplus(x.a + x.w["dt_bias"]))[..., 0]

    def interleaved(first: Tensor, second: Tensor) -> Tensor:
        return torch.stack([first, second], dim=2).flatten(1, 2)

    k, v = interleaved(unit(silu(x.k1)), unit(silu(x.k2))), interleaved(x.v1, x.v2)
    b = interleaved(2 * torch.sigmoid(x.b1), 2 * torch.sigmoid(x.b2))[..., 0]
    rule = reference("gated_delta_product/naive", "naive_recurrent_gated_delta_product")
    o = rule(unit(silu(x.q)), k, v, g, b, 3**-0.5, num_householder=2)[0]
    x.matches(head_norm(o, x.w["norm"]) * silu(x.g))


@needs_fla
def test_rwkv6() -> None:
    x = Inputs("rwkv6")
    rule = reference("rwkv6/recurrent_naive", "naive_recurrent_rwkv6")
    o = rule(*by_head(x.r, x.k, x.v, -x.decay.exp()), x.w["u"], scale=1.0)[0].transpose(1, 2)
    x.matches(head_norm(o, x.w["norm"]) * silu(x.g))


@needs_fla
def test_rwkv7() -> None:
    x = Inputs("rwkv7")
    a, gate = torch.sigmoid(x.a), -(torch.tensor(-0.5).exp()) * torch.sigmoid(x.decay)
    removed, k = unit(x.w["k_k"] * x.k), x.k * (1 + (a - 1) * x.w["k_a"])
    scale = 3**0.5  # the reference divides q by √K
    q, k_t, v, alpha, beta, gk = by_head(x.r * scale, k, x.v, removed, -a * removed, gate)
    o = reference("generalized_delta_rule/dplr/naive", "dplr_recurrence")(q, k_t, v, alpha, beta, gk)[0].transpose(1, 2)
    o = head_norm(o, x.w["norm"]) + (x.r * x.w["r_k"] * k).sum(-1, keepdim=True) * x.v
    x.matches(o * x.g)


def test_mlstm() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Triton, and of names that PyTorch has deprecated
        native = pytest.importorskip(
            "mlstm_kernels.torch.recurrent.native_sequence", reason="needs xlstm: pip install xlstm"
        )
    x = Inputs("mlstm")
    q, k, v, i, f = by_head(x.q, x.k, x.v, x.i, x.f)
    o = native.mlstm_recurrent_sequence__native_fw(q, k, v, i[..., 0], f[..., 0], eps=0.0)
    o = (o[0] if isinstance(o, tuple) else o).transpose(1, 2)
    x.matches(torch.sigmoid(x.o) * head_norm(o, x.w["norm"]))
