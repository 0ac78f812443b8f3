"""Every command of docs/patterns.md trains, shortened, and what it trained can be measured."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from recur.cli.app import run
from tests.docs.samples import write_files
from tests.docs.shells import shortened
from tests.test_documents import ROOT

COMMANDS = re.findall(r"\| `recur (train [^`]*)` \|", (ROOT / "docs" / "patterns.md").read_text(encoding="utf-8"))


def test_all_patterns_are_there() -> None:
    assert len(COMMANDS) == 16
    for option in ("--recurrence output", "--depth-input", "--depth-transition", "--depth-output", "--time-input"):
        assert sum(option in command for command in COMMANDS) == 1


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patterns")
    write_files(folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.partition(" ")[2].replace(" ", "_"))
def test_the_command_runs(
    command: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here)
    out = re.sub(r"\W+", "-", command)
    assert run([*shortened(shlex.split(command)), "--no-baseline", "-q", "--out", out]) == 0, capsys.readouterr().err
    assert run(["eval", out, "--no-ngrams", "-q"]) == 0, capsys.readouterr().err
