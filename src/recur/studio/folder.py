"""The folder of runs: a summary of each, their curves, and models kept in memory."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from recur.errors import OptionError, RecurError, RunError
from recur.run import Run, is_run, read_json, read_jsonl
from recur.studio.fields import number
from recur.studio.loaded import LoadedModel
from recur.tasks import options_of_run, task_of_run
from recur.tasks.language.options import LanguageOptions
from recur.typedefs import JsonObject

LOADED = 6
"""Models kept in memory."""
LIVE = 20.0
"""Seconds since its last write after which a run counts as stopped."""
OPTIONS = ("hidden", "layers", "token", "window", "rate", "clip", "optimizer")
"""Options in the summary of a run, where its task has them."""
NO_CURVES = ("step", "epoch", "progress", "predictions", "seconds", "skipped")
"""Numbers in metrics.jsonl that say when, not how good."""
SAMPLES = 20


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

    def __init__(self, path: Path, own_cells: bool = False) -> None:
        self.path, self.own_cells = path, own_cells
        self._descriptions, self._measured = FileCache(), FileCache()
        self._loaded: OrderedDict[str, tuple[int, LoadedModel]] = OrderedDict()
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        if not self.path.is_dir():
            return []
        inside = self.path.resolve()
        return sorted(p.name for p in self.path.iterdir() if is_run(p) and p.resolve().parent == inside)

    def path_of(self, name: str) -> Path:
        """The folder of a run in the list; any other name is refused."""
        if name not in self.names():
            raise RunError(f"unknown run {name!r}")
        return self.path / name

    # Summaries --------------------------------------------------------------------------------------------

    def list(self) -> list[JsonObject]:
        return [self.summary(name) for name in self.names()]

    def summary(self, name: str) -> JsonObject:
        """What a run is (task, options), and how far it came; `error` in place of both if it cannot be read."""
        path = self.path / name
        config, manifest, metrics = (path / file for file in ("config.toml", "manifest.json", "metrics.jsonl"))
        about = self._descriptions.get(name, [config, manifest], lambda: describe(path))
        files = [config, manifest, metrics, path / "baseline.json"]
        measured = self._measured.get(name, files, lambda: measurements(path, str(about.get("metric", ""))))
        changed = max(modified(file) for file in (config, metrics, path / "resume" / "latest.json")) / 1e9
        live = "error" not in about and measured["progress"] < 1 and time.time() - changed < LIVE
        return {"name": name, **about, **measured, "live": live, "changed": changed}

    def curves(self, name: str) -> JsonObject:
        """The summary of a run, all its metrics over time, and its samples."""
        path = self.path_of(name)
        entries = read_jsonl(path / "metrics.jsonl")
        keys = dict.fromkeys(key for entry in entries for key, value in entry.items() if number(value) is not None)
        samples = {entry.get("step"): str(entry.get("text", "")) for entry in read_jsonl(path / "samples.jsonl")}
        return {
            **self.summary(name),
            "steps": [number(entry.get("step")) for entry in entries],
            "curves": {key: [number(entry.get(key)) for entry in entries] for key in keys if key not in NO_CURVES},
            "samples": [{"step": step, "text": text} for step, text in samples.items()][-SAMPLES:],
        }

    # Models -----------------------------------------------------------------------------------------------

    def open(self, name: str) -> LoadedModel:
        """The model of a run, loaded again when its weights have changed."""
        path = self.path_of(name)
        weights = modified(path / "model.safetensors")
        with self._lock:
            kept = self._loaded.get(name)
            if kept is not None and kept[0] == weights:
                self._loaded.move_to_end(name)
                return kept[1]
        run = Run.open(path)
        self._check(run)
        model = LoadedModel(run)
        with self._lock:
            self._loaded[name] = weights, model
            while len(self._loaded) > LOADED:
                self._loaded.popitem(last=False)
        return model

    def _check(self, run: Run) -> None:
        """Refuse a run of another task, and one that would execute code, before anything of it is loaded."""
        options = options_of_run(run)
        name = run.path.name
        if not isinstance(options, LanguageOptions):
            raise OptionError(f"{name} is a run of the task {run.task}; this view reads runs of the task language")
        if not self.own_cells and ".py" in options.cell:
            raise OptionError(f"{name} uses a cell from a Python file, which would be executed; allow it: --own-cells")


def describe(path: Path) -> JsonObject:
    """The task of a run and the options that this task has, or the error that reading it gives."""
    try:
        run = Run.open(path)
        task = task_of_run(run)
    except (RecurError, OSError) as error:
        return {"error": str(error).replace(f"{path}/", "").replace(str(path), path.name)}  # the page is for others too
    names = [name for name in OPTIONS if name in task.options.names()]
    return {
        "task": task.name,
        "architecture": task.architecture,
        "metric": task.curve,
        "options": {name: getattr(task.options, name) for name in names},
    }


def measurements(path: Path, metric: str) -> JsonObject:
    """How far a run came, its best value of a metric (lower is better), and the baseline of the same metric."""
    entries = read_jsonl(path / "metrics.jsonl")
    values = [value for entry in entries if (value := number(entry.get(metric))) is not None]
    last = entries[-1] if entries else {}
    baseline = read_json(path / "baseline.json") or {}
    value = number(baseline.get("value"))
    same = value is not None and baseline.get("metric") == metric
    return {
        "best": min(values, default=None),
        "baseline": {"name": str(baseline.get("name", "")), "value": value} if same else None,
        "step": number(last.get("step")) or 0,
        "progress": number(last.get("progress")) or 0.0,
    }


def modified(path: Path) -> int:
    """When a file was last written, in nanoseconds; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
