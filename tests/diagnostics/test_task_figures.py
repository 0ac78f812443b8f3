"""Figures and sentences of single tasks' probes, from numbers that are written here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import recur
from recur.data.text import Pair
from recur.diagnostics import task_probes
from recur.diagnostics.figures import figure_of
from recur.diagnostics.finding import Level, command, tried_folder
from recur.diagnostics.task_probes import attention
from recur.runs import Run

plotting = pytest.importorskip("matplotlib")


def axes_of(probe: str, numbers: dict[str, Any]) -> list[Any]:
    figure = figure_of(probe, numbers)
    assert figure is not None
    assert all(axis.get_title() for axis in figure.axes)
    return list(figure.axes)


def test_a_confusion_is_as_large_as_its_share() -> None:
    rows = [{"sure": 0.9, "right": 0.8}, {"sure": 0.6, "right": 0.5}]
    numbers = {"confusion": [[3, 1], [0, 4]], "classes": ["a", "b"], "calibration": rows}
    table, line = axes_of("classes", numbers)
    sizes = {tuple(np.ravel(dot.get_offsets())): float(dot.get_sizes()[0]) for dot in table.collections}
    assert sizes[(0.0, 0.0)] == pytest.approx(0.75 * sizes[(1.0, 1.0)])
    assert sizes[(1.0, 0.0)] == pytest.approx(0.25 * sizes[(1.0, 1.0)]), "a, taken for b: a row is what it is"
    assert line.lines[1].get_xydata().tolist() == [[90, 80], [60, 50]]


def test_bars_lines_and_maps() -> None:
    (bars,) = axes_of("length", {"rows": [{"from": 1, "to": 4, "right": 0.5}, {"from": 5, "to": 9, "right": 1.0}]})
    assert [bar.get_height() for bar in bars.patches] == [50, 100]
    example = {"source": ["a", "b"], "target": ["x"], "weights": [[0.99, 0.01]]}
    looked, covered = axes_of(
        "attention", {"example": example, "places": [0.5, 0.9], "coverage": [1.0, 0.5], "right": [True, False]}
    )
    assert len(looked.collections) == 1, "what is hardly looked at is not drawn"
    assert covered.get_legend_handles_labels()[1] == ["right outputs", "wrong outputs"]
    fallen, right = axes_of("tree depth", {"depths": [1, 2], "norms": [1.0, 0.1], "heights": [0, 1], "right": [0.5, 1]})
    assert fallen.get_yscale() == "log"
    assert right.lines[0].get_ydata().tolist() == [50, 100]
    came, by_step = axes_of("residuals", {"residuals": [0.1, -0.1], "by_step": [1.0, 2.0]})
    assert came.lines[0].get_ydata().tolist() == [0.1, -0.1]
    assert by_step.get_ylim()[0] == 0
    (bands,) = axes_of("bands", {"quantiles": [0.1, 0.9], "below": [0.2, 0.8]})
    assert bands.lines[1].get_xydata().tolist() == [[10, 20], [90, 80]]
    (heard,) = axes_of("inputs", {"features": [1.0, 0.25]})
    assert [bar.get_height() for bar in heard.patches] == [100, 25]


@pytest.mark.parametrize("many", [2, 61])
def test_a_sentence_has_its_tokens_below_where_there_is_room(many: int) -> None:
    (axis,) = axes_of("sentence", {"values": [0.25, 0.75][:many] * (many // 2), "tokens": ["\n", "but"] * (many // 2),
                                   "gate": "f"})  # fmt: skip
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert labels == (["↵", "but"] * (many // 2) if many <= 60 else ["↵", "but"] * 30)
    assert axis.lines[0].get_ydata()[0] == 0.5, "the mean"


def looking(*maps: list[list[float]]) -> Any:
    """A model that looks like this, and writes x."""
    pairs = [Pair("abc", "x", f"{k}") for k in range(len(maps))]
    rows = [
        {"output": "x" * bool(w), "attention": {"weights": w, "source": ["a", "b", "c"], "target": ["x"]}} for w in maps
    ]
    return SimpleNamespace(
        model=SimpleNamespace(decoder=SimpleNamespace(attention="dot")),
        task=SimpleNamespace(read=lambda vocabs: SimpleNamespace(valid_pairs=pairs)),
        run=SimpleNamespace(vocabs={}),
        predictions=lambda sources, attention: iter(rows),
    )


def test_attention_that_is_sharp_blurred_or_leaves_out() -> None:
    sharp = attention(looking([], [[0.99, 0.005, 0.005], [0.005, 0.99, 0.005], [0.005, 0.005, 0.99]]))
    assert (sharp.finding.level, sharp.numbers["right"]) == (Level.OK, [True]), "of those that wrote something"
    assert attention(looking([[0.3, 0.4, 0.3]])).finding.verdict.startswith("attention is diffuse")
    left = attention(looking([[0.99, 0.005, 0.005]] * 3))
    assert left.finding.verdict.startswith("attention does not cover the source")
    assert left.finding.value == pytest.approx(2 / 3)
    assert attention(looking([])).finding.level is Level.UNKNOWN
    without = looking()
    without.model.decoder.attention = None
    assert "no attention" in attention(without).finding.verdict


def test_leaves_of_a_deep_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain to the right; the gradient of the last leaf beside that of the whole batch's by hand."""
    monkeypatch.setattr(task_probes, "MIN_NODES", 2)
    text = "".join(f"({k % 2} (0 a) (1 (0 b) (0 (1 c) (1 {'xy'[k % 2]}))))\n" for k in range(40))
    (tmp_path / "trees.txt").write_text(text)
    model = cast(Any, recur.fit(str(tmp_path / "trees.txt"), task="tree", out=tmp_path / "run", hidden_size=4, steps=2,
                                baseline=False))  # fmt: skip
    measured = task_probes.tree_depth(model)
    numbers = measured.numbers
    assert (numbers["depths"], numbers["heights"]) == ([1, 2, 3], [0, 1, 2, 3])
    left = numbers["norms"][-1] / numbers["norms"][0]
    assert measured.finding.value == pytest.approx(left)
    assert f"× {left**0.5:.2g} per level" in measured.finding.verdict
    monkeypatch.setattr(task_probes, "VANISHED", 2 * left)
    assert task_probes.tree_depth(model).finding.level is Level.WARNING
    monkeypatch.setattr(task_probes, "MIN_NODES", 1000)
    assert task_probes.tree_depth(model).finding.level is Level.UNKNOWN


def test_the_command_names_a_folder_that_is_free(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    folder.mkdir()
    run = cast(Run, SimpleNamespace(path=folder, config=folder / "config.toml"))
    assert tried_folder(run) == tmp_path / "a run-try"
    (tmp_path / "a run-try").mkdir()
    assert tried_folder(run) == tmp_path / "a run-try-2"
    assert command(run, "--lr 0.1") == (
        f"recur train --config '{folder}/config.toml' --lr 0.1 --out '{tmp_path}/a run-try-2'"
    )
    assert command(None, "--lr 0.1") == "recur train --lr 0.1"
