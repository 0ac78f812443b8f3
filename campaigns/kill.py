"""SIGKILL and SIGTERM at random moments of every task, again and again, until the run is done.

A killed run goes on with `recur resume`, or is begun again if it had not become a run yet; it is killed once more on
the way, and must end as the undisturbed run does, to the last bit. After SIGTERM the process must have saved, said how
to go on and returned 130.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from campaigns.campaign import Attempt, dice
from campaigns.small import Ended, Undisturbed, arguments_of, difference, finish, forked, result, set_up, task_of
from recur.cli.app import run as command
from recur.runs import is_run

TRIES = 1100
"""Each kills a run three times."""


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="recur-kill-") as folder:
        set_up(Path(folder))
        try:
            undisturbed, seconds = Undisturbed(), dict[str, float]()
            for number in numbers:
                task = task_of(number)
                wanted, out = undisturbed.result(task), f"run-{number}"
                if task not in seconds:
                    begun = time.monotonic()
                    forked(lambda: command(arguments_of(task, f"timed-{task}")))  # noqa: B023  called at once
                    seconds[task] = time.monotonic() - begun
                rng = dice(seed, number)
                kinds = [rng.choice([signal.SIGKILL, signal.SIGTERM]) for _ in range(3)]
                faults = [_killed(task, out, kind, rng.random() * seconds[task]) for kind in kinds]
                failure = next(filter(None, faults), None) or finish(task, out) or difference(result(out), wanted)
                yield Attempt(number, f"{task}: {', '.join(kind.name for kind in kinds)}", failure)
                shutil.rmtree(out, ignore_errors=True)
        finally:
            os.chdir(home)


def _killed(task: str, out: str, kind: signal.Signals, after: float) -> str | None:
    def kill(child: int) -> None:
        time.sleep(after)
        os.kill(child, kind)

    arguments = ["resume", out, "-q"] if is_run(Path(out)) else arguments_of(task, out)
    ended: Ended = forked(lambda: command(arguments), meanwhile=kill)
    if ended.code in (-kind, 0):  # SIGTERM before anything listens for it ends a process as it ends any
        return None
    return ended.fault or (None if ended.code == 130 else f"it returned {ended.code}: {ended.err}")
