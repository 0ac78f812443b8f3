"""Texts that a run names: one's own are opened, those of somebody else's run only with consent."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import recur
from recur.cli.app import run as command
from recur.errors import RecurError, RunError
from recur.runs import Run
from recur.runs.folder import CONFIG
from recur.tasks import options_of_run, with_run_texts
from recur.training import resume

SMALL = [
    "--hidden-size",
    "8",
    "--batch-size",
    "4",
    "--steps",
    "2",
    "--threads",
    "1",
    "--device",
    "cpu",
    "--no-baseline",
    "-q",
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run whose text is neither beside it nor in the current folder; this user has trained it."""
    for name in ("data", "runs", "here", "stranger"):
        (tmp_path / name).mkdir()
    (tmp_path / "data/book.txt").write_text("the network reads a word\n" * 40)
    monkeypatch.setenv("RECUR_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path / "here")
    assert command(["train", "../data/book.txt", *SMALL, "--out", "../runs/a"]) == 0
    return Path("../runs/a")


def test_ones_own_texts_need_no_consent(run: Path, tmp_path: Path) -> None:
    assert command(["resume", str(run), "--steps", "1", "-q"]) == 0
    assert "perplexity" in recur.load(run).evaluate(ngrams=False)
    (tmp_path / "moved").mkdir()
    for name in ("data", "runs"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    assert command(["resume", "../moved/runs/a", "--steps", "1", "-q"]) == 0


@pytest.mark.parametrize("verb", [["resume", "--steps", "1"], ["eval", "--no-ngrams"], ["xray", "--tokens", "20"]])
def test_a_strangers_text_outside_needs_consent(
    run: Path, tmp_path: Path, verb: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECUR_STATE", str(tmp_path / "stranger"))
    asked = [verb[0], str(run), *verb[1:], "-q"]
    assert command(asked) == 2
    refused = capsys.readouterr().err
    assert refused.count("\n") == 1
    (option,) = re.findall(r"add (--allow-path \S+)", refused)
    assert command([*asked, "--allow-path", "../runs"]) == 2, "which is not where the text is"
    assert command([*asked, *option.split()]) == 0
    assert command(asked) == 0, "consent is remembered"


def test_consent_in_python(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECUR_STATE", str(tmp_path / "stranger"))
    with pytest.raises(RunError, match="outside of its folder"):
        recur.load(run).evaluate(ngrams=False)
    with pytest.raises(RunError, match="outside of its folder"):
        resume(run, steps=1)
    assert "perplexity" in recur.load(run, allow_path=[tmp_path / "data"]).evaluate(ngrams=False)


def test_a_text_beside_the_run_or_here_needs_no_consent(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECUR_STATE", str(tmp_path / "stranger"))
    monkeypatch.chdir(tmp_path)
    assert "perplexity" in recur.load("runs/a").evaluate(ngrams=False)
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "data/book.txt").rename(tmp_path / "runs/book.txt")
    assert "perplexity" in recur.load(run).evaluate(ngrams=False)


@pytest.mark.parametrize("name", ["/", "/proc", "/dev/zero", "/proc/kmsg", "pipe", "way-out", "folder"])
def test_a_run_cannot_have_any_path_opened(run: Path, tmp_path: Path, name: str) -> None:
    """Links are resolved, and what is not a regular file is refused even beside the run."""
    os.mkfifo(tmp_path / "runs/pipe")
    (tmp_path / "runs/way-out").symlink_to("/etc/passwd")
    (tmp_path / "runs/folder").mkdir()
    (tmp_path / "runs/folder/passwd").symlink_to("/etc/passwd")
    opened = Run.open(run, writing=True)
    text = opened.config_text()
    opened.write_config(re.sub("texts = .*", f'texts = ["{os.path.join("..", name)}"]', text))
    opened.release()
    assert (run / CONFIG).read_text() != text
    with pytest.raises(RecurError, match="outside of its folder|is not a regular file"):
        with_run_texts(Run.open(run), options_of_run(Run.open(run)), ("texts",), changed=True)
