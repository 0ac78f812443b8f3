"""A stranger's folder: custom cells named in every file that can name one, and poisoned modules in the current folder.

Every attempt makes such a folder and runs a command on it. The stranger's code writes a marker if it is executed, which
must not happen: a custom cell ends the command in one line and 2, and a module such as numpy.py, json.py or recur.py
beside the data is not imported, neither by the command nor by a process that it starts.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import recur as package
from campaigns.campaign import Attempt, dice
from campaigns.small import Ended, Undisturbed, forked, recur, set_up
from recur.errors import RecurError
from recur.options.fields import Between, OneOf, Search
from recur.runs import Run
from recur.studio.jobs import TrainingJob, TrainingQueue
from recur.studio.uploads import FOLDER, TextStore
from recur.training.sweeps.record import SweepRecord, Trial
from recur.utils.processes import map_in_processes

TRIES = 240
POISONED = 8
"""One attempt in so many is of poisoned modules, whose commands are new processes and take seconds."""
MODULES = (
    *("numpy", "json", "torch", "re", "recur", "typing", "random", "sitecustomize", "usercustomize", "pickle"),
    *("struct", "optuna", "rich", "cyclopts", "tomllib", "safetensors", "logging", "socket", "threading", "hashlib"),
)
REFUSED = ("a custom cell would be executed", "names a cell outside of the run")
"""What a command says of a cell that it does not execute."""
TRAINED = "undisturbed-language"
SMALL = [
    "--hidden-size",
    "4",
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


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="recur-trust-") as folder:
        set_up(Path(folder))
        Undisturbed().result("language")
        try:
            for number in numbers:
                yield _attempt(number, dice(seed, number))
        finally:
            os.chdir(home)


def _attempt(number: int, rng: random.Random) -> Attempt:
    base, marker = Path.cwd(), Path("executed").absolute()
    theirs = Path("theirs")
    theirs.mkdir()
    try:
        if number % POISONED == 0:
            names = list(POISON)
            name = names[number // POISONED % len(names)]
            what, failure = f"poisoned modules: {name}", _poisoned(POISON[name], theirs, marker)
        else:
            place = _Place(theirs, _cell(marker, rng), rng)
            turn = number - number // POISONED - 1
            name = list(PLACES)[turn % len(PLACES)]
            command, ended = PLACES[name](place)
            what = f"{name}: {command}"
            refused = ended.code == 2 and (not ended.err or any(words in ended.err for words in REFUSED))
            failure = ended.fault or (None if refused else f"it returned {ended.code}: {ended.err[-300:]}")
        if marker.exists():
            failure = f"a stranger's code was executed: {' '.join(marker.read_text().split())}"
    finally:
        os.chdir(base)
        marker.unlink(missing_ok=True)
        shutil.rmtree(theirs)
    return Attempt(number, what, failure)


# Custom cells ------------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """A stranger's folder, and the source of a cell that is not trusted."""

    folder: Path
    source: str
    rng: random.Random


def _cell(marker: Path, rng: random.Random) -> str:
    """Return a source that nobody has trusted before: no two attempts have the same."""
    mark = f"open({str(marker)!r}, 'a').write('cell ')\n"
    return f"# {rng.getrandbits(64)}\n{mark}from recur.cells import GRU\nclass Mine(GRU): name = ''\n"


def _run(p: _Place) -> Path:
    """Make a forged run that carries the cell, its digests correct."""
    path = p.folder / "run"
    shutil.copytree(TRAINED, path)
    run = Run.open(path, writing=True)
    run.replace("cell.py", p.source.encode())
    run.commit()
    run.release()
    return path


def _carried(p: _Place) -> tuple[str, Ended]:
    path = str(_run(p))
    commands = (
        *(["sample", path], ["eval", path], ["resume", path, "--steps", "1"], ["xray", path], ["card", path]),
        *(["logprob", path, "book.txt"], ["predict", path, "book.txt"], ["export", path, "theirs/a.h"]),
        *(["eval", TRAINED, path], ["lab", "parameters", "--run", path], ["serve", path]),
    )
    return _asked(p.rng.choice(commands))


def _loaded(p: _Place) -> tuple[str, Ended]:
    path = _run(p)

    def act() -> int:
        try:
            package.load(path)
        except RecurError:
            return 2
        return 0

    return "recur.load", forked(act)


def _outside(p: _Place) -> tuple[str, Ended]:
    """A run whose configuration names a file that it does not carry."""
    path = p.folder / "run"
    shutil.copytree(TRAINED, path)
    (p.folder / "evil.py").write_text(p.source)
    (path / "evil.py").write_text(p.source)
    cell = p.rng.choice(["../evil.py:Mine", "evil.py:Mine", str((p.folder / "evil.py").absolute()) + ":Mine"])
    run = Run.open(path, writing=True)
    run.write_config(run.config_text().replace("cell.py:Mine", cell))
    run.release()
    trust = p.rng.choice([[], ["--trust"]])  # a run is trusted with the cell that it carries, and with no other
    return _asked([p.rng.choice(["sample", "eval", "resume"]), str(path), *trust])


def _warm_start(p: _Place) -> tuple[str, Ended]:
    path = _run(p)
    if p.rng.random() < 0.5:
        return _asked(["train", "book.txt", "--task", "language", "--from", str(path), *SMALL, "--out", "theirs/new"])
    (p.folder / "a.toml").write_text('task = "language"\ntexts = ["../book.txt"]\nfrom = ["run"]\n')
    return _asked(["train", "--config", "theirs/a.toml", *SMALL, "--out", "theirs/new"])


def _configuration(p: _Place) -> tuple[str, Ended]:
    if p.rng.random() < 0.5:
        config = _run(p) / "config.toml"
        (config.parent / "manifest.json").unlink(missing_ok=p.rng.random() < 0.5)
    else:
        (p.folder / "evil.py").write_text(p.source)
        config = p.folder / "a.toml"
        config.write_text('task = "language"\ntexts = ["../book.txt"]\ncell = "evil.py:Mine"\n')
    verb = p.rng.choice([["train"], ["sweep", "--trials", "1", "--search", "lr"], ["train", "--folds", "2"]])
    return _asked([*verb, "book.txt", "--config", str(config), *SMALL, "--out", "theirs/new"])


def _sweep(where: str) -> Callable[[_Place], tuple[str, Ended]]:
    def act(p: _Place) -> tuple[str, Ended]:
        (p.folder / "evil.py").write_text(p.source)
        folder, cell = p.folder / "sweep", "../evil.py:Mine"
        folder.mkdir()
        options = {"texts": ["../../labelled.tsv"], "steps": 2, "hidden_size": 4, "batch_size": 4, "threads": 1}
        search: dict[str, Search] = {"lr": Between(0.001, 0.01, log=True)}
        trials = [Trial(0, {"lr": 0.005}, "complete", 0.5, (0.5,), 1.0)]
        if where == "options":
            options["cell"] = cell
        elif where == "search":
            search["cell"] = OneOf((cell, "gru"))
        else:
            state = p.rng.choice(["running", "complete", "failed"])
            trials.append(Trial(1, {"lr": 0.004, "cell": cell}, state, 0.4, (0.4,), 1.0))  # type: ignore[arg-type]
        SweepRecord("classify", options, search, "valid_error", trials=trials).write(folder)
        return _asked(["sweep", "--resume", str(folder), "--trials", "3", "-q"])

    return act


def _trial_run(p: _Place) -> tuple[str, Ended]:
    """A sweep whose unfinished trial is a run with a stranger's cell."""
    folder = p.folder / "sweep"
    folder.mkdir()
    shutil.move(_run(p), folder / "trial-000")
    search: dict[str, Search] = {"lr": Between(0.001, 0.01, log=True)}
    SweepRecord("language", {"texts": ["../../book.txt"]}, search, "valid_loss", trials=[Trial(0, {})]).write(folder)
    return _asked(["sweep", "--resume", str(folder), "--trials", "1", "-q"])


def _queue(p: _Place) -> tuple[str, Ended]:
    (p.folder / "evil.py").write_text(p.source)
    (p.folder / ".studio").mkdir()
    (p.folder / FOLDER).mkdir()
    shutil.copy("book.txt", p.folder / FOLDER / "book.txt")
    cell = p.rng.choice(["evil.py:Mine", "../evil.py:Mine", str((p.folder / "evil.py").absolute()) + ":Mine"])
    state = p.rng.choice(["waiting", "held", "running", "stopped"])
    job = {"name": "a", "task": "language", "text": "book.txt", "options": {"cell": cell, "steps": 1}, "state": state}
    (p.folder / ".studio" / "jobs.json").write_text(json.dumps({"jobs": [job]}))

    def act() -> int:
        queue = TrainingQueue(p.folder, TextStore(p.folder))
        left = queue.jobs()
        queue.close()
        return 0 if left else 2

    return f"the studio's queue, a job {state}", forked(act)


PLACES: dict[str, Callable[[_Place], tuple[str, Ended]]] = {
    "a cell that a run carries": _carried,
    "options of a sweep": _sweep("options"),
    "search of a sweep": _sweep("search"),
    "a trial of a sweep": _sweep("trial"),
    "a file of --config": _configuration,
    "a run that is loaded": _loaded,
    "a cell outside of a run": _outside,
    "a warm start": _warm_start,
    "a run inside a sweep": _trial_run,
    "a job of the studio": _queue,
}
"""Every file that can name a cell."""


def _asked(arguments: list[str]) -> tuple[str, Ended]:
    return " ".join(arguments), recur(*arguments, seconds=60)


# Poisoned modules --------------------------------------------------------------------------------------------------


def _poisoned(act: Callable[[Path], Ended], folder: Path, marker: Path) -> str | None:
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write('{name} ')\nraise ImportError\n")
    for name in ("book.txt", "labelled.tsv", "series.csv"):
        shutil.copy(name, folder / name)
    ended = act(folder)
    return ended.fault or (f"it returned {ended.code}: {ended.err[-300:]}" if ended.code else None)


def _in_folder(folder: Path, act: Callable[[], int]) -> Ended:
    def inside() -> int:
        os.chdir(folder)
        return act()

    return forked(inside, 120)


def _workers(folder: Path) -> Ended:
    """The processes that read a large text."""
    return _in_folder(folder, lambda: 0 if list(map_in_processes(len, ["a", "ab", "abc"], 2)) == [1, 2, 3] else 1)


def _trained_by_studio(folder: Path) -> Ended:
    (folder / FOLDER).mkdir()
    shutil.copy("book.txt", folder / FOLDER / "book.txt")

    def act() -> int:
        queue = TrainingQueue(Path(), TextStore(Path()))
        queue.add(
            TrainingJob("a", "language", "book.txt", {"steps": 1, "hidden_size": 4, "baseline": False, "threads": 1})
        )
        until = time.monotonic() + 100
        while time.monotonic() < until and queue.jobs()[0]["state"] in ("waiting", "running"):
            time.sleep(0.1)
        print(queue.jobs(), file=sys.stderr)
        return 0 if queue.jobs()[0]["state"] == "done" else 1

    return _in_folder(folder, act)


def _command(*arguments: str) -> Callable[[Path], Ended]:
    """A new process of the installed command, started in the poisoned folder."""

    def act(folder: Path) -> Ended:
        script = Path("bin") / "recur"
        script.parent.mkdir(exist_ok=True)
        script.write_text("from recur.cli import main\nmain()\n")
        roots = os.pathsep.join([str(Path(package.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        paths = os.pathsep.join(path for path in roots.split(os.pathsep) if path)
        made = subprocess.run(
            [sys.executable, str(script.absolute()), *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Ended(made.returncode, made.stdout, made.stderr)

    return act


POISON: dict[str, Callable[[Path], Ended]] = {
    "processes that read a text": _workers,
    "train": _command("train", "book.txt", "--task", "language", *SMALL),
    "xray --try": _command("xray", f"../{TRAINED}", "--try", "-q", "--device", "cpu"),
    "a training of the studio": _trained_by_studio,
    "sweep": _command("sweep", "labelled.tsv", "--task", "classify", "--search", "lr", "--trials", "2", *SMALL),
    "export to C": _command("export", f"../{TRAINED}", "a.h"),
    "export to a page": _command("export", f"../{TRAINED}", "a.html"),
    "eval": _command("eval", f"../{TRAINED}"),
}
"""Commands in a folder of poisoned modules: those that start processes, and some that do not."""
