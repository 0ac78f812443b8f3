"""Options, cell, texts and trained model of a run folder.

Some imports are inside functions because they load torch, and options are read without it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recur.errors import RunError
from recur.options import parse_toml
from recur.tasks.common.options import DataOptions, TaskOptions, cell_of
from recur.tasks.common.registry import (
    BUILT_IN,
    CELL,
    PATHS,
    as_list,
    read_options,
    relative_path,
    task_of,
    variant_of,
    with_paths,
)
from recur.utils.trust import cell_file, check_trusted, read_source, trust

if TYPE_CHECKING:
    from recur.runs import Fingerprint, Run
    from recur.tasks.common.predictor import Predictor

OptionsT = TypeVar("OptionsT", bound=TaskOptions)


def options_of_run(run: Run, code: bool = True) -> TaskOptions:
    """Return the options that a run was trained with.

    With `code`, the custom cell of the run may be executed; without it, nothing is executed.
    """
    fields = with_paths(parse_toml(run.config_text().encode(), run.config), run.path)
    task = fields.pop("task", run.task)
    if task != run.task:
        raise RunError(f"{run.config} says task {task!r}, and manifest.json {run.task!r}")
    options = read_options(run.task, fields, f"{run.config}: ")
    if code and ".py" in (cell := cell_of(options)):
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
    """Open the trained model of a run, or several runs as an ensemble.

    `trust` allows the custom cell of the run to be executed.
    """
    from recur.runs import Run

    return predictor_of([Run.open(path, trust=trust) for path in paths], device)


def predictor_of(runs: Sequence[Run], device: str = "auto") -> Predictor[Any]:
    """Return the trained model of open runs."""
    task = task_of_run(runs[0])
    module = variant_of(task.options) or "predictor"
    found = importlib.import_module(f"recur.tasks.{task.name}.{module}")
    predictor: Predictor[Any] = found.PREDICTOR(task, runs, device)
    return predictor


# A run carries its cell, and knows its texts ---------------------------------------------------------------------


def with_carried_cell(options: TaskOptions, folder: Path) -> tuple[TaskOptions, bytes | None]:
    """Return options that name the copy of a custom cell in the run folder, and the source of that copy.

    The source is None if the options name a built-in cell.
    """
    from recur.cells.registry import admit

    cell = cell_of(options)
    file = cell_file(cell)
    if not file:
        return options, None
    source = read_source(file)
    check_trusted(Path(file), source)
    trust(source)  # the run opens again in a later process
    admit(folder / CELL, source)
    return options.changed(cell=f"{folder / CELL}{cell[len(file) :]}"), source


def text_fingerprints(options: TaskOptions, folder: Path, parts: Sequence[str] = PATHS) -> dict[str, list[Fingerprint]]:
    """Return the fingerprints of the texts that a run in a folder is trained on, by option; remember that this user
    has trained with them."""
    from recur.data.text.sources import fingerprint
    from recur.runs import Fingerprint
    from recur.runs.trust import allow_text

    found = {
        option: [Fingerprint(relative_path(folder, name), *fingerprint(name)) for name in names]
        for option in parts
        if (names := options.paths(option) if isinstance(options, DataOptions) else ())
    }
    for text in (text for many in found.values() for text in many):
        allow_text(text)
    return found


def check_texts_of_file(
    fields: Mapping[str, object], folder: Path, allow_path: Sequence[str | Path] = (), named_by_user: bool = False
) -> None:
    """Raise an error for texts outside of a sweep's folder that its file names.

    Texts are accepted if this user named them in an earlier command, names them now (`named_by_user`), or allows them.
    """
    from recur.data.text.sources import files_of
    from recur.runs import Fingerprint
    from recur.runs.trust import allow_text, check_allowed

    names = [str(name) for part in PATHS for name in as_list(fields.get(part)) if name not in BUILT_IN]
    for name in names:
        text = Fingerprint(os.path.abspath(name), 0, "")  # by its path: a sweep keeps no digests
        if named_by_user:
            allow_text(text)
        check_allowed(folder, files_of(name), text, allow_path)


def with_run_texts(
    run: Run,
    options: OptionsT,
    parts: Sequence[str] = PATHS,
    changed: bool = False,
    allow_path: Sequence[str | Path] = (),
) -> OptionsT:
    """Return options with the current paths of the texts of a run.

    A changed text raises an error unless `changed` is set. If a run or its text was moved, the text is found by its
    checksum: in the current folder, in the folders around the run, or where `allow_path` says. A path outside of the
    run is opened only with the consent of the user (`recur.runs.trust`).
    """
    found = {}
    for option in parts:
        names: tuple[str, ...] = options.paths(option) if isinstance(options, DataOptions) else ()
        known = run.manifest.texts.get(option, [])
        if len(names) != len(known):
            raise RunError(f"{run.config} and manifest.json name other texts: {option}")
        found[option] = tuple(
            _find_text(run, name, text, changed, allow_path) for name, text in zip(names, known, strict=True)
        )
    return options.changed(**{option: names for option, names in found.items() if names})


AROUND = 4
"""Number of folders around a moved run in which its texts are looked for."""


def _find_text(run: Run, name: str, known: Fingerprint, changed: bool, allow_path: Sequence[str | Path]) -> str:
    from recur.data.text.sources import files_of, fingerprint, is_there
    from recur.runs.trust import allow_text, check_allowed

    recorded = replace(
        known, name=relative_path(run.path, name)
    )  # the path is config.toml's, whatever the manifest says

    def may_open(path: str) -> bool:
        if path in BUILT_IN:
            return True
        if not is_there(path):
            return False
        check_allowed(run.path, files_of(path), recorded, allow_path)
        if not all(file.is_file() or file.is_dir() for file in files_of(path)):
            raise RunError(f"{path} is not a regular file, and {run.path} was trained on one; put it back")
        return True

    if may_open(name):
        size, digest = (known.bytes, known.sha256) if changed else fingerprint(name, known.bytes)
        if digest != known.sha256:
            now = f"{size:,}" if size < known.bytes else "others" if size == known.bytes else "more"
            raise RunError(
                f"{name} is not the text that {run.path} was trained on: it had {known.bytes:,} bytes and has {now} "
                "now; restore it, or continue with --changed-text (in Python: changed_text=True)"
            )
        return name
    given = [Path(path) for path in allow_path]
    folders = [*given, Path(), run.path, *run.path.absolute().parents[:AROUND]]
    parts = [part for part in Path(name).parts if part not in ("..", "/")]
    ends = [Path(*parts[-count:]) for count in range(1, min(len(parts), AROUND) + 1)]  # a.csv, data/a.csv, …
    beside = [folder / end for folder in folders for end in ends]
    for other in map(str, (*(path for path in given if path.is_file()), *beside)):
        if may_open(other) and fingerprint(other, known.bytes)[1] == known.sha256:
            allow_text(replace(known, name=relative_path(run.path, other)))  # the same content, where it is now
            return other
    raise RunError(
        f"no file {name!r}, which {run.path} learned from ({known.bytes:,} bytes, SHA-256 {known.sha256}); "
        "put it there or next to the run, or name it with --allow-path"
    )
