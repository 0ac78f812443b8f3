"""The run folder by itself: made, opened, damaged, and what is measured into it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from recur.errors import OptionError, RunError
from recur.run import Run, is_run, pick_device, read_jsonl
from recur.text import Characters, Corpus, Vocab


def make(path: Path) -> Run:
    (path.parent / "book.txt").write_text("abcabc\n")
    vocab = Vocab.fit(Corpus.of(str(path.parent / "book.txt")), Characters())
    return Run.create(path, "language", 'task = "language"\n', {"vocab": vocab})


def test_what_is_made_can_be_opened(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    assert is_run(run.path)
    again = Run.open(tmp_path / "r")
    assert (again.task, again.vocabs) == ("language", run.vocabs)
    assert repr(again) == f"Run({str(tmp_path / 'r')!r}, task='language')"
    with pytest.raises(RunError, match="holds a run already"):
        make(tmp_path / "r")


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        (None, "is a run of another version of recur"),
        ("{", "is a run of another version of recur"),
        ('{"format": 1}', "is a run of another version of recur"),
        ('{"format": 2, "task": 3, "vocabularies": []}', "manifest.json is damaged"),
        ('{"format": 2, "task": "language", "vocabularies": [1]}', "manifest.json is damaged"),
        ('{"format": 2, "task": "language", "vocabularies": ["../../book"]}', "book.json"),
    ],
)
def test_a_manifest_that_cannot_be_used(manifest: str | None, says: str, tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    (run.path / "manifest.json").unlink()
    if manifest is not None:
        (run.path / "manifest.json").write_text(manifest)
    with pytest.raises((RunError, ValueError), match=says):
        Run.open(run.path)


def test_weights_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    model = nn.Linear(2, 3)
    run.save_weights(model, step=3, valid_loss=1.5, valid_perplexity=2.0, other="x")
    first = (run.path / "model.safetensors").read_bytes()
    run.save_weights(model, step=3, valid_loss=1.5, valid_perplexity=2.0, other="x")
    assert (run.path / "model.safetensors").read_bytes() == first
    other = nn.Linear(2, 3)
    run.load_weights(other)
    assert torch.equal(other.weight, model.weight)
    with pytest.raises(RunError, match=r"weight is \(3, 2\) where \(3, 4\) is expected"):
        run.load_weights(nn.Linear(4, 3))


def test_what_was_measured_behind_a_checkpoint_is_forgotten(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    for step in (1, 2, 3):
        run.log({"step": step, "valid_loss": 1.0})
        run.log({"step": step, "text": "x"}, "samples.jsonl")
    with (run.path / "metrics.jsonl").open("a") as out:
        out.write('{"step": 4, "val')  # a killed process
    assert [entry["step"] for entry in run.metrics()] == [1, 2, 3]
    run.forget_after(2)
    assert [entry["step"] for entry in run.metrics()] == [1, 2]
    assert [entry["step"] for entry in read_jsonl(run.path / "samples.jsonl")] == [1, 2]
    assert run.read_json("baseline.json") is None
    (run.path / "baseline.json").write_text(json.dumps([1]))
    assert run.read_json("baseline.json") is None, "no object"


@pytest.mark.parametrize("name", ["tpu", "meta", "vulkan", ""])
def test_a_device_that_is_none(name: str) -> None:
    with pytest.raises(OptionError, match="device must be cpu, cuda or auto"):
        pick_device(name)
