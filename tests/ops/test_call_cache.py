"""Scans of a form that was taken before, which are not checked again: what differs in anything that counts, is."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
from torch.func import vmap

from recur.cells import Elman
from recur.cells._cache import cache_of, is_known
from recur.errors import BackendError, DeviceError, DtypeError, ShapeError
from recur.ops import call_cache, scan
from tests.support import DOUBLE, NATIVE_CELLS, Case, all_close, close, needs_core

pytestmark = needs_core


def taken(name: Any = "gru", **sizes: int) -> Case:
    """A form that is known."""
    case = Case(name, **sizes)
    for state in (None, case.state):
        scan(case.cell, case.weights, case.x, state)
    return case


def calls(case: Case) -> dict[Any, call_cache.PreparedCall]:
    known: dict[Any, call_cache.PreparedCall] = cache_of(case.cell).calls
    return known


@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_the_same_again(name: str) -> None:
    case = taken(name)
    got = case.everything(lambda: scan(case.cell, case.weights, case.x, case.state))
    all_close(got, case.everything(lambda: case.scan(backend="loop")))
    without = scan(case.cell, case.weights, case.x)
    assert without.trace.backend == "native"
    close(without.outputs, scan(case.cell, case.weights, case.x, backend="loop").outputs)
    with torch.no_grad():
        close(scan(case.cell, case.weights, case.x).outputs, without.outputs)


def test_it_is_taken() -> None:
    """Or nothing here would be of a repeated scan."""
    case = taken()
    assert len(calls(case)) == 2
    scan(case.cell, case.weights, case.x)
    assert len(calls(case)) == 2
    assert not calls(taken("leaky")), "whose step makes something of its own weights first"


def test_second_derivatives() -> None:
    case, found = taken(), []
    for backend in ("auto", "loop"):
        result = scan(case.cell, case.weights, case.x, case.state, backend=backend)
        (first,) = torch.autograd.grad(case.loss(result), case.x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), list(case.weights.values())))
        assert result.trace.recorded == (backend == "auto")
    for ours, theirs in zip(*found, strict=True):
        close(ours, theirs)


def test_bad_input_is_refused_as_ever() -> None:
    case = taken()
    good, x = case.weights, case.x
    with pytest.raises(ShapeError, match="x must be"):
        scan(case.cell, good, x[..., 1:])
    with pytest.raises(ShapeError, match="at least one sequence, step and number"):
        scan(case.cell, good, x[:, :0])
    with pytest.raises(DtypeError, match="x is float32"):
        scan(case.cell, good, x.float())
    with pytest.raises(DtypeError, match="bias_hh"):
        scan(case.cell, {**good, "bias_hh": good["bias_hh"].float()}, x)
    with pytest.raises(DeviceError, match="bias_hh"):
        scan(case.cell, {**good, "bias_hh": good["bias_hh"].to("meta")}, x)
    with pytest.raises(ShapeError, match="do not fit"):
        scan(case.cell, {**good, "more": good["bias_hh"]}, x)
    with pytest.raises(ShapeError, match="do not fit"):
        scan(case.cell, {**good, "weight_hh": good["weight_hh"][:, 1:]}, x)
    with pytest.raises(ShapeError, match="names to tensors"):
        scan(case.cell, {**good, "bias_hh": good["bias_hh"].detach().numpy()}, x)
    with pytest.raises(ShapeError, match=r"state\.h must be"):
        scan(case.cell, good, x, (case.state[0][1:],))


def test_what_changes_the_choice_is_seen() -> None:
    case = taken()
    expected = scan(case.cell, case.weights, case.x, backend="loop").outputs
    sample = vmap(lambda x: scan(case.cell, case.weights, x[None]).outputs[0])
    close(sample(case.x), expected)
    single = Case("gru", dtype=torch.float32)
    for _ in range(2):
        assert scan(single.cell, single.weights, single.x).outputs.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert scan(single.cell, single.weights, single.x).outputs.dtype == torch.bfloat16
    assert scan(case.cell, case.weights, case.x, backend="loop").trace.backend == "loop"
    assert scan(case.cell, case.weights, case.x, trace=True).trace.inputs.shape == case.x.shape


def test_an_option_that_changed_is_seen() -> None:
    case = taken(Elman("tanh"))
    case.cell.activation = "relu"
    close(scan(case.cell, case.weights, case.x).outputs, scan(Elman("relu"), case.weights, case.x).outputs)


def test_few_forms_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "MAX_CALLS", 3)
    case = Case("gru")
    for T in range(1, 10):
        scan(case.cell, case.weights, torch.zeros(1, T, case.x.shape[-1], **DOUBLE))
        assert 1 <= len(calls(case)) <= 3


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_other_layouts_are_refused_as_ever() -> None:
    case = taken()
    with pytest.raises(DtypeError, match="must be a plain tensor, got a sparse_coo one"):
        scan(case.cell, case.weights, case.x.detach().to_sparse())
    with pytest.raises(DtypeError, match="must be a plain tensor, got a nested one"):
        scan(case.cell, case.weights, torch.nested.nested_tensor([case.x[0].detach(), case.x[0, 1:].detach()]))


@needs_core
def test_a_backend_asked_for_by_name_is_not_replaced_by_a_kept_form() -> None:
    case = Case("gru")
    for _ in range(2):
        assert scan(case.cell, case.weights, case.x).trace.backend == "native"
    with pytest.raises(BackendError, match="backend 'cuda' cannot run this: it runs on a GPU, and x is on cpu"):
        scan(case.cell, case.weights, case.x, backend="cuda")


def test_entries_are_dropped_with_their_cell() -> None:
    case = taken(Elman("tanh"))  # a dataclass, which has no hash
    identity = id(case.cell)
    assert is_known(identity)
    del case.cell
    gc.collect()
    assert not is_known(identity)


def test_nothing_is_hidden_in_a_cell() -> None:
    case = taken(Elman("tanh"))
    assert vars(case.cell) == {"activation": "tanh"}
    copied = copy.deepcopy(case.cell)
    assert cache_of(copied) is not cache_of(case.cell)
    assert not cache_of(copied).calls
