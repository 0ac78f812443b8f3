"""Tasks by name: each is a folder of this package, found, not listed. Their options need no torch."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recur.errors import CellError, OptionError, shown, unknown
from recur.options import flag_of, read_toml, spelled
from recur.tasks.options import TaskOptions

BUILT_IN = ("pydoc", "stdlib", "-", "/dev/stdin")
"""Texts that are no files."""

CELL = "cell.py"
"""A cell of the user's own, as a run carries it."""

PATHS = ("texts", "valid", "test")
"""Options that name files."""

ORIGINS = ("from_", "vectors")
"""Options that name what a run began with and no longer needs."""


@functools.cache
def task_names() -> tuple[str, ...]:
    import recur.tasks

    found = pkgutil.iter_modules(recur.tasks.__path__)
    return tuple(sorted(module.name for module in found if module.ispkg))


@functools.cache
def options_class(task: str) -> type[TaskOptions]:
    """The dataclass of a task's options."""
    if task not in task_names():
        raise OptionError(unknown("task", task, task_names()))
    options: type[TaskOptions] = importlib.import_module(f"recur.tasks.{task}.options").OPTIONS
    return options


def task_class(task: str, numbers: bool = False) -> Any:
    """What makes a task of its options; for sequences of numbers, that is in a file of its own."""
    options_class(task)  # an unknown one is refused there
    return importlib.import_module(f"recur.tasks.{task}.{'signal_' * numbers}task").TASK


def task_of(options: TaskOptions) -> Any:
    """The task that options ask for."""
    return task_class(name_of(options), reads_numbers(options))(options)


def reads_numbers(options: TaskOptions) -> bool:
    """Of a task whose sequences may be of texts or of numbers."""
    return getattr(options, "input", None) == "numbers"


def name_of(options: TaskOptions) -> str:
    """A task's options lie in its folder."""
    return type(options).__module__.split(".")[-2]


def make_options(task: str, fields: Mapping[str, object], where: str = "") -> TaskOptions:
    """Options of a task from whatever door they come through; what belongs to another task, is of another type or
    beside the others means nothing is refused by name."""
    made = read_options(task, fields, where)
    try:
        made.refuse_unused()
        _check_cell(getattr(made, "cell", ""))
    except (OptionError, CellError) as error:
        raise type(error)(f"{where}{error}") from None
    return made


def read_options(task: str, fields: Mapping[str, object], where: str) -> TaskOptions:
    """… without the last: what a run was trained with is read as it is."""
    if not isinstance(task, str):
        raise OptionError(where + unknown("task", task, task_names()))
    cls = options_class(task)
    for name, value in fields.items():
        if name == "texts" and "texts" not in cls.names():
            raise OptionError(f"{where}the task {task} makes its own data; leave {_named(value)} out")
        if name not in cls.names():
            raise OptionError(where + refusal(task, name))
    try:
        made = cls.of(fields)
    except OptionError as error:
        raise OptionError(f"{where}{error}") from None
    for name in (*PATHS, *ORIGINS):
        if "" in listed(getattr(made, name, ())):
            raise OptionError(f"{where}{spelled(name)}: a text's name is empty; name a file or a folder")
    return made


def _named(value: object) -> str:
    return value if isinstance(value, str) else shown(value)


def _check_cell(cell: str) -> None:
    """A cell by name is made once, to see that it can be; one of a file is not looked at here, for that runs it."""
    if cell not in ("", "gru", "lstm") and ".py" not in cell:
        from recur.cells import make_cell  # which needs torch

        make_cell(cell)


def refusal(task: str, name: str, flag: str = "") -> str:
    """What is wrong with an option that a task does not have."""
    owners = [other for other in task_names() if name in options_class(other).names()]
    if not owners:
        return unknown("option", name, options_class(task).names())
    flag = flag or flag_of(name)
    listed = owners[0] if len(owners) == 1 else f"{', '.join(owners[:-1])} and {owners[-1]}"
    return f"{flag} belongs to {listed}; the task here is {task}: recur train --task {task} --help"


def arguments_of(task: str, fields: Mapping[str, Any]) -> list[str]:
    """What `recur train` is given for these options."""
    found = [*map(str, listed(fields.get("texts"))), "--task", task]
    for name in options_class(task).names():
        value = fields.get(name)
        if name == "texts" or value is None:
            continue
        if isinstance(value, bool):
            found.append(flag_of(name) if value else f"--no-{flag_of(name).removeprefix('--')}")
            continue
        for one in listed(value):
            word = repr(one) if isinstance(one, float) else str(one)
            found += [f"{flag_of(name)}={word}"] if word.startswith("-") else [flag_of(name), word]
    return found


# Configuration files ------------------------------------------------------------------------------------------


def read_config(path: Path) -> dict[str, object]:
    """The fields that a TOML file sets, `task` among them, with its paths made those of this process."""
    fields = with_paths(read_toml(path), path.parent)
    if (path.parent / "manifest.json").is_file():
        check_cell_of_file(fields)
    return fields


def with_paths(fields: dict[str, object], folder: Path) -> dict[str, object]:
    """Fields whose paths are relative to a folder, with those of this process."""
    for name in (*PATHS, *ORIGINS):
        if name in fields:
            given = fields[name]
            names = [_inside(folder, n) if isinstance(n, str) else n for n in listed(given)]
            fields[name] = names[0] if name == "vectors" and isinstance(given, str) else names
    cell = fields.get("cell")
    if isinstance(cell, str) and (file := cell_file(cell)):
        fields["cell"] = _inside(folder, file) + cell[len(file) :]
    return fields


def without_paths(fields: Mapping[str, object], folder: Path) -> dict[str, object]:
    """… and back: fields of this process, with paths relative to a folder."""
    found = dict(fields)
    for name in (*PATHS, *ORIGINS):
        if (given := found.get(name)) is not None:
            names = [outside(folder, str(n)) for n in listed(given)]
            found[name] = names if isinstance(given, list | tuple) else names[0]
    cell = found.get("cell")
    if isinstance(cell, str) and (file := cell_file(cell)):
        found["cell"] = outside(folder, file) + cell[len(file) :]
    return found


def check_cell_of_file(fields: Mapping[str, object]) -> None:
    """Refuse a cell that fields from a file name, which may be a stranger's, unless this user has trained with it."""
    cell = fields.get("cell")
    if isinstance(cell, str) and cell_file(cell):
        from recur.run.trust import check_trusted  # which needs torch

        source = Path(cell_file(cell))
        check_trusted(source, source.read_bytes() if source.is_file() else b"")


def config_text(options: TaskOptions, folder: Path) -> str:
    """The content of a configuration file in a folder, with paths relative to it."""
    fields: dict[str, Any] = {}
    for name in (*PATHS, *ORIGINS):
        if name in options.names() and (given := getattr(options, name)) is not None:
            names = tuple(outside(folder, n) for n in listed(given))
            fields[name] = names[0] if isinstance(given, str) else names
    cell = getattr(options, "cell", "")
    if file := cell_file(cell):
        carried = os.path.realpath(file) == os.path.realpath(folder / CELL)
        fields["cell"] = (CELL if carried else outside(folder, file)) + cell[len(file) :]
    return f'task = "{name_of(options)}"\n' + options.changed(**fields).to_toml()


def listed(given: object) -> Sequence[Any]:
    """What an option names, be it one or several."""
    return given if isinstance(given, list | tuple) else () if given is None else (given,)


def cell_file(cell: str) -> str:
    """The file of a cell that is in one, as `recur.cells.make_cell` finds it."""
    path, in_file, _ = cell.partition(".py:")
    return f"{path}.py" if in_file else ""


def _inside(folder: Path, name: str) -> str:
    if name in BUILT_IN or Path(name).is_absolute():
        return name
    found = os.path.normpath(os.path.join(os.path.realpath(folder), name))
    return os.path.relpath(found) if not folder.is_absolute() else found


def outside(folder: Path, name: str) -> str:
    """A path of this process, relative to a folder."""
    if name in BUILT_IN or Path(name).is_absolute():
        own = name not in BUILT_IN and Path(name).is_relative_to(folder.absolute())
        return str(Path(name).relative_to(folder.absolute())) if own else name
    return os.path.relpath(name, os.path.realpath(folder))
