"""The flags of train: the task's own fields, above a file, and files that say by themselves what they are for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recur.cli.app import run
from recur.tasks import options_class, read_config, task_names
from tests.cli.test_cli import json_of

QUICK = ["--hidden-size", "6", "--threads", "1", "--steps", "2", "--no-baseline"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "book.txt").write_text("the network reads a word and the word is kept\n" * 40)
    (tmp_path / "other.txt").write_text("another text, with other letters: xyz\n" * 40)
    (tmp_path / "pairs.tsv").write_text("".join(f"w{k}x\ta b {k}\n" for k in range(100)))
    (tmp_path / "labels.tsv").write_text("".join(f"{['cat', 'dog'][k % 2]}\tsome text {k}\n" for k in range(100)))
    (tmp_path / "tagged.conll").write_text("".join(f"the\tDT\nw{k}\tNN\n\n" for k in range(60)))
    (tmp_path / "trees.txt").write_text("".join(f"({k % 3} (1 a) ({k % 2} b))\n" for k in range(60)))
    rows = [f"{1949 + k // 12}-{k % 12 + 1:02},{100 + k + (k % 12) ** 2}\n" for k in range(96)]
    (tmp_path / "airline.csv").write_text("Date,Passengers\n" + "".join(rows))
    return tmp_path


def flags(text: str) -> set[str]:
    return {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]*)", text.partition("Examples:")[0])}


def test_help_has_the_tasks_and_what_they_share_in_groups(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--help-all"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in task_names())
    assert all(title in shown for title in ("Network", "Optimisation", "Budget", "Machine", "Run"))
    assert {"lr", "cell", "minutes", "device", "config", "out"} <= flags(shown)
    assert not {"horizon", "attention", "pool", "token"} & flags(shown)


@pytest.mark.parametrize("task", [None, *task_names()])
@pytest.mark.parametrize("columns", [80, 100])
def test_help_fits_two_screens(
    task: str | None, columns: int, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run(["train", *(["--task", task] if task else []), "--help"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 50
    assert "--help-all` lists every option" in shown
    assert {"task", "out", "epochs", "minutes"} <= flags(shown)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("--learning-rate", {"--lr"}), ("--num-unit", {"--hidden-size"}), ("--epoch", {"--epochs"})],
)
def test_an_unknown_flag_gets_a_suggestion(
    typed: str, meant: set[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "book.txt", typed, "3"]) == 2
    said = capsys.readouterr().err
    assert any(f"unknown option {typed}; did you mean {flag}? See recur train --help." in said for flag in meant)


@pytest.mark.parametrize("task", task_names())
def test_help_on_a_task_has_its_options_and_no_others(
    task: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "--task", task, "--help-all"]) == 0
    shown = flags(capsys.readouterr().out)
    own = {name.rstrip("_") for name in options_class(task).names()} - {"texts"}
    run_flags = {
        "task",
        "config",
        "out",
        "folds",
        "log",
        "engine",
        "workers",
        "trust",
        "json",
        "quiet",
        "help",
        "help_all",
    }
    negative = {f"no_{name}" for name in own}
    assert own | run_flags <= shown
    assert not {name for name in shown - own - run_flags - negative if name not in ("label", "direction")}


def test_what_is_typed_stands_above_the_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "inner").mkdir()
    content = 'task = "language"\ntexts = ["../book.txt"]\nhidden_size = 5\nnum_layers = 2\nsteps = 2\n'
    (here / "inner" / "c.toml").write_text(content)
    options = ["--threads", "1", "--no-baseline", "--hidden-size", "7"]
    json_of(capsys, "train", "--config=inner/c.toml", *options, "--out", "a")
    found = read_config(here / "a" / "config.toml")
    assert (found["hidden_size"], found["num_layers"]) == (7, 2)
    assert [Path(str(name)).resolve() for name in found["texts"]] == [here / "book.txt"]  # type: ignore[attr-defined]
    json_of(capsys, "train", "other.txt", "--config", "inner/c.toml", *options, "--out", "b")
    found = read_config(here / "b" / "config.toml")
    assert [Path(str(name)).resolve() for name in found["texts"]] == [here / "other.txt"]  # type: ignore[attr-defined]
    assert "x" in (here / "b" / "vocab.json").read_text(), "the text that was typed is the one that was read"


@pytest.mark.parametrize(
    ("file", "task"),
    [("book.txt", "language"), ("trees.txt", "tree"), ("tagged.conll", "tag"), ("airline.csv", "forecast")],
)
def test_where_there_is_no_doubt_the_file_decides(
    file: str, task: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", file, *QUICK, "--out", "r"]) == 0
    said = capsys.readouterr().err
    assert read_config(here / "r" / "config.toml")["task"] == task
    assert (f"--task {task}" in said) is (task != "language")


@pytest.mark.parametrize(("file", "tasks"), [("pairs.tsv", ["seq2seq"]), ("labels.tsv", ["classify", "conditional"])])
def test_in_doubt_it_says_what_to_type(
    file: str, tasks: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", file]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{file} looks like" in said
    assert all(f"--task {task}" in said for task in tasks)
    assert not (here / "runs").exists()


def test_a_list_is_a_flag_repeated(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [*QUICK, "--horizon", "2", "--quantiles", "0.2", "--quantiles", "0.5", "--quantiles", "0.8"]
    json_of(capsys, "train", "airline.csv", *options, "--out", "r")
    assert read_config(here / "r" / "config.toml")["quantiles"] == [0.2, 0.5, 0.8]


def test_symbols_between_spaces_are_seen(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "g2p.tsv").write_text("".join(f"ab{k}\ta b tʃ {k % 10}\n" for k in range(100)))
    json_of(capsys, "train", "g2p.tsv", "--task", "seq2seq", *QUICK, "--embedding-size", "4", "--out", "r")
    found = read_config(here / "r" / "config.toml")
    assert (found["source_token"], found["target_token"]) == ("char", "space")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("train book.txt --horizon 3", "--horizon belongs to forecast; the task here is language"),
        ("train book.txt --no-feedback", "--no-feedback belongs to conditional and seq2seq"),
        ("train book.txt --hiden 3", "--hiden"),
        ("train --config", "--config needs a value"),
        ("train --task", "--task needs a value"),
        ("train --task classify", "the task classify trains on files; name one"),
        ("train --task forecast", "the task forecast trains on files; name one"),
        ("train --texts book.txt --quiet", "training files are positional arguments: recur train FILE"),
        ("train --config list.toml", "list.toml: task must be text, got 3"),
        ("train --config other.toml", "other.toml: --horizon belongs to forecast; the task here is language"),
        ("train book.txt --schedule often --out new", "schedule 'often' is not one of"),
        ("train book.txt --bptt half --out new", "bptt 'half'"),
        ("train book.txt --init wild --out new", "unknown initialisation 'wild'"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    command: str, says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "list.toml").write_text("task = 3\n")
    (here / "other.toml").write_text('task = "language"\nhorizon = 3\n')
    assert run([*command.split(), "-q"] if command.split()[-1][:2] != "--" else command.split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert says in said
    assert not (here / "new").exists()


@pytest.mark.parametrize("name", ["[x", "{x", '["a"]', "[1, 2]", '{"a": 1}'])
def test_a_name_that_looks_like_json_is_a_name(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, reads in (
        (["predict", "absent", name], "absent"),
        (["train", name, "--task", "language"], name),
        (["train", "absent.txt", "--task", "language", "--valid", name], "absent.txt"),
        (["ngram", name], name),
    ):
        assert run(arguments) == 2
        said = capsys.readouterr().err
        assert "JSON" not in said
        assert reads in said
