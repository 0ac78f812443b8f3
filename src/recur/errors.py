"""What recur raises, and nothing else does.

    RecurError
    ├── ShapeError     (ValueError)  a tensor's rank, width or batch is not what the cell needs
    ├── DtypeError     (TypeError)   tensors of different dtypes meet
    ├── DeviceError    (ValueError)  tensors on different devices meet
    ├── OptionError    (ValueError)  an option's value is out of its range or unknown
    ├── CellError      (ValueError)  a cell breaks its contract, or is not known
    ├── BackendError   (ValueError)  a backend asked for by name cannot run this call
    ├── TextError      (ValueError)  a text, a vocabulary or a file of counts cannot be used as it is
    │   └── TooLargeError            … is too large for this memory
    ├── RunError       (ValueError)  a run folder is missing something, damaged or in the way
    ├── TrainingError  (ArithmeticError)  training cannot go on: its loss exploded or is not a number
    └── RankError      of several processes that train together one has failed

Each message says what was expected, what came, and what to try.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Sequence


class RecurError(Exception):
    """The root of every error that recur raises on purpose."""


class ShapeError(RecurError, ValueError):
    """A tensor's rank, width or batch is not what the cell needs."""


class DtypeError(RecurError, TypeError):
    """Tensors of different dtypes meet."""


class DeviceError(RecurError, ValueError):
    """Tensors on different devices meet."""


class OptionError(RecurError, ValueError):
    """An option's value is out of its range or unknown."""


class CellError(RecurError, ValueError):
    """A cell breaks its contract, or is not known."""


class BackendError(RecurError, ValueError):
    """A backend asked for by name cannot run this call."""


class TextError(RecurError, ValueError):
    """A text, a vocabulary or a file of counts cannot be used as it is."""


class TooLargeError(TextError):
    """A text is larger than what is asked of it can be done with in this memory."""


class RunError(RecurError, ValueError):
    """A run folder is missing something, damaged or in the way."""


class TrainingError(RecurError, ArithmeticError):
    """Training cannot go on: its loss exploded or is not a number."""


class RankError(RecurError):
    """Of several processes that train together one has failed: this one, or another, which says so itself."""

    def __init__(self, message: str, mine: bool = True) -> None:
        super().__init__(message)
        self.mine = mine


LISTED = 50
"""Names that a message lists at most: a table may have a million columns."""

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 100
_REPR.maxlevel, _REPR.maxlist, _REPR.maxtuple = 4, 10, 10


def shown(value: object) -> str:
    """A value as a message shows it: as Python writes it, but for what is long or deep."""
    try:
        return _REPR.repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        return f"some {type(value).__name__}"


def listed(names: Sequence[str]) -> str:
    """Names between commas, not more than a line bears."""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """The line for a name that is not among those known, with the nearest one offered."""
    known = sorted(known)
    near = difflib.get_close_matches(name[:LISTED], known[: 20 * LISTED], n=1) if isinstance(name, str) else []
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {shown(name)}; {hint}known: {listed(known)}"
