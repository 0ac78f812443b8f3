"""The run folder by itself: made, opened, and refused when it is not what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from recur.data.text import Characters, Corpus, Vocab
from recur.errors import OptionError, RunError
from recur.runs import Run, is_run, pick_device, read_json, read_jsonl
from recur.runs.manifest import Manifest
from recur.runs.safe_dir import SafeDir


def make(path: Path) -> Run:
    (path.parent / "book.txt").write_text("abcabc\n")
    vocab = Vocab.fit(Corpus.of(str(path.parent / "book.txt")), Characters())
    run = Run.create(path, "language", 'task = "language"\n', {"vocab": vocab})
    run.commit()
    return run


def checkpoint(run: Run, step: int) -> None:
    run.save_checkpoint(step, {"w": torch.full((2,), float(step))}, {"step": step})


def test_what_is_made_can_be_opened(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    assert is_run(run.path)
    again = Run.open(tmp_path / "r")
    assert (again.task, again.vocabs) == ("language", run.vocabs)
    assert repr(again) == f"Run({str(tmp_path / 'r')!r}, task='language')"
    with pytest.raises(RunError, match="already holds a run"):
        make(tmp_path / "r")


def test_a_folder_is_a_run_from_its_first_commit_on(tmp_path: Path) -> None:
    """Killed before, it is begun again; what is not ours is never written over."""
    run = Run.create(tmp_path / "r", "language", "old\n", {})
    assert not is_run(run.path)
    with pytest.raises(RunError, match="is being trained by process"):
        Run.create(tmp_path / "r", "language", "new\n", {})
    run.release()
    with pytest.raises(RunError, match="is not a run yet: training ended before its first step; train again"):
        Run.open(tmp_path / "r")
    (tmp_path / "r" / ".config.toml.0123abcd.part").write_text("half")
    Run.create(tmp_path / "r", "language", "new\n", {}).commit()
    assert Run.open(tmp_path / "r").config_text() == "new\n"
    assert not list((tmp_path / "r").glob(".*.part"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.toml").write_text("mine")
    with pytest.raises(RunError, match="holds other files; name a new folder"):
        Run.create(tmp_path / "mine", "language", "new\n", {})
    assert (tmp_path / "mine" / "config.toml").read_text() == "mine"
    (tmp_path / "mine" / "lock").write_text("")  # such as other programs have
    with pytest.raises(RunError, match="holds other files; name a new folder"):
        Run.create(tmp_path / "mine", "language", "new\n", {})
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is in the way"):
        Run.create(tmp_path / "file", "language", "new\n", {})


def forged(run: Run, **fields: Any) -> bytes:
    """A manifest with other fields and the right digest."""
    changed = {name: value for name, value in fields.items() if name != "format"}
    content = Manifest(**{**vars(run.manifest), **changed}).to_json()
    return content.replace(b'"format": 4', b'"format": %d' % fields.get("format", 4))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"format": 2}, "was written by another version of recur"),
        ({"task": 3}, "manifest.json is damaged"),
        ({"vocabularies": [1]}, "manifest.json is damaged"),
        ({"vocabularies": ["../../book"]}, "manifest.json is damaged"),
        ({"vocabularies": ["other"]}, "other.json is missing"),
        ({"files": {"../../evil.json": ["0"]}}, "manifest.json is damaged"),
        ({"files": {"vocab.json": "0"}}, "manifest.json is damaged"),
        ({"files": {}}, "vocab.json does not match its checksum"),
        ({"texts": {"texts": [{"name": "x"}]}}, "manifest.json is damaged"),
        ({"checkpoints": [{"file": "../x", "sha256": "", "step": 0, "logs": {}}]}, "manifest.json is damaged"),
    ],
)
def test_a_manifest_that_cannot_be_used(fields: dict[str, Any], says: str, tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    (run.path / "manifest.json").write_bytes(forged(run, **fields))
    with pytest.raises(RunError, match=says):
        Run.open(run.path)


SHA = "0" * 64
LOGS: dict[str, Any] = {"metrics.jsonl": [0, SHA], "samples.jsonl": [0, SHA]}
SLOT: dict[str, Any] = {"file": "resume/a.safetensors", "sha256": SHA, "step": 0, "logs": LOGS}


@pytest.mark.parametrize(
    "fields",
    [
        {"checkpoints": [SLOT | {"logs": LOGS | {"metrics.jsonl": []}}]},
        {"checkpoints": [SLOT | {"logs": LOGS | {"metrics.jsonl": [0, SHA, 1]}}]},
        {"checkpoints": [SLOT | {"logs": LOGS | {"metrics.jsonl": [-1, SHA]}}]},
        {"checkpoints": [SLOT | {"logs": {"metrics.jsonl": [0, SHA]}}]},
        {"checkpoints": [SLOT, SLOT]},
        {"checkpoints": [SLOT | {"more": 1}]},
        {"checkpoints": [SLOT | {"step": 10**400}]},
        {"checkpoints": {}},
        {"files": {"vocab.json": []}},
        {"files": {"vocab.json": ["short"]}},
        {"files": [["vocab.json", [SHA]]]},
        {"texts": []},
        {"texts": {"texts": {"name": "x", "bytes": 0, "sha256": SHA}}},
        {"texts": {"texts": [{"name": "x", "bytes": -1, "sha256": SHA}]}},
        {"vocabularies": "vocab"},
        {"task": None},
    ],
)
def test_a_manifest_of_another_structure_is_damaged(fields: dict[str, Any], tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    (run.path / "manifest.json").write_bytes(forged(run, **fields))
    with pytest.raises(RunError, match=r"manifest\.json is damaged"):
        Run.open(run.path)


@pytest.mark.parametrize(
    "change",
    [
        {"value": "1"},
        {"value": True},
        {"value": float("nan")},
        {"metrics": {"valid_loss": "1"}},
        {"metrics": [1.0]},
        {"name": 1},
    ],
)
def test_baselines_of_another_structure_are_damaged(change: dict[str, Any], tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    whole = {"name": "4-gram", "value": 1.5, "metrics": {"valid_loss": 0.4, "valid_r2": float("nan")}}
    run.write_baselines("valid_perplexity", [whole])
    assert run.baselines() is not None
    run.write_baselines("valid_perplexity", [whole | change])
    with pytest.raises(RunError, match=r"baselines\.json is damaged"):
        run.baselines()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"format": 4}', b"[" * 100_000, b"\xff\xfe"])
def test_a_manifest_that_is_none(content: bytes, tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    (run.path / "manifest.json").write_bytes(content)
    with pytest.raises(RunError, match="manifest.json is damaged"):
        Run.open(run.path)


def test_every_bit_of_a_manifest_counts(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    checkpoint(run, 0)
    whole = (run.path / "manifest.json").read_bytes()
    for at in range(0, len(whole), 7):
        (run.path / "manifest.json").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        if json_differs(whole, run.path / "manifest.json"):
            with pytest.raises(RunError, match="damaged|another version"):
                Run.open(run.path)


def json_differs(whole: bytes, path: Path) -> bool:
    """White space may be any."""
    try:
        return bool(json.loads(path.read_bytes()) != json.loads(whole))
    except ValueError:
        return True


def test_weights_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    model = nn.Linear(2, 3)
    run.save_weights(model, step=3, valid_loss=1.5, valid_perplexity=2.0, other="x")
    first = (run.path / "model.safetensors").read_bytes()
    run.save_weights(model, step=3, valid_loss=1.5, valid_perplexity=2.0, other="x")
    assert (run.path / "model.safetensors").read_bytes() == first
    other = nn.Linear(2, 3)
    Run.open(run.path).load_weights(other)
    assert torch.equal(other.weight, model.weight)
    with pytest.raises(RunError, match=r"weight: expected \(3, 4\) of float32, got \(3, 2\) of float32"):
        run.load_weights(nn.Linear(4, 3))
    with pytest.raises(RunError, match=r"bias: expected \(3,\) of float64, got \(3,\) of float32"):
        run.load_weights(nn.Linear(2, 3).double())


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    model = nn.Linear(2, 3)
    model.weight.data[1, 1] = float("nan")
    run.save_weights(model)
    with pytest.raises(RunError, match="weight holds numbers that are not finite"):
        run.load_weights(nn.Linear(2, 3))


def test_a_file_may_be_the_old_one_or_the_new_one_while_it_is_replaced(tmp_path: Path) -> None:
    """Whenever the writer is killed, the manifest knows what is there; nothing else passes."""
    run = make(tmp_path / "r")
    old, new = nn.Linear(2, 3), nn.Linear(2, 3)
    run.save_weights(old)
    run.commit()
    before = (run.path / "model.safetensors").read_bytes()
    run.save_weights(new)
    after = (run.path / "model.safetensors").read_bytes()
    for content in (before, after):
        (run.path / "model.safetensors").write_bytes(content)
        Run.open(run.path).load_weights(nn.Linear(2, 3))
    reader = Run.open(run.path)
    run.commit()
    reader.load_weights(nn.Linear(2, 3))
    (run.path / "model.safetensors").write_bytes(before)
    with pytest.raises(RunError, match="model.safetensors does not match its checksum"):
        Run.open(run.path).load_weights(nn.Linear(2, 3))


def test_killed_before_a_file_was_replaced_it_is_the_old_one_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(tmp_path / "r")
    run.save_weights(nn.Linear(2, 3))
    checkpoint(run, 0)
    write = SafeDir.write

    def killed(place: SafeDir, name: str, content: bytes) -> None:
        if name == "model.safetensors":
            raise KeyboardInterrupt
        write(place, name, content)

    monkeypatch.setattr(SafeDir, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        run.save_weights(nn.Linear(2, 3))
    monkeypatch.setattr(SafeDir, "write", write)
    run.release()
    again = Run.open(run.path, writing=True)
    again.rewind(again.load_checkpoint()[0])  # which commits
    again.release()
    Run.open(run.path).load_weights(nn.Linear(2, 3))


def test_a_reader_sees_what_a_writer_replaced_meanwhile(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    reader = Run.open(run.path)
    run.write_config('task = "language"\nsteps = 3\n')
    assert "steps" in reader.config_text()


def test_what_cannot_be_opened_is_not_left_locked(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    run.release()
    (run.path / "vocab.json").write_text("{}")
    for _ in range(2):
        with pytest.raises(RunError, match="vocab.json does not match its checksum"):
            Run.open(run.path, writing=True)
    assert not (run.path / "lock").exists()


# Checkpoints and logs ---------------------------------------------------------------------------------------


def test_the_newest_whole_checkpoint_serves(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    for step in (0, 5, 9):
        checkpoint(run, step)
    entry, tensors, state, complaints = run.load_checkpoint()
    assert (entry.step, state, complaints) == (9, {"step": 9}, [])
    assert tensors["w"].tolist() == [9.0, 9.0]
    assert sorted(p.name for p in (run.path / "resume").iterdir()) == ["a.safetensors", "b.safetensors"]
    (run.path / entry.file).write_bytes(b"torn")
    assert [entry.step, *complaints] == [9]
    entry, _, state, complaints = run.load_checkpoint()
    assert (entry.step, state) == (5, {"step": 5})
    assert "is damaged" in complaints[0]
    (run.path / entry.file).unlink()
    with pytest.raises(RunError, match="no checkpoint to resume from; .* is damaged; .* is missing"):
        run.load_checkpoint()


def test_a_file_of_the_users_beside_the_checkpoints_stays(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    (run.path / "resume" / "mine.pt").write_text("mine")
    (run.path / "resume" / ".a.safetensors.0123abcd.part").write_text("half")
    for step in range(4):
        checkpoint(run, step)
    run.release()
    Run.open(run.path, writing=True)
    assert (run.path / "resume" / "mine.pt").read_text() == "mine"
    assert not list((run.path / "resume").glob(".*.part"))


def test_what_was_measured_behind_a_checkpoint_is_forgotten(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    for step in (1, 2):
        run.log({"step": step, "valid_loss": 1.0})
        run.log({"step": step, "text": "x"}, "samples.jsonl")
    checkpoint(run, 2)
    then = (run.path / "metrics.jsonl").read_bytes()
    run.log({"step": 3, "valid_loss": 1.0})
    with (run.path / "metrics.jsonl").open("a") as out:
        out.write('{"step": 4, "val')  # a killed process
    assert [entry["step"] for entry in Run.open(run.path).metrics()] == [1, 2, 3]
    assert run.rewind(run.load_checkpoint()[0]) == []
    assert (run.path / "metrics.jsonl").read_bytes() == then
    run.log({"step": 3, "valid_loss": 2.0})
    assert [entry["step"] for entry in run.metrics()] == [1, 2, 3]
    assert [entry["step"] for entry in read_jsonl(run.path / "samples.jsonl")] == [1, 2]


def test_a_log_that_was_changed_is_refused_and_begun_anew(tmp_path: Path) -> None:
    run = make(tmp_path / "r")
    run.log({"step": 1, "valid_loss": 1.0})
    checkpoint(run, 1)
    (run.path / "metrics.jsonl").write_text('{"step": 1, "valid_loss": 0.1}\n')
    with pytest.raises(RunError, match="metrics.jsonl is damaged"):
        Run.open(run.path).metrics()
    (complaint,) = run.rewind(run.load_checkpoint()[0])
    assert "metrics.jsonl is damaged: its earlier entries are lost" in complaint
    assert run.metrics() == []


def test_files_that_hold_no_object(tmp_path: Path) -> None:
    assert read_json(tmp_path / "baseline.json") is None
    (tmp_path / "baseline.json").write_text(json.dumps([1]))
    assert read_json(tmp_path / "baseline.json") is None
    assert read_jsonl(tmp_path / "metrics.jsonl") == []


@pytest.mark.parametrize("name", ["tpu", "meta", "vulkan", ""])
def test_a_device_that_is_none(name: str) -> None:
    with pytest.raises(OptionError, match="device must be auto, cpu, cuda or cuda:N"):
        pick_device(name)


@pytest.mark.parametrize(("gpus", "asked", "got"), [(0, "auto", "cpu"), (2, "auto", "cuda"), (2, "cuda:1", "cuda:1")])
def test_a_device_is_one_that_is_there(gpus: int, asked: str, got: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert pick_device(asked) == torch.device(got)
    with pytest.raises(OptionError, match=r"device 'cuda:2' was requested, but torch sees (no GPU|2 GPU\(s\))"):
        pick_device("cuda:2")
