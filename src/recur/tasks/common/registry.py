"""Registry of tasks, and the task that a file is for.

Every folder of recur.tasks but `common` is a task. Options are read without importing torch.
"""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recur.data.text.recognition import RecognisedData, recognise
from recur.errors import CellError, OptionError, shown, unknown
from recur.i18n import Message
from recur.options import Options, flag_of, read_toml, spelled
from recur.options.suggestions import unknown_option
from recur.tasks.common.options import GPU_FACTOR, InputOptions, TaskOptions, WarmStartOptions, cell_of
from recur.utils.trust import cell_file, check_cells

BUILT_IN = ("pydoc", "stdlib", "-", "/dev/stdin")
"""Names of texts that are not files."""

CELL = "cell.py"
"""File name of a custom cell in a run folder."""

PATHS = ("texts", "valid", "test")
"""Options that name data files."""

ORIGINS = ("from_", "vectors")
"""Options that name the source of a warm start, which the run does not need afterwards."""


@functools.cache
def task_names() -> tuple[str, ...]:
    import recur.tasks

    found = pkgutil.iter_modules(recur.tasks.__path__)
    return tuple(sorted(module.name for module in found if module.ispkg and module.name != "common"))


@functools.cache
def options_class(task: str) -> type[TaskOptions]:
    """Return the options dataclass of a task."""
    if task not in task_names():
        raise OptionError(unknown("task", task, task_names()))
    options: type[TaskOptions] = importlib.import_module(f"recur.tasks.{task}.options").OPTIONS
    return options


def task_class(task: str, variant: str = "") -> Any:
    """Return the class of a task, or of a variant of it: `signals` for numbers, `multilabel` for several labels."""
    options_class(task)  # raises for an unknown task
    return importlib.import_module(f"recur.tasks.{task}.{variant or 'task'}").TASK


def task_of(options: TaskOptions) -> Any:
    """Return the task for these options."""
    return task_class(name_of(options), variant_of(options))(options)


def variant_of(options: TaskOptions) -> str:
    """Return the module of a task's variant; empty for the task itself."""
    if reads_numbers(options):
        return "signals"
    return "multilabel" if getattr(options, "multi_label", None) else ""


def reads_numbers(options: TaskOptions) -> bool:
    """Return True if the sequences are vectors of numbers and not text."""
    return isinstance(options, InputOptions) and options.input == "numbers"


def name_of(options: TaskOptions) -> str:
    """Return the name of the task that these options belong to: the folder of their module."""
    return type(options).__module__.split(".")[-2]


def make_options(task: str, fields: Mapping[str, object], where: str = "") -> TaskOptions:
    """Return the options of a task from fields of any source.

    Raise an OptionError for an option of another task, a value of a wrong type, or an option that has no effect with
    the others.
    """
    made = read_options(task, fields, where)
    try:
        made.refuse_unused()
        made.to_toml()  # refuses a file name that config.toml cannot hold
        _check_cell(cell_of(made))
    except (OptionError, CellError) as error:
        raise type(error)(Message("{where}{error}", where=where, error=str(error))) from None
    return made


def read_options(task: str, fields: Mapping[str, object], where: str) -> TaskOptions:
    """Return the options of a task without checking for options that have no effect, as a run stores them."""
    if not isinstance(task, str):
        raise OptionError(Message("{where}{error}", where=where, error=unknown("task", task, task_names())))
    cls = options_class(task)
    for name, value in fields.items():
        if name == "texts" and "texts" not in cls.names():
            raise OptionError(f"{where}the task {task} generates its data; leave {_named(value)} out")
        if name not in cls.names():
            raise OptionError(Message("{where}{error}", where=where, error=refusal(task, name)))
    try:
        made = cls.of(fields)
    except OptionError as error:
        raise OptionError(Message("{where}{error}", where=where, error=str(error))) from None
    for name in (*PATHS, *ORIGINS):
        if name in made.names() and "" in as_list(getattr(made, name)):
            raise OptionError(f"{where}{spelled(name)}: a text's name is empty; name a file or a folder")
    return made


def _named(value: object) -> str:
    return value if isinstance(value, str) else shown(value)


def _check_cell(cell: str) -> None:
    """Raise an error if a cell cannot be made from its name. A file is not checked, which would execute it."""
    if cell not in ("", "gru", "lstm") and ".py" not in cell:
        from recur.cells.registry import configured_cell  # which needs torch

        configured_cell(cell)


def refusal(task: str, name: str, flag: str = "") -> str:
    """Return the error message for an option that a task does not have."""
    owners = [other for other in task_names() if name in options_class(other).names()]
    if not owners:
        return unknown_option(name, options_class(task).names())
    flag = flag or flag_of(name)
    listed = owners[0] if len(owners) == 1 else f"{', '.join(owners[:-1])} and {owners[-1]}"
    return f"{flag} belongs to {listed}; the task here is {task}: recur train --task {task} --help"


def arguments_of(task: str, fields: Mapping[str, Any]) -> list[str]:
    """Return the arguments of `recur train` for these options."""
    found = [*map(str, as_list(fields.get("texts"))), "--task", task]
    for name in options_class(task).names():
        value = fields.get(name)
        if name == "texts" or value is None:
            continue
        if isinstance(value, bool):
            found.append(flag_of(name) if value else f"--no-{flag_of(name).removeprefix('--')}")
            continue
        for one in as_list(value):
            word = repr(one) if isinstance(one, float) else str(one)
            found += [f"{flag_of(name)}={word}"] if word.startswith("-") else [flag_of(name), word]
    return found


# Configuration files ------------------------------------------------------------------------------------------


def read_config(path: Path, trusting: bool = False) -> dict[str, object]:
    """Return the fields that a TOML file sets, `task` among them, with paths relative to the current folder.

    The file may be a stranger's: a custom cell that it names must be trusted (see recur.utils.trust).
    """
    fields = with_paths(read_toml(path), path.parent)
    check_cells([fields.get("cell")], trusting)
    return fields


def with_paths(fields: dict[str, object], folder: Path) -> dict[str, object]:
    """Return fields whose paths are relative to the current folder, from fields relative to `folder`."""
    for name in (*PATHS, *ORIGINS):
        if name in fields:
            given = fields[name]
            names = [_resolved_path(folder, n) if isinstance(n, str) else n for n in as_list(given)]
            fields[name] = names[0] if name == "vectors" and isinstance(given, str) else names
    cell = fields.get("cell")
    if isinstance(cell, str) and (file := cell_file(cell)):
        fields["cell"] = _resolved_path(folder, file) + cell[len(file) :]
    return fields


def without_paths(fields: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Return fields whose paths are relative to `folder`: the inverse of `with_paths`."""
    found = dict(fields)
    for name in (*PATHS, *ORIGINS):
        if (given := found.get(name)) is not None:
            names = [relative_path(folder, str(n)) for n in as_list(given)]
            found[name] = names if isinstance(given, list | tuple) else names[0]
    cell = found.get("cell")
    if isinstance(cell, str) and (file := cell_file(cell)):
        found["cell"] = relative_path(folder, file) + cell[len(file) :]
    return found


def config_text(options: TaskOptions, folder: Path) -> str:
    """Return the content of a configuration file in `folder`, with paths relative to it."""
    fields: dict[str, Any] = {}
    for name in (*PATHS, *ORIGINS):
        if name in options.names() and (given := getattr(options, name)) is not None:
            names = tuple(relative_path(folder, n) for n in as_list(given))
            fields[name] = names[0] if isinstance(given, str) else names
    cell = cell_of(options)
    if file := cell_file(cell):
        carried = os.path.realpath(file) == os.path.realpath(folder / CELL)
        fields["cell"] = (CELL if carried else relative_path(folder, file)) + cell[len(file) :]
    return f'task = "{name_of(options)}"\n' + options.changed(**fields).to_toml()


def as_list(given: object) -> Sequence[Any]:
    """Return the values of an option that may have one or several."""
    return given if isinstance(given, list | tuple) else () if given is None else (given,)


def _resolved_path(folder: Path, name: str) -> str:
    if name in BUILT_IN or Path(name).is_absolute():
        return name
    found = os.path.normpath(os.path.join(os.path.realpath(folder), name))
    return os.path.relpath(found) if not folder.is_absolute() else found


def relative_path(folder: Path, name: str) -> str:
    """Return a path relative to `folder`."""
    if name in BUILT_IN or Path(name).is_absolute():
        own = name not in BUILT_IN and Path(name).is_relative_to(folder.absolute())
        return str(Path(name).relative_to(folder.absolute())) if own else name
    return os.path.relpath(name, os.path.realpath(folder))


GROUPS = (
    "Data",
    "Tokens",
    "Warm start",
    "Network",
    "Regularisation",
    "Decoder",
    "Optimisation",
    "Budget",
    "Machine",
)
"""Order of the option groups in --help, after the group of the task itself."""


def shown_default(cls: type[Options], name: str) -> str:
    """Return the default of an option as text; empty if it depends on the data."""
    shown = shown_value(cls.default(name))
    if issubclass(cls, TaskOptions):
        budget = f"{cls.default_minutes:g}, if no budget is given"
        own = {
            "batch_size": f"{cls.cpu_batch}, on a GPU {GPU_FACTOR * cls.cpu_batch}",
            "minutes": budget,
            "epochs": f"{cls.default_epochs:g}, if no budget is given" if cls.default_epochs else "",
            "weight_decay": f"{cls.adamw_decay:g} with adamw",
        }
        shown = own.get(name, shown)
        others = [f"{token}s: {shown_value(d[name])}" for token, d in cls.by_token.items() if name in d]
        if issubclass(cls, WarmStartOptions) and name in cls.carried:
            others.append(f"with --from: {shown_value(cls.carried[name])}")
        shown += f" ({', '.join(others)})" if others else ""
    return shown


def shown_value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    return " ".join(f"{item:g}" if isinstance(item, float) else str(item) for item in values)


TASKS = {
    "images": "grid",
    "signals": "classify",
    "steps": "tag",
    "trees": "tree",
    "tagged": "tag",
    "series": "forecast",
    "text": "language",
}
"""Task by kind of file; kinds that are not listed are ambiguous."""

CHOICES = {
    "pairs": (
        ("seq2seq", "writes the second column from the first"),
        ("classify", "tells the first column from the second"),
    ),
    "labelled": (
        ("classify", "tells the label of a text"),
        ("conditional", "writes texts of a label"),
        ("seq2seq", "writes the second column from the first"),
    ),
    "signals": (
        ("classify", "tells the class of a sequence of numbers"),
        ("grid", "takes each for an image"),
    ),
    "steps": (
        ("tag", "tells the labels of a sequence of numbers"),
        ("classify", "takes all that is written of a sequence for its class"),
    ),
    "series": (
        ("forecast", "forecasts the columns of numbers"),
        ("language", "reads it as text"),
    ),
    "tagged": (("tag", "tags every word with its last column"), ("language", "reads it as text")),
    "trees": (("tree", "classifies every node"), ("language", "reads it as text")),
}


def choose_task(names: Sequence[str]) -> tuple[str, str]:
    """Return the task for the files and the reason, which is empty for plain text.

    Raise an OptionError that lists the possible tasks if the files are ambiguous.
    """
    if not names or "" in names:  # an empty name is refused by who reads it
        return "language", ""
    found = recognise(names)
    if found.sure and found.kind in TASKS:
        task = TASKS[found.kind]
        return task, "" if found.kind == "text" else f"{names[0]} holds {found.why}: --task {task}"
    raise OptionError(_question(names, found))


def _question(names: Sequence[str], found: RecognisedData) -> str:
    choices = CHOICES.get(found.kind, (("language", "reads it as text"),))
    listed = ", ".join(f"--task {task} {what}" for task, what in choices)
    return f"{names[0]} looks like {found.why}; choose a task: {listed}"
