"""Registry of cells: cells by name, by class, or from a file.

make_cell("gru")                        a registered cell
make_cell("elman:activation=relu")      with options
make_cell("mine.py:LeakyGRU")           a class in a user's file; this executes the file
configured_cell("mine.py:LeakyGRU")     the same name, read from options: the file runs only if it is trusted
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
from recur.utils.trust import cell_file, check_trusted, name_cell, read_source

CellLike = str | Cell | type[Cell]
"""A cell, or an argument of `make_cell`."""

VARIANTS = {"elman-relu": "elman:activation=relu", "elman-sigmoid": "elman:activation=sigmoid"}
"""Short names for a registered cell with options."""


@functools.cache
def cell_classes() -> dict[str, type[Cell]]:
    """Return every cell of this package by class name. All files are imported: adding a cell is adding a file."""
    package = importlib.import_module("recur.cells")
    found: dict[str, type[Cell]] = {}
    for module in pkgutil.iter_modules(package.__path__, "recur.cells."):
        for value in vars(importlib.import_module(module.name)).values():
            if _is_cell(value) and value.__module__ == module.name:
                found[value.__name__] = value
    return found


@functools.cache
def _registered() -> dict[str, type[Cell]]:
    """Return the cells that have a registry name, by that name."""
    found: dict[str, type[Cell]] = {}
    for cls in cell_classes().values():
        name = vars(cls).get("name")
        if name in found:
            raise CellError(f"{cls.__name__} and {found[name].__name__} are both named {name!r}")
        if name:
            found[name] = cls
    return found


def cell_names() -> list[str]:
    """Return the names that `make_cell` accepts.

    >>> [name for name in recur.cell_names() if "lstm" in name]
    ['lnlstm', 'lstm', 'lstm1997', 'minlstm', 'mlstm', 'multiplicative_lstm', 'slstm', 'zoneout_lstm']
    """
    return sorted([*_registered(), *VARIANTS])


def make_cell(spec: CellLike, **options: object) -> Cell:
    """Return a cell, given its name, `file.py:Class`, its class, or the cell itself; options as in its constructor.

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
    name_cell(spec)  # whoever calls this wrote the name
    return _construct(*_parse(VARIANTS.get(spec, spec), options))


def configured_cell(spec: str) -> Cell:
    """Make the cell that options name. Options may come from a stranger's file, so a cell's file must be trusted."""
    return _construct(*_parse(VARIANTS.get(spec, spec), {}))


def _parse(spec: str, options: dict[str, object]) -> tuple[type[Cell], dict[str, object]]:
    """Parse `name`, `name:key=value,…`, `file.py:Class` or `file.py:Class:key=value,…`."""
    if file := cell_file(spec):
        name, _, written = spec[len(file) + 1 :].partition(":")
        cls = _from_file(Path(file), name)
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
    except Exception as error:  # a constructor may fail in any way on an unexpected value
        takes = inspect.signature(cls).parameters.values()
        known = [p.name for p in takes if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        raise CellError(f"{cls.__name__}: {error}; its options: {', '.join(known) or 'none'}") from error


_ADMITTED: dict[str, bytes] = {}
"""Source code by the path of its file; the file itself is then not read."""


def admit(path: Path, source: bytes) -> None:
    """Use this source for the file at `path` from now on, so that what was checked is what is executed."""
    _ADMITTED[os.path.realpath(path)] = source


def _from_file(path: Path, name: str) -> type[Cell]:
    source = _ADMITTED.get(os.path.realpath(path)) if "\0" not in str(path) else None
    if source is None:
        if "\0" in str(path) or not path.is_file():
            raise CellError(f"no cell file {shown(str(path))}")
        try:
            source = read_source(path)
        except OSError as error:
            raise CellError(f"cell file {str(path)!r} cannot be read: {error.strerror or error}") from None
    check_trusted(path, source)  # the only place that executes a cell's file
    unique = hashlib.sha256(os.fsencode(path.resolve()) + source).hexdigest()[:12]  # files of one name in two folders
    module = _module(f"recur_user_cell_{path.stem}_{unique}", path, source)
    cells = {key: value for key, value in vars(module).items() if _is_cell(value)}
    if name not in cells:
        raise CellError(f"{str(path)!r} has no Cell named {name!r}; its cells: {', '.join(cells) or 'none'}")
    return cells[name]


def _module(name: str, path: Path, source: bytes) -> types.ModuleType:
    """Return the module of a source, which is executed once."""
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
