"""Cache of what was derived from a cell: whether it was checked, its compiled programs, its prepared calls.

Entries are keyed by the identity of the cell and dropped with it. Cells need no hash: a cell with options is a
dataclass, which compares by value. An entry is valid as long as its guards hold: they watch the contract and the
attributes of the cell and, once the step is compiled, every value that the step has read (recur.compiler.guards).
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from recur.compat import constant_when_compiled

MAX_ENTRIES = 8
"""The largest number of entries that one cell keeps, for values that change back."""

PLAIN = frozenset({str, bytes, bool, int, float, complex, type(None), frozenset})
"""Types whose values are the same if they have the same type and the same repr."""

CONSTANTS = frozenset({str, bool, int, float, tuple, type(None)})
"""Types that torch.compile treats as constants."""


class Guards:
    """Watched values of a cell, with a check that each of them is the one that it was.

    A check runs before each scan. It is one generated function of comparisons such as `o3.beta is v7`, for a loop over
    the values would take several times as long.
    """

    def __init__(self) -> None:
        self.sources: list[str] = []
        """How each value is read, as Python, from `cell` and from the objects of the namespace."""
        self.values: list[object] = []
        self.owners: dict[str, object] = {}
        """The objects whose attributes and items are read, by the name that they have in the sources."""
        self._names: dict[int, str] = {}

    def owner(self, value: object) -> str:
        """Return the name of an object in the sources."""
        name = self._names.setdefault(id(value), f"o{len(self._names)}")
        self.owners[name] = value
        return name

    def watch(self, source: str, value: object) -> None:
        """Watch a value that is read by the Python expression `source`."""
        if source not in self.sources:
            self.sources.append(source)
            self.values.append(value)

    def check(self, traceable: bool = False) -> Callable[[object], bool]:
        """Return a function of the cell: whether each value is the same object.

        traceable: compare constants by value, for what torch.compile makes of numbers and tuples has no identity
        """
        values = {f"v{k}": value for k, value in enumerate(self.values)}
        signs = ["==" if traceable and type(value) in CONSTANTS else "is" for value in self.values]
        tests = " and ".join(
            f"({source}) {sign} v{k}" for k, (source, sign) in enumerate(zip(self.sources, signs, strict=True))
        )
        made: Callable[[object], bool] = eval(f"lambda cell: {tests or True}", {**self.owners, **values})
        return made

    def read(self, cell: object) -> list[object]:
        """Return the values as they are now."""
        found: list[object] = eval(f"[{', '.join(self.sources)}]", {**self.owners, "cell": cell})
        return found


def attribute_guards(cell: object) -> Guards:
    """Return guards of all attributes of the instance, for as long as nothing says which of them the step reads."""
    guards = Guards()
    for name, value in vars(cell).items():
        guards.watch(f"cell.__dict__[{name!r}]", value)
    guards.watch("len(cell.__dict__)", len(vars(cell)))
    return guards


class CellCache:
    """Results for one cell as it is now. Values must not refer to the cell, or it would never be freed."""

    __slots__ = (
        "_check", "calls", "cell", "checked", "guards", "is_valid", "matrix", "others", "programs", "projectable",
    )  # fmt: skip

    def __init__(self, cell: object) -> None:
        key = id(cell)
        # The callback runs before the memory of the cell is reused, so an identity in _CACHES is never a stale one.
        self.cell = weakref.ref(cell, functools.partial(_drop, key))
        self.checked = self.projectable = False
        self.programs: dict[bool, Any] = {}
        """Compiled programs, by whether the weights have biases; see recur.compiler.programs."""
        self.matrix: Any = None
        """The normal form of a matrix cell; see recur.compiler.matrix."""
        self.calls: dict[Hashable, Any] = {}
        """Prepared calls by call signature; see recur.ops.call_cache."""
        self.others: tuple[CellCache, ...] = ()
        """Earlier entries of the cell, the latest first."""
        self.is_valid: Callable[[object], bool]
        """Whether each watched value is the same; torch.compile can trace this, and watches them then too."""
        self.watch(attribute_guards(cell))

    def watch(self, guards: Guards) -> None:
        """Replace the guards."""
        self.guards, self._check, self.is_valid = guards, guards.check(), guards.check(traceable=True)

    def holds(self, cell: object) -> bool:
        """Return True if every watched value is the one that it was."""
        try:
            return self._check(cell) or self._holds_by_value(cell)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):  # one of them is gone
            return False

    def _holds_by_value(self, cell: object) -> bool:
        """Return True if values were replaced by equal ones, which are watched from now on."""
        guards = self.guards
        values = guards.read(cell)
        if not all(map(_is_same, values, guards.values)):
            return False
        guards.values = values
        self.watch(guards)
        return True


def _is_same(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return a is b or (type(a) in PLAIN and repr(a) == repr(b)) or (isinstance(a, types.CodeType) and a == b)


_CACHES: dict[int, CellCache] = {}


def _drop(key: int, _: object) -> None:
    _CACHES.pop(key, None)


def cache_of(cell: object) -> CellCache:
    """Return the entry of a cell: a new one if it has none for the values that its step reads now."""
    cache = _CACHES.get(id(cell))
    return cache if cache is not None and cache.holds(cell) else _next_entry(cell, cache)


def _next_entry(cell: object, latest: CellCache | None) -> CellCache:
    """Return an earlier entry that is valid again, or a new one."""
    entries = () if latest is None else (latest, *latest.others)
    found = next((entry for entry in entries[1:] if entry.holds(cell)), None)
    if found is None:
        found = CellCache(cell)
        if latest is not None:  # its contract was checked; torch.compile must not find that forgotten while it traces
            found.checked, found.projectable = latest.checked, latest.projectable
    found.others = tuple(entry for entry in entries if entry is not found)[: MAX_ENTRIES - 1]
    if latest is not None:
        latest.others = ()
    _CACHES[id(cell)] = found
    return found


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
