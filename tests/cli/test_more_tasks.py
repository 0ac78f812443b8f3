"""Labels, trees and series at the command line, and what a person can get wrong with them: one line and exit 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recur.cli.app import run
from recur.cli.display import confusion_table
from recur.cli.options import Output
from recur.cli.screen import Screen
from recur.runs import Run
from recur.tasks import task_of_run
from tests.cli.test_cli import json_of

QUICK = ["--hidden-size", "8", "--threads", "1", "--steps", "3", "-q"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "names.tsv").write_text("".join(f"{'ab'[k % 2]}\t{'xy'[k % 2]}{k}\n" for k in range(60)))
    (tmp_path / "tagged.conll").write_text("".join(f"the DT\nw{k} NN\n\n" for k in range(60)))
    (tmp_path / "trees.txt").write_text("".join(f"({k % 3} (1 a) ({k % 2} b))\n" for k in range(60)))
    rows = [f"{1949 + k // 12}-{k % 12 + 1:02},{100 + k + (k % 12) ** 2},low\n" for k in range(96)]
    (tmp_path / "airline.csv").write_text("Date,Passengers,Note\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = {
    "classify": "names.tsv --task classify --token char --embedding-size 6 --pool max",
    "tag": "tagged.conll --task tag --token word --embedding-size 6 --direction both",
    "tree": "trees.txt --task tree --compose tree-lstm --structure given --embedding-size 6",
    "forecast": "airline.csv --task forecast --target Passengers --horizon 12 --season 12",
    "adding": "--task adding --length 10",
    "copy": "--task copy --length 4 --embedding-size 6",
}


@pytest.mark.parametrize("task", TRAIN)
def test_train_predict_and_eval(task: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *TRAIN[task].split(), *QUICK, "--out", "run"]) == 0
    assert run(["resume", "run", "--steps", "4", "-q"]) == 0
    capsys.readouterr()
    found = json_of(capsys, "eval", "run")
    named = {"forecast": ["mase", "smape", "mse", "wql", "coverage"], "adding": ["mse", "solved_after_steps"]}
    named |= {"copy": ["accuracy", "solved"]}
    assert found["beside"]
    for name in named.get(task, ["accuracy", "macro_f1", "confusion"]):
        assert name in found
    assert run(["eval", "run"]) == 0
    shown = capsys.readouterr().out
    if found["beside"]:
        verdict = found["verdict"][0]
        assert verdict.split()[0] in ("ahead", "behind", "level") or "is too small to judge" in verdict
        assert all(plain["model"].split(",")[0] in shown for plain in found["beside"])
    if task in ("classify", "tag", "tree"):
        assert "is, predicted as" in shown
    if task in ("adding", "copy"):
        assert task_of_run(Run.open("run")).verb == "eval"  # what the user is told to try: there is nothing to predict
        return
    (here / "lines").write_text({"classify": "x1\n", "tag": "the w1\n", "tree": "(0 (0 a) (0 b))\n"}.get(task, ""))
    inputs = "airline.csv" if task == "forecast" else "lines"
    predictions = json_of(capsys, "predict", "run", inputs)["predictions"]
    assert len(predictions) == (12 if task == "forecast" else 1)
    assert set(predictions[0]) >= {"input", "output"}


@pytest.mark.parametrize(("classes", "shown"), [(3, "class 0"), (18, "1 class 0"), (60, "class 7, class 8")])
def test_a_confusion_matrix_loses_no_number_on_a_narrow_screen(
    classes: int, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    counts = [[91 if i == j else 234 * (i == 7 and j == 8) for j in range(classes)] for i in range(classes)]
    screen = Screen(Output())
    screen.show(confusion_table(screen, [f"class {k}" for k in range(classes)], counts))
    found = capsys.readouterr().out
    assert shown in found
    assert "…" not in found
    assert max(map(len, found.splitlines())) <= 80
    assert found.count("91") == (0 if classes == 60 else classes)
    assert ("234" in found) == (classes > 8)


@pytest.mark.parametrize(
    ("flags", "said"),
    [(f"{TRAIN['tree']} --compose net", "net, "), (f"{TRAIN['forecast']} --lags 12", "window of 12, ")],
)
def test_the_summary_names_what_was_trained(
    flags: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", *flags.replace("--compose tree-lstm", "").split(), *QUICK, "--out", "run"]) == 0
    assert re.search(rf"model +{said}[\d,]+ weights", capsys.readouterr().out)


def test_runs_as_one_are_named_together(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in "01":
        assert run(["train", *TRAIN["classify"].split(), *QUICK, "--seed", seed, "--out", seed]) == 0
    capsys.readouterr()
    assert json_of(capsys, "eval", "0", "1", "--ensemble")["model"] == "0 + 1"


def test_a_figure_of_forecasts(here: Path) -> None:
    assert run(["train", *TRAIN["forecast"].split(), *QUICK, "--out", "run"]) == 0
    assert run(["eval", "run", "--figure", "bands.svg", "-q"]) == 0
    assert (here / "bands.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("train broken.txt --task tree", "broken.txt:2:1: this bracket is never closed"),
        (
            "train trees.txt --task tree --valid range.txt --test trees.txt",
            "range.txt:1:2: label '9' is not in the training set",
        ),
        ("train airline.csv --task forecast --target Note", "airline.csv:2: Note is 'low', which is not a number"),
        ("train airline.csv --task forecast --target Passengers --horizon 200", "lower --horizon or --holdout"),
        ("train airline.csv short.csv --task forecast --target Passengers", "short.csv: unknown column 'Passengers'"),
        (
            "train airline.csv bare.csv --task forecast --target Passengers",
            "airline.csv has a column of dates, and",
        ),
        ("train airline.csv --task forecast --target Passengers --quantiles 0.9", "quantiles must rise"),
        ("train names.tsv --task classify --pool first", "unknown pool 'first'"),
        ("train names.tsv --task classify --compose net", "--compose belongs to grid and tree; the task here is"),
        ("train notabs.txt --task classify", "notabs.txt:1: a line is label TAB text"),
        ("train names.tsv --task tag", "names.tsv: 1 examples are too few to hold some out"),
        ("train names.tsv --task adding", "the task adding generates its data"),
        ("train names.tsv --task clasify", "unknown task 'clasify'; did you mean 'classify'?"),
        ("eval run other.csv", "other.csv: unknown column 'Passengers'"),
        ("eval run --beam 2", "--beam is not for the task forecast"),
        ("predict run trees.txt", "recur: trees.txt"),
    ],
)
def test_a_mistake_is_one_line(command: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "broken.txt").write_text("(1 (1 a) (0 b))\n(1 (1 a) (0 b)\n")
    (here / "range.txt").write_text("(9 (1 a) (0 b))\n")
    (here / "short.csv").write_text("t,y\n1,2\n")
    (here / "other.csv").write_text("t,y\n1,2\n")
    (here / "bare.csv").write_text("Passengers\n" + "".join(f"{k}\n" for k in range(96)))
    (here / "gap.csv").write_text("t,y\n1,2\n2,3\n4,5\n5,6\n6,7\n")
    (here / "hole.csv").write_text("t,y\n1,2\n2,\n3,5\n")
    (here / "notabs.txt").write_text("English Goodman\n")
    if command.startswith(("eval", "predict")):
        assert run(["train", *TRAIN["forecast"].split(), *QUICK, "--out", "run"]) == 0
    options = [*QUICK, "--out", "new"] if command.startswith("train") else []
    capsys.readouterr()
    assert run([*command.split(), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.strip().splitlines()) == 1
