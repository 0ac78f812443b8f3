"""Folder of runs: summaries, curves, training progress, and models in memory."""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from recur.errors import OptionError, RecurError, RunError
from recur.i18n import Language, Message, from_json, translate
from recur.options import parse_toml
from recur.runs import Run, holder_of, is_run, read_json, read_jsonl, read_tail, use_threads
from recur.runs.manifest import PROGRESS_FILE, parse_jsonl
from recur.runs.safe_dir import SafeDir
from recur.runs.weights import read_about
from recur.serve.http import UnknownError, error_text, finite_or_none, without_folders
from recur.studio.loaded_model import LoadedModel
from recur.tasks import options_of_run, task_of
from recur.tasks.common.metrics import best_value
from recur.tasks.common.registry import ORIGINS, PATHS, as_list
from recur.utils.limits import LOG_RECORDS
from recur.utils.types import JsonObject

MAX_POINTS = 1000
"""Points of a curve, at most."""
PIECE = 1 << 20
"""Bytes read at a time."""
LINE = 4096
"""Bytes at the end of the log that hold the last line."""
RECENT = 20
"""Newest points from which the remaining time is estimated."""


class ProgressTail:
    """Points of the training loss of one run, read incrementally."""

    def __init__(self, path: Path) -> None:
        self.place = SafeDir(path)
        self.points: list[JsonObject] = []
        self.begun = 0
        """Number of times the log was rewritten, as happens when a run resumes from a checkpoint."""
        self._read, self._file = 0, 0
        self._lock = threading.Lock()

    def update(self) -> list[JsonObject]:
        with self._lock:
            try:
                while self._more():
                    pass
            except (OSError, RecurError):
                self.points = []
            return self.points

    def _more(self) -> bool:
        content, size, file = self.place.read_from(PROGRESS_FILE, self._read, PIECE)
        if file != self._file or size < self._read:
            self.begun += self._file != 0
            self._file, self._read, self.points = file, 0, []
            return size > 0
        whole = content[: content.rfind(b"\n") + 1]
        if whole:
            self.points = [*self.points, *parse_jsonl(whole)]
            self._read += len(whole)
        return len(content) == PIECE and bool(whole) and len(self.points) < LOG_RECORDS


def last_point(path: Path) -> JsonObject:
    """Return the newest point of a run without reading the others; {} if there is none."""
    try:
        content, _, _ = SafeDir(path).read_from(PROGRESS_FILE, -LINE, LINE)
    except (OSError, RecurError):
        return {}
    found = parse_jsonl(content[: content.rfind(b"\n") + 1])
    return found[-1] if found else {}


def seconds_left(points: Sequence[JsonObject]) -> float | None:
    """Estimate the seconds until training ends from the recent progress; None if that is not known."""
    try:
        times = [(float(point["at"]), float(point["progress"])) for point in points[-RECENT:]]
    except (KeyError, TypeError, ValueError):
        return None
    if len(times) < 2 or not times[-1][1] > times[0][1]:
        return None
    (begin, before), (end, now) = times[0], times[-1]
    return max(0.0, (1 - now) * (end - begin) / (now - before))


def thin_curve(values: Sequence[float | None], most: int = MAX_POINTS) -> list[int]:
    """Return the indices of the points to draw: all of them, or the ends and the extremes of each stretch."""
    known = [k for k, value in enumerate(values) if value is not None]
    if len(known) <= most:
        return known
    y = np.array([values[k] for k in known], dtype=float)
    edges = np.linspace(0, len(known), (most - 2) // 2 + 1).astype(int)
    kept = {0, len(known) - 1}
    for begin, end in itertools.pairwise(edges.tolist()):
        kept |= {begin + int(y[begin:end].argmin()), begin + int(y[begin:end].argmax())}
    return [known[k] for k in sorted(kept)]


OPTIONS = ("hidden_size", "num_layers", "token", "window", "lr", "grad_clip", "optimizer")
"""Options shown in the summary of a run, if its task has them."""
AXES = {"step": "step", "tokens": "predictions", "seconds": "seconds"}
"""Axes of curves."""
NO_CURVES = (*AXES.values(), "epoch", "progress", "skipped", "measured", "at")
"""Fields of metrics.jsonl that are no metrics."""
SAMPLES = 20
NOTES = 4000
"""Characters of notes, at most."""
UNKNOWN: JsonObject = {
    **dict.fromkeys(("best", "baseline", "train_loss", "left")),
    **dict.fromkeys(("step", "tokens", "seconds", "progress"), 0),
    "notes": "",
    "live": False,
}
"""Progress of a run that cannot be read."""


def describe(path: Path) -> JsonObject:
    """Return the task of a run and its options, or the error of reading it."""
    try:
        run = Run.open(path, words=False)
        task = task_of(options_of_run(run, code=False))
    except (RecurError, OSError, RecursionError) as error:
        return {"error": without_folders(error_text(error), path.parent)}  # the page may be shown to others
    names = [name for name in OPTIONS if name in task.options.names()]
    return {
        "task": task.name,
        "architecture": task.architecture,
        "metric": task.curve,
        "options": {name: getattr(task.options, name) for name in names},
    }


def measurements(path: Path, metric: str) -> JsonObject:
    """Return how far a run came, its best value of a metric, and that of the best baseline.

    The list of runs calls this for each of them. It reads the newest records of the log and the header of the best
    weights, which has their metrics, so that the length of the log does not matter.
    """
    entries = read_tail(path / "metrics.jsonl")
    measured = (*entries, read_about(SafeDir(path), "model.safetensors"))
    values = [value for entry in measured if (value := finite_or_none(entry.get(metric))) is not None]
    last = max(
        (entries[-1] if entries else {}, last_point(path)), key=lambda entry: finite_or_none(entry.get("step")) or 0
    )
    return {
        "best": best_value(metric, values) if values else None,
        "baseline": _baseline(path, metric),
        "step": finite_or_none(last.get("step")) or 0,
        "tokens": finite_or_none(last.get("predictions")) or 0,
        "seconds": finite_or_none(last.get("seconds")) or 0,
        "progress": finite_or_none(last.get("progress")) or 0.0,
        "train_loss": finite_or_none(last.get("train_loss")),
        "notes": read_notes(path),
    }


def history(path: Path, points: Sequence[JsonObject]) -> JsonObject:
    """Return the options, samples and curves of one run.

    Curves of training come from `points`, the progress of a running job, if there are any, and else from its metrics.
    """
    entries = read_jsonl(path / "metrics.jsonl")
    samples = {
        finite_or_none(entry.get("step")): str(entry.get("text", "")) for entry in read_jsonl(path / "samples.jsonl")
    }
    return {
        "config": _config(path),
        "curves": _curves(entries) | _curves(points),
        "samples": [{"step": step, "text": text} for step, text in samples.items()][-SAMPLES:],
    }


def _curves(entries: Sequence[JsonObject]) -> JsonObject:
    keys = dict.fromkeys(key for entry in entries for key, value in entry.items() if finite_or_none(value) is not None)
    found: JsonObject = {}
    for key in keys:
        if key not in NO_CURVES:
            values = [finite_or_none(entry.get(key)) for entry in entries]
            kept = thin_curve(values)
            axes = {name: [finite_or_none(entries[k].get(own)) for k in kept] for name, own in AXES.items()}
            found[key] = {**axes, "value": [values[k] for k in kept]}
    return found


def _config(path: Path) -> JsonObject:
    """Return the options of a run; files without folders, because the page may be shown to others."""
    try:
        run = Run.open(path, words=False)
        fields = parse_toml(run.config_text().encode(), run.config)
    except (RecurError, OSError, RecursionError):
        return {}
    for name in (*PATHS, *ORIGINS):
        if name in fields:
            fields[name] = [Path(str(file)).name for file in as_list(fields[name])]
    if isinstance(cell := fields.get("cell"), str):
        fields["cell"] = Path(cell).name
    return {name.rstrip("_"): value for name, value in fields.items()}


def read_notes(path: Path) -> str:
    try:
        return SafeDir(path).read("notes.txt", 4 * NOTES).decode(errors="replace")[:NOTES]
    except (OSError, RecurError):
        return ""


def _baseline(path: Path, metric: str) -> JsonObject | None:
    kept = read_json(path / "baselines.json") or {}
    models = kept.get("models")
    if kept.get("metric") != metric or not isinstance(models, list):
        return None
    found = [
        (from_json(model.get("message") or str(model.get("name", ""))), value)
        for model in models
        if isinstance(model, dict) and (value := finite_or_none(model.get("value"))) is not None
    ]
    best = best_value(metric, [value for _, value in found]) if found else None
    return next(({"name": name, "value": value} for name, value in found if value == best), None)


def translate_summary(summary: JsonObject, language: Language) -> JsonObject:
    """Return the summary of a run with its messages in a language: the name of its baseline, and its error."""
    found = dict(summary)
    if "error" in found:
        found["error"] = translate(found["error"], language)
    if found.get("baseline"):
        found["baseline"] = {**found["baseline"], "name": translate(found["baseline"]["name"], language)}
    return found


LOADED = 6
"""Models in memory."""
NEWEST = 8
"""Newest runs, which are read however long it takes."""
TAILS = 64
"""Runs whose points are in memory."""
GROWING = ("metrics.jsonl", "samples.jsonl", "progress.jsonl", "baselines.json", "manifest.json", "notes.txt", "lock")
"""Files of a run that a loaded model does not depend on."""

FILES = ("config.toml", "manifest.json", "metrics.jsonl", "baselines.json", "progress.jsonl", "notes.txt")
"""Files of a summary: the first two describe the run, the first three date its last evaluation."""
FileTimes = tuple[int, ...]
FileStates = tuple[tuple[str, int, int, int], ...]
"""Name, modification time, size and inode of each file that a model is loaded from."""


class FileCache:
    """Cache of JSON computed from files; recomputed when a file changes."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[FileTimes, JsonObject]] = {}

    def has(self, name: str) -> bool:
        return name in self._kept

    def get(self, name: str, times: FileTimes, compute: Callable[[], JsonObject]) -> JsonObject:
        kept = self._kept.get(name)
        if kept is None or kept[0] != times:
            kept = self._kept[name] = times, compute()
        return kept[1]


class RunFolder:
    """Runs directly inside a folder, by name."""

    def __init__(self, path: Path, trust: bool = False, threads: int = 0) -> None:
        self.path, self.trust, self.threads = path, trust, threads
        self._descriptions, self._measured = FileCache(), FileCache()
        self._tails: OrderedDict[str, ProgressTail] = OrderedDict()
        self._loaded: OrderedDict[str, tuple[FileStates, LoadedModel]] = OrderedDict()
        self._lock, self._first = threading.Lock(), threading.Lock()

    def names(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in entries if _is_run(entry))
        except OSError:  # the folder was deleted
            return []

    def _is_inside(self, path: Path) -> bool:
        try:
            return is_run(path) and not path.is_symlink()
        except (OSError, UnicodeEncodeError):  # no permission, or the name is too long
            return False

    def path_of(self, name: str) -> Path:
        """Return the folder of a run; refuse any name that is not in the list."""
        if Path(name).name != name or "\0" in name or not self._is_inside(self.path / name):
            raise UnknownError(Message("unknown run {name}", name=repr(name[:100])))
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
                with self._first:  # parallel requests must not read the same runs
                    found[name] = self.summary(name)
            else:
                found[name] = {"name": name, "changed": changed[name], "pending": True}
        return [found[name] for name in changed]

    def summary(self, name: str) -> JsonObject:
        """Return the task, options and progress of a run; `error` in place of them if it cannot be read."""
        path = self.path / name
        times = tuple(modified(f"{path}/{file}") for file in FILES)
        try:
            found = self._described(name, path, times)
        except Exception as error:  # one damaged run must not hide the others
            found = {"error": without_folders(error_text(error) or type(error).__name__, self.path), **UNKNOWN}
        return {"name": name, **found, "changed": max(times[:3]) / 1e9}

    def _described(self, name: str, path: Path, times: FileTimes) -> JsonObject:
        about = self._descriptions.get(name, times[:2], lambda: describe(path))
        measured = self._measured.get(name, times, lambda: measurements(path, str(about.get("metric", ""))))
        live = "error" not in about and holder_of(path) is not None
        left = seconds_left(self.tail(name).update()) if live else None
        return {**about, **measured, "live": live, "left": left}

    def curves(self, name: str) -> JsonObject:
        """Return the summary of a run, its options, notes, samples and curves."""
        path = self.path_of(name)
        return {**self.summary(name), **history(path, self.tail(name).update())}

    def tail(self, name: str) -> ProgressTail:
        """Return the progress log of a run."""
        with self._lock:
            if name not in self._tails:
                self._tails[name] = ProgressTail(self.path / name)
            self._tails.move_to_end(name)
            while len(self._tails) > TAILS:
                self._tails.popitem(last=False)
            return self._tails[name]

    def write_notes(self, name: str, text: str) -> None:
        """Write the user's notes on a run."""
        if len(text) > NOTES:
            raise OptionError(
                Message("the notes are too long: {n} characters, at most {most}", n=f"{len(text):,}", most=f"{NOTES:,}")
            )
        SafeDir(self.path_of(name)).write("notes.txt", text.encode())

    # Models -----------------------------------------------------------------------------------------------

    def kept(self, name: str) -> LoadedModel | None:
        """Return the model of a run if it is in memory and its files have not changed; else None."""
        state = _file_states(self.path_of(name))
        with self._lock:
            found = self._loaded.get(name)
            if found is None or found[0] != state:
                return None
            self._loaded.move_to_end(name)
            return found[1]

    def open(self, name: str) -> LoadedModel:
        """Return the model of a run; load it if it is not in memory or if a file has changed.

        All models come from here, so that every load is preceded by the checks of Run.open.
        """
        found = self.kept(name)
        if found is not None:
            return found
        path = self.path_of(name)
        state = _file_states(path)
        try:
            run = Run.open(path, trust=self.trust)
            model = LoadedModel(run)
            use_threads(self.threads, model.predictor.task.options.threads)
        except OptionError as error:  # an error of the run's configuration, not of the request
            raise RunError(str(error)) from None
        except (RecurError, OSError, RecursionError) as error:
            raise RunError(Message("{name} cannot be opened: {why}", name=name, why=error_text(error))) from None
        if _file_states(path) != state:
            raise RunError(Message("{name} is being written; try again", name=name))
        with self._lock:
            self._loaded[name] = state, model
            while len(self._loaded) > LOADED:
                self._loaded.popitem(last=False)
        return model


def _is_run(entry: os.DirEntry[str]) -> bool:
    """Return True for a run inside the folder: a link may lead elsewhere, and browsers can only request UTF-8 names."""
    try:
        entry.name.encode()
        return not entry.is_symlink() and os.path.isfile(f"{entry.path}/manifest.json")
    except (OSError, UnicodeEncodeError):
        return False


def modified(path: str) -> int:
    """Return the modification time of a file in nanoseconds; 0 if there is no file."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _file_states(path: Path) -> FileStates:
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            growing = entry.name in GROWING or entry.name.startswith(".")  # half-written files start with a dot
            if not growing and entry.is_file():
                about = entry.stat()
                found.append((entry.name, about.st_mtime_ns, about.st_size, about.st_ino))
    return tuple(sorted(found))
