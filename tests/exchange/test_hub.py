"""Saved models in the layout of the Hugging Face Hub, offline."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import recur
from campaigns import small
from recur.cli.app import run
from recur.errors import RecurError, RunError
from recur.tasks import task_names
from recur.utils.trust import DigestFile

CELL = """from recur import Cell
from torch import tanh

class Mine(Cell):
    gates = ("h",)

    def step(self, x, h, s):
        return (tanh(x.h + h.h),)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_model(**options: Any) -> Any:
    texts, labels = ["good", "bad", "fine"] * 20, ["pos", "neg", "pos"] * 20
    return recur.fit(texts, labels, task="classify", hidden_size=8, steps=4, seed=1, **options)


def test_a_saved_model_predicts_the_same_and_carries_no_data(here: Path) -> None:
    model = names_model(out="runs/one")
    folder = model.save_pretrained("saved")
    assert {p.name for p in folder.iterdir()} == {
        *("config.json", "README.md", "model.safetensors", "manifest.json", "config.toml", "metrics.jsonl"),
        *("baselines.json", "vocab.json", "labels.json", "ngrams.json", "samples.jsonl"),
    }
    other = recur.from_pretrained("saved")
    assert other.probabilities(["good", "bad"]) == model.probabilities(["good", "bad"])
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["task"]) == ("recur", "classify")
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: recur\npipeline_tag: text-classification\n")
    assert str(here) not in card + (folder / "config.toml").read_text() + (folder / "manifest.json").read_text()
    with pytest.raises(RunError, match="already holds a model"):
        model.save_pretrained("saved")


def test_every_command_reads_a_saved_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names_model().save_pretrained("saved")
    for command in (["card", "saved"], ["export", "saved", "model.h"], ["export", "saved", "page.html"]):
        assert run(command) == 0
    assert run(["resume", "saved", "--steps", "1"]) == 2
    assert "saved has no checkpoint to resume from" in capsys.readouterr().err


def test_a_custom_cell_is_executed_only_with_trust(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text(CELL)
    model = names_model(cell="mine.py:Mine")
    model.save_pretrained("saved")
    assert recur.from_pretrained("saved")("good") == model("good")  # trained here: trusted
    monkeypatch.setattr("recur.utils.trust._CELLS", DigestFile("trusted"))  # another process of another user
    monkeypatch.setenv("RECUR_STATE", str(here / "another user"))
    with pytest.raises(RecurError, match="trust"):
        recur.from_pretrained("saved")
    assert recur.from_pretrained("saved", trust=True)("good") == model("good")


def test_a_changed_file_is_refused(here: Path) -> None:
    folder = names_model().save_pretrained("saved")
    (folder / "vocab.json").write_text((folder / "vocab.json").read_text() + " ")
    with pytest.raises(RunError, match="checksum"):
        recur.from_pretrained("saved")


def test_the_hub_is_read_from_its_cache_of_links(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    model = names_model()
    model.save_pretrained("saved")
    snapshot = here / "snapshot"
    snapshot.mkdir()
    for file in Path("saved").iterdir():
        (snapshot / file.name).symlink_to(file.resolve())  # as the Hub's cache has them
    asked: dict[str, Any] = {}

    def download(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return str(snapshot)

    monkeypatch.setattr(hub, "snapshot_download", download)
    found = recur.from_pretrained("someone/names", revision="v1")
    assert (asked["name"], asked["revision"]) == ("someone/names", "v1")
    assert found("good") == model("good")
    copy = found.run.path
    del found
    assert not copy.exists()


def test_an_empty_cache_and_a_wrong_name_are_one_line(here: Path) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(RecurError, match="someone/names is not in the local cache"):
        recur.from_pretrained("someone/names", cache_dir=here / "cache", local_files_only=True)
    with pytest.raises(RunError, match="no folder 'nowhere', and no id"):
        recur.from_pretrained("nowhere")


@pytest.mark.parametrize("task", task_names())
def test_every_task_is_saved(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RECUR_STATE", "RECUR_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))  # set_up sets its own, which end with the test
    monkeypatch.chdir(tmp_path)
    small.set_up(tmp_path)
    assert run(small.arguments_of(task, "run")) == 0
    recur.load("run").save_pretrained("saved")
    shutil.rmtree("run")
    model = recur.from_pretrained("saved")
    assert model.task.name == task
    assert all(torch.isfinite(p).all() for p in model.model.parameters())
