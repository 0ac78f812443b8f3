"""Arguments of a step: named tuples of tensors, `x.r`, `h.r`, `s.c`, `w.p`.

Their classes are created from the names of a cell. An unknown name raises an error that lists the known ones.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self

from torch import Tensor

from recur.compat import register_namedtuple
from recur.errors import CellError

if TYPE_CHECKING:

    class Tensors(tuple[Tensor, ...]):
        """A named tuple of tensors, as a type checker sees it: every name that a cell has is a tensor."""

        _fields: tuple[str, ...]

        @classmethod
        def _make(cls, parts: Iterable[Tensor]) -> Self: ...

        def __getattr__(self, name: str) -> Tensor: ...

else:
    Tensors = tuple

KINDS = {"x": "gates and inputs", "h": "gates with a state's share", "s": "states", "w": "extras", "i": "inputs"}
"""Descriptions of the names of each argument of `step`, for error messages."""

_namedtuple: Callable[[str, tuple[str, ...]], type[Tensors]] = namedtuple  # type: ignore[assignment]
"""namedtuple with a type that mypy accepts: the fields are known at run time only."""

_CLASSES: dict[tuple[str, str, tuple[str, ...]], type[Tensors]] = {}
"""All classes created so far. A plain dictionary, which torch.compile can trace."""


class NoSuchNameError(CellError, AttributeError):
    """A step that uses a name that its cell does not have; also an AttributeError, as Python's protocols expect."""


def named_tuple(owner: str, role: str, fields: tuple[str, ...]) -> type[Tensors]:
    """Return the class of one argument of a step, created once."""
    key = owner, role, fields
    if key not in _CLASSES:
        _CLASSES[key] = _make_class(owner, role, fields)
    return _CLASSES[key]


def _make_class(owner: str, role: str, fields: tuple[str, ...]) -> type[Tensors]:
    made = _namedtuple(role, fields)

    def missing(self: Tensors, name: str) -> Tensor:
        if name.startswith("_"):  # a lookup by a protocol, not by the author of a step
            raise AttributeError(name)
        raise NoSuchNameError(f"{owner}.step asks for {role}.{name}; its {KINDS[role]}: {', '.join(fields) or 'none'}")

    type.__setattr__(made, "__getattr__", missing)
    type.__setattr__(made, "__reduce__", lambda self: (_rebuild, (owner, role, fields, tuple(self))))
    if role == "s":  # states are results: a saved program can return a registered class
        register_namedtuple(made, f"recur.{owner}({', '.join(fields)})")
    return made


def _rebuild(owner: str, role: str, fields: tuple[str, ...], values: tuple[Tensor, ...]) -> Tensors:
    """Return a named tuple from its pickle; its class is created, not imported."""
    return named_tuple(owner, role, fields)._make(values)
