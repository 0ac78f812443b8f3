"""Every path that recur opens replaced by a pipe, a link, a folder, a socket or a device.

The paths are those of the files of a run, of a sweep and of the studio's folder, and the arguments of commands: texts,
validation and test files, word vectors, configurations, cells. A command that meets such a path must end within
seconds, in its right answer or in one line and exit status 2; and nothing outside may change.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from campaigns.campaign import Attempt, dice
from campaigns.small import Ended, arguments_of, forked, recur, set_up
from recur.cli.app import run as command

TRIES = 600
SECONDS = 20.0
"""Seconds of a command at most; a pipe without a writer is waited for 5 seconds."""
OUTSIDE = "good\tthe network reads a word\n" * 20
TRAIN = [
    "--hidden-size",
    "4",
    "--batch-size",
    "4",
    "--steps",
    "1",
    "--threads",
    "1",
    "--device",
    "cpu",
    "--no-baseline",
    "-q",
]

KINDS: dict[str, Callable[[Path, Path], object]] = {
    "a pipe": lambda path, outside: os.mkfifo(path),
    "a link to a file": lambda path, outside: path.symlink_to(outside / "file"),
    "a link to a folder": lambda path, outside: path.symlink_to(outside),
    "a link to itself": lambda path, outside: path.symlink_to(path.name),
    "a hard link": lambda path, outside: os.link(outside / "file", path),
    "a folder": lambda path, outside: path.mkdir(),
    "a socket": lambda path, outside: _socket(path),
    "/dev/zero": lambda path, outside: path.symlink_to("/dev/zero"),
    "/dev/null": lambda path, outside: path.symlink_to("/dev/null"),
    "/proc/kmsg": lambda path, outside: path.symlink_to("/proc/kmsg"),
}

RUN_FILES = (
    *("manifest.json", "config.toml", "vocab.json", "cell.py", "model.safetensors", "baselines.json", "machines.json"),
    *("metrics.jsonl", "samples.jsonl", "progress.jsonl", "notes.txt", "lock", "resume"),
    *("resume/a.safetensors", "resume/b.safetensors"),
)
ANSWERS = (["eval", "whole", "--no-ngrams"], ["sample", "whole", "--length", "8", "--seed", "0"], ["card", "whole"])
"""Commands that read a run, whose answer must not change."""
OTHERS = (["resume", "whole", "--steps", "1"], ["xray", "whole", "--tokens", "20"])
ARGUMENTS = (
    ["train", "X", *TRAIN, "--out", "new"],
    ["train", "X", "--task", "classify", *TRAIN, "--out", "new"],
    ["train", "book.txt", "--valid", "X", *TRAIN, "--out", "new"],
    ["train", "book.txt", "--test", "X", *TRAIN, "--out", "new"],
    ["train", "book.txt", "--token", "word", "--vectors", "X", *TRAIN, "--out", "new"],
    ["train", "book.txt", "--config", "X", *TRAIN, "--out", "new"],
    ["train", "book.txt", "--cell", "X.py:Mine", *TRAIN, "--out", "new"],
    ["train", "book.txt", *TRAIN, "--out", "X"],
    ["train", "X.npz", "--task", "grid", *TRAIN, "--out", "new"],
    ["train", "X.csv", "--task", "forecast", *TRAIN, "--out", "new"],
    ["eval", "undisturbed", "X"],
    ["eval", "undisturbed", "X.arpa", "book.txt"],
    ["xray", "undisturbed", "X"],
    ["resume", "X"],
    ["ngram", "X"],
    ["stats", "X"],
)
"""Commands with X in the place of a path."""
STUDIO_FILES = (".studio", ".studio/jobs.json", ".studio/whole.log", "texts", "texts/book.txt")
SWEEP_FILES = ("sweep.json", "lock", "trial-000", "trial-000/manifest.json", "trial-000/metrics.jsonl")


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="recur-paths-") as folder:
        set_up(Path(folder))
        try:
            paths = _Paths()
            for number in numbers:
                yield paths.attempt(number, dice(seed, number))
        finally:
            os.chdir(home)


class _Paths:
    """A run, a sweep and a studio's folder, and what commands answer while nothing is wrong with them."""

    def __init__(self) -> None:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # in this process, for its imports
            assert command(arguments_of("language", "undisturbed")) == 0
        self._answers: dict[str, str] = {}
        self._swept = False
        self._outside = Path("outside")
        self._outside.mkdir()
        (self._outside / "file").write_text(OUTSIDE)

    def attempt(self, number: int, rng: random.Random) -> Attempt:
        part = ("run", "argument", "run", "studio", "argument", "sweep")[number % 6]
        kind = rng.choice(list(KINDS))
        what, ended, failure = getattr(self, f"_{part}")(kind, rng)
        failure = ended.fault or failure
        if sorted(os.listdir(self._outside)) != ["file"] or (self._outside / "file").read_text() != OUTSIDE:
            failure = "something outside was changed"
        return Attempt(number, f"{part}: {what} {kind}", failure)

    def _run(self, kind: str, rng: random.Random) -> tuple[str, Ended, str | None]:
        name, verb = rng.choice(RUN_FILES), list(rng.choice([*ANSWERS, *OTHERS]))
        with _copied(Path("undisturbed"), Path("whole")) as run:
            right = self._answer(verb) if verb in ANSWERS else None
            _replace(run / name, kind, self._outside)
            ended = recur(*verb, "--json", seconds=SECONDS)
        other = right is not None and ended.code == 0 and _said(ended) != right
        return f"{verb[0]}, {name}", ended, "another answer" if other else None

    def _answer(self, verb: list[str]) -> str:
        if verb[0] not in self._answers:
            self._answers[verb[0]] = _said(recur(*verb, "--json", seconds=SECONDS))
        return self._answers[verb[0]]

    def _argument(self, kind: str, rng: random.Random) -> tuple[str, Ended, str | None]:
        verb = rng.choice(ARGUMENTS)
        path = Path(next(word for word in verb if word.startswith("X")).partition(":")[0])
        _replace(path, kind, self._outside)
        try:
            return " ".join(verb), recur(*verb, seconds=SECONDS), None
        finally:
            for left in (path, Path("new")):
                _remove(left)

    def _studio(self, kind: str, rng: random.Random) -> tuple[str, Ended, str | None]:
        name = rng.choice([*STUDIO_FILES, *(f"whole/{file}" for file in RUN_FILES)])
        Path("runs/.studio").mkdir(parents=True)
        Path("runs/texts").mkdir()
        try:
            shutil.copy("book.txt", "runs/texts")
            shutil.copytree("undisturbed", "runs/whole")
            shutil.copytree("undisturbed", "runs/other")
            _replace(Path("runs", name), kind, self._outside)
            ended = forked(_look, SECONDS)
        finally:
            shutil.rmtree("runs")
        return name, ended, None

    def _sweep(self, kind: str, rng: random.Random) -> tuple[str, Ended, str | None]:
        name = rng.choice(SWEEP_FILES)
        if not self._swept:
            made = recur("sweep", "book.txt", *TRAIN, "--search", "lr", "--trials", "1", "--out", "swept")
            assert made.code == 0, made.err
            self._swept = True
        with _copied(Path("swept"), Path("sweeping")) as folder:
            _replace(folder / name, kind, self._outside)
            return name, recur("sweep", "--resume", str(folder), "--trials", "1", "-q", seconds=SECONDS), None


def _look(folder: Path = Path("runs")) -> int:
    """Do what the studio does with its folder: list, watch, queue, log; fail if the other run is not listed whole."""
    from recur.errors import RecurError
    from recur.studio.jobs import TrainingJob, TrainingQueue
    from recur.studio.runs import RunFolder
    from recur.studio.uploads import TextStore

    runs, texts = RunFolder(folder), TextStore(folder)
    listed = {run["name"]: run for run in runs.list()}
    assert "error" not in listed["other"], listed
    try:
        texts.sweep()
        texts.list()
        queue = TrainingQueue(folder, texts)
        job = TrainingJob("whole", resumes=True)
        queue._start(job)  # opens its log, and starts a process
        if queue._process is not None:
            queue._process.kill()
            queue._process.wait()
        queue.jobs()
        queue._said(job)
        runs.curves("whole")
        runs.write_notes("whole", "a note")
        runs.open("whole")
    except (RecurError, OSError):
        return 2
    return 0


def _said(ended: Ended) -> str:
    """Return the answer of a command without times."""
    found = json.loads(ended.out)
    return json.dumps(_without_times(found))


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if "second" not in k}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


@contextmanager
def _copied(source: Path, path: Path) -> Iterator[Path]:
    """Copy a folder, and remove the copy in the end."""
    try:
        yield Path(shutil.copytree(source, path))
    finally:
        shutil.rmtree(path)


def _replace(path: Path, kind: str, outside: Path) -> None:
    _remove(path)
    path.parent.mkdir(exist_ok=True)
    KINDS[kind](path, outside.absolute())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
