"""Every task with nothing but its file, beside its recipe in the same time and beside something plain.

    default    the task's own options on the files of bench/datasets.py
    recipe     the recipe for that data, with the same minutes in place of its own budget. What decides the question and
               not the answer (a series' horizon, which tokens a perplexity counts) is the default's
    baseline   what the run itself says it has to beat
    plainest   always the same class, the last value again, an n-gram that sees no label

One training at a time, with as many threads as each finds fastest. All figures are of validation parts.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.datasets import DataSet, data_sets
from bench.plain import copied_source, own_baseline, plainest
from recur.errors import RecurError
from recur.tasks import make_options, open_predictor, read_config, task_class
from recur.tasks.contract import Baseline
from recur.tasks.options import TaskOptions
from recur.train import Outcome, train

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data"


class Metric(NamedTuple):
    title: str
    factor: float = 1.0
    """From the number that a run keeps to the one shown."""
    higher: bool = False
    """Whether more of it is better."""


METRICS = {
    "valid_word_error_rate": Metric("sequences wrong, %"),
    "valid_error": Metric("wrong, %", factor=100.0),
    "valid_perplexity": Metric("perplexity"),
    "valid_mase": Metric("MASE"),
    "valid_mse": Metric("mean squared error"),
    "bleu": Metric("BLEU", higher=True),
}

QUESTION = {
    "language": ("token", "punctuation", "lower", "min_freq", "max_size", "pieces"),
    "forecast": ("horizon", "season", "holdout"),
    "adding": ("length",),
    "copy": ("length",),
}
"""Options without which two figures are not of the same thing."""

BUDGET = ("epochs", "steps", "patience", "measure")
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
    metric: Metric
    default: Trained
    recipe: Trained | None = None
    minutes: float | None = None
    baseline: Baseline | None = None
    plainest: Baseline | None = None

    @property
    def worse_than(self) -> list[str]:
        """The plain ones that the default does not reach."""
        found, sign = self.default.value, -1 if self.metric.higher else 1
        plain = {p.value: p.name for p in (self.plainest, self.baseline) if p is not None}  # they may be the same one
        return [name for value, name in plain.items() if found is not None and sign * found > sign * value]


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
    metric = METRICS[data_set.metric or task_class(data_set.task).curve]
    if first is None:
        return Row(data_set, metric, default)
    settled: TaskOptions = first.task.options
    minutes = settled.minutes or default.seconds[0] / 60
    recipe = None
    if data_set.recipe:
        fields = recipe_fields(data_set.recipe, settled) | data_set.fields
        _, recipe = trained(data_set, {**fields, "minutes": minutes, "baseline": False}, seeds, scratch)
    if data_set.metric == "bleu":
        return Row(data_set, metric, default, recipe, minutes, copied_source(first))
    plain = [p and p._replace(value=p.value * metric.factor) for p in (own_baseline(first), plainest(first))]
    return Row(data_set, metric, default, recipe, minutes, *plain)


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
        found.values.append(value_of(data_set, outcome))
        found.seconds.append(summary["seconds"] + summary["measuring_seconds"])
        found.summaries.append({name: value for name, value in summary.items() if name != "run"})
        first = first or outcome
        fields = {**fields, "baseline": False}  # it is the same for every seed
    return first, found


def value_of(data_set: DataSet, outcome: Outcome) -> float:
    if data_set.metric == "bleu":
        predictor = open_predictor([outcome.run.path], outcome.summary["device"])
        return float(predictor.evaluate(data_set.valid)["bleu"])
    return float(outcome.summary[outcome.task.curve]) * METRICS[outcome.task.curve].factor


def recipe_fields(name: str, settled: TaskOptions) -> dict[str, object]:
    """A recipe without its budget, asked the same question as the default."""
    fields = read_config(ROOT / "recipes" / name)
    same = QUESTION.get(str(fields.pop("task")), ())
    kept = {key: value for key, value in fields.items() if key not in BUDGET}
    return kept | {key: getattr(settled, key) for key in same}


# The table ------------------------------------------------------------------------------------------------------


HEADER = (
    f"{'task':<12}{'data':<20}{'metric':<22}{'default':>9}{'recipe':>9}{'baseline':>9}{'plainest':>9}"
    f"{'s':>7}{'s, recipe':>10}  baseline; plainest       ↓ lower is better, ↑ higher"
)


def line(row: Row) -> str:
    metric = f"{row.metric.title} {'↑' if row.metric.higher else '↓'}"
    shown = (row.default, row.recipe, row.baseline, row.plainest)
    figures = [None if each is None else each.value for each in shown]
    seconds = [statistics.fmean(t.seconds) if t and t.seconds else None for t in (row.default, row.recipe)]
    names = "; ".join(dict.fromkeys(p.name for p in (row.baseline, row.plainest) if p))
    parts = [f"{row.data_set.task:<12}{row.data_set.name:<20}{metric:<22}"]
    parts += [f"{_short(figure):>9}" for figure in figures]
    parts += [f"{_short(seconds[0], 0):>7}{_short(seconds[1], 0):>10}  {names}"]
    if row.worse_than:
        parts.append(f"  ✗ WORSE than {' and '.join(row.worse_than)}")
    parts += [f"  FAILED: {t.failure}" for t in (row.default, row.recipe) if t and t.failure]
    return "".join(parts)


def _short(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}f}" if not digits or value >= 0.1 else f"{value:.2g}"


def as_json(row: Row) -> dict[str, Any]:
    return {
        "task": row.data_set.task,
        "data": row.data_set.name,
        "metric": row.metric.title,
        "better": "higher" if row.metric.higher else "lower",
        "minutes": row.minutes,
        "default": {"value": row.default.value, **vars(row.default)},
        "recipe": row.recipe and {"file": row.data_set.recipe, "value": row.recipe.value, **vars(row.recipe)},
        "baseline": row.baseline and row.baseline._asdict(),
        "plainest": row.plainest and row.plainest._asdict(),
        "worse_than": row.worse_than,
    }
