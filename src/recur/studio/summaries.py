"""What a run is and how it went, as the page shows it: read from its files, whatever is in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recur.errors import RecurError
from recur.options import parse_toml
from recur.run import Run, read_json, read_jsonl
from recur.run.place import Place
from recur.studio.points import last_point, thinned
from recur.tasks import options_of_run, task_of
from recur.tasks.metrics import best_of
from recur.tasks.registry import ORIGINS, PATHS, listed
from recur.typedefs import JsonObject
from recur.web.answers import error_text, without_folders
from recur.web.fields import number

OPTIONS = ("hidden", "layers", "token", "window", "rate", "clip", "optimizer")
"""Options in the summary of a run, where its task has them."""
AXES = {"step": "step", "tokens": "predictions", "seconds": "seconds"}
"""What curves can be drawn over."""
NO_CURVES = (*AXES.values(), "epoch", "progress", "skipped", "measured", "at")
"""Numbers in metrics.jsonl that say when, not how good."""
SAMPLES = 20
NOTES = 4000
"""Characters of notes, at most."""


def describe(path: Path) -> JsonObject:
    """The task of a run and the options that this task has, or the error that reading it gives."""
    try:
        run = Run.open(path, words=False)
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
    last = max((entries[-1] if entries else {}, last_point(path)), key=lambda entry: number(entry.get("step")) or 0)
    return {
        "best": best_of(metric, values) if values else None,
        "baseline": _baseline(path, metric),
        "step": number(last.get("step")) or 0,
        "tokens": number(last.get("predictions")) or 0,
        "seconds": number(last.get("seconds")) or 0,
        "progress": number(last.get("progress")) or 0.0,
        "train_loss": number(last.get("train_loss")),
        "notes": notes_of(path),
    }


def history(path: Path, points: Sequence[JsonObject]) -> JsonObject:
    """Of one run: its options, its samples, and every curve with what it can be drawn over. What training itself gave
    is drawn from the points on the way, if there are any, and the rest from the measurements."""
    entries = read_jsonl(path / "metrics.jsonl")
    samples = {number(entry.get("step")): str(entry.get("text", "")) for entry in read_jsonl(path / "samples.jsonl")}
    return {
        "config": _config(path),
        "curves": _curves(entries) | _curves(points),
        "samples": [{"step": step, "text": text} for step, text in samples.items()][-SAMPLES:],
    }


def _curves(entries: Sequence[JsonObject]) -> JsonObject:
    keys = dict.fromkeys(key for entry in entries for key, value in entry.items() if number(value) is not None)
    found: JsonObject = {}
    for key in keys:
        if key not in NO_CURVES:
            values = [number(entry.get(key)) for entry in entries]
            kept = thinned(values)
            axes = {name: [number(entries[k].get(own)) for k in kept] for name, own in AXES.items()}
            found[key] = {**axes, "value": [values[k] for k in kept]}
    return found


def _config(path: Path) -> JsonObject:
    """The options of a run; files by their names, for the page is for others too."""
    try:
        run = Run.open(path, words=False)
        fields = parse_toml(run.config_text().encode(), run.config)
    except (RecurError, OSError, RecursionError):
        return {}
    for name in (*PATHS, *ORIGINS):
        if name in fields:
            fields[name] = [Path(str(file)).name for file in listed(fields[name])]
    if isinstance(cell := fields.get("cell"), str):
        fields["cell"] = Path(cell).name
    return {name.rstrip("_"): value for name, value in fields.items()}


def notes_of(path: Path) -> str:
    try:
        return Place(path).read("notes.txt", 4 * NOTES).decode(errors="replace")[:NOTES]
    except (OSError, RecurError):
        return ""


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
