"""Wrong input gets one clear error of ours: what was expected, what came, what to try."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recur.errors import BackendError, DeviceError, DtypeError, OptionError, RecurError, ShapeError
from recur.ops import scan
from tests.support import Case


def x(*shape: int, **options: Any) -> Any:
    return torch.zeros(shape, **{"dtype": torch.float64, **options})


NESTED = torch.nested.nested_tensor([torch.zeros(5, 4), torch.zeros(3, 4)], dtype=torch.float64, layout=torch.jagged)

BAD: list[tuple[dict[str, Any], type[RecurError], str]] = [
    # rank and width
    ({"x": x(3, 4)}, ShapeError, r"LSTM: x must be \(B, T, D\), got \(3, 4\); add a time axis with x\[:, None\]"),
    ({"x": x(4)}, ShapeError, r"got \(4,\); add batch and time"),
    ({"x": x(3, 5, 4, 1)}, ShapeError, r"got \(3, 5, 4, 1\)"),
    ({"x": x(3, 5, 6)}, ShapeError, r"x must be \(B, T, D=4\), got \(3, 5, 6\)"),
    ({"x": x(3, 0, 4)}, ShapeError, "at least one sequence, step and number"),
    ({"x": x(0, 5, 4)}, ShapeError, r"state\.h must be \(B=0, H=3\) or \(H,\), got \(3, 3\)"),
    ({"x": x(3, 5, 0)}, ShapeError, r"at least one sequence, step and number, got \(3, 5, 0\)"),
    ({"x": [[1.0]]}, ShapeError, "must be a tensor"),
    # blocks of numbers
    ({"x": x(3, 5, 4).to_sparse()}, DtypeError, r"x must be a plain tensor, got a sparse_coo one; use x.to_dense\(\)"),
    ({"x": NESTED}, DtypeError, "x must be a plain tensor, got a nested one; pad it, and give lengths"),
    ({"state": (x(3, 3), x(3, 3).to_sparse())}, DtypeError, "state.c must be a plain tensor"),
    ({"lengths": torch.tensor([5, 4, 3]).to_sparse()}, DtypeError, "lengths must be a plain tensor"),
    ({"reset": torch.ones(3, 5, dtype=torch.bool).to_sparse()}, DtypeError, "reset must be a plain tensor"),
    ({"mask": x(3, 3).to_sparse()}, DtypeError, "mask must be a plain tensor"),
    ({"bptt": torch.ones(5).to_sparse()}, OptionError, "ξ must be a plain tensor"),
    ({"lengths": [5, 2**70, 3]}, OptionError, "3 whole numbers, got"),
    ({"matmul_dtype": ["int8"]}, OptionError, "unknown matmul_dtype"),
    # dtype and device
    ({"x": x(3, 5, 4, dtype=torch.float32)}, DtypeError, r"x is float32 and weight_ih float64; convert x with x.to\("),
    ({"x": x(3, 5, 4, dtype=torch.long)}, DtypeError, r"must hold real numbers, got int64; use x.float\(\)"),
    ({"x": x(3, 5, 4, device="meta")}, DeviceError, r"x is on meta and weight_ih on cpu; move x with x.to\('cpu'\)"),
    # state
    ({"state": x(3, 3)}, ShapeError, r"state must be \(h, c\), each \(B=3, H=3\), got 1 tensors"),
    ({"state": (x(3, 3), x(2, 3))}, ShapeError, r"state.c must be \(B=3, H=3\) or \(H,\), got \(2, 3\)"),
    ({"state": (x(3, 3), x(3, 3, dtype=torch.float32))}, DtypeError, "state.c float32"),
    ({"state": "zero"}, ShapeError, "state must be .* got str"),
    ({"initial": (x(3, 3), x(4))}, ShapeError, r"initial.c must be \(B=3, H=3\) or \(H,\), got \(4,\)"),
    # lengths, reset, mask
    ({"lengths": [5, -1, 3]}, OptionError, "lengths must lie in 0 … T=5, got -1"),
    ({"lengths": [5, 6, 3]}, OptionError, "lengths must lie in 0 … T=5, got 6"),
    ({"lengths": [-1, 2, 3]}, OptionError, "got -1"),
    ({"lengths": [5, 3]}, ShapeError, r"one for each row, \(B=3,\), got \(2,\)"),
    ({"lengths": [5.0, 3.0, 1.0]}, DtypeError, "whole numbers, got float32"),
    ({"lengths": ["a", "b", "c"]}, OptionError, "3 whole numbers, got"),
    ({"reset": torch.zeros(3, 4, dtype=torch.bool)}, ShapeError, r"reset must be \(B=3, T=5\), got \(3, 4\)"),
    ({"reset": torch.zeros(3, 5)}, DtypeError, "bool tensor .* got float32"),
    ({"reset": [True]}, DtypeError, "got list"),
    ({"lengths": torch.tensor([5, 9, 3], dtype=torch.uint16)}, OptionError, "got 9"),
    ({"mask": [1.0]}, ShapeError, "mask must be .* got list"),
    ({"mask": x(3, 4)}, ShapeError, r"mask must be \(B=3, H=3\), got \(3, 4\)"),
    # names
    ({"backend": ["loop"]}, BackendError, "unknown backend"),
    ({"backend": "tourch"}, BackendError, "unknown backend 'tourch'; did you mean 'torch'"),
    ({"backend": "native2"}, BackendError, "known: auto, chunk, cuda, loop, native, parallel, torch"),
]


@pytest.mark.parametrize(("wrong", "error", "says"), BAD, ids=[says[:50] for _, _, says in BAD])
def test_one_clear_error(wrong: dict[str, Any], error: type[RecurError], says: str) -> None:
    case = Case("lstm")
    call: dict[str, Any] = {"x": case.x, "state": case.state, **wrong}
    with pytest.raises(error, match=says) as caught:
        scan(case.cell, case.weights, call.pop("x"), call.pop("state"), **call)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weight_hh": None}, r"weight_hh missing for \(12, 3\)"),
        ({"bias_hh": None}, r"bias_hh missing for \(12,\)"),
        ({"weight_hh": x(9, 3)}, r"weight_hh \(9, 3\) for \(12, 3\)"),
        ({"weight_ih": x(11, 4)}, "H rows for each of 4 gates, got 11"),
        ({"p_i": x(3)}, r"p_i \(3,\) for none"),
        ({"weight_ih": None}, "must hold weight_ih"),
    ],
)
def test_weights_that_do_not_fit(change: dict[str, Any], says: str) -> None:
    case = Case("lstm")
    weights = {k: v for k, v in {**case.weights, **change}.items() if v is not None}
    with pytest.raises(ShapeError, match=says):
        scan(case.cell, weights, case.x)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("peephole", {}, r"torch.nn has no PeepholeLSTM"),
        ("elman-sigmoid", {}, r"torch.nn has no Elman\(activation='sigmoid'\)"),
        ("lstm", {"trace": True}, "does not show the gradient"),
        ("lstm", {"bptt": "full,clip:1"}, "cannot clip"),
        ("lstm", {"mask": x(3, 3)}, "no dropout on the recurrent state"),
        ("lstm", {"bptt": torch.tensor([1.0, 2, 1, 1, 1])}, "not scale it"),
        ("lstm", {"bptt": torch.tensor([[1.0, 0, 1, 1, 1], [1] * 5, [1] * 5])}, "or cut some"),
    ],
)
def test_a_backend_asked_for_by_name_runs_or_says_why_not(name: str, options: dict[str, Any], says: str) -> None:
    case = Case(name)
    with pytest.raises(
        BackendError, match=rf"backend 'torch' cannot run this: .*{says}.*; take backend='auto' or 'loop'"
    ):
        case.scan(backend="torch", **options)
    assert case.scan(backend="auto", **options).trace.backend != "torch"


@pytest.mark.parametrize("weights", [None, [], {"weight_ih": 3}])
def test_weights_that_are_none(weights: Any) -> None:
    with pytest.raises(ShapeError, match="LSTM: weights must map names to tensors"):
        scan(Case("lstm").cell, weights, Case("lstm").x)


def test_randomized_truncation_is_refused_whatever_it_draws() -> None:
    for _ in range(20):
        with pytest.raises(BackendError, match="not scale it"):
            Case("lstm", T=2).scan(backend="torch", bptt="randomized:0.5")


def test_a_subclass_with_another_step_is_not_taken_for_its_parent() -> None:
    from recur.cells import GRU

    class Mine(GRU):
        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (s.h + x.n,)

    case = Case("gru")
    case.cell = Mine()
    assert case.scan().trace.backend != "torch"


def test_a_mask_where_there_is_no_product() -> None:
    with pytest.raises(OptionError, match="GRU2014 multiplies its state inside the step"):
        Case("gru2014").scan(mask=torch.ones(3, 3, dtype=torch.float64))
    with pytest.raises(OptionError, match="MinGRU has no product with W"):
        Case("mingru").scan(mask=torch.ones(3, 3, dtype=torch.float64))
