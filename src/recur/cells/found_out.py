"""What was found out about a cell, kept with it, so as to find it out once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torch import Tensor

FOUND = "_found"
FOUND_OUT = frozenset({"_checked", "_projects", FOUND})
"""The attributes in which it is kept; the first for as long as no option is changed."""

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Options that are what they are, which most are."""


def found_out(cell: object) -> dict[Hashable, Any]:
    """What was found out about a cell with the options that it has now: nothing yet, once one was changed."""
    mine = vars(cell)
    options = {}
    if not mine.keys() <= FOUND_OUT:
        options = {
            key: value if type(value) in PLAIN else _snapshot(value)
            for key, value in mine.items()
            if key not in FOUND_OUT
        }
    if FOUND not in mine or mine[FOUND][0] != options:
        mine[FOUND] = options, {}
    found: dict[Hashable, Any] = mine[FOUND][1]
    return found


def _snapshot(option: object) -> object:
    """Something that compares unequal once the option was changed, in place too."""
    if isinstance(option, Tensor):
        return id(option), option._version
    if isinstance(option, dict):
        return {key: _snapshot(value) for key, value in option.items()}
    if isinstance(option, list | tuple):
        return [_snapshot(value) for value in option]
    if hasattr(option, "__dict__") and not callable(option):
        inside = {key: value for key, value in vars(option).items() if key not in FOUND_OUT}
        return id(option), {key: value if isinstance(value, Hashable) else repr(value) for key, value in inside.items()}
    return option if isinstance(option, Hashable) else repr(option)
