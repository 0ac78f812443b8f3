"""Find a cell by name, by file, or as it is.

make_cell("gru")                        a registered cell
make_cell("elman:activation=relu")      with options
make_cell("mine.py:LeakyGRU")           a class in a file of the user's; this runs the file
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import os
import pkgutil
import sys
import types
from pathlib import Path
from typing import TypeGuard

from recur.cells.cell import Cell
from recur.errors import CellError, RecurError, shown, unknown

CellLike = str | Cell | type[Cell]
"""A cell, or what `make_cell` makes one of."""

VARIANTS = {"elman-relu": "elman:activation=relu", "elman-sigmoid": "elman:activation=sigmoid"}
"""Short names for a registered cell with options."""


@functools.cache
def cell_classes() -> dict[str, type[Cell]]:
    """Every cell of this package by its class's name. Each file is looked into: adding a cell is adding a file."""
    package = importlib.import_module("recur.cells")
    found: dict[str, type[Cell]] = {}
    for module in pkgutil.iter_modules(package.__path__, "recur.cells."):
        for value in vars(importlib.import_module(module.name)).values():
            if _is_cell(value) and value.__module__ == module.name:
                found[value.__name__] = value
    return found


@functools.cache
def _registered() -> dict[str, type[Cell]]:
    """Those that have a name of their own."""
    found: dict[str, type[Cell]] = {}
    for cls in cell_classes().values():
        name = vars(cls).get("name")
        if name in found:
            raise CellError(f"{cls.__name__} and {found[name].__name__} are both named {name!r}")
        if name:
            found[name] = cls
    return found


def cell_names() -> list[str]:
    """The names that `make_cell` knows.

    >>> [name for name in recur.cell_names() if "lstm" in name]
    ['lnlstm', 'lstm', 'lstm1997', 'minlstm', 'mlstm', 'slstm']
    """
    return sorted([*_registered(), *VARIANTS])


def make_cell(spec: CellLike, **options: object) -> Cell:
    """A cell from its name, `file.py:Class`, its class, or the cell itself; options as in its constructor.

    >>> recur.make_cell("gru").gates
    ('r', 'z', 'n')
    >>> recur.make_cell("leaky:alpha=0.9")
    Leaky(alpha=0.9)
    """
    if isinstance(spec, Cell):
        if options:
            raise CellError(f"{spec!r} is made already; options {', '.join(options)} come too late")
        return spec
    if isinstance(spec, type) and issubclass(spec, Cell):
        return _construct(spec, options)
    if not isinstance(spec, str):
        raise CellError(f"a cell is a name, file.py:Class, or a Cell; got {type(spec).__name__} {shown(spec)}")
    return _construct(*_parse(VARIANTS.get(spec, spec), options))


def _parse(spec: str, options: dict[str, object]) -> tuple[type[Cell], dict[str, object]]:
    """`name`, `name:key=value,…`, `file.py:Class` or `file.py:Class:key=value,…`."""
    path, dot_py, rest = spec.partition(".py:")
    if dot_py:
        name, _, written = rest.partition(":")
        cls = _from_file(Path(path + ".py"), name)
    else:
        name, _, written = spec.partition(":")
        if name not in _registered():
            raise CellError(f"{unknown('cell', name, cell_names())}; or a cell of your own as file.py:Class")
        cls = _registered()[name]
    return cls, {**_written_options(written, spec), **options}


def _written_options(written: str, spec: str) -> dict[str, object]:
    options: dict[str, object] = {}
    for pair in filter(None, written.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise CellError(f"cell {shown(spec)}: options are key=value, separated by commas; got {shown(pair)}")
        try:
            options[key.strip()] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key.strip()] = value  # a bare word is a string: activation=relu
        except (RecursionError, MemoryError):
            raise CellError(f"cell {shown(spec)}: {key.strip()[:40]} is too deeply nested") from None
    return options


def _construct(cls: type[Cell], options: dict[str, object]) -> Cell:
    try:
        return cls(**options)
    except RecurError:
        raise
    except Exception as error:  # what a constructor makes of a value that it did not expect
        takes = inspect.signature(cls).parameters.values()
        known = [p.name for p in takes if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        raise CellError(f"{cls.__name__}: {error}; its options: {', '.join(known) or 'none'}") from error


_ADMITTED: dict[str, bytes] = {}
"""Sources that stand for a file, by its path: the file itself is not looked at."""


def admit(path: Path, source: bytes) -> None:
    """Take this source for the one at `path` from now on: what was looked at is what is executed."""
    _ADMITTED[os.path.realpath(path)] = source


def _from_file(path: Path, name: str) -> type[Cell]:
    source = _ADMITTED.get(os.path.realpath(path)) if "\0" not in str(path) else None
    if source is None:
        if "\0" in str(path) or not path.is_file():
            raise CellError(f"no cell file {shown(str(path))}")
        source = path.read_bytes()
    unique = hashlib.sha256(str(path.resolve()).encode() + source).hexdigest()[:12]  # files of one name in two folders
    module = _module(f"recur_user_cell_{path.stem}_{unique}", path, source)
    cells = {key: value for key, value in vars(module).items() if _is_cell(value)}
    if name not in cells:
        raise CellError(f"{str(path)!r} has no Cell named {name!r}; its cells: {', '.join(cells) or 'none'}")
    return cells[name]


def _module(name: str, path: Path, source: bytes) -> types.ModuleType:
    """What a source defines; the same source is executed once."""
    if name in sys.modules:
        return sys.modules[name]
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, RecurError) or not isinstance(error, Exception | SystemExit):
            raise
        raise CellError(f"cell file {str(path)!r} does not run: {type(error).__name__}: {error}") from error
    return module


def _is_cell(value: object) -> TypeGuard[type[Cell]]:
    return isinstance(value, type) and issubclass(value, Cell) and value is not Cell
