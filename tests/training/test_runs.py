"""Runs as their users have them: moved, changed behind their back, sent by a stranger, opened twice."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

import recur
from recur.cli.app import run as command
from recur.errors import RecurError, RunError
from recur.runs import Run
from recur.runs.safe_dir import SafeDir
from recur.runs.weights import to_bytes
from recur.tasks import make_options
from recur.training import Event, evaluate, resume, train
from recur.utils.trust import is_trusted, trust
from tests.small_runs import begin, reopen, stop_after
from tests.support import become_another_user

BOOK = "the network reads a word and the word is kept\na state is a word that the network keeps\n" * 40
SMALL: dict[str, Any] = {"hidden_size": 8, "batch_size": 4, "window": 10, "threads": 1, "baseline": False, "steps": 12}
FLAGS = [
    "--hidden-size",
    "8",
    "--batch-size",
    "4",
    "--window",
    "10",
    "--threads",
    "1",
    "--no-baseline",
    "-q",
    "--steps",
    "12",
]
CELL = "from recur.cells import GRU\nclass Mine(GRU): name = ''\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECUR_STATE", str(tmp_path / "state"))
    Path("book.txt").write_text(BOOK)
    return tmp_path


# Code ----------------------------------------------------------------------------------------------------------


def test_ones_own_cell_goes_with_the_run(here: Path) -> None:
    Path("mine.py").write_text(CELL)
    model = recur.fit("book.txt", cell="mine.py:Mine", out="r", **SMALL)
    Path("mine.py").unlink()  # it is not needed any more
    assert Path("r/cell.py").read_text() == CELL
    shutil.move("r", "elsewhere")
    assert recur.load("elsewhere").generate("the", 10, seed=0) == model.generate("the", 10, seed=0)
    assert 'cell = "cell.py:Mine"' in Path("elsewhere/config.toml").read_text()
    resume("elsewhere", steps=2)
    assert 'cell = "cell.py:Mine"' in Path("elsewhere/config.toml").read_text()


VERBS = ["sample", "eval", "xray", "resume", "logprob", "predict"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_strangers_cell_is_shown_and_not_executed(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(CELL + "import pathlib; pathlib.Path('ran').touch()\n")
    assert command(["train", "book.txt", "--cell", "mine.py:Mine", "--out", "r", *FLAGS]) == 0
    Path("ran").unlink()
    become_another_user(monkeypatch)
    capsys.readouterr()
    assert command([verb, "r", *(["book.txt"] if verb in ("logprob", "predict") else [])]) == 2
    said = capsys.readouterr().err
    assert "r/cell.py, 3 lines, SHA-256" in said
    assert "--trust" in said
    assert said.count("\n") == 1
    assert not Path("ran").exists()
    if verb == "sample":
        assert command(["sample", "r", "--trust", "-q", "--length", "3"]) == 0
        assert Path("ran").exists()
        assert command(["sample", "r", "-q", "--length", "3"]) == 0, "trusted from now on"


@pytest.mark.parametrize("cell", ["../evil.py:C", "evil.py:C", "cell.py:C", "evil.py:C\\n", ".py:C", "./evil.py:C:a=1"])
def test_a_configuration_cannot_name_code(cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    recur.fit("book.txt", out="r", **SMALL)
    for path in ("evil.py", "r/evil.py", "r/cell.py", ".py"):
        Path(path).write_text("import pathlib; pathlib.Path('ran').touch()\n")
    run = Run.open("r", writing=True)
    run.write_config(run.config_text().replace('cell = "gru"', f'cell = "{cell}"'))  # a forged run, digests and all
    run.release()
    assert command(["sample", "r", "--trust"]) == 2
    assert "names a cell outside of the run" in capsys.readouterr().err
    assert not Path("ran").exists()


def test_a_strangers_configuration_is_no_word_for_its_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(CELL)
    recur.fit("book.txt", cell="mine.py:Mine", out="r", **SMALL)
    become_another_user(monkeypatch)
    assert command(["train", "book.txt", "--config", "r/config.toml", "--out", "again"]) == 2
    assert "r/cell.py, 2 lines" in capsys.readouterr().err


def test_what_is_trusted_at_once_is_all_remembered(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(5):
        trust(f"{k}".encode())
    assert all(is_trusted(f"{k}".encode()) for k in range(5))
    Path("state/trusted").unlink()
    Path("state").rmdir()
    Path("state").write_text("in the way")
    trust(b"for this process")
    assert is_trusted(b"for this process")
    assert not is_trusted(b"0")


# Memory ------------------------------------------------------------------------------------------------------


def forge(run: Run, **tensors: torch.Tensor) -> None:
    """Put other tensors into the newest checkpoint, and have all digests fit."""
    entry, kept, state, _ = run.load_checkpoint()
    run.save_checkpoint(entry.step, {**kept, **tensors}, state)


@pytest.mark.parametrize(
    "tensors",
    [
        {"optimizer/bias/exp_avg": torch.zeros(1)},
        {"optimizer/bias/exp_avg_sq": torch.zeros(0)},
        {"optimizer/bias/exp_avg": torch.zeros(9, dtype=torch.float64)},
        {"optimizer/bias/step": torch.zeros(3)},
        {"optimizer/bias/other": torch.zeros(())},
        {"optimizer/nothing/exp_avg": torch.zeros(1)},
        {"model/bias": torch.zeros(1)},
        {"grad/bias": torch.zeros(1)},
        {"random/cpu": torch.zeros(3, dtype=torch.uint8)},
        {"random/cpu": torch.full((5056,), 255, dtype=torch.uint8)},
        {"random/cpu": torch.zeros(5056)},
        {"records/losses": torch.zeros(2, 2)},
        {"records/predictions": torch.zeros(())},
    ],
    ids=lambda tensors: f"{next(iter(tensors))}-{tuple(next(iter(tensors.values())).shape)}",
)
def test_a_forged_checkpoint_reaches_no_kernel(tensors: dict[str, torch.Tensor]) -> None:
    trainer = begin(Path("r"), texts="book.txt", **SMALL)
    stop_after(trainer, 6)
    run = Run.open("r", writing=True)
    forge(run, **tensors)
    run.release()
    with pytest.raises(RunError, match="fit"):
        resume("r")


def test_a_checkpoint_without_a_part_of_the_optimiser(here: Path) -> None:
    stop_after(begin(Path("r"), texts="book.txt", **SMALL), 6)
    run = Run.open("r", writing=True)
    entry, tensors, state, _ = run.load_checkpoint()
    del tensors["optimizer/bias/exp_avg_sq"]
    run.save_checkpoint(entry.step, tensors, state)
    run.release()
    with pytest.raises(RunError, match="it was saved with another optimizer than adamw"):
        resume("r")


@pytest.mark.parametrize("field", ["step", "best", "schedule", "hidden", "best_metrics", "averaging_from", "epoch"])
@pytest.mark.parametrize("value", [None, "x", -1, 10**400, [1], {}, {"a": "b"}, float("nan")], ids=lambda v: str(v)[:9])
def test_forged_numbers_are_an_error_of_ours(field: str, value: object) -> None:
    trainer = begin(Path("r"), texts="book.txt", **SMALL)
    trainer.checkpoint()
    _, tensors, state, _ = trainer.run.load_checkpoint()
    trainer.run.save_checkpoint(0, tensors, {**state, field: value})
    trainer.run.release()
    with contextlib.suppress(RecurError):  # nothing else, and no end of the process
        resume("r")


def test_weights_are_numbers_alone() -> None:
    trainer = begin(Path("r"), texts="book.txt", **SMALL)
    stop_after(trainer, 6)
    kept = {path.suffix for path in Path("r").rglob("*") if path.is_file()}
    assert kept == {".json", ".toml", ".jsonl", ".safetensors"}
    names = load(Path("r", trainer.run.manifest.checkpoints[0].file).read_bytes())
    assert {name.partition("/")[0] for name in names} == {"model", "optimizer", "random", "records", "hidden"}
    assert to_bytes(names, {}) == to_bytes(dict(reversed(names.items())), {}), "the same bytes in any order"


# Texts -------------------------------------------------------------------------------------------------------


def test_a_changed_text_stops_and_can_be_said_to_be_right(capsys: pytest.CaptureFixture[str]) -> None:
    recur.fit("book.txt", out="r", **SMALL)
    Path("book.txt").write_text(BOOK.replace("kept", "held"))
    for verb in ("resume", "eval", "xray"):
        assert command([verb, "r"]) == 2
        said = capsys.readouterr().err
        assert "book.txt is not the text that r was trained on" in said
        assert "--changed-text" in said
    assert command(["eval", "r", "--changed-text", "-q"]) == 0
    assert command(["eval", "r", "book.txt"]) == 0, "another text is another text"
    assert "no n-gram baseline" in capsys.readouterr().err
    assert command(["resume", "r", "--steps", "2", "--changed-text", "-q"]) == 0
    assert command(["resume", "r", "--steps", "2", "-q"]) == 0, "it has learned from this one now"


def test_a_run_moves_with_its_text_or_without(capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs").mkdir()
    recur.fit("book.txt", out="runs/r", **SMALL)
    Path("far/away").mkdir(parents=True)
    shutil.move("runs/r", "far/away/r")
    Path("book.txt").rename("far/away/book.txt")
    assert command(["resume", "far/away/r", "--steps", "2", "-q"]) == 0, "found beside the run"
    Path("far/away/book.txt").rename("kept.txt")
    assert command(["resume", "far/away/r", "--steps", "2"]) == 2
    said = capsys.readouterr().err
    assert "book.txt', which far/away/r learned from" in said
    assert command(["sample", "far/away/r", "-q", "--length", "5"]) == 0
    assert command(["eval", "far/away/r", "kept.txt", "-q"]) == 0
    assert command(["xray", "far/away/r", "kept.txt", "-q", "--tokens", "64"]) == 0


def test_a_test_file_is_measured_without_the_training_text() -> None:
    Path("held.txt").write_text(BOOK[:400])
    recur.fit("book.txt", out="r", test=["held.txt"], **SMALL)
    Path("book.txt").unlink()
    assert recur.load("r").evaluate()["tokens"] > 0


# One writer, every moment ---------------------------------------------------------------------------------------


def test_a_random_state_whose_parts_do_not_fit_together(here: Path) -> None:
    """torch itself takes it, and would read behind its words."""
    stop_after(begin(Path("r"), texts="book.txt", **SMALL), 6)
    state = torch.get_rng_state()
    state[8:12] = torch.tensor([624], dtype=torch.int32).view(torch.uint8)
    state[16:24] = torch.tensor([624], dtype=torch.int64).view(torch.uint8)
    run = Run.open("r", writing=True)
    forge(run, **{"random/cpu": state})
    run.release()
    with pytest.raises(RunError, match="the random state is invalid"):
        resume("r")


def test_files_larger_than_memory_are_refused(here: Path) -> None:
    recur.fit("book.txt", out="r", **SMALL)
    for name, size in (("metrics.jsonl", 2**40), ("resume/a.safetensors", 2**40), ("config.toml", 2**30)):
        kept = Path("r", name).read_bytes()
        os.truncate(Path("r", name), size)  # a sparse file: no byte of it is on disk
        if name == "config.toml":
            with pytest.raises(RunError, match="config.toml is"):
                recur.load("r")
        elif name == "metrics.jsonl":
            with pytest.raises(RunError, match="metrics.jsonl is damaged: it has"):
                Run.open("r").metrics()
        else:
            run = Run.open("r")
            found = run.load_checkpoint(most=10**7)
            assert [name in complaint for complaint in found[3]] in ([], [True])
        Path("r", name).write_bytes(kept)


def test_a_run_without_its_vocabulary_is_one_line(here: Path) -> None:
    recur.fit("book.txt", out="r", **SMALL)
    run = Run.open("r", writing=True)
    run.manifest.vocabularies = []
    run.commit()
    run.release()
    with pytest.raises(RunError, match="it has no vocab.json"):
        recur.load("r")


def test_two_cannot_train_one_run() -> None:
    trainer = begin(Path("r"), texts="book.txt", **SMALL)
    trainer.checkpoint()
    with pytest.raises(RunError, match=f"is being trained by process {os.getpid()}"):
        resume("r")
    trainer.run.release()
    resume("r")


def test_left_before_its_first_step_it_goes_on() -> None:
    straight = begin(Path("a"), texts="book.txt", **SMALL)
    straight.train()
    trainer = begin(Path("b"), texts="book.txt", **SMALL)
    trainer.checkpoint()
    trainer.run.release()  # killed here
    resume("b")
    assert Path("a/model.safetensors").read_bytes() == Path("b/model.safetensors").read_bytes()


def test_killed_between_the_last_measurement_and_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    recur.fit("book.txt", out="a", **SMALL)
    trainer = begin(Path("b"), texts="book.txt", **SMALL)
    trainer.checkpoint()
    ordinary = trainer.checkpoint

    def killed() -> None:
        if trainer.measured_at == 12:
            raise KeyboardInterrupt
        ordinary()

    monkeypatch.setattr(trainer, "checkpoint", killed)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.run.release()
    outcome = resume("b")
    assert outcome.summary["valid_loss"] < 10
    assert Path("a/model.safetensors").read_bytes() == Path("b/model.safetensors").read_bytes()
    assert [entry["step"] for entry in outcome.run.metrics()] == [e["step"] for e in recur.load("a").run.metrics()]


SAME = ("step", "train_loss", "grad_norm", "clipped", "lr", "valid_loss", "predictions")


def test_what_is_measured_after_a_stop_is_what_would_have_been() -> None:
    """The means over the steps since the measurement before, too: a stop falls between two."""
    fields = {**SMALL, "steps": 30, "grad_clip": 0.3}
    straight = begin(Path("a"), texts="book.txt", **fields)
    straight.train()
    for at in (4, 11, 20):
        trainer = begin(Path("b"), texts="book.txt", **fields) if at == 4 else reopen(Path("b"))
        stop_after(trainer, at)
    resumed = reopen(Path("b"))
    resumed.train()
    found = [[tuple(entry[key] for key in SAME) for entry in t.run.metrics()] for t in (straight, resumed)]
    assert found[0] == found[1]
    assert Path("a/samples.jsonl").read_bytes() == Path("b/samples.jsonl").read_bytes()
    assert Path("a/model.safetensors").read_bytes() == Path("b/model.safetensors").read_bytes()


def test_given_more_and_killed_at_once_it_measures_as_it_would_have(here: Path) -> None:
    for name, killed in (("a", False), ("b", True)):
        recur.fit("book.txt", out=name, **SMALL)
        if killed:

            def leave(event: Event) -> None:
                if event.kind == "started":
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                resume(name, steps=20, callback=leave)
            resume(name)
        else:
            resume(name, steps=20)
    steps = [[entry["step"] for entry in Run.open(name).metrics()] for name in ("a", "b")]
    assert steps[0] == steps[1]
    assert Path("a/model.safetensors").read_bytes() == Path("b/model.safetensors").read_bytes()


def test_a_run_among_its_texts_is_not_learned_from(here: Path) -> None:
    Path("texts").mkdir()
    Path("book.txt").rename("texts/book.txt")
    recur.fit("texts", out="texts/runs/r", **SMALL)
    resume("texts/runs/r", steps=2)
    assert recur.load("texts/runs/r").evaluate()["tokens"] < len(BOOK)


def test_a_changed_text_from_python(here: Path) -> None:
    recur.fit("book.txt", out="r", **SMALL)
    Path("book.txt").write_text(BOOK.replace("kept", "held"))
    with pytest.raises(RunError, match="changed_text=True"):
        recur.load("r").evaluate()
    assert recur.load("r", changed_text=True).evaluate()["tokens"] > 0


def test_an_error_of_a_callback_is_its_own(here: Path) -> None:
    def broken(event: Event) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        recur.fit("book.txt", out="r", callback=broken, **SMALL)


def test_a_full_disk_before_the_first_step_leaves_no_lock_held(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, kept = SafeDir.write, []

    def full(place: SafeDir, name: str, content: bytes) -> None:
        if name == "config.toml":
            raise OSError(28, "No space left on device", str(place.path / name))
        write(place, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(SafeDir, "write", full)
        with pytest.raises(RunError, match="No space left on device: r/config.toml; .* train again") as error:
            recur.fit("book.txt", out="r", **SMALL)
        kept.append(error)  # as a notebook does
    recur.fit("book.txt", out="r", **SMALL)


def test_the_baseline_is_measured_after_all() -> None:
    trainer = begin(Path("r"), texts="book.txt", **{**SMALL, "baseline": True})
    trainer.checkpoint()
    trainer.run.release()  # killed while it was being measured
    events: list[Event] = []
    resume("r", callback=events.append)
    assert "baseline" in [event.kind for event in events]
    assert Run.open("r").baselines()


def test_terminated_it_saves_and_says_how_to_go_on() -> None:
    """As Slurm, Kubernetes and docker stop end a process."""
    arguments = [sys.executable, "-m", "recur", "train", "book.txt", *FLAGS[:-2], "--steps", "1000000", "--out", "r"]
    arguments.remove("-q")
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "reads" in line or "characters" in line:
                break
        while not Path("r/manifest.json").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert process.returncode == 130
    assert "resume with: recur resume r" in said
    assert not Path("r/lock").exists()
    resume("r", steps=2)


def test_a_full_disk_is_said_with_the_way_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "r/resume/a.safetensors")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_checkpoint", full)
        with pytest.raises(RunError, match="No space left on device: r/resume/a.safetensors; .* train again"):
            recur.fit("book.txt", out="r", **SMALL)
    recur.fit("book.txt", out="r", **SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_checkpoint", full)
        with pytest.raises(RunError, match="No space left on device: .* continue with recur resume r"):
            resume("r", steps=2)
    resume("r", steps=2)


def test_a_long_validation_part_is_thinned_inside_the_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some examples while it trains, then all of them with the best weights: the figures of the whole part."""
    monkeypatch.setattr(evaluate, "EVALUATION_SHARE", 1e-6)
    monkeypatch.setattr(evaluate, "MIN_EXAMPLES", 5)
    Path("many.tsv").write_text("".join(f"{'ab'[k % 2]}\t{'xy'[k % 2] * (1 + k % 7)}\n" for k in range(4000)))
    options = make_options(
        "classify",
        {
            "texts": ["many.tsv"],
            "hidden_size": 8,
            "embedding_size": 4,
            "threads": 1,
            "minutes": 0.02,
            "baseline": False,
        },
    )
    events: list[Event] = []
    outcome = train(options, "r", events.append)
    notes = [e.content["text"] for e in events if e.kind == "note" and "validation examples" in e.content["text"]]
    assert len(notes) == 1
    whole = recur.load("r")
    with torch.no_grad():
        found = whole.task.validate(whole.model, whole.task.read(whole.run.vocabs)).metrics
    assert outcome.summary["valid_loss"] == pytest.approx(found["valid_loss"], rel=1e-6)
    assert outcome.summary["last_measuring_seconds"] > 0
