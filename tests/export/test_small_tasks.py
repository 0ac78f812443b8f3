"""Adding and copying: graphs that compute what the model computes, and C headers that agree with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import recur
from recur.export import export, to_portable
from tests.export import runs
from tests.export.c_library import needs_gcc
from tests.support import close


@needs_gcc
@pytest.mark.parametrize("kind", ["adding", "copy"])
def test_a_graph_gives_what_the_model_gives(kind: str, tmp_path: Path) -> None:
    model = recur.fit(task=kind, length=5, **runs.SMALL)
    found = to_portable(model)
    if kind == "adding":
        x = torch.rand(2, 7, 2)
        (value,) = found.graphs["sequence"](x)
        close(value, model.model(x).detach())
    export(model, "c", tmp_path / "m.h")  # compiled, and its own test run, before it is kept
    assert (tmp_path / "m.h").stat().st_size
