"""Cache of what was derived from a cell: whether it was checked, its compiled programs, its prepared calls.

Entries are keyed by the identity of the cell and dropped with it. Cells need no hash: a cell with options is a
dataclass, which compares by value. An entry is valid for the options that the cell had; a changed option gives a new
entry.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Hashable
from typing import Any

from torch import Tensor

from recur.compat import constant_when_compiled

SIMPLE = frozenset({str, int, float, bool, type(None)})
"""Types of options that are compared as they are, which most are."""


class CellCache:
    """Results for one cell with its present options. Values must not refer to the cell, or it would never be freed."""

    __slots__ = ("calls", "cell", "checked", "matrix", "options", "programs", "projectable")

    def __init__(self, cell: object, options: dict[str, object]) -> None:
        key = id(cell)
        # The callback runs before the memory of the cell is reused, so an identity in _CACHES is never a stale one.
        self.cell = weakref.ref(cell, functools.partial(_drop, key))
        self.options = options
        self.checked = self.projectable = False
        self.programs: dict[bool, Any] = {}
        """Compiled programs, by whether the weights have biases; see recur.compiler.programs."""
        self.matrix: Any = None
        """The normal form of a matrix cell; see recur.compiler.matrix."""
        self.calls: dict[Hashable, Any] = {}
        """Prepared calls by call signature; see recur.ops.call_cache."""


_CACHES: dict[int, CellCache] = {}


def _drop(key: int, _: object) -> None:
    _CACHES.pop(key, None)


def cache_of(cell: object) -> CellCache:
    """Return the entry of a cell: a new one if the cell has none, or if one of its options has changed."""
    cache = _CACHES.get(id(cell))
    options = {name: value if type(value) in SIMPLE else _snapshot(value) for name, value in vars(cell).items()}
    if cache is None or cache.options != options:
        cache = _CACHES[id(cell)] = CellCache(cell, options)
    return cache


def known_cache(cell: object) -> CellCache:
    """Return the entry of a cell that has one, without a look at its options; torch.compile can trace this."""
    return _CACHES[id(cell)]


# torch.compile calls the functions below when it compiles, and takes their results for constants: so it makes no guards
# of what they look at, which they may change. Before PyTorch 2.12 it can pass them an identity, but not a cell.


@constant_when_compiled
def is_known(identity: int) -> bool:
    """Return True if the cell with this identity has an entry."""
    return identity in _CACHES


@constant_when_compiled
def mark_known(cell: object) -> None:
    """Give a cell an entry."""
    cache_of(cell)


def cell_of(identity: int) -> Any:
    """Return the cell with this identity, which has an entry."""
    return _CACHES[identity].cell()


@constant_when_compiled
def is_checked(identity: int, projectable: bool = False) -> bool:
    """Return True if the cell with this identity was checked before: its contract, or whether it can be projected."""
    cache = _CACHES.get(identity)
    return cache is not None and (cache.projectable if projectable else cache.checked)


@constant_when_compiled
def mark_checked(cell: object, projectable: bool = False) -> None:
    """Record that a cell passed a check."""
    cache = cache_of(cell)
    if projectable:
        cache.projectable = True
    else:
        cache.checked = True


def _snapshot(option: object) -> object:
    """Return a value that compares unequal after the option was replaced or changed in place."""
    if isinstance(option, Tensor):
        return id(option), option._version
    if isinstance(option, dict):
        return {key: _snapshot(value) for key, value in option.items()}
    if isinstance(option, list | tuple):
        return [_snapshot(value) for value in option]
    if hasattr(option, "__dict__") and not callable(option):
        inside = {key: value if isinstance(value, Hashable) else repr(value) for key, value in vars(option).items()}
        return id(option), inside
    return option if isinstance(option, Hashable) else repr(option)
