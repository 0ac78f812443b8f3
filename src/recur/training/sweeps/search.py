"""Search spaces of sweeps, and the Optuna study that samples them and prunes trials.

    lr=0.001:0.01:log       range, sampled on a logarithmic scale
    hidden_size=64:256      range of integers
    cell=gru,lstm           choice
    rate                    the task's own range of an option

The sample of a trial depends only on the seed, its number and the trials before it, so that a resumed sweep equals one
that was not stopped.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args, get_origin

from recur.errors import OptionError, RecurError, shown
from recur.options import checked, flag_of, hints, value_of
from recur.options.fields import Between, OneOf, Search, Value
from recur.options.suggestions import unknown_option
from recur.tasks import options_class, refusal
from recur.tasks.common.metrics import metric_of
from recur.tasks.common.registry import PATHS
from recur.training.sweeps.record import SweepRecord, Trial

SearchRequest = Mapping[str, Search] | Sequence[str] | None


def resolve_search(
    task: str, requested: SearchRequest, fixed: Mapping[str, object], unused: Mapping[str, str] | None = None
) -> dict[str, Search]:
    """Return the search space of a task.

    Args:
        requested: names of options, ranges, or None for all of the task's own.
        fixed: options that are given, and not searched.
        unused: options that have no effect, and why.
    """
    unused = unused or {}
    own = options_class(task).search
    if requested is None:
        found = {name: space for name, space in own.items() if name not in fixed and name not in unused}
    elif isinstance(requested, Mapping):
        found = dict(requested)
    else:
        found = dict(_parse(task, text) for text in ([requested] if isinstance(requested, str) else requested))
    for name, space in found.items():
        if name in fixed:
            raise OptionError(f"{name} is both given and searched: leave one of them out")
        if name in unused:
            raise OptionError(f"{flag_of(name)} {unused[name]}")
        _check(task, name, space)
    if not found:
        raise OptionError(f"nothing to search; the task {task} has ranges for {', '.join(own)}")
    return found


def _parse(task: str, text: str) -> tuple[str, Search]:
    name, given, written = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    cls = options_class(task)
    if name not in cls.names():
        raise OptionError(refusal(task, name))
    if not given:
        if name not in cls.search:
            raise OptionError(f"the task {task} has no range for {name}: give one, as in {name}=1:10 or {name}=a,b")
        return name, cls.search[name]
    if ":" in written:
        low, high, *log = written.split(":")
        ends = _number(low), _number(high)
        if None in ends or log not in ([], ["log"]):
            raise OptionError(f"a range is low:high or low:high:log, got {shown(written)}")
        return name, _between(ends[0], ends[1], bool(log))  # type: ignore[arg-type]
    return name, OneOf(tuple(_typed(value_of(hints(cls)[name]), value) for value in written.split(",")))


def _between(low: float, high: float, log: bool) -> Between:
    try:
        return Between(low, high, log)
    except ValueError:
        raise OptionError(f"a range needs low < high, and low > 0 with log; got {low:g} to {high:g}") from None


def _number(text: str) -> float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _typed(kind: object, text: str) -> Value:
    """Convert text to the type of a field; a value that does not convert is refused by the field's own check."""
    if kind is bool:
        return {"true": True, "on": True, "false": False, "off": False}.get(text.lower(), text)
    if kind in (int, float) or (get_origin(kind) is Literal and all(isinstance(v, int) for v in get_args(kind))):
        number = _number(text)
        return text if number is None else number
    return text


def _check(task: str, name: str, space: Any) -> None:
    cls = options_class(task)
    if name not in cls.names() or name in PATHS:
        raise OptionError(unknown_option(name, set(cls.names()) - set(PATHS)))
    if not isinstance(space, Between | OneOf):
        raise OptionError(f"{name}: a search is a Between or a OneOf, got {shown(space)}")
    ends = (space.low, space.high) if isinstance(space, Between) else space.values
    if not ends:
        raise OptionError(f"{name}: no values are given")
    for value in ends:
        checked(name, value, hints(cls)[name])
    if isinstance(space, Between) and value_of(hints(cls)[name]) not in (int, float):
        raise OptionError(f"{name} is not a number: list its values, as in {name}=a,b")


STARTUP = 5
"""Random trials before pruning and model-based sampling begin."""
MEASUREMENTS = 10
"""Evaluations in a run whose options set no interval."""


def import_optuna() -> Any:
    """Import Optuna, or raise an error that says how to install it."""
    try:
        import optuna
    except ImportError:
        raise RecurError("Optuna is not installed: pip install 'recur[sweep]'") from None
    return optuna


@contextmanager
def silence_optuna() -> Iterator[None]:
    """Silence Optuna's log lines and experimental warnings inside the block."""
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
    """Optuna study in memory, rebuilt from the record for every trial."""

    def __init__(self, record: SweepRecord) -> None:
        self.optuna = import_optuna()
        self.record = record
        self.spaces = {name: self._distribution(space) for name, space in record.search.items()}
        self.direction = "maximize" if metric_of(record.metric).higher else "minimize"
        self.study = self.optuna.create_study(study_name="sweep", direction=self.direction, pruner=self._pruner())
        for trial in record.trials:
            self._add(trial)

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

    def _add(self, trial: Trial) -> None:
        """Add a finished trial to the study."""
        states = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}
        if trial.state not in states:
            return
        known = {name: value for name, value in trial.params.items() if self._contains(name, value)}
        self.study.add_trial(
            self.optuna.trial.create_trial(
                state=self.optuna.trial.TrialState[states[trial.state]],
                params=known,
                distributions={name: self.spaces[name] for name in known},
                value=trial.value if trial.state == "complete" else None,
                intermediate_values=dict(enumerate(trial.measured, start=1)),
            )
        )

    def _contains(self, name: str, value: Value) -> bool:
        """Return True if a value is inside the search space; a task's default may be outside."""
        return name in self.record.search and value in self.record.search[name]

    def ask(self, number: int, params: Mapping[str, Value] | None = None) -> TrialMonitor:
        """Start a trial: sample its options, or use those that it was started with before."""
        self.study.sampler = self.optuna.samplers.TPESampler(
            n_startup_trials=STARTUP, seed=1_000_003 * self.record.seed % 2**31 + number
        )
        if params is not None:
            self.study.enqueue_trial({name: value for name, value in params.items() if self._contains(name, value)})
        return TrialMonitor(self.study.ask(self.spaces))

    def importance(self) -> dict[str, float]:
        """Return the importance of each option, largest first; empty if too few trials are complete."""
        ended = [trial for trial in self.record.trials if trial.state == "complete"]
        shared = [name for name in self.spaces if all(self._contains(name, t.params.get(name, "")) for t in ended)]
        if len(ended) < 2 * STARTUP or not shared or len({trial.value for trial in ended}) < 2:
            return {}
        evaluator = self.optuna.importance.PedAnovaImportanceEvaluator()
        found = self.optuna.importance.get_param_importances(self.study, evaluator=evaluator, params=shared)
        return {name: float(share) for name, share in found.items()}


class TrialMonitor:
    """Running trial, which reports its metrics and learns whether to stop early."""

    def __init__(self, trial: Any) -> None:
        self.trial, self.reported = trial, 0

    @property
    def params(self) -> dict[str, Value]:
        return {name: _rounded(value) for name, value in self.trial.params.items()}

    def should_prune(self, measured: Sequence[float]) -> bool:
        """Return True if the trial should be pruned: its metrics are worse than those of other trials at this point."""
        for value in measured[self.reported :]:
            self.reported += 1
            self.trial.report(value, self.reported)
        return bool(self.trial.should_prune())


def _rounded(value: Value) -> Value:
    """Round a sampled number to three digits."""
    return float(f"{value:.3g}") if isinstance(value, float) else value
