"""Options as dataclasses: a field is a flag, a key of a TOML file and a keyword argument, and is checked here.

A field's type says which values it accepts, so that every entry point (the command line, `recur.fit`, a file) refuses
the same values with the same message:

    hidden: Count = 128                           an integer ≥ 1
    cell: str = "gru"
    pool: Literal["last", "max"] = "last"
    target: tuple[str, ...] = ()                  a list
    schedule: Annotated[str, Form(parse)] = "…"   a text that `parse` accepts

A field's docstring is its help. A subclass that gives a field another default repeats its line without the docstring.
A field whose name is a Python keyword ends in an underscore: `from_` is --from, and `from` in a file.
torch is not imported here, so that help is fast.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import keyword
import math
import operator
import os
import re
import textwrap
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    SupportsFloat,
    SupportsIndex,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from recur.errors import OptionError, shown, unknown
from recur.i18n import Message
from recur.utils.files import read_bounded
from recur.utils.limits import KEY_PARTS


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base class of options; fields are checked on creation."""

    title: ClassVar[str] = ""
    """Title of the group of this class's fields in help."""

    _hints: ClassVar[dict[str, object]]
    _documented: ClassVar[dict[str, str]]
    _explicit: ClassVar[frozenset[str]] = frozenset()
    """Fields that the user set, on options made by `of`; other fields may follow from the data."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Create options that remember which fields the user set."""
        made = cls(**fields)
        object.__setattr__(made, "_explicit", frozenset(fields))
        return made

    def __post_init__(self) -> None:
        for name, hint in hints(type(self)).items():
            object.__setattr__(self, name, checked(name, getattr(self, name), hint))
        self.refuse_unused()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(hints(cls))

    @classmethod
    def default(cls, name: str) -> object:
        return cls.__dataclass_fields__[name].default

    def unused(self) -> dict[str, str]:
        """Return the fields that have no effect with the values of the others, and why."""
        return {}

    def refuse_unused(self) -> None:
        """Raise OptionError for a field that the user set, even to its default, although it has no effect."""
        for name, why in self.unused().items():
            if name in self._explicit or getattr(self, name) != type(self).default(name):
                raise OptionError(f"{flag_of(name)} {why}")

    def to_toml(self) -> str:
        """Return TOML with one line per field that has a value and an effect."""
        unused = self.unused()
        values = ((name, getattr(self, name)) for name in self.names() if name not in unused)
        return "".join(_toml_line(name, value) for name, value in values if value is not None)

    def changed(self, **fields: Any) -> Self:
        """Return a copy with other values, which remembers the fields that the user set."""
        made = dataclasses.replace(self, **fields)
        object.__setattr__(made, "_explicit", self._explicit)
        return made

    def with_defaults(self, **fields: Any) -> Self:
        """Return a copy with other defaults; fields that the user set stay."""
        cls = type(self)
        free = [n for n in fields if n not in self._explicit and getattr(self, n) == cls.default(n)]
        return self.changed(**{name: fields[name] for name in free})

    def fixed(self, **fields: Any) -> Self:
        """Return a copy with other values that count as set by the user, so that no default replaces them."""
        made = self.changed(**fields)
        object.__setattr__(made, "_explicit", self._explicit | {*fields})
        return made

    def is_set(self, name: str) -> bool:
        """Return True if the user set a field, even to its default."""
        return name in self._explicit or getattr(self, name) != type(self).default(name)


def spelled(name: str) -> str:
    """Return the key of a field in a file."""
    return name.rstrip("_")


def flag_of(name: str) -> str:
    """Return the command-line flag of a field."""
    return "--" + spelled(name).replace("_", "-")


def field_of(key: str) -> str:
    """Return the field of a key in a file."""
    return f"{key}_" if keyword.iskeyword(key) else key


def hints(cls: type[Options]) -> dict[str, object]:
    """Return the annotated type of each field, in field order."""
    if "_hints" not in vars(cls):
        found = get_type_hints(cls, include_extras=True)
        cls._hints = {field.name: found[field.name] for field in dataclasses.fields(cls)}
    return cls._hints


def value_of(hint: object) -> object:
    """Return a field's type without bounds and without None."""
    if get_origin(hint) is Annotated:
        return value_of(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return value_of(next(part for part in get_args(hint) if part is not type(None)))
    return hint


def group_of(cls: type[Options], name: str) -> str:
    """Return the title of the class that declares a field first; a subclass may change its default."""
    owner = next(base for base in reversed(cls.__mro__) if name in vars(base).get("__annotations__", {}))
    title: str = vars(owner).get("title", "")
    return title


def documentation(cls: type[Options]) -> dict[str, str]:
    """Return the docstring of each field: the string below its line in the class that declares it first."""
    found: dict[str, str] = {}
    for base in cls.__mro__:
        if base is not object and issubclass(base, Options):
            found = _own_documentation(base) | found
    return found


def _own_documentation(cls: type[Options]) -> dict[str, str]:
    if "_documented" not in vars(cls):  # cache: reading sources is slow
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(body, ast.ClassDef)
        found: dict[str, str] = {}
        for line, below in zip(body.body, body.body[1:], strict=False):
            field = line.target if isinstance(line, ast.AnnAssign) else None
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(field, ast.Name) and isinstance(text, ast.Constant):
                found.setdefault(field.id, inspect.cleandoc(str(text.value)))
        cls._documented = found
    return cls._documented


# Checking -----------------------------------------------------------------------------------------------------


def checked(name: str, value: object, hint: object) -> Any:
    """Return a value as a field of this type holds it; raise OptionError if it is invalid."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if arguments[0] is str:
            text = checked(name, value, str)
            assert isinstance(text, str)
            for mark in arguments[1:]:
                mark.parse(text)
            return text
        number = _plain(value, arguments[0])
        for mark in arguments[1:]:
            if not isinstance(number, int | float) or number not in mark:
                raise OptionError(
                    Message("{name} must {bound}, got {value}", name=name, bound=mark.words, value=shown(value))
                )
        return number
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return checked(name, value, next(part for part in arguments if part is not type(None)))
    if origin is Literal:
        if not isinstance(value, str | bool) and isinstance(value, SupportsIndex):
            value = _plain(value, int)  # an integer of NumPy
        if not isinstance(value, str | int) or value not in arguments or isinstance(value, bool):
            raise OptionError(unknown(name, value, [str(choice) for choice in arguments]))
        return value
    if origin is tuple:
        items = [value] if isinstance(value, str | Path | int | float) else value
        if not isinstance(items, Sequence):
            raise OptionError(Message("{name} must be a list, got {value}", name=name, value=shown(value)))
        return tuple(checked(name, item, arguments[0]) for item in items)
    found = _plain(value, hint)
    if found is None:
        kinds = {
            str: Message("text"),
            bool: Message("true or false"),
            int: Message("a whole number"),
            float: Message("a number"),
        }
        kind = kinds[hint]  # type: ignore[index]
        raise OptionError(Message("{name} must be {kind}, got {given}", name=name, kind=kind, given=shown(value)))
    if isinstance(found, str) and not _is_file_name(found):
        raise OptionError(f"{name} must be text in Unicode, got {shown(found)}: a file may have to be renamed")
    return found


def _plain(value: object, kind: object) -> str | bool | int | float | None:
    """Convert a value to str, bool, int or float without loss; return None if that is impossible."""
    if kind is bool:
        return value if isinstance(value, bool) else None
    if kind is str:
        return str(value) if isinstance(value, str | Path) else None
    if isinstance(value, bool):
        return None
    if type(value) is int and kind is int:  # fast path: isinstance of a protocol is slow
        return value
    try:
        if kind is int:
            return operator.index(value) if isinstance(value, SupportsIndex) else None
        number = float(value) if isinstance(value, float | SupportsFloat) else math.nan
    except (TypeError, ValueError, OverflowError, RuntimeError):  # an array of several; more digits than a float has
        return None
    return number if math.isfinite(number) else None


def _is_file_name(text: str) -> bool:
    """Return True for Unicode text, and for a file name with other bytes, which Python reads as lone surrogates."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


# Files ----------------------------------------------------------------------------------------------------------


def _toml_line(name: str, value: object) -> str:
    line = f"{spelled(name)} = {_toml(value)}\n"
    try:
        line.encode()
    except UnicodeEncodeError:  # a file name with bytes that are not UTF-8, which TOML cannot hold
        message = f"{name} must be text in Unicode, got {shown(value)}: a file may have to be renamed"
        raise OptionError(message) from None
    return line


def _toml(value: object) -> str:
    written = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return written.replace("\x7f", "\\u007f")  # TOML must escape it, JSON does not


CONFIGURATION = 1 << 22
"""Largest configuration file in bytes."""

_DOTTED = re.compile(
    rf"""(?<![\w-])(?>(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{KEY_PARTS},}}"""
)  # fmt: skip
"""Pattern of a key of more than KEY_PARTS parts: `a.a.a. …`."""


def read_toml(path: Path) -> dict[str, object]:
    """Return the keys of a TOML file, without the table [about], which is for people."""
    try:
        return parse_toml(read_bounded(path, CONFIGURATION), path)
    except OSError as error:
        raise OptionError(f"{path} cannot be used as a configuration: {error.strerror}") from None


def parse_toml(content: bytes, path: Path) -> dict[str, object]:
    try:
        text = content.decode()
        if _DOTTED.search(text):
            raise ValueError(f"expected keys of at most {KEY_PARTS} parts, got a longer one")
        found: Mapping[str, object] = tomllib.loads(text)
    except ValueError as error:  # no UTF-8, no TOML, or a number of too many digits
        raise OptionError(f"{path} cannot be used as a configuration: {error}") from None
    except RecursionError:
        raise OptionError(f"{path} cannot be used as a configuration: too deeply nested") from None
    return {field_of(name): value for name, value in found.items() if name != "about"}
