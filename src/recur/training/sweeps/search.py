"""What a sweep draws from: the task's own search, or ranges that somebody typed.

rate=0.001:0.01:log     between, evenly by the logarithm
hidden=64:256           whole numbers, since these are
cell=gru,lstm           one of these
rate                    the task's own range of one option
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args, get_origin

from recur.errors import OptionError, RecurError, shown, unknown
from recur.options import checked, flag_of, hints, value_of
from recur.options.fields import Between, OneOf, Search, Value
from recur.tasks import options_class, refusal
from recur.tasks.metrics import metric_of
from recur.tasks.registry import PATHS
from recur.training.sweeps.record import SweepRecord, Trial

SearchRequest = Mapping[str, Search] | Sequence[str] | None


def resolve_search(
    task: str, asked: SearchRequest, fixed: Mapping[str, object], unused: Mapping[str, str] | None = None
) -> dict[str, Search]:
    """The search of a task: all of its own, those named, or other ranges; without what is fixed, and without what
    means nothing beside it (`unused`, and why)."""
    unused = unused or {}
    own = options_class(task).search
    if asked is None:
        found = {name: space for name, space in own.items() if name not in fixed and name not in unused}
    elif isinstance(asked, Mapping):
        found = dict(asked)
    else:
        found = dict(_parse(task, text) for text in ([asked] if isinstance(asked, str) else asked))
    for name, space in found.items():
        if name in fixed:
            raise OptionError(f"{name} is given, and cannot be searched for too: leave one of them out")
        if name in unused:
            raise OptionError(f"{flag_of(name)} {unused[name]}")
        _check(task, name, space)
    if not found:
        raise OptionError(f"nothing is left to search for; the task {task} offers {', '.join(own)}")
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
        raise OptionError(f"a range rises, above 0 where it is by logarithm; got {low:g} to {high:g}") from None


def _number(text: str) -> float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _typed(kind: object, text: str) -> Value:
    """A value as its field has it; what is none is refused with all others."""
    if kind is bool:
        return {"true": True, "on": True, "false": False, "off": False}.get(text.lower(), text)
    if kind in (int, float) or (get_origin(kind) is Literal and all(isinstance(v, int) for v in get_args(kind))):
        number = _number(text)
        return text if number is None else number
    return text


def _check(task: str, name: str, space: Any) -> None:
    cls = options_class(task)
    if name not in cls.names() or name in PATHS:
        raise OptionError(unknown("option", name, set(cls.names()) - set(PATHS)))
    if not isinstance(space, Between | OneOf):
        raise OptionError(f"{name}: a search is a Between or a OneOf, got {shown(space)}")
    ends = (space.low, space.high) if isinstance(space, Between) else space.values
    if not ends:
        raise OptionError(f"{name}: there is no value to take")
    for value in ends:
        checked(name, value, hints(cls)[name])
    if isinstance(space, Between) and value_of(hints(cls)[name]) not in (int, float):
        raise OptionError(f"{name} is no number: name its values, as in {name}=a,b")


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
def silence_optuna() -> Iterator[None]:
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

    def __init__(self, record: SweepRecord) -> None:
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

    def ask(self, number: int, params: Mapping[str, Value] | None = None) -> TrialMonitor:
        """The options of a trial: drawn, or those that it began with."""
        self.study.sampler = self.optuna.samplers.TPESampler(
            n_startup_trials=STARTUP, seed=1_000_003 * self.record.seed % 2**31 + number
        )
        if params is not None:
            self.study.enqueue_trial({name: value for name, value in params.items() if self._knows(name, value)})
        return TrialMonitor(self.study.ask(self.spaces))

    def importance(self) -> dict[str, float]:
        """How much of what trials differ in goes back to each option, largest first; nothing, where too few ended."""
        ended = [trial for trial in self.record.trials if trial.state == "complete"]
        shared = [name for name in self.spaces if all(self._knows(name, t.params.get(name, "")) for t in ended)]
        if len(ended) < 2 * STARTUP or not shared or len({trial.value for trial in ended}) < 2:
            return {}
        evaluator = self.optuna.importance.PedAnovaImportanceEvaluator()
        found = self.optuna.importance.get_param_importances(self.study, evaluator=evaluator, params=shared)
        return {name: float(share) for name, share in found.items()}


class TrialMonitor:
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
