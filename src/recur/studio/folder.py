"""The folder of runs: a summary of each, their curves, and models kept in memory."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from recur.errors import OptionError, RecurError, RunError
from recur.run import Run, is_run, read_json, read_jsonl
from recur.studio.loaded import LoadedModel
from recur.tasks import options_of_run, task_of
from recur.tasks.metrics import best_of
from recur.typedefs import JsonObject
from recur.web.answers import UnknownError, error_text, without_folders
from recur.web.fields import number

LOADED = 6
"""Models kept in memory."""
LIVE = 20.0
"""Seconds since its last write after which a run counts as stopped."""
OPTIONS = ("hidden", "layers", "token", "window", "rate", "clip", "optimizer")
"""Options in the summary of a run, where its task has them."""
NO_CURVES = ("step", "epoch", "progress", "predictions", "seconds", "skipped")
"""Numbers in metrics.jsonl that say when, not how good."""
SAMPLES = 20
GROWING = ("metrics.jsonl", "samples.jsonl", "baselines.json", "manifest.json", "lock")
"""Files of a run that a loaded model is not made of."""

State = tuple[tuple[str, int, int, int], ...]
"""Of the files that a model is made of: their names, when they were written, sizes and numbers on disk."""


class FileCache:
    """JSON computed from files, computed again when one of them changes."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[list[int], JsonObject]] = {}

    def get(self, name: str, files: list[Path], compute: Callable[[], JsonObject]) -> JsonObject:
        times = [modified(file) for file in files]
        kept = self._kept.get(name)
        if kept is None or kept[0] != times:
            kept = self._kept[name] = times, compute()
        return kept[1]


class Folder:
    """Runs by name: the names of the folders directly inside, and nothing else."""

    def __init__(self, path: Path, trust: bool = False) -> None:
        self.path, self.trust = path, trust
        self._descriptions, self._measured = FileCache(), FileCache()
        self._loaded: OrderedDict[str, tuple[State, LoadedModel]] = OrderedDict()
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        try:
            return sorted(path.name for path in self.path.iterdir() if self._is_inside(path))
        except OSError:  # the folder itself is gone
            return []

    def _is_inside(self, path: Path) -> bool:
        """Whether it is a run that lies in the folder: a link may lead elsewhere. A browser can ask for UTF-8 only."""
        try:
            path.name.encode()
            return is_run(path) and path.resolve().parent == self.path.resolve()
        except (OSError, RuntimeError, UnicodeEncodeError):  # not ours to read, too long a name; links in a circle
            return False

    def path_of(self, name: str) -> Path:
        """The folder of a run in the list; any other name is refused."""
        if Path(name).name != name or "\0" in name or not self._is_inside(self.path / name):
            raise UnknownError(f"unknown run {name[:100]!r}")
        return self.path / name

    # Summaries --------------------------------------------------------------------------------------------

    def list(self) -> list[JsonObject]:
        return [self.summary(name) for name in self.names()]

    def summary(self, name: str) -> JsonObject:
        """What a run is (task, options), and how far it came; `error` in place of both if it cannot be read."""
        path = self.path / name
        config, manifest, metrics = (path / file for file in ("config.toml", "manifest.json", "metrics.jsonl"))
        about = self._descriptions.get(name, [config, manifest], lambda: describe(path))
        files = [config, manifest, metrics, path / "baselines.json"]
        measured = self._measured.get(name, files, lambda: measurements(path, str(about.get("metric", ""))))
        changed = max(modified(file) for file in (config, metrics, manifest)) / 1e9
        live = "error" not in about and measured["progress"] < 1 and time.time() - changed < LIVE
        return {"name": name, **about, **measured, "live": live, "changed": changed}

    def curves(self, name: str) -> JsonObject:
        """The summary of a run, all its metrics over time, and its samples."""
        path = self.path_of(name)
        entries = read_jsonl(path / "metrics.jsonl")
        keys = dict.fromkeys(key for entry in entries for key, value in entry.items() if number(value) is not None)
        samples = {
            number(entry.get("step")): str(entry.get("text", "")) for entry in read_jsonl(path / "samples.jsonl")
        }
        return {
            **self.summary(name),
            "steps": [number(entry.get("step")) for entry in entries],
            "curves": {key: [number(entry.get(key)) for entry in entries] for key in keys if key not in NO_CURVES},
            "samples": [{"step": step, "text": text} for step, text in samples.items()][-SAMPLES:],
        }

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


def describe(path: Path) -> JsonObject:
    """The task of a run and the options that this task has, or the error that reading it gives."""
    try:
        run = Run.open(path)
        task = task_of(options_of_run(run, code=False))
    except (RecurError, OSError, RecursionError) as error:
        return {"error": without_folders(error_text(error), path.parent)}  # the page is for others too
    names = [name for name in OPTIONS if name in task.options.names()]
    return {
        "task": task.name,
        "architecture": task.architecture,
        "metric": task.curve,
        "options": {name: getattr(task.options, name) for name in names},
    }


def measurements(path: Path, metric: str) -> JsonObject:
    """How far a run came, its best value of a metric, and the best plain model's of the same metric."""
    entries = read_jsonl(path / "metrics.jsonl")
    values = [value for entry in entries if (value := number(entry.get(metric))) is not None]
    last = entries[-1] if entries else {}
    return {
        "best": best_of(metric, values) if values else None,
        "baseline": _baseline(path, metric),
        "step": number(last.get("step")) or 0,
        "progress": number(last.get("progress")) or 0.0,
    }


def _baseline(path: Path, metric: str) -> JsonObject | None:
    kept = read_json(path / "baselines.json") or {}
    models = kept.get("models")
    if kept.get("metric") != metric or not isinstance(models, list):
        return None
    found = [
        (str(model.get("name", "")), value)
        for model in models
        if isinstance(model, dict) and (value := number(model.get("value"))) is not None
    ]
    best = best_of(metric, [value for _, value in found]) if found else None
    return next(({"name": name, "value": value} for name, value in found if value == best), None)


def modified(path: Path) -> int:
    """When a file was last written, in nanoseconds; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
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
