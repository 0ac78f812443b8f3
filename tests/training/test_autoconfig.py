"""Options that are left to the machine: who decides them, and what a user reads about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recur.tasks import make_options, task_class, task_of
from recur.training import ProcessGroup, autoconfig
from recur.training.autoconfig import resolve_options
from recur.training.distributed import SINGLE_PROCESS

SMALL = {"hidden_size": 4, "batch_size": 4, "window": 8, "steps": 2, "device": "cpu", "precision": "float32"}


class OtherRank(ProcessGroup):
    """Rank 1, which receives the decisions of rank 0."""

    def from_rank0(self, work: Callable[[], Any]) -> Any:
        return {"threads": 3}, []


@pytest.fixture
def book(tmp_path: Path) -> str:
    path = tmp_path / "book.txt"
    path.write_text("the state of a network is its memory of a text\n" * 60)
    return str(path)


def resolve(book: str, group: ProcessGroup, **fields: Any) -> tuple[Any, list[str]]:
    requested = make_options("language", {**SMALL, "texts": (book,), **fields})
    settled = task_class("language").settle(requested)
    return resolve_options(requested, settled, task_of(settled).read(), group)


def test_other_ranks_use_the_options_of_rank_0(book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: object) -> int:
        raise AssertionError("only rank 0 measures")

    monkeypatch.setattr(autoconfig, "pick_threads_for_task", measure)
    options, notes = resolve(book, OtherRank())
    assert options.threads == 3
    assert notes == []


def test_threads_are_chosen_only_if_they_are_not_set(book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoconfig, "pick_threads_for_task", lambda task, data: 2)
    options, notes = resolve(book, SINGLE_PROCESS)
    assert options.threads == 2
    assert notes == ["using 2 threads (fastest now); add --threads 2 to reproduce the same numbers"]
    options, notes = resolve(book, SINGLE_PROCESS, threads=1)
    assert options.threads == 1
    assert notes == []


def test_a_network_that_no_memory_holds_is_refused_before_it_is_timed(
    book: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoconfig, "pick_threads_for_task", lambda task, data: pytest.fail("it was timed"))
    with pytest.raises(Exception, match="memory"):
        resolve(book, SINGLE_PROCESS, hidden_size=10_000_000)
