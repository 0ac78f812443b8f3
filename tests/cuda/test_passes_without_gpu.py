"""The two passes of a scan without a GPU: kernels of one CTA compiled by g++, products by PyTorch, against the loop."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from recur.compiler import programs
from recur.compiler.programs import make_signature
from recur.ops import call_cache
from recur.ops.bptt import BPTT
from recur.ops.cuda.config import SINGLE_CTA, KernelConfig, ScanShape, override
from tests.cuda import host
from tests.support import Case, close, in_double, needs_core

pytestmark = [needs_core, pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")]

B, T, D, H = 3, 5, 4, 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def kernels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=None, allow_tf32=False):  # its test tools forbid to set it plainly
        host.on_cpu(monkeypatch, folder)
        with override(select=host.single_cta):
            yield
        host.forget()


def single(name: str) -> Case:
    case = Case(name, B, T, D, H)
    case.x = case.x.detach().float().requires_grad_()
    case.weights = {key: w.detach().float().requires_grad_() for key, w in case.weights.items()}
    case.state = tuple(part.detach().float().requires_grad_() for part in case.state)
    case.on_outputs, case.on_state = case.on_outputs.float(), [part.float() for part in case.on_state]
    return case


def everything(case: Case, backend: str, **options: Any) -> dict[str, torch.Tensor]:
    result = case.scan(backend=backend, trace=True, **options)
    found = case.everything(lambda: result)
    return found | {f"norm {name}": norms for name, norms in result.trace.norms.items()}


XI = torch.rand(B, T, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lengths": {"lengths": torch.tensor([5, 2, 4])},
    "ξ": {"bptt": BPTT(xi=XI)},
    "mask": {"mask": (torch.rand(B, H, generator=torch.Generator().manual_seed(2)) < 0.7).float()},
}


@pytest.mark.parametrize(
    ("name", "which", "warps"),
    [
        ("lstm", "plain", 8),
        ("gru", "lengths", 8),
        ("peephole", "ξ", 8),
        ("elman", "mask", 8),
        ("slstm", "plain", 8),
        ("lstm", "lengths", 16),
    ],
)
def test_against_the_loop(kernels: None, name: str, which: str, warps: int) -> None:
    def select(shape: ScanShape, found: list[KernelConfig]) -> list[KernelConfig]:
        return [config for config in found if (config.exchange, config.warps) == (SINGLE_CTA, warps)][:1]

    case, options = single(name), OPTIONS[which]
    doubled = {k: v.double() if k == "mask" else v for k, v in options.items()}
    with override(select=select):
        got = everything(case, "native", **options)
    expected = everything(in_double(case), "loop", **doubled)
    for key, value in expected.items():
        close(got[key].double(), value, f"{name}, {which}: {key}", 3e-5)


def test_both_directions_at_once(kernels: None) -> None:
    """One launch with the teams of both, and back, is the two of them one after the other."""
    cases = [single("gru"), single("gru")]
    cases[1].x, cases[1].weights = (
        cases[0].x,
        {name: w.detach().flip(0).requires_grad_() for name, w in cases[1].weights.items()},
    )
    leaves = [cases[0].x, *(part for case in cases for part in (*case.weights.values(), *case.state))]
    expected = []
    for case, reverse in zip(cases, (False, True), strict=True):
        found = case.scan(backend="loop", reverse=reverse)
        expected += [found.outputs, *found.state]
    assert not isinstance(programs.assembled(cases[0].cell, True), str)
    text, weights, _ = programs.operands(cases[0].cell, cases[0].weights)
    of, _ = make_signature(cases[0].x, weights, [], cases[0].state, None, None, None, 0.0, text, "")
    got = call_cache.run(of, lambda *_: [], leaves)
    arriving = [torch.randn_like(part) for part in expected]
    of_expected, of_got = (torch.autograd.grad(found, leaves, arriving) for found in (expected, got))
    for value, other in zip((*expected, *of_expected), (*got, *of_got), strict=True):
        close(other, value, tolerance=3e-5)
