"""Every parser and every option beside inputs that are almost right: an error of recur's own, in time and memory.

Attempt k mutates an input of the kept corpus (fuzz.json): the seeds of every door (doors.py), and what was found to
reach lines that nothing before had reached. `python -m campaigns.fuzz N` tries N inputs with every line counted, and
keeps those that reach new ones: the corpus grows with the parsers.

One attempt in INFLATED instead tries an input that inflates (inflate.py): few bytes that stand for many items.

A failure is any exception outside recur's tree of errors, an input that took more than two seconds or 500 MiB,
or one that was read and did not come out as it went in.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import random
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import recur
from campaigns.campaign import Attempt, dice
from campaigns.doors import Door, NotTheSameError, in_turn
from campaigns.inflate import inflated
from campaigns.mutate import mutated
from recur.errors import RecurError

TRIES = 1_000_000

INFLATED = 50
"""One in so many attempts tries an input that inflates."""

SECONDS, BYTES = 2.0, 500 << 20
"""Processor time and memory that an input may take."""

WAITING = 10
"""An input may take so many times SECONDS by the clock: other programs may use the processor meanwhile."""

KEPT = Path(__file__).with_name("fuzz.json")


class TooLong(BaseException):
    """Not an Exception: whoever catches all of them does not catch this."""


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    turns, corpus = in_turn(), _corpus()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, timed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in numbers:
            door = turns[number % len(turns)]
            data = _input(dice(seed, number), door, corpus[door.name])
            failure = _failure(door, data, Path(folder))
            yield Attempt(number, f"{door.name} {data[:60]!r}", failure)


def _input(draw: random.Random, door: Door, seeds: Sequence[bytes]) -> bytes:
    return mutated(draw, seeds) if draw.randrange(INFLATED) else inflated(draw, door.name, seeds)


def _failure(door: Door, data: bytes, folder: Path) -> str | None:
    """What is wrong with what a door makes of an input."""
    _forget_peak()
    largest = _memory()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAITING * SECONDS)
    try:
        door.open(data, folder)
    except RecurError as error:
        if not str(error).strip():
            return "an error without a word"
    except TooLong:
        return f"more than {SECONDS:g} s"
    except NotTheSameError as error:
        return str(error)
    except Exception as error:
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        where = f"{Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}" if last is not None else "?"
        return f"{type(error).__name__} at {where}: {str(error)[:100]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return f"more than {BYTES >> 20} MiB" if _memory() - largest > BYTES else None


@contextlib.contextmanager
def timed() -> Iterator[None]:
    """Have both timers of `_failure` raise TooLong inside of this block."""
    before = {kind: signal.signal(kind, _too_long) for kind in (signal.SIGALRM, signal.SIGPROF)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _too_long(*_: object) -> None:
    raise TooLong


def _forget_peak() -> None:
    """Reset the peak of memory to what is in use now, where the system can: an earlier peak would hide a later one."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory() -> int:
    """Return the most bytes that this process had since `_forget_peak`."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# The kept corpus ----------------------------------------------------------------------------------------------------


@functools.cache
def _corpus() -> dict[str, list[bytes]]:
    """By door: its seeds, and what was kept."""
    kept: dict[str, list[str]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    found = {door.name: list(door.seeds) for door in in_turn()}
    return {name: seeds + [base64.b85decode(one) for one in kept.get(name, [])] for name, seeds in found.items()}


def learn(tries: int, seed: int = 0) -> int:
    """Keep inputs that reach lines of the package which none before them did. Returns how many were added."""
    turns, corpus = in_turn(), _corpus()
    reached: set[tuple[str, int, int]] = set()
    root = os.path.dirname(recur.__file__)

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(root):
            return None
        last = 0

        def line(inner: FrameType, what: str, _: Any) -> Any:
            nonlocal last
            if what == "line":
                reached.add((inner.f_code.co_filename, last, inner.f_lineno))
                last = inner.f_lineno
            return line

        return line

    added = 0
    with tempfile.TemporaryDirectory() as folder, timed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(-len(corpus) * 50, tries):
            door = turns[number % len(turns)]
            seeds = corpus[door.name]
            known = number < 0  # what is there already is gone through first
            data = seeds[(-number // len(turns)) % len(seeds)] if known else mutated(dice(seed, number), seeds)
            before = len(reached)
            sys.settrace(watch)
            try:
                _failure(door, data, Path(folder))
            finally:
                sys.settrace(None)
            if not known and len(reached) > before and len(data) <= 400:
                seeds.append(data)
                added += 1
    first = {door.name: len(door.seeds) for door in turns}
    kept = {name: [base64.b85encode(one).decode() for one in seeds[first[name] :]] for name, seeds in corpus.items()}
    KEPT.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
    return added


if __name__ == "__main__":
    print(f"{learn(int(sys.argv[1]))} inputs more are kept in {KEPT.name}")
