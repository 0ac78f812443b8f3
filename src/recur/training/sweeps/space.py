"""What a sweep draws from: the task's own search, or ranges that somebody typed.

rate=0.001:0.01:log     between, evenly by the logarithm
hidden=64:256           whole numbers, since these are
cell=gru,lstm           one of these
rate                    the task's own range of one option
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from recur.errors import OptionError, shown, unknown
from recur.options import checked, flag_of, hints, value_of
from recur.options.search import Between, OneOf, Search, Value
from recur.tasks import options_class, refusal
from recur.tasks.common.registry import PATHS

Asked = Mapping[str, Search] | Sequence[str] | None


def search_of(
    task: str, asked: Asked, fixed: Mapping[str, object], unused: Mapping[str, str] | None = None
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
