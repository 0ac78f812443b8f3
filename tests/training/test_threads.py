"""How many threads pay is measured, and the process is left as it was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

import recur
from recur.cli.app import run
from recur.runs import use_threads
from recur.training.autoconfig import pick_threads


@pytest.mark.parametrize("slow", [1, 2])
def test_the_faster_number_is_taken(slow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    torch.set_num_threads(2)
    try:
        assert pick_threads(lambda: time.sleep(0.02 if torch.get_num_threads() == slow else 0)) == 3 - slow
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert pick_threads(lambda: None) == 1, "nothing to choose from"


def test_commands_use_the_number_of_threads_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    (tmp_path / "text.txt").write_text("abba\nbaab\n" * 40)
    options = {"task": "language", "hidden_size": 8, "steps": 2, "threads": 2, "baseline": False}
    recur.fit(tmp_path / "text.txt", **options, out=tmp_path / "run")
    seen: list[int] = []
    before = torch.get_num_threads()
    original = recur.tasks.language.predictor.Language.logprobs

    def logprobs(self: object, ids: object) -> object:
        seen.append(torch.get_num_threads())
        return original(self, ids)  # type: ignore[arg-type]

    monkeypatch.setattr("recur.tasks.language.predictor.Language.logprobs", logprobs)
    assert run(["logprob", str(tmp_path / "run"), "ab", "--quiet"]) == 0
    assert run(["logprob", str(tmp_path / "run"), "ab", "--quiet", "--threads", "3"]) == 0
    assert seen == [2, 3]
    assert torch.get_num_threads() == before, "the process is left as it was"


def test_no_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    before = torch.get_num_threads()
    try:
        use_threads(0, 16)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("command", ["eval", "sample", "predict", "logprob", "xray", "serve", "studio", "resume"])
def test_every_command_that_computes_has_the_flag(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert "--threads" in capsys.readouterr().out
