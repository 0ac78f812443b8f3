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

from recur.i18n import Message

__all__ = [
    "BackendError",
    "CellError",
    "DeviceError",
    "DtypeError",
    "OptionError",
    "RankError",
    "RecurError",
    "RunError",
    "ShapeError",
    "TextError",
    "TooLargeError",
    "TrainingError",
]


class RecurError(Exception):
    """The root of every error that recur raises on purpose.

    >>> try:
    ...     recur.make_cell("grue")
    ... except recur.RecurError as error:
    ...     print(str(error)[:40])
    unknown cell 'grue'; did you mean 'gru'?
    """


class ShapeError(RecurError, ValueError):
    """A tensor's rank, width or batch is not what the cell needs.

    >>> recur.Recurrent("gru", 3, 4)(torch.randn(2, 3))
    Traceback (most recent call last):
    recur.errors.ShapeError: ...
    """


class DtypeError(RecurError, TypeError):
    """Tensors of different dtypes meet.

    >>> recur.Recurrent("gru", 3, 4)(torch.zeros(2, 5, 3, dtype=torch.float64))
    Traceback (most recent call last):
    recur.errors.DtypeError: ...
    """


class DeviceError(RecurError, ValueError):
    """Tensors on different devices meet.

    >>> recur.Recurrent("gru", 3, 4)(torch.zeros(2, 5, 3, device="meta"))
    Traceback (most recent call last):
    recur.errors.DeviceError: ...
    """


class OptionError(RecurError, ValueError):
    """An option's value is out of its range or unknown.

    >>> recur.Recurrent("gru", 3, 4, bptt="truncated:0")
    Traceback (most recent call last):
    recur.errors.OptionError: ...
    """


class CellError(RecurError, ValueError):
    """A cell breaks its contract, or is not known.

    >>> recur.make_cell("no-such-cell")
    Traceback (most recent call last):
    recur.errors.CellError: ...
    """


class BackendError(RecurError, ValueError):
    """A backend asked for by name cannot run this call.

    >>> recur.Recurrent("gru2014", 3, 4, backend="native")(torch.randn(2, 5, 3))
    Traceback (most recent call last):
    recur.errors.BackendError: ...
    """


class TextError(RecurError, ValueError):
    """A text, a vocabulary or a file of counts cannot be used as it is.

    >>> recur.data.text.parse_tree("(1 (0 not)")
    Traceback (most recent call last):
    recur.errors.TextError: ...
    """


class TooLargeError(TextError):
    """A text is larger than what is asked of it can be done with in this memory.

    >>> issubclass(recur.errors.TooLargeError, recur.errors.TextError)
    True
    """


class RunError(RecurError, ValueError):
    """A run folder is missing something, damaged or in the way.

    >>> recur.load("no-such-run")
    Traceback (most recent call last):
    recur.errors.RunError: ...
    """


class TrainingError(RecurError, ArithmeticError):
    """Training cannot go on: its loss exploded or is not a number.

    >>> issubclass(recur.errors.TrainingError, ArithmeticError)
    True
    """


class RankError(RecurError):
    """Of several processes that train together one has failed: this one, or another, which says so itself.

    >>> recur.errors.RankError("rank 1 has failed", mine=False).mine
    False
    """

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


def unknown(kind: str, name: object, known: Iterable[str]) -> Message:
    """The line for a name that is not among those known, with the nearest one offered."""
    known = sorted(known)
    near = difflib.get_close_matches(name[:LISTED], known[: 20 * LISTED], n=1) if isinstance(name, str) else []
    values = {"kind": kind, "name": shown(name), "known": listed(known)}
    if near:
        return Message("unknown {kind} {name}; did you mean {near!r}? known: {known}", near=near[0], **values)
    return Message("unknown {kind} {name}; known: {known}", **values)
