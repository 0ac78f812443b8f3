"""The folder of runs: a summary of each, their curves, and models kept in memory."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from recur.errors import OptionError, RecurError, RunError
from recur.run import Run, holder_of, is_run
from recur.run.place import Place
from recur.studio.loaded import LoadedModel
from recur.studio.points import Tail, seconds_left
from recur.studio.summaries import NOTES, describe, history, measurements
from recur.typedefs import JsonObject
from recur.web.answers import UnknownError, error_text

LOADED = 6
"""Models kept in memory."""
NEWEST = 8
"""Runs that are read however long it takes."""
TAILS = 64
"""Runs whose points are."""
GROWING = ("metrics.jsonl", "samples.jsonl", "progress.jsonl", "baselines.json", "manifest.json", "notes.txt", "lock")
"""Files of a run that a loaded model is not made of."""

FILES = ("config.toml", "manifest.json", "metrics.jsonl", "baselines.json", "progress.jsonl", "notes.txt")
"""Files that a summary is made of: what a run is, by the first two; when it was measured last, by the first three."""
Times = tuple[int, ...]
State = tuple[tuple[str, int, int, int], ...]
"""Of the files that a model is made of: their names, when they were written, sizes and numbers on disk."""


class FileCache:
    """JSON computed from files, computed again when one of them was written."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Times, JsonObject]] = {}

    def has(self, name: str) -> bool:
        return name in self._kept

    def get(self, name: str, times: Times, compute: Callable[[], JsonObject]) -> JsonObject:
        kept = self._kept.get(name)
        if kept is None or kept[0] != times:
            kept = self._kept[name] = times, compute()
        return kept[1]


class Folder:
    """Runs by name: the names of the folders directly inside, and nothing else."""

    def __init__(self, path: Path, trust: bool = False) -> None:
        self.path, self.trust = path, trust
        self._descriptions, self._measured = FileCache(), FileCache()
        self._tails: OrderedDict[str, Tail] = OrderedDict()
        self._loaded: OrderedDict[str, tuple[State, LoadedModel]] = OrderedDict()
        self._lock, self._first = threading.Lock(), threading.Lock()

    def names(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in entries if _is_run(entry))
        except OSError:  # the folder itself is gone
            return []

    def _is_inside(self, path: Path) -> bool:
        try:
            return is_run(path) and not path.is_symlink()
        except (OSError, UnicodeEncodeError):  # not ours to read, too long a name
            return False

    def path_of(self, name: str) -> Path:
        """The folder of a run in the list; any other name is refused."""
        if Path(name).name != name or "\0" in name or not self._is_inside(self.path / name):
            raise UnknownError(f"unknown run {name[:100]!r}")
        return self.path / name

    # Summaries --------------------------------------------------------------------------------------------

    def list(self, seconds: float = math.inf, first: str = "") -> list[JsonObject]:
        """The runs by name. After so many seconds what is left to be read is `pending`, the oldest runs and never the
        newest few or the one that is asked for first: whoever asks again has more of them."""
        until = time.monotonic() + seconds
        changed = {name: modified(f"{self.path}/{name}/manifest.json") / 1e9 for name in self.names()}
        found: dict[str, JsonObject] = {}
        for k, name in enumerate(sorted(changed, key=lambda name: (name != first, -changed[name]))):
            if self._descriptions.has(name):
                found[name] = self.summary(name)
            elif k < NEWEST or time.monotonic() < until:
                with self._first:  # who asks meanwhile does not read the same ones
                    found[name] = self.summary(name)
            else:
                found[name] = {"name": name, "changed": changed[name], "pending": True}
        return [found[name] for name in changed]

    def summary(self, name: str) -> JsonObject:
        """What a run is (task, options), and how far it came; `error` in place of both if it cannot be read."""
        path = self.path / name
        times = tuple(modified(f"{path}/{file}") for file in FILES)
        about = self._descriptions.get(name, times[:2], lambda: describe(path))
        measured = self._measured.get(name, times, lambda: measurements(path, str(about.get("metric", ""))))
        live = "error" not in about and holder_of(path) is not None
        left = seconds_left(self.tail(name).update()) if live else None
        return {"name": name, **about, **measured, "live": live, "left": left, "changed": max(times[:3]) / 1e9}

    def curves(self, name: str) -> JsonObject:
        """The summary of a run, its options, notes and samples, and all that was measured over time."""
        path = self.path_of(name)
        return {**self.summary(name), **history(path, self.tail(name).update())}

    def tail(self, name: str) -> Tail:
        """The points of a run as they come."""
        with self._lock:
            if name not in self._tails:
                self._tails[name] = Tail(self.path / name)
            self._tails.move_to_end(name)
            while len(self._tails) > TAILS:
                self._tails.popitem(last=False)
            return self._tails[name]

    def write_notes(self, name: str, text: str) -> None:
        """What its user has to say of a run, which is no part of what was trained."""
        if len(text) > NOTES:
            raise OptionError(f"the notes are too long: {len(text):,} characters, at most {NOTES:,}")
        Place(self.path_of(name)).write("notes.txt", text.encode())

    # Models -----------------------------------------------------------------------------------------------

    def kept(self, name: str) -> LoadedModel | None:
        """The model of a run, if it is in memory and its files are those that it was loaded from."""
        state = _state(self.path_of(name))
        with self._lock:
            found = self._loaded.get(name)
            if found is None or found[0] != state:
                return None
            self._loaded.move_to_end(name)
            return found[1]

    def open(self, name: str) -> LoadedModel:
        """The model of a run, loaded again when any of its files has changed.

        All models come from here: whatever is loaded of a run, the first time or later, was checked just before.
        """
        found = self.kept(name)
        if found is not None:
            return found
        path = self.path_of(name)
        state = _state(path)
        try:
            run = Run.open(path, trust=self.trust)
            model = LoadedModel(run)
        except OptionError as error:  # of its configuration, and no mistake of the request
            raise RunError(str(error)) from None
        except (RecurError, OSError, RecursionError) as error:
            raise RunError(f"{name} cannot be opened: {error_text(error)}") from None
        if _state(path) != state:
            raise RunError(f"{name} is being written; try again")
        with self._lock:
            self._loaded[name] = state, model
            while len(self._loaded) > LOADED:
                self._loaded.popitem(last=False)
        return model


def _is_run(entry: os.DirEntry[str]) -> bool:
    """Whether it is a run that lies in the folder: a link may lead elsewhere. A browser can ask for UTF-8 only."""
    try:
        entry.name.encode()
        return not entry.is_symlink() and os.path.isfile(f"{entry.path}/manifest.json")
    except (OSError, UnicodeEncodeError):
        return False


def modified(path: str) -> int:
    """When a file was last written, in nanoseconds; 0 where there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _state(path: Path) -> State:
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            growing = entry.name in GROWING or entry.name.startswith(".")  # such as what is half-written
            if not growing and entry.is_file():
                about = entry.stat()
                found.append((entry.name, about.st_mtime_ns, about.st_size, about.st_ino))
    return tuple(sorted(found))
