"""Steps that are said to be recordable ask nothing of the numbers in a batch: run on tensors that have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from recur.tasks.common.contract import TrainingProgress
from recur.training import Trainer
from recur.training.graphs import batch_signature
from tests.small_runs import begin

CASES: dict[str, dict[str, Any]] = {
    "adding": {"length": 5, "cell": "lstm"},
    "copy": {"length": 5, "cell": "gru"},
    "copy, output": {"length": 5, "recurrence": "output"},
    "classify": {"texts": "even.npz", "cell": "mingru", "pool": "concat", "dropout_output": 0.3, "noise": 0.1},
    "classify, weighted": {"texts": "even.npz", "direction": "both", "class_weights": "balanced"},
    "classify, texts": {"texts": "even.tsv", "token": "char", "pool": "self-attention", "blend": False},
    "tag": {"texts": "steps.npz", "cell": "lru", "class_weights": "balanced"},
    "forecast": {"texts": "series.csv", "target": "y", "horizon": 4, "season": 12, "lags": 0, "base": "seasonal"},
    "forecast, window": {"texts": "series.csv", "target": "y", "horizon": 4, "season": 12, "lags": 24, "base": "none"},
}
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "classify": ({"texts": "uneven.npz"}, "of several lengths"),
    "classify, texts": ({"texts": "uneven.tsv", "token": "char", "blend": False}, "of several lengths"),
    "tag": ({"texts": "spelled.npz"}, "CTC asks how many labels"),
    "copy": ({"length": 5, "bptt": "randomized:0.5"}, "draws on the CPU"),
    "forecast": (
        {"texts": "series.csv", "target": "y", "horizon": 4, "season": 12, "lags": 0, "base": "linear"},
        "asks",
    ),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    x = np.random.default_rng(0).standard_normal((60, 6, 2)).astype(np.float32)
    lengths = np.where(np.arange(60) % 2, 6, 4)
    labels = np.arange(60) % 3
    np.savez(folder / "even.npz", x=x, y=labels)
    np.savez(folder / "uneven.npz", x=x, x_lengths=lengths, y=labels)
    np.savez(folder / "steps.npz", x=x, y=(x.sum(-1) > 0).astype(np.int64))
    np.savez(folder / "spelled.npz", x=x, y=np.tile([0, 1, 2], (60, 1)), y_lengths=np.full(60, 3))
    (folder / "even.tsv").write_text("".join(f"{k % 2}\t{'ab' if k % 2 else 'xy'}{k % 7}\n" for k in range(60)))
    (folder / "uneven.tsv").write_text("".join(f"{k % 2}\t{'abc' if k % 2 else 'xy'}{k % 7}\n" for k in range(60)))
    values = [100 + k + 20 * (k % 12 > 6) for k in range(120)]
    rows = "".join(f"{1990 + k // 12}-{k % 12 + 1:02},{y}\n" for k, y in enumerate(values))
    (folder / "series.csv").write_text("date,y\n" + rows)
    return folder


def made(name: str, fields: dict[str, Any], here: Path, tmp_path: Path) -> Trainer:
    if "texts" in fields:
        fields = {**fields, "texts": str(here / fields["texts"])}
    backend = {} if fields.get("recurrence") == "output" or fields.get("lags") else {"backend": "loop"}
    small = {"hidden_size": 4, "batch_size": 8, "steps": 1, "baseline": False, "device": "cpu", **backend}
    return begin(tmp_path / "run", name.partition(",")[0], **small, **fields)


def step_without_numbers(trainer: Trainer) -> None:
    """Forward and back, on tensors of shapes alone: what asks for a number is an error."""
    batch = next(iter(trainer.stream.batches()))
    assert batch_signature(batch) is not None
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        parts = [mode.from_tensor(part) if isinstance(part, Tensor) else part for part in batch]
        step = trainer.task.training_step(trainer.model, type(batch)._make(parts), None, TrainingProgress(0, 0, 0.0))
        step.loss.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", CASES)
def test_a_recordable_step_asks_nothing(name: str, here: Path, tmp_path: Path) -> None:
    trainer = made(name, CASES[name], here, tmp_path)
    assert trainer.task.unrecordable(trainer.data) == ""
    step_without_numbers(trainer)


@pytest.mark.parametrize("name", OTHERS)
def test_why_others_are_not(name: str, here: Path, tmp_path: Path) -> None:
    fields, why = OTHERS[name]
    trainer = made(name, fields, here, tmp_path)
    assert why in trainer.task.unrecordable(trainer.data)


def test_a_step_that_asks_is_found(here: Path, tmp_path: Path) -> None:
    trainer = made("forecast", OTHERS["forecast"][0], here, tmp_path)
    with pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
        step_without_numbers(trainer)
