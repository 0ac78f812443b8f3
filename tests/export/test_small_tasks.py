"""Sums, messages and rows of a table: graphs that give what the model gives, and headers that agree with them."""

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
@pytest.mark.parametrize("kind", ["adding", "copy", "numbers", "classes"])
def test_a_graph_gives_what_the_model_gives(kind: str, tmp_path: Path) -> None:
    if kind == "numbers":
        model = runs.table(tmp_path, [f"{k * 1.5:.1f}" for k in range(60)])
    elif kind == "classes":
        model = runs.table(tmp_path, ["up" if k % 2 else "down" for k in range(60)])
    else:
        model = recur.fit(task=kind, length=5, **runs.SMALL)
    found = to_portable(model)
    if kind == "adding":
        x = torch.rand(2, 7, 2)
        (value,) = found.graphs["sequence"](x)
        close(value, model.model(x).detach())
    elif kind != "copy":
        (tmp_path / "two.csv").write_text("size,colour\n3,red\n5,blue\n")
        expected = [row["output"] for row in model.predict(tmp_path / "two.csv")]
        words = torch.tensor(
            [[float(word.endswith(colour)) for word in found.settings["words"]] for colour in ("red", "blue")]
        )
        (made,) = found.graphs["row"](torch.tensor([[3.0], [5.0]], dtype=torch.float64), words)
        if kind == "classes":
            assert [found.labels[k] for k in made.argmax(1).tolist()] == expected
        else:
            close(made, torch.tensor([float(value) for value in expected], dtype=torch.float64), tolerance=1e-4)
    export(model, "c", tmp_path / "m.h")  # compiled, and its own test run, before it is kept
    assert (tmp_path / "m.h").stat().st_size
