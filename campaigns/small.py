"""Small runs of every task for the campaigns that stop and damage them, and what must come of each in the end.

Each command of a campaign runs in a process of its own, forked from this one, in which everything is imported: a try
costs a tenth of a second, not three.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from recur.cli.app import run as command
from recur.runs import Run, is_run
from recur.runs.folder import MACHINES
from recur.tasks import task_names
from recur.utils.types import JsonObject

LINES = "the network reads a word\na state is what the network keeps\n"
DATA = {
    "book.txt": LINES * 12,
    "labelled.tsv": "".join(f"{kind}\ta {kind} film {n}\n" for n in range(20) for kind in ("good", "bad")),
    "pairs.tsv": "".join(f"{n} and {n + 1}\t{n + 1} {n}\n" for n in range(40)),
    "tags.conll": "the DET\nnetwork NOUN\nreads VERB\n\na DET\nword NOUN\nstays VERB\n\n" * 10,
    "trees.txt": "(3 (2 a) (4 (2 good) (3 film)))\n(1 (2 a) (0 (1 bad) (2 film)))\n" * 10,
    "series.csv": "month,value\n"
    + "".join(f"{2000 + n // 12}-{n % 12 + 1:02d},{10 + n % 12 + n**0.5:.2f}\n" for n in range(96)),
    "mine.py": "from recur.cells import GRU\nclass Mine(GRU): name = ''\n",
}
TASKS = {
    "adding": ["--length", "4"],
    "classify": ["labelled.tsv"],
    "conditional": ["labelled.tsv"],
    "copy": ["--length", "2"],
    "forecast": ["series.csv"],
    "grid": ["images.npz"],
    "language": ["book.txt", "--cell", "mine.py:Mine", "--window", "8", "--dropout-output", "0.2"],
    "seq2seq": ["pairs.tsv"],
    "tag": ["tags.conll"],
    "tree": ["trees.txt"],
}
"""What `recur train` is given for each."""
STEPS = 4
NOT_EQUAL = ("seconds", "measuring_seconds", "predictions_per_second")
"""What is measured of the machine."""


def set_up(folder: Path) -> None:
    """The data of every task in a folder, which becomes the current one; state and cache are there too."""
    for name, content in DATA.items():
        (folder / name).write_text(content)
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    images = rng.integers(0, 100, (40, 4, 4)) + 100 * labels[:, None, None]
    np.savez(folder / "images.npz", images=images.astype(np.uint8), labels=labels)
    os.environ["RECUR_STATE"], os.environ["RECUR_CACHE"] = str(folder / "state"), str(folder / "cache")
    os.chdir(folder)
    torch.set_num_threads(1)


def arguments_of(task: str, out: str) -> list[str]:
    """`recur train` for a small run: a checkpoint and a measurement at every step."""
    hidden = [] if task == "tree" else ["--hidden-size", "4"]
    sizes = [
        *hidden,
        "--batch-size",
        "4",
        "--steps",
        str(STEPS),
        "--threads",
        "1",
        "--device",
        "cpu",
        "--checkpoint-every",
        "0",
    ]
    return ["train", *TASKS[task], "--task", task, *sizes, "--out", out, "-q"]


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    """What it returned; negative, the signal that killed it."""
    out: str
    err: str

    @property
    def fault(self) -> str | None:
        """What no user must see: a death, a traceback, more than a line for a mistake."""
        if self.code < 0:
            return f"it died of {signal.Signals(-self.code).name}: {self.err[-300:]}"
        if "Traceback" in self.err or self.code not in (0, 2, 130):
            return f"it returned {self.code}: {self.err[-2000:]}"
        if self.code == 2 and self.err.strip().count("\n"):
            return f"it said more than a line: {self.err[-500:]}"
        return None


def forked(act: Callable[[], int], seconds: float = 60.0, meanwhile: Callable[[int], None] | None = None) -> Ended:
    """Do something in a process of its own; `meanwhile` is given its number, to kill it, say."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        os.close(read)
        out, err, code = io.StringIO(), io.StringIO(), 70
        signal.alarm(int(seconds) + 1)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = act()
        except BaseException:
            err.write(traceback.format_exc())
        with os.fdopen(write, "w", errors="replace") as stream:
            json.dump([out.getvalue(), err.getvalue()], stream)
        os._exit(code)
    os.close(write)
    if meanwhile is not None:
        meanwhile(child)
    with os.fdopen(read, errors="replace") as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    out_, err_ = json.loads(said) if said else ("", "")
    return Ended(os.waitstatus_to_exitcode(status), out_, err_)


def recur(*arguments: str, seconds: float = 60.0) -> Ended:
    """A command of recur's."""
    return forked(lambda: command(list(arguments)), seconds)


def finish(task: str, out: str) -> str | None:
    """Go on with a run, or begin it again where it had not become one; what went wrong, if anything did."""
    ended = recur("resume", out, "-q") if is_run(Path(out)) else recur(*arguments_of(task, out))
    return ended.fault or (f"it returned {ended.code}: {ended.err}" if ended.code else None)


def result(out: str) -> JsonObject:
    """All that a finished run holds, but for the clock, and how often it was gone on with."""
    run = Run.open(out)
    _, tensors, state, _ = run.load_checkpoint()
    contents = {name: Path(out, name).read_bytes() for name in sorted(run.manifest.files) if name != MACHINES}
    contents["samples.jsonl"] = Path(out, "samples.jsonl").read_bytes()
    return {
        **contents,
        "metrics": [{k: v for k, v in entry.items() if k not in NOT_EQUAL} for entry in run.metrics()],
        "checkpoint": {name: value.tolist() for name, value in tensors.items()},
        "state": {k: v for k, v in state.items() if k not in ("seconds", "measuring")},
        "left over": sorted(p.name for p in Path(out).rglob("*") if p.suffix == ".part" or p.name == "lock"),
    }


def difference(found: JsonObject, wanted: JsonObject) -> str | None:
    parts = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    return f"it differs from the undisturbed run in {', '.join(parts)}" if parts else None


class Undisturbed:
    """The run of each task that nothing happened to, made when it is first asked for: in this process, so that what is
    forked from it finds everything imported."""

    def __init__(self) -> None:
        self._results: dict[str, JsonObject] = {}

    def result(self, task: str) -> JsonObject:
        if task not in self._results:
            out = self.path(task)
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as err:
                code = command(arguments_of(task, out)) or command(["resume", out, "-q"])
            assert code == 0, err.getvalue()
            self._results[task] = result(out)
        return self._results[task]

    def path(self, task: str) -> str:
        return f"undisturbed-{task}"


def task_of(number: int) -> str:
    """Tasks in turn."""
    names = task_names()
    return names[number % len(names)]
