"""Record of a sweep, and the folder that it is stored in.

    sweep.json       the search, its options, and every trial with its options and results
    trial-000 …      runs like any other
    data/            training data that was given in memory

sweep.json is replaced as a whole whenever a trial starts or ends, so that a killed sweep can be resumed. Nothing in it
is executed.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from recur.errors import RunError
from recur.options.fields import Between, OneOf, Search, Value
from recur.runs.manifest import expect_number, expect_one_of, expect_type, parse_json
from recur.runs.safe_dir import SafeDir
from recur.utils.types import JsonObject

FORMAT = 1
NAME = "sweep.json"
MOST = 1 << 26
"""Largest size of sweep.json in bytes."""

State = Literal["running", "complete", "pruned", "failed"]
STATES = ("running", "complete", "pruned", "failed")
Pruner = Literal["median", "hyperband", "none"]
PRUNERS = ("median", "hyperband", "none")


@dataclass(frozen=True)
class Trial:
    """One trial of a sweep."""

    number: int
    params: dict[str, Value]
    """Sampled options; for the first trial, the task's defaults of the searched options."""
    state: State = "running"
    value: float | None = None
    """Metric of the best weights."""
    measured: tuple[float, ...] = ()
    """Metric at every evaluation."""
    seconds: float = 0.0
    why: str = ""
    """Reason of a failure."""

    @property
    def run(self) -> str:
        """Name of the trial's folder."""
        return f"trial-{self.number:03d}"


@dataclass
class SweepRecord:
    """Content of sweep.json."""

    task: str
    options: dict[str, Any]
    """Options of every trial, with paths relative to the folder."""
    search: dict[str, Search]
    metric: str
    seed: int = 0
    pruner: Pruner = "median"
    trials: list[Trial] = field(default_factory=list)

    def cells(self) -> list[Any]:
        """Return every cell that sweep.json names, paths relative to the folder."""
        search = self.search.get("cell")
        found = [self.options.get("cell"), *(trial.params.get("cell") for trial in self.trials)]
        return [*found, *(search.values if isinstance(search, OneOf) else ())]

    def request(self) -> JsonObject:
        """Return the request of the sweep as JSON; an existing sweep is resumed only if its request is the same."""
        search = {name: [type(space).__name__, dataclasses.asdict(space)] for name, space in self.search.items()}
        kept = {"task": self.task, "options": self.options, "search": search, "metric": self.metric}
        found: JsonObject = json.loads(json.dumps(kept | {"seed": self.seed, "pruner": self.pruner}))
        return found

    def write(self, folder: Path) -> None:
        content = {"format": FORMAT, **self.request(), "trials": [dataclasses.asdict(trial) for trial in self.trials]}
        SafeDir(folder).write(NAME, json.dumps(content, indent=1).encode())

    @staticmethod
    def read(folder: Path) -> SweepRecord:
        path = folder / NAME
        try:
            content = SafeDir(folder).read(NAME, MOST)
        except OSError as error:
            raise RunError(f"{folder} is not a sweep: {path} cannot be read: {error.strerror}") from None
        return parse_sweep_record(content, str(path))


def is_sweep(folder: Path) -> bool:
    return (folder / NAME).is_file()


def parse_sweep_record(content: bytes, name: str) -> SweepRecord:
    """Return the record that sweep.json holds; raise RunError for anything that recur does not write."""
    try:
        found = parse_json(content, name)
        if found["format"] != FORMAT:
            raise RunError(f"{name} was written by another version of recur, whose sweeps this version cannot read")
        return SweepRecord(
            task=expect_type(str, found["task"]),
            options={expect_type(str, option): value for option, value in found["options"].items()},
            search={expect_type(str, option): _space(space) for option, space in found["search"].items()},
            metric=expect_type(str, found["metric"]),
            seed=expect_type(int, found["seed"]),
            pruner=expect_one_of(PRUNERS, found["pruner"]),
            trials=[_trial(k, trial) for k, trial in enumerate(found["trials"])],
        )
    except RunError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise RunError(f"{name} is damaged: it is not a record of a sweep") from None


def _space(found: Any) -> Search:
    kind, fields = found
    if kind == "OneOf":
        return OneOf(tuple(_value(value) for value in fields["values"]))
    expect_one_of(("Between",), kind)
    return Between(expect_number(fields["low"]), expect_number(fields["high"]), expect_type(bool, fields["log"]))


def _trial(k: int, found: Any) -> Trial:
    if expect_type(int, found["number"]) != k:
        raise ValueError("trials must be numbered in order")
    value = found["value"]
    return Trial(
        k,
        {expect_type(str, option): _value(value) for option, value in found["params"].items()},
        expect_one_of(STATES, found["state"]),
        None if value is None else float(expect_number(value)),
        tuple(float(expect_number(value)) for value in found["measured"]),
        float(expect_number(found["seconds"])),
        expect_type(str, found["why"]),
    )


def _value(value: Any) -> Value:
    if not isinstance(value, str | bool | int | float):
        raise TypeError
    return value
