"""recur sweep: what is drawn, what is left early, what a killed one goes on with, and what is said of the best."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import recur
from recur.cli.app import run
from recur.errors import OptionError, RecurError, RunError, TextError
from recur.options import Between, OneOf, checked, hints
from recur.runs import Run
from recur.tasks import make_options, options_class, options_of_run, task_names
from recur.training import Event, train
from recur.training.sweeps import open_sweep, resume_sweep, sweep
from recur.training.sweeps.record import SweepRecord, Trial, parse_sweep_record
from recur.training.sweeps.search import Study, resolve_search
from recur.training.sweeps.storage import StorageTrials
from tests.cli.test_cli import json_of
from tests.support import become_another_user

SMALL: dict[str, Any] = {"steps": 20, "batch_size": 8, "threads": 1, "embedding_size": 8}
TEXT = "".join(f"{'ab'[k % 2]}\t{'ba'[k % 2] * 3} text {k}\n" for k in range(80))
RANGES = ["hidden_size=4:12", "lr=0.001:0.05:log"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("texts.tsv").write_text(TEXT)
    return "texts.tsv"


def params_of(found: recur.training_remarks.sweeps.Sweep) -> list[dict[str, Any]]:  # type: ignore[name-defined]
    return [trial.params for trial in found.trials]


def test_each_trial_is_a_run_and_the_best_is_said(file: str) -> None:
    seen: list[Trial] = []
    found = sweep(file, task="classify", trials=4, search=RANGES, watcher=seen.append, **SMALL)
    assert found.path == Path("sweeps/texts")
    assert sorted(p.name for p in found.path.iterdir()) == [
        "sweep.json", "trial-000", "trial-001", "trial-002", "trial-003",
    ]  # fmt: skip
    assert [trial.state for trial in seen] == ["running", "complete"] * 4
    for trial in found.trials:
        options = options_of_run(Run.open(found.path / trial.run))
        assert {name: getattr(options, name) for name in ("hidden_size", "lr")} == trial.params
        assert options.embedding_size == 8
        assert trial.number == 0 or (4 <= options.hidden_size <= 12 and 0.001 <= options.lr <= 0.05)
        assert len(trial.measured) == 10
    own = options_class("classify")().for_token("word")
    assert found.trials[0].params == {"hidden_size": own.hidden_size, "lr": own.lr}
    values = [trial.value for trial in found.trials]
    assert found.best.value == min(values)
    assert [trial.value for trial in found.ranked()] == sorted(values)
    assert found.model().run.path == found.path / found.best.run
    assert found.as_dict()["best"]["run"] == str(found.path / found.best.run)
    assert found.best.run in repr(found)
    assert found._repr_html_().count("<tr>") == 5


def test_the_command_trains_the_best_again(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = sweep(file, task="classify", trials=3, search=RANGES, baseline=False, lower=True, **SMALL)
    for trial in found.trials[1:]:  # not only the best one's
        best = type(found)(found.path, SweepRecord(**{**vars(found.record), "trials": [trial]}))
        words = shlex.split(best.command)
        assert words[:4] == ["recur", "train", "texts.tsv", "--task"]
        assert run([*words[1:], "--out", f"again-{trial.number}", "-q"]) == 0
        again = Path(f"again-{trial.number}/model.safetensors").read_bytes()
        assert again == (found.path / trial.run / "model.safetensors").read_bytes()
    capsys.readouterr()


def test_a_sweep_that_was_stopped_ends_as_one_that_was_not(file: str) -> None:
    asked: dict[str, Any] = {"task": "classify", "trials": 4, "search": RANGES, **SMALL}
    whole = sweep(file, out="whole", **asked)
    stop = threading.Event()

    def interrupt(event: Event) -> None:
        if event.kind == "measured" and event.content["step"] == 8 and (Path("parts/trial-002")).exists():
            stop.set()

    part = sweep(file, out="parts", callback=interrupt, interrupt=stop, **asked)
    assert part.stopped
    assert [trial.state for trial in part.trials] == ["complete", "complete", "running"]
    rest = resume_sweep("parts", trials=4)
    assert not rest.stopped
    assert params_of(rest) == params_of(whole)
    assert [t.measured for t in rest.trials] == [t.measured for t in whole.trials]
    assert [t.value for t in rest.trials] == [t.value for t in whole.trials]
    more = sweep(file, out="parts", **{**asked, "trials": 5})
    assert params_of(more)[:4] == params_of(whole)
    assert len(more.trials) == 5


def test_a_sweep_that_was_killed_goes_on(file: str) -> None:
    code = f"""
import os, recur
def kill(event):
    if event.kind == "measured" and event.content["step"] == 8 and os.path.exists("killed/trial-001"):
        os._exit(9)
recur.sweep("texts.tsv", task="classify", trials=3, search={RANGES}, out="killed", callback=kill, **{SMALL})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert [trial.state for trial in SweepRecord.read(Path("killed")).trials] == ["complete", "running"]
    rest = resume_sweep("killed", trials=3)
    whole = sweep(file, out="whole", task="classify", trials=3, search=RANGES, **SMALL)
    assert params_of(rest) == params_of(whole)
    assert [t.measured for t in rest.trials] == [t.measured for t in whole.trials]


def test_hopeless_trials_are_left(file: str) -> None:
    """Rates of nothing beside good ones: the median of five is better than what they have after three measurements."""
    record = SweepRecord("classify", {}, {"lr": Between(1e-6, 0.1, log=True)}, "valid_accuracy")
    record.trials = [
        Trial(k, {"lr": 0.01}, "complete", 0.9, tuple(0.5 + 0.04 * n for n in range(1, 11))) for k in range(6)
    ]
    assert Study(record).ask(6).should_prune([0.1] * 5)
    assert not Study(record).ask(6).should_prune([0.1]), "too early to tell"
    assert not Study(record).ask(6).should_prune([0.95] * 5)
    record.metric = "valid_error"  # less is better
    assert Study(record).ask(6).should_prune([0.95] * 5)
    assert not Study(record).ask(6).should_prune([0.1] * 5)
    record.pruner = "none"
    assert not Study(record).ask(6).should_prune([0.95] * 5)
    record.pruner = "hyperband"
    assert Study(record).ask(6, {"lr": 0.5e-3}).params == {"lr": 0.0005}


def test_a_trial_that_is_left_stops_cleanly(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "recur.training.sweeps.search.TrialMonitor.should_prune", lambda self, measured: len(measured) >= 3
    )
    found = sweep(file, task="classify", trials=2, search=RANGES, **SMALL)
    assert [trial.state for trial in found.trials] == ["complete", "pruned"]
    assert len(found.trials[1].measured) == 3
    left = Run.open(found.path / "trial-001")
    assert len(left.metrics()) == 3
    assert recur.load(left.path)("some text") in ("a", "b"), "a run like any other"
    assert found.best.number == 0


def test_a_trial_that_diverges_is_passed_over(file: str) -> None:
    found = sweep(file, task="classify", trials=3, search={"lr": OneOf((1e8,))}, grad_clip=0, optimizer="sgd", **SMALL)
    states = [trial.state for trial in found.trials]
    assert states[0] == "complete"
    assert "failed" in states[1:]
    assert "training diverged" in next(trial.why for trial in found.trials if trial.state == "failed")


def test_what_is_wrong_with_all_trials_is_raised(file: str) -> None:
    Path("bad.tsv").write_text("no tab\n")
    with pytest.raises(TextError, match="a label and a text were expected"):
        sweep("bad.tsv", task="classify", trials=3, **SMALL)
    assert SweepRecord.read(Path("sweeps/bad")).trials == []
    for asked, says in (
        ({"trials": 0}, "trials must be a whole number"),
        ({"pruner": "best"}, "pruner must be one of median, hyperband, none"),
        ({"search": ["hiden=1:2"]}, "did you mean 'hidden_size'"),
        ({"search": ["cell=1:2"]}, "cell"),
        ({"search": ["pool=max,least"]}, "unknown pool 'least'"),
        ({"search": ["hidden_size=9:3"]}, "a range needs low < high"),
        ({"search": ["lr=0:1:log"]}, "a range needs low < high"),
        ({"search": ["hidden_size=a:b"]}, "a range is low:high"),
        ({"search": ["momentum"]}, "has no range for momentum"),
        ({"search": ["batch_size"]}, "batch_size is both given and searched"),
        ({"search": {"valid": OneOf(("a",))}}, "unknown option 'valid'"),
        ({"search": {"hidden_size": 3}}, "a search is a Between or a OneOf"),
        ({"search": {"hidden_size": OneOf(())}}, "no values are given"),
        ({"search": []}, "nothing to search"),
        ({"total_minutes": 0}, "total_minutes must be above 0"),
        ({"hidden_size": 0}, "hidden_size must be"),
        ({"out": "texts.tsv"}, "is in the way"),
    ):
        with pytest.raises(RecurError, match=says):
            sweep(file, task="classify", **{"out": "never", "trials": 1, **SMALL, **asked})
    with pytest.raises(OptionError, match="the task classify trains on files"):
        sweep(task="classify", trials=1)
    with pytest.raises(RunError, match="nowhere is not a sweep"):
        resume_sweep("nowhere")


def test_another_sweep_is_not_mixed_with_it(file: str) -> None:
    sweep(file, task="classify", trials=1, search=RANGES, **SMALL)
    with pytest.raises(RunError, match=r"with different settings \(options\); resume it"):
        sweep(file, task="classify", trials=1, search=RANGES, **{**SMALL, "steps": 3})
    with pytest.raises(RunError, match=r"with different settings \(search\)"):
        sweep(file, task="classify", trials=1, search=["lr"], **SMALL)


def test_data_in_memory_is_kept_in_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"label": ["a", "b"] * 40, "text": [f"{'ab'[k % 2]} word {k}" for k in range(80)]})
    asked: dict[str, Any] = {"task": "classify", "search": RANGES, "out": tmp_path / "s", **SMALL}
    found = sweep(frame, trials=1, **asked)
    assert (found.path / "data/train.tsv").is_file()
    assert json.loads((found.path / "sweep.json").read_text())["options"]["texts"] == ["data/train.tsv"]
    assert len(sweep(frame, trials=2, **asked).trials) == 2
    with pytest.raises(RunError, match="holds a sweep with different data"):
        sweep(frame[:70], trials=2, **asked)
    (tmp_path / "s").rename(tmp_path / "moved")
    assert len(resume_sweep("moved", trials=3).trials) == 3


@pytest.mark.parametrize("task", task_names())
def test_the_search_of_every_task(task: str) -> None:
    cls = options_class(task)
    assert cls.search
    for name, space in cls.search.items():
        ends = (space.low, space.high) if isinstance(space, Between) else space.values
        for value in ends:
            checked(name, value, hints(cls)[name])
            make_options(task, {name: value})
        default = cls.cpu_batch if name == "batch" else cls.default(name)
        assert default is None or default in space, "the default is one of them, or left open"
    record = SweepRecord(task, {}, resolve_search(task, None, {}), "valid_loss")
    for number in range(1, 9):
        drawn = Study(record).ask(number).params
        assert set(drawn) == set(cls.search)
        assert all(drawn[name] in space for name, space in cls.search.items())
        make_options(task, drawn)
        assert Study(record).ask(number).params == drawn, "the same again"


def test_what_the_given_options_make_meaningless_is_not_searched_for(file: str) -> None:
    Path("series.csv").write_text("y\n" + "".join(f"{(k % 12) + 0.1 * (k % 5)}\n" for k in range(200)))
    fixed: dict[str, Any] = {"lags": 16, "segment": 0, "horizon": 4, "hidden_size": 4, "steps": 4, "threads": 1}
    found = sweep("series.csv", task="forecast", trials=3, **fixed)
    assert "cell" in options_class("forecast").search
    assert "cell" not in found.record.search
    assert [trial.why for trial in found.trials] == [""] * 3
    with pytest.raises(OptionError, match="--cell is for a state; --lags 16 has none"):
        sweep("series.csv", task="forecast", search=["cell"], out="other", **fixed)


def test_trials_that_failed_are_said(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
    asked = ["--search", "lr=1e8,2e8", "--grad-clip", "0", "--optimizer", "sgd", "--trials", "3"]
    assert run(["sweep", file, "--task", "classify", *asked, *small]) == 0
    assert "2 of 3 trials failed, trial-001 first: training diverged" in " ".join(capsys.readouterr().err.split())


def test_importance() -> None:
    record = SweepRecord(
        "classify", {}, {"lr": Between(0.001, 0.1, log=True), "hidden_size": Between(8, 64)}, "valid_error"
    )
    study = Study(record)
    drawn = [study.ask(number).params for number in range(40)]
    record.trials = [Trial(k, p, "complete", abs(float(p["lr"]) - 0.01)) for k, p in enumerate(drawn)]
    found = Study(record).importance()
    assert list(found) == ["lr", "hidden_size"]
    assert found["lr"] > 0.8
    record.trials = record.trials[:3]
    assert Study(record).importance() == {}, "too few to tell"


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = SweepRecord(
        "classify", {"texts": ["a"]}, {"lr": Between(0.1, 1.0, log=True), "cell": OneOf(("gru", "lstm"))}, "m"
    )
    record.trials = [Trial(0, {"lr": 0.5, "cell": "gru"}, "failed", None, (0.5, 0.25), 1.5, "why")]
    record.write(tmp_path)
    assert SweepRecord.read(tmp_path) == record
    content = (tmp_path / "sweep.json").read_text()
    for old, new in (("failed", "done"), ("0.5", '"x"'), ('"number": 0', '"number": 1'), ("Between", "[]"), ("{", "[")):
        with pytest.raises(RunError, match="is damaged"):
            parse_sweep_record(content.replace(old, new).encode(), "sweep.json")
    with pytest.raises(RunError, match="by another version"):
        parse_sweep_record(content.replace('"format": 1', '"format": 2').encode(), "sweep.json")


CELL = "import pathlib\npathlib.Path('executed').touch()\nfrom recur.cells import GRU\nclass Evil(GRU): name = ''\n"


@pytest.mark.parametrize("place", ["options", "search", "a trial that runs", "a trial that has ended"])
def test_a_cell_that_a_sweep_folder_names_is_executed_only_if_it_is_trusted(
    file: str, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    become_another_user(monkeypatch)
    found = sweep(file, task="classify", trials=1, search=RANGES, **{**SMALL, "steps": 2})
    Path("evil.py").write_text(CELL)
    record, evil = SweepRecord.read(found.path), "../../evil.py:Evil"
    if place == "options":
        record.options["cell"] = evil
    elif place == "search":
        record.search["cell"] = OneOf((evil,))
    else:
        record.search["cell"] = OneOf(("gru", "lstm"))
        params: Any = {"hidden_size": 8, "lr": 0.01, "cell": evil}
        record.trials.append(Trial(1, params, "running" if "runs" in place else "failed"))
    record.write(found.path)
    command = ["sweep", "--resume", str(found.path), "--trials", "2", "-q"]
    assert run(command) == 2
    said = capsys.readouterr().err
    assert "evil.py, 4 lines, SHA-256" in said
    assert said.count("\n") == 1
    assert not Path("executed").exists()
    assert len(SweepRecord.read(found.path).trials) == len(record.trials), "no trial is started"
    assert run([*command, "--trust"]) == 0
    assert Path("executed").exists() is ("ended" not in place)


def test_a_custom_cell_can_be_searched_for(file: str) -> None:
    Path("mine.py").write_text(CELL)
    found = sweep(file, task="classify", trials=2, search={"cell": OneOf(("mine.py:Evil",))}, **{**SMALL, "steps": 2})
    assert [trial.state for trial in found.trials] == ["complete", "complete"]
    assert found.trials[1].params == {"cell": "../../mine.py:Evil"}


def test_a_text_that_a_stranger_names_is_not_opened(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(file, task="classify", trials=1, search=RANGES, out="inner/swept", **SMALL)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    again = ["sweep", "--resume", "../inner/swept", "--trials", "1", "-q"]
    assert run(again) == 0, "this user has named the text"
    monkeypatch.setenv("RECUR_STATE", str(tmp_path / "stranger"))
    assert run(again) == 2
    assert "add --allow-path ../texts.tsv" in capsys.readouterr().err
    assert run([*again, "--allow-path", "../texts.tsv"]) == 0


def test_links_in_a_sweep_are_not_followed(file: str, tmp_path: Path) -> None:
    found = sweep(file, task="classify", trials=1, search=RANGES, out="swept", **SMALL)
    record = (found.path / "sweep.json").rename(tmp_path / "mine.json")
    content = record.read_text()
    (found.path / "sweep.json").symlink_to(record)
    with pytest.raises(RunError, match="is a link"):
        resume_sweep(found.path, trials=2)
    assert record.read_text() == content


def test_the_command_line(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--task", "classify", "--steps", "6", "--batch-size", "8", "--threads", "1", "--search", "hidden_size=4:8"]
    found = json_of(capsys, "sweep", file, *flags, "--trials", "2")
    assert found["sweep"] == "sweeps/texts"
    assert [trial["state"] for trial in found["trials"]] == ["complete", "complete"]
    assert found["command"].startswith("recur train texts.tsv --task classify")
    more = json_of(capsys, "sweep", "--resume", "sweeps/texts", "--trials", "3")
    assert len(more["trials"]) == 3
    assert run(["sweep", file, *flags, "--trials", "3"]) == 0
    shown = capsys.readouterr()
    assert "hidden" in shown.out
    assert "train it again with\n  recur train texts.tsv" in shown.out
    assert run(["sweep", file, *flags, "--trials", "4"]) == 0
    assert "trial-003" in capsys.readouterr().err
    for arguments, says in (
        (["sweep", file, "--task", "classify", "--horizon", "3"], "--horizon belongs to forecast"),
        (["sweep", file, "--task", "classify", "--search", "hidden_size"], "with different settings"),
        (["sweep", "--resume", "none"], "none is not a sweep"),
        (["sweep", file], "choose a task"),
    ):
        assert run(arguments) == 2
        assert says in capsys.readouterr().err
    assert run(["sweep", "--help"]) == 0
    assert "--total-minutes" in capsys.readouterr().out


def test_ctrl_c_says_how_to_go_on(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal

    from recur.training.trainer import Trainer

    ordinary = Trainer.train_on

    def interrupted(self: Any, batch: Any) -> None:
        ordinary(self, batch)
        if self.step == 5 and self.run.path.name == "trial-001":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "train_on", interrupted)
    flags = ["--task", "classify", "--steps", "6", "--batch-size", "8", "--threads", "1", "--search", "hidden_size=4:8"]
    assert run(["sweep", file, *flags, "--trials", "2"]) == 130
    assert "resume with: recur sweep --resume sweeps/texts" in capsys.readouterr().err
    assert [trial.state for trial in SweepRecord.read(Path("sweeps/texts")).trials] == ["complete", "running"]


def test_without_optuna_it_says_so() -> None:
    code = "import sys; sys.modules['optuna'] = None; import recur; recur.sweep('x', task='classify')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stderr.endswith("Optuna is not installed: pip install 'recur[sweep]'\n")


def test_at_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trees.txt").write_text("".join(f"({k % 3} (1 a) ({k % 2} b))\n" for k in range(60)))
    quick = ["--steps", "2", "--threads", "1", "--hidden-size", "4", "--no-baseline"]
    assert run(["sweep", "trees.txt", *quick, "--trials", "3", "--search", "embedding_size=4:8", "--out", "s"]) == 0
    shown = capsys.readouterr()
    assert "--task tree" in shown.err
    assert "train it again with" in shown.out
    assert run(["sweep", "--resume", "s", "--trials", "4"]) == 0
    assert "trial-003" in capsys.readouterr().err
    assert run(["sweep", "--resume", "nothing"]) == 2


# Several processes ------------------------------------------------------------------------------------------------

WORKER = """
import os, sys, recur
from recur.options.fields import Between

def watcher(trial):
    if trial.state == "running" and trial.number == int(os.environ.get("KILL_AT", -1)):
        def kill(event):
            if event.kind == "measured":
                os._exit(9)
        global callback
        callback = kill

callback = lambda event: None
recur.sweep("texts.tsv", task="classify", trials=int(sys.argv[1]), search={RANGES}, storage=sys.argv[2], out="shared",
            watcher=watcher, callback=lambda event: callback(event), **{SMALL})
""".replace("{SMALL}", repr(SMALL)).replace("{RANGES}", repr(RANGES))


def worker(trials: int, storage: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(trials), storage]
    return subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.PIPE, text=True)


def test_processes_share_a_search_and_a_killed_trial_is_resumed(file: str) -> None:
    storage = "sqlite:///trials.db"
    killed = worker(4, storage, KILL_AT="1")
    errors = killed.communicate(timeout=120)[1]
    assert killed.returncode == 9, errors
    several = [worker(4, storage) for _ in range(2)]
    for process in several:
        assert process.communicate(timeout=120)[1] == ""
    found = sweep(file, task="classify", trials=4, search=RANGES, storage=storage, out="shared", **SMALL)
    assert [trial.number for trial in found.trials] == [0, 1, 2, 3]
    assert {trial.state for trial in found.trials} <= {"complete", "pruned"}
    assert len({trial.params["lr"] for trial in found.trials}) == 4
    alone = train(make_options("classify", {"texts": (file,), **SMALL, **found.trials[1].params}), "alone")
    again = recur.load("shared/trial-001")
    for name, value in recur.load(alone.run.path).model.state_dict().items():  # exactly as if it had not been killed
        assert torch.equal(again.model.state_dict()[name], value)


def test_a_storage_with_another_sweep_is_refused(file: str) -> None:
    asked: dict[str, Any] = {"task": "classify", "trials": 1, "storage": "trials.log"}
    sweep(file, search=RANGES, out="shared", **asked, **SMALL)
    with pytest.raises(RunError, match="the storage holds a sweep 'shared' with different settings"):
        sweep(file, search=["lr"], out="elsewhere/shared", **asked, **SMALL)
    with pytest.raises(RecurError, match=r"the storage nosuch://host/db cannot be opened"):
        sweep(file, search=RANGES, out="other", **{**asked, "storage": "nosuch://me:secret@host/db"}, **SMALL)


def test_trials_that_were_too_many_count_for_nothing(file: str) -> None:
    """A trial that another process was faster to start is no trial: a later search of more trials has all of them."""
    asked: dict[str, Any] = {"task": "classify", "search": RANGES, "storage": "trials.log", "out": "shared", **SMALL}
    sweep(file, trials=1, **asked)
    shared = StorageTrials(Path("shared"), open_sweep("shared").record, "trials.log")
    for _ in range(2):
        surplus = shared.study.ask()
        surplus.set_user_attr("surplus", True)
        shared.study.tell(surplus, state=shared.optuna.trial.TrialState.FAIL)
    assert [trial.number for trial in sweep(file, trials=3, **asked).trials] == [0, 3, 4]


def test_trials_that_begin_at_once_differ(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that see the same trials before they ask get other options each."""
    asked: dict[str, Any] = {"task": "classify", "search": RANGES, "storage": "trials.log", "out": "shared", **SMALL}
    sweep(file, trials=1, **asked)
    one, other = (StorageTrials(Path("shared"), open_sweep("shared").record, "trials.log") for _ in range(2))
    asks = one.study.ask

    def ask(*given: Any) -> Any:
        if not found:  # only the first time
            found.append(other.begin(3))
        return asks(*given)

    found: list[Any] = []
    monkeypatch.setattr(one.study, "ask", ask)
    found.append(one.begin(3))
    one.release()
    other.release()
    assert sorted(trial.number for trial, _ in found) == [1, 2]
    assert found[0][0].params["lr"] != found[1][0].params["lr"]
