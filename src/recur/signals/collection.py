"""Sequences of numbers with their labels: an .npz (arrays.py), or a folder of .csv and .npy, one sequence a file.

A folder has a folder of sequences for each class; or a file labels.csv or labels.tsv beside them, a line
`file, label` for each, the label one class, or several symbols between spaces; or files with a column of labels, one
for each step (files.py).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from recur.errors import TextError, shown
from recur.files import read_bounded, too_long
from recur.images.arrays import reading, split_name
from recur.signals.arrays import Target, read_sequences
from recur.signals.files import SUFFIXES, Values, read_signal

LABEL_FILES = ("labels.csv", "labels.tsv")
MOST_LABELS = 1 << 27
"""Bytes of a file of labels at most."""


class Signal(NamedTuple):
    values: Values
    target: Target
    """A label as it is written, which may be several symbols between spaces; or several that stand apart; or none."""
    where: str


def is_signals(name: str) -> bool:
    """Whether a name stands for sequences of numbers where it could stand for texts: an .npz, an .npy, or a folder of
    such files."""
    path = Path(split_name(name)[0])
    if path.suffix.lower() in (".npz", ".npy"):
        return True
    return not too_long(name) and path.is_dir() and bool(label_file(path) or class_folders(path) or plain_files(path))


def read_signals(names: Sequence[str], labelled: bool = True) -> list[Signal]:
    """All sequences of files, folders and .npz, with as many features a step; unless `labelled` is false, each has its
    labels."""
    found = [signal for name in names for signal in _read(str(name), labelled)]
    if not found:
        raise TextError(f"{', '.join(names)} holds no sequence of numbers: no {' or '.join(SUFFIXES)}")
    width = found[0].values.shape[1]
    for signal in found:
        if signal.values.shape[1] != width:
            here, first = signal.values.shape[1], found[0].where
            raise TextError(f"{signal.where} has {here} features a step, and {first} has {width}")
        if labelled and signal.target is None:
            raise TextError(
                f"{signal.where} has no label; a folder has a folder for each class, a labels.csv or a column tag, "
                "an .npz an array y"
            )
    return found


def label_of(signal: Signal) -> str:
    """The one label of a sequence."""
    if isinstance(signal.target, str):
        return signal.target
    raise TextError(f"{signal.where} has {len(signal.target or ())} labels, and a class is one: take --task tag")


def labels_of(signal: Signal) -> tuple[str, ...]:
    """The labels of a sequence, in their order; written ones stand between spaces."""
    return tuple(signal.target.split()) if isinstance(signal.target, str) else signal.target or ()


def _read(name: str, labelled: bool) -> list[Signal]:
    if split_name(name)[0].lower().endswith(".npz"):
        values, targets = read_sequences(name)
        return [Signal(v, t, f"{name}[{k}]") for k, (v, t) in enumerate(zip(values, targets, strict=True))]
    path = Path(name)
    if "\0" in name or too_long(name) or not path.exists():
        raise TextError(f"no file {shown(name)}")
    if not path.is_dir():
        return [Signal(*read_signal(path), name)]
    if labels := label_file(path):
        return _by_list(path, labels)
    if inner := class_folders(path):
        return [
            Signal(read_signal(file).values, folder.name, str(file)) for folder in inner for file in plain_files(folder)
        ]
    return [Signal(*read_signal(file), str(file)) for file in plain_files(path)]


# Folders --------------------------------------------------------------------------------------------------------


def label_file(folder: Path) -> Path | None:
    """Its list of labels, if it has one."""
    return next((folder / name for name in LABEL_FILES if (folder / name).is_file()), None)


def class_folders(folder: Path) -> list[Path]:
    """A folder for each class, if there are two or more, and in them nothing but sequences."""
    inner = [path for path in _visible(folder) if path.is_dir()]
    return inner if len(inner) > 1 and all(map(plain_files, inner)) else []


def plain_files(folder: Path) -> list[Path]:
    """The files of a folder that holds nothing but sequences."""
    files = _visible(folder)
    return files if all(path.suffix.lower() in SUFFIXES and path.is_file() for path in files) else []


def _visible(folder: Path) -> list[Path]:
    with reading(folder, "a folder"):
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _by_list(folder: Path, labels: Path) -> list[Signal]:
    """The sequences that a list names, in its order."""
    found = []
    for line, (name, label) in read_list(labels):
        try:
            file = find_file(folder, name)
        except TextError as error:
            raise TextError(f"{labels}:{line}: {error}") from None
        found.append(Signal(read_signal(file).values, label, str(file)))
    return found


def find_file(folder: Path, name: str) -> Path:
    """A sequence of a folder by its name, with or without its ending; nothing outside of it."""
    for end in ("", *SUFFIXES):
        path = folder / f"{name}{end}"
        if not too_long(f"{name}{end}") and path.is_file() and folder.resolve() in path.resolve().parents:
            return path
    raise TextError(f"no file {shown(name)} in {folder}")


def read_list(path: Path) -> list[tuple[int, tuple[str, str]]]:
    """`file, label` of every line, with the line's number; a first line `file, …` names the columns."""
    found: list[tuple[int, tuple[str, str]]] = []
    with reading(path, "a list of labels"):
        text = read_bounded(path, MOST_LABELS).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text), delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells) or (not found and cells[0].lower() in ("file", "name", "path")):
                continue
            if len(cells) != 2 or not all(cells) or "\0" in cells[0] or too_long(cells[0]):
                between = "a tab" if path.suffix == ".tsv" else "a comma"
                raise TextError(f"{path}:{reader.line_num}: a line is a file and its label with {between} between")
            found.append((reader.line_num, (cells[0], cells[1])))
    if not found:
        raise TextError(f"{path} is empty: a line is a file and its label")
    return found
