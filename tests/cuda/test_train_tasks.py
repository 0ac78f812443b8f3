"""Training on a GPU: tasks of every kind with backend `cuda`, stopped and gone on with, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from recur.cli.app import run
from tests.cuda.support import needs_gpu
from tests.small_runs import begin, reopen, stop_after

pytestmark = needs_gpu

TEXT = "the network reads a word and the word is kept\na state is a word that the network keeps\n" * 40
SMALL: dict[str, Any] = {"hidden_size": 24, "batch_size": 8, "eval_every": 0.3, "device": "cuda", "baseline": False}
TASKS: dict[str, dict[str, Any]] = {
    "language": {"texts": "book.txt", "window": 10, "num_layers": 2, "dropout_hidden": 0.2, "cell": "lstm"},
    "language, own equations": {"texts": "book.txt", "window": 10, "cell": "peephole", "bptt": "randomized:0.7"},
    "language, bfloat16": {"texts": "book.txt", "window": 10, "cell": "gru", "precision": "bfloat16"},
    "language, clipped": {"texts": "book.txt", "window": 6, "cell": "gru", "bptt": "clip:1"},
    "language, affine": {"texts": "book.txt", "window": 10, "cell": "mingru"},
    "classify": {"texts": "names.tsv", "token": "char", "embedding_size": 6, "pool": "max"},
    "tag": {"texts": "tagged.conll", "token": "word", "embedding_size": 6, "direction": "both"},
    "seq2seq": {"texts": "pairs.tsv", "embedding_size": 6},
    "forecast": {"texts": "airline.csv", "target": "Passengers", "horizon": 12, "season": 12},
    "adding": {"length": 10},
    "copy": {"length": 4, "embedding_size": 6},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "book.txt").write_text(TEXT)
    (tmp_path / "names.tsv").write_text("".join(f"{'ab' if k % 2 else 'xy'}{k % 7}\t{k % 2}\n" for k in range(120)))
    (tmp_path / "tagged.conll").write_text("".join(f"the D\ndog{k % 5} N\nruns V\n\n" for k in range(60)))
    (tmp_path / "pairs.tsv").write_text("".join(f"ab{k % 9}c\tc{k % 9}ba\n" for k in range(120)))
    rows = [f"{1949 + k // 12}-{k % 12 + 1:02},{100 + k + (k % 12) ** 2}\n" for k in range(96)]
    (tmp_path / "airline.csv").write_text("Date,Passengers\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TASKS)
def test_a_run_goes_on_exactly(name: str, here: Path) -> None:
    task, fields = name.partition(",")[0], {**SMALL, **TASKS[name], "steps": 14}
    straight = begin(here / "a", task, **fields)
    straight.train()
    stop_after(begin(here / "b", task, **fields), 6)
    torch.manual_seed(99)
    resumed = reopen(here / "b")
    assert resumed.step == 6
    resumed.train()
    for (key, a), b in zip(straight.model.state_dict().items(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    assert next(straight.model.parameters()).device.type == "cuda"


def test_no_memory_left_is_one_line(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.0005)
    try:
        assert run(["train", "book.txt", "--hidden-size", "3000", "--device", "cuda", "--steps", "1", "-q"]) == 2
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert capfd.readouterr().err.strip().splitlines()[-1].startswith("recur: out of memory")
