"""Cross-validation: as many runs as there are folds, each measured on the part that it has not seen."""

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
from recur.tasks.options import FoldOptions, TaskOptions
from recur.tasks.verdict import judged
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
    """Train on all but each of so many parts of the texts, in the folders fold-1 … of `out`, and measure on it.

    The figures of the test parts, of the model and of the plain ones beside it: `models`, each with `mean` and
    `deviation` (over folds) of every figure; and the folds themselves, as `recur eval` has them, in `each`. `tell` is
    called with each as it is done.
    """
    name = name_of(options)
    if not isinstance(options, FoldOptions):
        raise OptionError(f"--folds is for tasks of separate examples; the task {name} has none")
    if not 2 <= folds <= 1000:
        raise OptionError(Message("{name} must be {kind}, got {given}", name="folds", kind="2 … 1000", given=folds))
    if options.test or options.fold:
        raise OptionError(f"--folds {folds} makes the test parts itself: leave --test and --fold out")
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
        each.append({"fold": f"{k}/{folds}", **row, **judged(predictor, row)})
        if tell is not None:
            tell(each[-1])
    if not each:
        return {"folds": 0, "models": [], "each": []}
    rows = [{**row, "model": name} for row in each]
    models = [summed_up(name, rows)]
    for beside in zip(*(row.get("beside") or () for row in each), strict=False):
        # The order of n-grams is chosen anew in each fold.
        names = {str(one["model"]) for one in beside}
        shown = names.pop() if len(names) == 1 else re.sub(r"^\d+-", "n-", str(beside[0]["model"]))
        models.append(summed_up(shown, beside))
    return {"task": name, "metric": each[0]["metric"], "folds": len(each), "models": models, "each": each}


def summed_up(model: str, rows: Sequence[JsonObject]) -> JsonObject:
    """The mean of every figure over rows, and its standard deviation."""
    figures = [name for name, value in rows[0].items() if isinstance(value, float)]
    values = {name: [float(row[name]) for row in rows] for name in figures}
    spread = {name: statistics.stdev(found) if len(found) > 1 else 0.0 for name, found in values.items()}
    return {"model": model, "mean": {name: statistics.fmean(f) for name, f in values.items()}, "deviation": spread}
