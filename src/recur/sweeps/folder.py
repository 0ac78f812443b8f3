"""What a sweep keeps: a folder with what was asked for, what became of each trial, and the trials' runs.

    sweep.json       what is searched, and with what; and every trial with its options and figures
    trial-000 …      runs like any other
    data/            what they learn from, where that was handed over in memory

sweep.json is replaced as a whole whenever a trial begins or ends, so that a sweep killed at any moment can be gone on
with. Nothing in it executes.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from recur.errors import RunError
from recur.files import read_bounded, write_atomically
from recur.options.search import Between, OneOf, Search, Value
from recur.typedefs import JsonObject

FORMAT = 1
NAME = "sweep.json"
MOST = 1 << 26
"""Bytes of sweep.json at most."""

State = Literal["running", "complete", "pruned", "failed"]
STATES = ("running", "complete", "pruned", "failed")
Pruner = Literal["median", "hyperband", "none"]
PRUNERS = ("median", "hyperband", "none")


@dataclass(frozen=True)
class Trial:
    """One of them."""

    number: int
    params: dict[str, Value]
    """The options that were drawn; of the first trial, which has the task's defaults, those that these are."""
    state: State = "running"
    value: float | None = None
    """The metric at the best weights."""
    measured: tuple[float, ...] = ()
    """… at every measurement."""
    seconds: float = 0.0
    why: str = ""
    """Of one that failed."""

    @property
    def run(self) -> str:
        """The name of its folder."""
        return f"trial-{self.number:03d}"


@dataclass
class Record:
    """All of a sweep."""

    task: str
    options: dict[str, Any]
    """What every trial has, paths relative to the folder."""
    search: dict[str, Search]
    metric: str
    seed: int = 0
    pruner: Pruner = "median"
    trials: list[Trial] = field(default_factory=list)

    def asked(self) -> JsonObject:
        """What was asked for, as JSON has it: a sweep is gone on with where this is the same."""
        search = {name: [type(space).__name__, dataclasses.asdict(space)] for name, space in self.search.items()}
        kept = {"task": self.task, "options": self.options, "search": search, "metric": self.metric}
        found: JsonObject = json.loads(json.dumps(kept | {"seed": self.seed, "pruner": self.pruner}))
        return found

    def write(self, folder: Path) -> None:
        content = {"format": FORMAT, **self.asked(), "trials": [dataclasses.asdict(trial) for trial in self.trials]}
        write_atomically(folder / NAME, json.dumps(content, indent=1).encode())

    @staticmethod
    def read(folder: Path) -> Record:
        path = folder / NAME
        try:
            content = read_bounded(path, MOST)
        except OSError as error:
            raise RunError(f"{folder} is no sweep: {path} cannot be read: {error.strerror}") from None
        return parse_record(content, str(path))


def is_sweep(folder: Path) -> bool:
    return (folder / NAME).is_file()


def parse_record(content: bytes, name: str) -> Record:
    """A record that is whole, or what is wrong with it."""
    try:
        found = json.loads(content)
        if found["format"] != FORMAT:
            raise RunError(f"{name} is of another version of recur, whose sweeps this one does not read")
        return Record(
            task=_is(str, found["task"]),
            options={_is(str, option): value for option, value in found["options"].items()},
            search={_is(str, option): _space(space) for option, space in found["search"].items()},
            metric=_is(str, found["metric"]),
            seed=_is(int, found["seed"]),
            pruner=_one_of(PRUNERS, found["pruner"]),
            trials=[_trial(k, trial) for k, trial in enumerate(found["trials"])],
        )
    except RunError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise RunError(f"{name} is damaged: it is not what a sweep writes") from None


def _space(found: Any) -> Search:
    kind, fields = found
    if kind == "OneOf":
        return OneOf(tuple(_value(value) for value in fields["values"]))
    _one_of(("Between",), kind)
    return Between(_number(fields["low"]), _number(fields["high"]), _is(bool, fields["log"]))


def _trial(k: int, found: Any) -> Trial:
    if _is(int, found["number"]) != k:
        raise ValueError("trials are numbered")
    value = found["value"]
    return Trial(
        k,
        {_is(str, option): _value(value) for option, value in found["params"].items()},
        _one_of(STATES, found["state"]),
        None if value is None else float(_number(value)),
        tuple(float(_number(value)) for value in found["measured"]),
        float(_number(found["seconds"])),
        _is(str, found["why"]),
    )


def _value(value: Any) -> Value:
    if not isinstance(value, str | bool | int | float):
        raise TypeError
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError
    return value  # type: ignore[no-any-return]


def _is(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _one_of(values: tuple[str, ...], value: Any) -> Any:
    if value not in values:
        raise ValueError
    return value
