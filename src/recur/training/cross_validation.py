"""Cross-validation: one run per fold, each evaluated on its held-out part."""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from recur.errors import OptionError
from recur.i18n import Message
from recur.runs import check_free
from recur.tasks import name_of, open_predictor
from recur.tasks.common.options import FoldOptions, TaskOptions
from recur.tasks.common.verdict import verdict_json
from recur.training.session import train
from recur.utils.types import JsonObject


def cross_validate(
    options: TaskOptions,
    folds: int,
    out: Path | str | None = None,
    tell: Callable[[JsonObject], None] | None = None,
    stop: threading.Event | None = None,
    trust: bool = False,
) -> JsonObject:
    """Train one run per fold, in the folders fold-1 … of `out`, and evaluate it on the held-out part.

    Return `models`, the model and its baselines, each with the `mean` and `deviation` of every metric over folds; and
    `each`, the results of every fold as `recur eval` has them. `tell` is called with the results of each fold.
    """
    name = name_of(options)
    if not isinstance(options, FoldOptions):
        raise OptionError(f"--folds needs a task with separate examples; the task {name} has none")
    if not 2 <= folds <= 1000:
        raise OptionError(Message("{name} must be {kind}, got {given}", name="folds", kind="2 … 1000", given=folds))
    if options.test or options.fold:
        raise OptionError(f"--folds {folds} makes the test sets itself: leave --test and --fold out")
    folder = Path(out) if out is not None else Path("runs") / f"{name}-folds-{time.strftime('%Y%m%d-%H%M%S')}"
    if folder.exists():
        check_free(folder)
    each: list[JsonObject] = []
    for k in range(1, folds + 1):
        path = folder / f"fold-{k}"
        outcome = train(options.changed(fold=f"{k}/{folds}", baseline=False), path, stop=stop, trust=trust)
        if outcome.stopped or (stop is not None and stop.is_set()):
            break
        predictor = open_predictor([path], options.device, trust)
        row = predictor.evaluate()
        each.append({"fold": f"{k}/{folds}", **row, **verdict_json(predictor, row)})
        if tell is not None:
            tell(each[-1])
    if not each:
        return {"folds": 0, "models": [], "each": []}
    rows = [{**row, "model": name} for row in each]
    models = [mean_over_folds(name, rows)]
    for beside in zip(*(row.get("beside") or () for row in each), strict=False):
        # Each fold chooses its own order of n-grams.
        names = {str(one["model"]) for one in beside}
        shown = names.pop() if len(names) == 1 else re.sub(r"^\d+-", "n-", str(beside[0]["model"]))
        models.append(mean_over_folds(shown, beside))
    return {"task": name, "metric": each[0]["metric"], "folds": len(each), "models": models, "each": each}


def mean_over_folds(model: str, rows: Sequence[JsonObject]) -> JsonObject:
    """Return the mean and the standard deviation of every metric over rows."""
    figures = [name for name, value in rows[0].items() if isinstance(value, float)]
    values = {name: [float(row[name]) for row in rows] for name in figures}
    spread = {name: statistics.stdev(found) if len(found) > 1 else 0.0 for name, found in values.items()}
    return {"model": model, "mean": {name: statistics.fmean(f) for name, f in values.items()}, "deviation": spread}
