"""Commands on Ray and by submitit, each with two local workers or a local job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recur.cli.app import run
from recur.cli.engines import Job, requested_engine, take_flag
from recur.errors import OptionError
from recur.runs import Run
from recur.training.sweeps import open_sweep

SMALL = ["--task", "classify", "--steps", "4", "--hidden-size", "8", "--threads", "1", "--batch-size", "8"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("texts.tsv").write_text("".join(f"{'ab'[k % 2]}\t{'ba'[k % 2] * 3} text {k}\n" for k in range(80)))
    return "texts.tsv"


def test_flags_of_an_engine_are_taken_from_the_others() -> None:
    assert take_flag(["a", "--x", "1", "--x=2", "b"], "x") == ("2", ["a", "b"])
    assert take_flag(["a", "--x", "1", "--x=2", "b"], "x", first=True) == ("1", ["a", "--x=2", "b"])
    assert requested_engine(["book.txt", "--engine=ray", "--workers", "2", "-q"]) == (2, ["book.txt", "-q"])
    assert requested_engine(["book.txt"]) is None
    for wrong, says in ((["--engine", "dask"], "engine must be ray"), (["--engine", "ray"], "needs --workers"),
                        (["--engine"], "needs a value")):  # fmt: skip
        with pytest.raises(OptionError, match=says):
            requested_engine(wrong)


def test_a_job_trains_and_then_resumes(file: str) -> None:
    job = Job(["train", file, *SMALL, "--out", "run", "-q"], str(Path.cwd()), "run")
    assert job() == 0
    assert Run.open("run").weights_about()["step"] <= 4
    assert job() == 0  # queued again: the run is complete, and resuming it changes nothing
    assert len(Run.open("run").machines()) == 2


def test_submit_refuses_what_it_cannot_run(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("submitit")
    wrong_ones = {
        "name a command, train or sweep": ["eval", "run"],
        "--cluster must be one of": ["train", file, "--cluster", "moon"],
        "--set takes NAME=VALUE": ["train", file, "--set", "minutes"],
    }
    for says, wrong in wrong_ones.items():
        assert run(["submit", *wrong]) == 2
        assert says in capsys.readouterr().err


def test_a_local_job_of_submitit(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("submitit")
    command = [
        "submit",
        "train",
        file,
        *SMALL,
        "--out",
        "run",
        "--cluster",
        "local",
        "--wait",
        "--set",
        "timeout_min=3",
    ]
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["out"] == "run"
    assert Run.open("run").machines()[0]["processes"] == 1


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_training_and_a_sweep_on_ray(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.train")
    engine = ["--engine", "ray", "--workers", "2"]
    try:
        assert run(["train", file, *SMALL, *engine, "--out", "run"]) == 0
        assert Run.open("run").machines()[0]["processes"] == 2
        assert run(["train", file, "--task", "classify", "--hiden-size", "4", *engine]) == 2
        assert "did you mean --hidden-size" in capsys.readouterr().err
        assert run(["sweep", file, *SMALL, "--search", "lr", "--trials", "3", *engine, "--out", "swept"]) == 0
        found = open_sweep("swept", "swept/trials.log")
        assert [trial.state in ("complete", "pruned") for trial in found.trials] == [True] * 3
    finally:
        ray.shutdown()


def test_a_job_resumes_no_other_run(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A job resumes the run that it began. One that was there before would hide the new arguments."""
    pytest.importorskip("submitit")
    assert run(["train", file, *SMALL, "--out", "run", "-q"]) == 0
    capsys.readouterr()
    assert run(["submit", "train", file, *SMALL, "--out", "run", "--cluster", "local"]) == 2
    assert "run already holds a run" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["nonsense=1", "timeout_min=soon", "cluster=moon"])
def test_settings_that_submitit_refuses(file: str, setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("submitit")
    assert run(["submit", "train", file, "--cluster", "local", "--set", setting]) == 2
    assert "--set: submitit refuses it" in capsys.readouterr().err
