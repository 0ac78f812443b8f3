"""How options are drawn and hopeless trials left: Optuna's, told of all trials so far.

What is drawn for a trial depends on the seed, its number and the trials before it alone, so that a sweep that was
stopped goes on as one that was not.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from recur.errors import RecurError
from recur.options.search import OneOf, Search, Value
from recur.sweeps.folder import Record, Trial
from recur.tasks.metrics import metric_of

STARTUP = 5
"""Trials before any is left early, and before what was measured decides what is drawn."""
MEASUREMENTS = 10
"""In a run, unless its options say otherwise."""


def import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise RecurError("Optuna is not installed: pip install 'recur[sweep]'") from None
    return optuna


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna's own log lines and warnings of what is experimental, kept away while this lasts."""
    optuna = import_optuna()
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


class Study:
    """A search in memory, made anew for every trial of what is recorded."""

    def __init__(self, record: Record) -> None:
        self.optuna = import_optuna()
        self.record = record
        self.spaces = {name: self._distribution(space) for name, space in record.search.items()}
        direction = "maximize" if metric_of(record.metric).higher else "minimize"
        self.study = self.optuna.create_study(study_name="sweep", direction=direction, pruner=self._pruner())
        for trial in record.trials:
            self._tell(trial)

    def _pruner(self) -> Any:
        pruners = self.optuna.pruners
        if self.record.pruner == "median":
            return pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=3)
        if self.record.pruner == "hyperband":
            return pruners.HyperbandPruner(min_resource=2, max_resource=MEASUREMENTS)
        return pruners.NopPruner()

    def _distribution(self, space: Search) -> Any:
        kinds = self.optuna.distributions
        if isinstance(space, OneOf):
            return kinds.CategoricalDistribution(space.values)
        if space.whole:
            return kinds.IntDistribution(int(space.low), int(space.high), log=space.log)
        return kinds.FloatDistribution(space.low, space.high, log=space.log)

    def _tell(self, trial: Trial) -> None:
        """Count a trial, if it has ended."""
        states = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}
        if trial.state not in states:
            return
        known = {name: value for name, value in trial.params.items() if self._knows(name, value)}
        self.study.add_trial(
            self.optuna.trial.create_trial(
                state=self.optuna.trial.TrialState[states[trial.state]],
                params=known,
                distributions={name: self.spaces[name] for name in known},
                value=trial.value if trial.state == "complete" else None,
                intermediate_values=dict(enumerate(trial.measured, start=1)),
            )
        )

    def _knows(self, name: str, value: Value) -> bool:
        """Whether it could have been drawn; a task's default may lie elsewhere."""
        return name in self.record.search and value in self.record.search[name]

    def ask(self, number: int, params: Mapping[str, Value] | None = None) -> Watched:
        """The options of a trial: drawn, or those that it began with."""
        self.study.sampler = self.optuna.samplers.TPESampler(
            n_startup_trials=STARTUP, seed=1_000_003 * self.record.seed % 2**31 + number
        )
        if params is not None:
            self.study.enqueue_trial(dict(params))
        return Watched(self.study.ask(self.spaces))

    def importance(self) -> dict[str, float]:
        """How much of what trials differ in goes back to each option, largest first; nothing, where too few ended."""
        ended = [trial for trial in self.record.trials if trial.state == "complete"]
        shared = [name for name in self.spaces if all(self._knows(name, t.params.get(name, "")) for t in ended)]
        if len(ended) < 2 * STARTUP or not shared or len({trial.value for trial in ended}) < 2:
            return {}
        evaluator = self.optuna.importance.PedAnovaImportanceEvaluator()
        found = self.optuna.importance.get_param_importances(self.study, evaluator=evaluator, params=shared)
        return {name: float(share) for name, share in found.items()}


class Watched:
    """A trial that runs: what is measured decides whether it goes on."""

    def __init__(self, trial: Any) -> None:
        self.trial, self.reported = trial, 0

    @property
    def params(self) -> dict[str, Value]:
        return {name: _rounded(value) for name, value in self.trial.params.items()}

    def hopeless(self, measured: Sequence[float]) -> bool:
        """Whether what was measured so far is worse than what others had by then."""
        for value in measured[self.reported :]:
            self.reported += 1
            self.trial.report(value, self.reported)
        return bool(self.trial.should_prune())


def _rounded(value: Value) -> Value:
    """A drawn number as a person would type it."""
    return float(f"{value:.3g}") if isinstance(value, float) else value
