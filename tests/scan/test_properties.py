"""Any shape: both backends agree, rows do not see each other, and packing puts every step back in its place."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from recur.scan import scan
from recur.scan.packing import Packing
from tests.support import ALL_CELLS, TORCH_CELLS, Case, all_close, close


@st.composite
def batches(draw: Any) -> dict[str, Any]:
    """Sizes from 1, odd ones among them; lengths; resets; direction."""
    B, T = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    lengths = draw(st.none() | st.lists(st.integers(1, T), min_size=B, max_size=B))
    flags = draw(st.none() | st.lists(st.booleans(), min_size=B * T, max_size=B * T))
    return {
        "sizes": {"B": B, "T": T, "D": draw(st.integers(1, 6)), "H": draw(st.integers(1, 7))},
        "options": {
            "lengths": lengths,
            "reset": None if flags is None else torch.tensor(flags).view(B, T),
            "reverse": draw(st.booleans()),
        },
    }


@given(batch=batches(), name=st.sampled_from(TORCH_CELLS), window=st.integers(1, 10))
def test_backends_agree(batch: dict[str, Any], name: str, window: int) -> None:
    case = Case(name, **batch["sizes"])
    options = batch["options"]
    all_close(
        case.everything(lambda: case.scan(backend="torch", **options)),
        case.everything(lambda: case.scan(backend="loop", **options)),
    )
    if options["reset"] is None:  # windows of rows that restart at different steps are the loop's alone
        options |= {"bptt": f"truncated:{window}"}
        all_close(
            case.everything(lambda: case.scan(backend="torch", **options)),
            case.everything(lambda: case.scan(backend="loop", **options)),
        )


@given(batch=batches(), name=st.sampled_from(ALL_CELLS))
def test_a_row_is_the_same_alone(batch: dict[str, Any], name: str) -> None:
    case = Case(name, **batch["sizes"])
    options = batch["options"]
    together = case.scan(**options)
    for b in range(case.x.shape[0]):
        own = {**options}
        if own["lengths"] is not None:
            own["lengths"] = own["lengths"][b : b + 1]
        if own["reset"] is not None:
            own["reset"] = own["reset"][b : b + 1]
        alone = scan(case.cell, case.weights, case.x[b : b + 1], [p[b : b + 1] for p in case.state], **own)
        close(together.outputs[b : b + 1], alone.outputs)
        for got, expected in zip(together.state, alone.state, strict=True):
            close(got[b : b + 1], expected)


@given(batch=batches())
def test_packing_takes_every_step_once_and_puts_it_back(batch: dict[str, Any]) -> None:
    B, T = batch["sizes"]["B"], batch["sizes"]["T"]
    lengths = batch["options"]["lengths"]
    given_lengths = None if lengths is None else torch.tensor(lengths)
    packing = Packing.of(B, T, given_lengths, batch["options"]["reset"], batch["options"]["reverse"], "cpu")
    assert packing.sizes == sorted(packing.sizes, reverse=True)
    assert len(packing.flat.unique()) == len(packing.flat) == sum(packing.sizes) == sum(lengths or [T] * B)
    x = torch.randn(B, T, 2)
    valid = torch.arange(T) < torch.tensor(lengths or [T] * B)[:, None]
    assert torch.equal(packing.unpack(packing.pack(x)), x * valid[..., None])
