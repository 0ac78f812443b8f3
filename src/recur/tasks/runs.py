"""What a run was trained with: its options, its cell, its texts; and its model for use.

What is imported late here imports torch, and options need none.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recur.errors import RunError
from recur.options import parse_toml
from recur.tasks.options import TaskOptions
from recur.tasks.registry import (
    BUILT_IN,
    CELL,
    PATHS,
    cell_file,
    outside,
    read_options,
    reads_numbers,
    task_of,
    with_paths,
)

if TYPE_CHECKING:
    from recur.run import Fingerprint, Run
    from recur.tasks.contract import Predictor

OptionsT = TypeVar("OptionsT", bound=TaskOptions)


def options_of_run(run: Run, code: bool = True) -> TaskOptions:
    """What a run was trained with. A cell that it carries may be executed then; without `code` none may."""
    fields = with_paths(parse_toml(run.config_text().encode(), run.config), run.path)
    task = fields.pop("task", run.task)
    if task != run.task:
        raise RunError(f"{run.config} says task {task!r}, and manifest.json {run.task!r}")
    options = read_options(run.task, fields, f"{run.config}: ")
    if code and ".py" in (cell := getattr(options, "cell", "")):
        from recur.cells.registry import admit

        file = cell_file(cell)
        source, folder = run.cell_source(), os.path.realpath(Path(file).parent)
        if source is None or not file or Path(file).name != CELL or folder != os.path.realpath(run.path):
            raise RunError(f"{run.config} names a cell outside of the run: {cell!r}")
        admit(Path(file), source)
    return options


def task_of_run(run: Run) -> Any:
    return task_of(options_of_run(run))


def open_predictor(paths: Sequence[Path | str], device: str = "auto", trust: bool = False) -> Predictor[Any]:
    """The trained model of a run for use; of several, as one. To trust a run is to execute a cell that it carries."""
    from recur.run import Run

    return predictor_of([Run.open(path, trust=trust) for path in paths], device)


def predictor_of(runs: Sequence[Run], device: str = "auto") -> Predictor[Any]:
    """… of runs that are open."""
    task = task_of_run(runs[0])
    numbers = reads_numbers(task.options)
    found = importlib.import_module(f"recur.tasks.{task.name}.{'signal_' * numbers}predictor")
    predictor: Predictor[Any] = found.PREDICTOR(task, runs, device)
    return predictor


# A run carries its cell, and knows its texts ---------------------------------------------------------------------


def with_carried_cell(options: TaskOptions, folder: Path) -> tuple[TaskOptions, bytes | None]:
    """Options whose cell, if it is in a file of the user's, is the copy in a run's folder; and what that copy holds."""
    from recur.cells.registry import admit
    from recur.run import trust

    cell = getattr(options, "cell", "")
    file = cell_file(cell)
    if not file:
        return options, None
    source = Path(file).read_bytes()
    trust(source)  # it was executed already, to see whether it is a cell
    admit(folder / CELL, source)
    return options.changed(cell=f"{folder / CELL}{cell[len(file) :]}"), source


def texts_of(options: TaskOptions, folder: Path, parts: Sequence[str] = PATHS) -> dict[str, list[Fingerprint]]:
    """What a run in a folder learns from, by option."""
    from recur.run import Fingerprint
    from recur.text.fingerprint import fingerprint

    return {
        option: [Fingerprint(outside(folder, name), *fingerprint(name)) for name in getattr(options, option)]
        for option in parts
        if getattr(options, option, ())
    }


def with_own_texts(run: Run, options: OptionsT, parts: Sequence[str] = PATHS, changed: bool = False) -> OptionsT:
    """Options that name these texts of a run where they are now. A text that was changed is refused, unless that is
    as it should be; one that was moved beside the run, or here, is found by what is in it."""
    found = {}
    for option in parts:
        names, known = getattr(options, option, ()), run.manifest.texts.get(option, [])
        if len(names) != len(known):
            raise RunError(f"{run.config} and manifest.json name other texts: {option}")
        found[option] = tuple(_found(run, name, text, changed) for name, text in zip(names, known, strict=True))
    return options.changed(**{option: names for option, names in found.items() if names})


def _found(run: Run, name: str, known: Fingerprint, changed: bool) -> str:
    from recur.text.fingerprint import fingerprint, is_there

    if name in BUILT_IN or is_there(name):
        size, digest = (known.bytes, known.sha256) if changed else fingerprint(name, known.bytes)
        if digest != known.sha256:
            now = f"{size:,}" if size < known.bytes else "others" if size == known.bytes else "more"
            raise RunError(
                f"{name} is not what {run.path} learned from: it had {known.bytes:,} bytes then and has {now} now; put "
                "it back, or go on with --changed-text (in Python: changed_text=True)"
            )
        return name
    for folder in (Path(), run.path, run.path.parent):
        other = str(folder / Path(name).name)
        if is_there(other) and fingerprint(other, known.bytes)[1] == known.sha256:
            return other
    raise RunError(
        f"no file {name!r}, which {run.path} learned from ({known.bytes:,} bytes, SHA-256 {known.sha256}); "
        "put it there, or beside the run"
    )
