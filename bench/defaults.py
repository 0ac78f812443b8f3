"""Every task with nothing but its file, beside its recipe in the same time and beside plain models.

    default    the task's own options on the files of bench/datasets.py
    recipe     the recipe for that data, with the same minutes in place of its own budget. What decides the question and
               not the answer (a series' horizon, which tokens a perplexity counts) is the default's
    plain      the best and the plainest of the models that the run itself says it has to beat

One training at a time, with as many threads as each finds fastest. All figures are of validation parts.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.datasets import DataSet, data_sets
from recur.errors import RecurError
from recur.tasks import make_options, read_config
from recur.tasks.common.contract import Baseline
from recur.tasks.common.metrics import best_value, format_metric, is_better, metric_label, metric_of
from recur.tasks.common.options import TaskOptions
from recur.training import Outcome, train

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data"

QUESTION = {
    "language": ("token", "punctuation", "lower", "min_freq", "max_vocab_size", "pieces"),
    "forecast": ("horizon", "season", "holdout"),
    "adding": ("length",),
    "copy": ("length",),
}
"""Options without which two figures are not of the same thing."""

BUDGET = ("epochs", "steps", "patience", "eval_every")
"""Options of a recipe that minutes stand in for."""


@dataclass
class Trained:
    """Runs that differ in their seed only; the mean over them is what counts."""

    values: list[float]
    seconds: list[float]
    """Of training and measuring; what reading and the baseline take is not in it."""
    summaries: list[dict[str, Any]]
    failure: str = ""

    @property
    def value(self) -> float | None:
        return statistics.fmean(self.values) if self.values and not self.failure else None


@dataclass
class Row:
    data_set: DataSet
    metric: str
    default: Trained
    recipe: Trained | None = None
    minutes: float | None = None
    plain: list[Baseline] = field(default_factory=list)
    """The plainest first."""

    @property
    def best_plain(self) -> Baseline | None:
        values = [baseline.value for baseline in self.plain]
        return self.plain[values.index(best_value(self.metric, values))] if values else None

    @property
    def worse_than(self) -> list[str]:
        """The plain ones that the default does not reach."""
        found = self.default.value
        return [] if found is None else [p.name for p in self.plain if is_better(self.metric, p.value, found)]


def rows(
    tasks: Sequence[str], data: Path, minutes: float | None, seeds: int, recipes: bool = True
) -> Iterator[Row | DataSet]:
    """A row a data set; the data set itself where its files are not there."""
    with tempfile.TemporaryDirectory(prefix="recur-defaults-") as folder:
        for data_set in data_sets(data, Path(folder)):
            if not tasks or data_set.task in tasks:
                data_set = data_set if recipes else replace(data_set, recipe="")
                yield data_set if data_set.missing else measure(data_set, minutes, seeds, Path(folder))


def measure(data_set: DataSet, minutes: float | None, seeds: int, scratch: Path) -> Row:
    """The default first: it decides how long the recipe may train, and what is asked of it."""
    budget: dict[str, object] = {} if minutes is None else {"minutes": minutes}
    first, default = trained(data_set, {**data_set.fields, **budget}, seeds, scratch)
    if first is None:
        return Row(data_set, "", default)
    settled: TaskOptions = first.task.options
    minutes = settled.minutes or default.seconds[0] / 60
    recipe = None
    if data_set.recipe:
        fields = recipe_fields(data_set.recipe, settled) | data_set.fields
        _, recipe = trained(data_set, {**fields, "minutes": minutes, "baseline": False}, seeds, scratch)
    plain = [Baseline(one["name"], one["value"]) for one in first.summary["baselines"]]
    return Row(data_set, first.task.curve, default, recipe, minutes, plain)


def trained(data_set: DataSet, fields: dict[str, object], seeds: int, scratch: Path) -> tuple[Outcome | None, Trained]:
    """The first seed's run, and the figures of all. A run that fails is a result too."""
    found, first = Trained([], [], []), None
    for seed in range(seeds):
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
        try:
            outcome = train(make_options(data_set.task, {**fields, "seed": seed}), folder / "run")
        except RecurError as error:
            found.failure = str(error)
            break
        summary = outcome.summary
        found.values.append(float(summary[outcome.task.curve]))
        found.seconds.append(summary["seconds"] + summary["measuring_seconds"])
        found.summaries.append({name: value for name, value in summary.items() if name != "run"})
        first = first or outcome
        fields = {**fields, "baseline": False}  # it is the same for every seed
    return first, found


def recipe_fields(name: str, settled: TaskOptions) -> dict[str, object]:
    """A recipe without its budget, asked the same question as the default."""
    fields = read_config(ROOT / "recipes" / name)
    same = QUESTION.get(str(fields.pop("task")), ())
    kept = {key: value for key, value in fields.items() if key not in BUDGET}
    return kept | {key: getattr(settled, key) for key in same}


# The table ------------------------------------------------------------------------------------------------------


HEADER = (
    f"{'task':<12}{'data':<22}{'metric':<26}{'default':>10}{'recipe':>10}{'best plain':>11}{'plainest':>10}"
    f"{'s':>7}{'s, recipe':>10}  best plain; plainest       ↓ lower is better, ↑ higher"
)


def line(row: Row) -> str:
    parts = [f"{row.data_set.task:<12}{row.data_set.name:<22}"]
    if row.metric:
        plain = (row.best_plain, row.plain[0] if row.plain else None)
        figures = [
            "–" if x is None or x.value is None else format_metric(row.metric, x.value)
            for x in (row.default, row.recipe)
        ]
        figures += ["–" if p is None else format_metric(row.metric, p.value) for p in plain]
        seconds = [f"{statistics.fmean(t.seconds):.0f}" if t and t.seconds else "–" for t in (row.default, row.recipe)]
        parts.append(f"{metric_label(row.metric)} {'↑' if metric_of(row.metric).higher else '↓'}".ljust(26))
        parts += [f"{figure:>{width}}" for figure, width in zip(figures, (10, 10, 11, 10), strict=True)]
        parts.append(f"{seconds[0]:>7}{seconds[1]:>10}  " + "; ".join(dict.fromkeys(p.name for p in plain if p)))
    if row.worse_than:
        parts.append(f"  ✗ WORSE than {' and '.join(row.worse_than)}")
    parts += [f"  FAILED: {t.failure}" for t in (row.default, row.recipe) if t and t.failure]
    return "".join(parts)


def as_json(row: Row) -> dict[str, Any]:
    return {
        "task": row.data_set.task,
        "data": row.data_set.name,
        "metric": row.metric,
        "better": "higher" if metric_of(row.metric).higher else "lower",
        "minutes": row.minutes,
        "default": {"value": row.default.value, **vars(row.default)},
        "recipe": row.recipe and {"file": row.data_set.recipe, "value": row.recipe.value, **vars(row.recipe)},
        "plain": [baseline._asdict() for baseline in row.plain],
        "worse_than": row.worse_than,
    }
