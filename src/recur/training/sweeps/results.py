"""Results of a sweep: its trials, the best one, and the command that trains it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recur.errors import RunError
from recur.tasks import arguments_of, open_predictor
from recur.tasks.common.metrics import format_metric, metric_label, metric_of
from recur.tasks.common.predictor import Predictor, html_table
from recur.tasks.common.registry import with_paths
from recur.training.sweeps.record import SweepRecord, Trial
from recur.training.sweeps.search import Study, silence_optuna
from recur.utils.types import JsonObject

FIRST = 5
"""Number of trials in the table."""


@dataclass(frozen=True)
class Sweep:
    """Sweep with its trials, finished or not."""

    path: Path
    record: SweepRecord
    stopped: bool = False
    """Whether the sweep was stopped before all trials had ended."""

    @property
    def trials(self) -> list[Trial]:
        return self.record.trials

    def ranked(self) -> list[Trial]:
        """Return the complete trials, best first."""
        done = [trial for trial in self.trials if trial.state == "complete" and trial.value is not None]
        return sorted(done, key=lambda t: (t.value or 0.0) * (-1 if metric_of(self.record.metric).higher else 1))

    def ties(self) -> list[Trial]:
        """Return the trials that have the best value as it is printed; one if no other is level with it."""
        ranked = self.ranked()
        metric = self.record.metric
        return [
            t for t in ranked if format_metric(metric, t.value or 0.0) == format_metric(metric, self.best.value or 0.0)
        ]

    @property
    def failures(self) -> str:
        """Number of failed trials and the reason of the first; empty if none failed."""
        failed = [trial for trial in self.trials if trial.state == "failed"]
        if not failed:
            return ""
        first = f"{failed[0].run} first: {failed[0].why or 'no value'}"
        return f"{len(failed)} of {len(self.trials)} trials failed, {first}"

    @property
    def best(self) -> Trial:
        ranked = self.ranked()
        if not ranked:
            raise RunError(f"no trial of {self.path} is complete yet")
        return ranked[0]

    def model(self, device: str = "auto") -> Predictor[Any]:
        """Return the model of the best trial."""
        return open_predictor([self.path / self.best.run], device)

    @property
    def command(self) -> str:
        """Command that trains the best trial again."""
        return train_command(self.record.task, self.fields(self.best))

    def fields(self, trial: Trial) -> dict[str, Any]:
        """Return the options of a trial, with paths of this process."""
        sampled = {} if trial.number == 0 else trial.params
        return with_paths({**self.record.options, **sampled}, self.path)

    def importance(self) -> dict[str, float]:
        """Return the importance of each option for the metric, largest first."""
        with silence_optuna():
            return Study(self.record).importance()

    def as_dict(self) -> JsonObject:
        ranked = self.ranked()
        found: JsonObject = {"sweep": str(self.path), "task": self.record.task, "metric": self.record.metric}
        if ranked:
            found["ties"] = [trial.run for trial in self.ties()]
            found |= {"best": {**asdict(ranked[0]), "run": str(self.path / ranked[0].run)}, "command": self.command}
        return found | {"importance": self.importance(), "trials": [asdict(t) | {"run": t.run} for t in self.trials]}

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of a table of the best trials."""
        metric = self.record.metric
        header = ["trial", metric_label(metric), *self.record.search]
        rows = [
            [
                t.run,
                format_metric(metric, t.value or 0.0),
                *(_shown(t.params.get(name, "")) for name in self.record.search),
            ]
            for t in self.ranked()[:FIRST]
        ]
        return header, rows

    def __repr__(self) -> str:
        states = [trial.state for trial in self.trials]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "no trial yet"
        if not self.ranked():
            return f"Sweep({str(self.path)!r}; {counts})"
        value = format_metric(self.record.metric, self.best.value or 0.0)
        return (
            f"Sweep({str(self.path)!r}; {counts}; best {metric_label(self.record.metric)} {value} by {self.best.run})"
        )

    def _repr_html_(self) -> str:
        header, rows = self.rows()
        return html_table(rows, header)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def train_command(task: str, fields: Mapping[str, Any]) -> str:
    """Return the command `recur train …` with these options."""
    return shlex.join(["recur", "train", *arguments_of(task, fields)])
