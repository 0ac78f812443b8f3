"""The campaign over every parser and option: a few attempts of it, and that it sees what it looks for."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from campaigns import fuzz
from campaigns.doors import Door, NotTheSameError, doors
from campaigns.inflate import inflating
from recur.errors import RecurError, TextError


def test_no_door_lets_another_error_out() -> None:
    found = list(fuzz.attempts(0, range(300)))
    assert [attempt.number for attempt in found] == list(range(300))
    assert [(attempt.what, attempt.failure) for attempt in found if attempt.failure] == []


@pytest.mark.parametrize("door", doors(), ids=lambda door: door.name)
def test_every_door_lets_something_through(door: Door, tmp_path: Path) -> None:
    """Inputs that are all refused at once would try nothing; some doors draw what they try from the input."""
    for data in (*door.seeds, *(b"%d" % k for k in range(99))):
        with suppress(RecurError):
            door.open(data, tmp_path)
            return
    pytest.fail("nothing passes")


@pytest.mark.parametrize("name", list(inflating()))
def test_no_input_of_few_bytes_inflates(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign's own limit is 2 s; this one only ends what hangs."""
    monkeypatch.setattr(fuzz, "SECONDS", 60.0)
    (door,) = [door for door in doors() if door.name == name]
    with fuzz.timed():
        assert [fuzz._failure(door, data, tmp_path) for data in inflating()[name]] == [None] * len(inflating()[name])


def test_an_attempt_is_the_same_whichever_are_made_beside_it() -> None:
    together = {attempt.number: attempt.what for attempt in fuzz.attempts(3, range(40))}
    assert [attempt.what for attempt in fuzz.attempts(3, [31, 7])] == [together[31], together[7]]
    assert [attempt.what for attempt in fuzz.attempts(4, [31, 7])] != [together[31], together[7]]


def raising(error: Exception) -> Callable[[bytes, Path], object]:
    def open_door(data: bytes, folder: Path) -> object:
        raise error

    return open_door


@pytest.mark.parametrize(
    ("open_door", "says"),
    [
        (raising(TextError("said in a line")), None),
        (raising(TextError("")), "an error without a word"),
        (raising(KeyError("x")), "KeyError at test_fuzz.py"),
        (raising(NotTheSameError("it came back changed")), "it came back changed"),
        (lambda data, folder: time.sleep(5), "more than 0.05 s"),
    ],
)
def test_what_is_a_failure(
    open_door: Callable[[bytes, Path], object], says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0.05)
    monkeypatch.setattr(fuzz, "in_turn", lambda: [Door("json", [b"{}"], open_door)])
    (attempt,) = fuzz.attempts(0, [0])
    assert (attempt.failure or "").startswith(says) if says else attempt.failure is None


def test_memory_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fuzz._memory() > 10 << 20
    monkeypatch.setattr(fuzz, "in_turn", lambda: [Door("json", [b"{}"], lambda data, folder: None)])
    for grown, says in ((400 << 20, None), (600 << 20, "more than 500 MiB")):
        most = iter([1 << 30, (1 << 30) + grown])
        monkeypatch.setattr(fuzz, "_memory", lambda most=most: next(most))
        (attempt,) = fuzz.attempts(0, [0])
        assert attempt.failure == says
