"""Exceptions that recur raises.

    RecurError
    ├── ShapeError     (ValueError, RuntimeError: torch raises either)  a tensor's rank, width or batch is not what the
    │                  cell needs
    ├── DtypeError     (TypeError)   tensors have different dtypes
    ├── DeviceError    (ValueError)  tensors are on different devices
    ├── OptionError    (ValueError)  an option's value is out of its range or unknown
    ├── CellError      (ValueError)  a cell breaks its contract, or is unknown
    ├── BackendError   (ValueError)  a backend requested by name cannot run this call
    ├── TextError      (ValueError)  a text, a vocabulary or a file of counts is invalid
    │   └── TooLargeError            an input is too large for the memory
    ├── RunError       (ValueError)  a run folder is incomplete, damaged or in the way
    ├── TrainingError  (ArithmeticError)  training has diverged: the loss is too large or not a number
    └── RankError      one of several training processes has failed

    RecurLoopWarning   (UserWarning) a cell is not compiled and runs on the slow loop

Each message says what was expected, what was given, and what to try.
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
    "RecurLoopWarning",
    "RunError",
    "ShapeError",
    "TextError",
    "TooLargeError",
    "TrainingError",
]


class RecurError(Exception):
    """Base class of all errors that recur raises.

    >>> try:
    ...     recur.make_cell("grue")
    ... except recur.RecurError as error:
    ...     print(str(error)[:40])
    unknown cell 'grue'; did you mean 'gru'?
    """


class ShapeError(RecurError, ValueError, RuntimeError):
    """A tensor's rank, width or batch is not what the cell needs.

    >>> recur.Recurrent("gru", 3, 4)(torch.randn(2, 3))
    Traceback (most recent call last):
    recur.errors.ShapeError: ...
    """


class DtypeError(RecurError, TypeError):
    """Tensors have different dtypes.

    >>> recur.Recurrent("gru", 3, 4)(torch.zeros(2, 5, 3, dtype=torch.float64))
    Traceback (most recent call last):
    recur.errors.DtypeError: ...
    """


class DeviceError(RecurError, ValueError):
    """Tensors are on different devices.

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
    """A cell breaks its contract, or is unknown.

    >>> recur.make_cell("no-such-cell")
    Traceback (most recent call last):
    recur.errors.CellError: ...
    """


class BackendError(RecurError, ValueError):
    """A backend requested by name cannot run this call.

    >>> recur.Recurrent("ltc", 3, 4, backend="native")(torch.randn(2, 5, 3))
    Traceback (most recent call last):
    recur.errors.BackendError: ...
    """


class TextError(RecurError, ValueError):
    """A text, a vocabulary or a file of counts is invalid.

    >>> recur.data.text.parse_tree("(1 (0 not)")
    Traceback (most recent call last):
    recur.errors.TextError: ...
    """


class TooLargeError(TextError):
    """An input is too large for the memory of this machine.

    >>> issubclass(recur.errors.TooLargeError, recur.errors.TextError)
    True
    """


class RunError(RecurError, ValueError):
    """A run folder is incomplete, damaged or in the way.

    >>> recur.load("no-such-run")
    Traceback (most recent call last):
    recur.errors.RunError: ...
    """


class TrainingError(RecurError, ArithmeticError):
    """Training has diverged: the loss is too large or not a number.

    >>> issubclass(recur.errors.TrainingError, ArithmeticError)
    True
    """


class RankError(RecurError):
    """One of several training processes has failed: this one (`mine`), or another, which reports the error.

    >>> recur.errors.RankError("rank 1 has failed", mine=False).mine
    False
    """

    def __init__(self, message: str, mine: bool = True) -> None:
        super().__init__(message)
        self.mine = mine


class RecurLoopWarning(UserWarning):
    """A cell is not compiled: `auto` runs it on the loop, one step at a time in PyTorch. Warned once per class of cell.

    >>> import warnings
    >>> with warnings.catch_warnings():                      # or backend="loop", which asks for the loop
    ...     warnings.simplefilter("ignore", recur.errors.RecurLoopWarning)
    ...     outputs = recur.Recurrent("gru2014", 3, 4)(torch.randn(2, 5, 3)).outputs
    """


LISTED = 50
"""Most names that a message lists: a table may have a million columns."""

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 100
_REPR.maxlevel, _REPR.maxlist, _REPR.maxtuple = 4, 10, 10


def shown(value: object) -> str:
    """Return the repr of a value for a message, shortened if it is long or deep."""
    try:
        return _REPR.repr(value)
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        return f"some {type(value).__name__}"


def listed(names: Sequence[str]) -> str:
    """Return names joined by commas, at most LISTED of them."""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the message for an unknown name, with the most similar known one."""
    known = sorted(known)
    near = difflib.get_close_matches(name[:LISTED], known[: 20 * LISTED], n=1) if isinstance(name, str) else []
    values = {"kind": kind, "name": shown(name), "known": listed(known)}
    if near:
        return Message("unknown {kind} {name}; did you mean {near!r}? known: {known}", near=near[0], **values)
    return Message("unknown {kind} {name}; known: {known}", **values)
