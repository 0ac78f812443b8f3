"""How a scan lies in the GPU's memory, as far as that can be known without one."""

from __future__ import annotations

import pytest
import torch

from recur.cells import make_cell
from recur.compiler.programs import Signature, text_of
from recur.ops.cuda.layout import ScanLayout, row_order

CPU = torch.device("cpu")
LSTM = Signature(text_of(make_cell("lstm"), True), torch.float32, (4, 3, 2), (), 20, 20, 4, 0, 0, False, False, 0.0, "")


def test_segments_that_are_not_equally_long() -> None:
    layout = ScanLayout(LSTM._replace(shape=(8, 2), sizes=(3, 2, 2, 1)))
    offset, length = layout.order(CPU)
    assert offset is not None
    assert length is not None
    assert offset.tolist() == [0, 3, 5, 7]
    assert length.tolist() == [4, 3, 1]
    assert row_order((3, 2, 2, 1), CPU)[2].tolist() == [0, 1, 3, 4, 5]  # the row of the step before, from step 1 on
    assert layout.counts == [3, 2, 2, 1]
    rows = torch.randn(8, 5)
    assert torch.equal(layout.by_step(rows), rows)
    assert layout.by_row(rows) is rows


def test_whole_rows_lie_step_after_step() -> None:
    layout = ScanLayout(LSTM)
    assert layout.order(CPU) == (None, None)
    assert layout.counts == [4, 4, 4]
    rows = torch.randn(4, 3, 5)
    packed = layout.by_step(rows)
    assert torch.equal(packed, rows.transpose(0, 1).reshape(12, 5))
    assert torch.equal(layout.by_row(packed), rows)
    side_by_side = torch.randn(3, 4, 10).transpose(0, 1)[:, :, :5]
    assert layout.by_step(side_by_side).is_contiguous()
    assert [tuple(part.shape) for part in layout.empty_results(rows, True)] == [
        (12, 5),
        (4, 5),
        (4, 5),
        (12, 20),
        (12, 5),
    ]
    assert layout.recorded == [(12, 5), (12, 5), (12, 20), (12, 20)]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, None),
        ({"dtype": torch.float64}, "float64 has no persistent kernel"),
        ({"clip": 1.0}, "clip needs the norm of a whole row at every step"),
        ({"weights": 5, "last_rows": 3}, "a projected state needs two exchanges per step"),
        (
            {"cell": text_of(make_cell("mingru"), True), "first_rows": 10, "weights": 2},
            "the cell has no product with W",
        ),
    ],
)
def test_what_is_carried_in_one_launch(changed: dict[str, object], why: str | None) -> None:
    assert ScanLayout(LSTM._replace(**changed)).not_persistent == why  # type: ignore[arg-type]
