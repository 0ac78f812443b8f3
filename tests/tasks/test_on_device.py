"""Windows that are cut on the device are the batches of the stream, and train as they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from recur.data.text import Stream
from recur.tasks.language.data import TextWindows, cut_windows
from recur.training.graphs import batch_signature
from tests.small_runs import begin

CPU = torch.device("cpu")


@pytest.mark.parametrize("partition", ["sequential", "random"])
def test_windows_are_the_streams_batches(partition: str) -> None:
    ids = np.random.default_rng(0).integers(0, 9, 500).astype(np.int32)
    stream = Stream(ids, 4, 40, partition, seed=3, jitter=partition == "sequential")
    windows = TextWindows(stream, CPU)
    assert len(windows) == len(stream)
    pairs = list(zip(stream.batches(2, skip=1), windows.batches(2, skip=1), strict=True))
    for batch, window in pairs:
        for a, b in zip(cut_windows(batch, CPU), cut_windows(window, CPU), strict=True):
            assert np.array_equal(np.asarray(a), np.asarray(b))
    forms = {batch_signature(window)[0] for _, window in pairs}  # type: ignore[index]
    assert len(forms) == len({(w.steps, w.fresh) for _, w in pairs}), "a form for each length"
    if partition == "sequential":
        assert all(batch.x.shape[1] % 5 == 0 for batch, _ in pairs[:-1]), "few lengths"


def test_training_on_windows_is_training_on_batches(tmp_path: Path) -> None:
    """The step that a GPU records, without recording it."""
    (tmp_path / "book.txt").write_text("the network reads a word and the word is kept\n" * 40)
    fields = {
        "hidden_size": 8,
        "batch_size": 4,
        "window": 10,
        "threads": 1,
        "baseline": False,
        "steps": 25,
        "dropout_weight": 0.3,
    }
    made = [begin(tmp_path / name, texts=str(tmp_path / "book.txt"), **fields) for name in "ab"]  # type: ignore[arg-type]
    made[1].stream = TextWindows(made[1].stream, CPU)  # type: ignore[arg-type]
    for trainer in made:
        torch.manual_seed(5)
        trainer.train()
    for a, b in zip(*(trainer.model.parameters() for trainer in made), strict=True):
        assert torch.equal(a, b)
