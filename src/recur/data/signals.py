"""Sequences of numbers from files, folders and .npz archives: (T, D), one row per step.

.npy    (T, D), or (T,) for one feature per step
.csv    one line per step, numbers separated by commas. A first line without a number names the columns. A column
        named `tag` or `label`, or an unnamed last column that is not numeric, holds one label per step.
.npz    an array of sequences, with arrays of lengths and labels
folder  one folder per class, a list of labels (labels.csv), or files with one label per step
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from recur.data.csv_files import MISSING, CsvRow, parse_date, read_rows
from recur.data.encodings import binary_error, detect_encoding, encoding_error
from recur.data.images import (
    SPLIT_NAMES,
    check_items,
    check_values,
    parse_npy,
    read_arrays,
    read_header,
    read_part_headers,
    reading_file,
    split_name,
)
from recur.data.locales import LocaleFormat, holds_number, localise
from recur.data.reading import Reading, kept
from recur.errors import TextError, listed, shown
from recur.utils.files import open_stream, read_bounded, too_long
from recur.utils.limits import FREE_LABELS, LABEL_FILE_BYTES, MOST_ITEMS, SIGNAL_BYTES, SIGNAL_CSV_BYTES, check_count

__all__ = [
    "SIGNAL_SUFFIXES",
    "Signal",
    "SignalSummary",
    "Values",
    "as_values",
    "inspect_signals",
    "is_signals",
    "label_of",
    "labels_of",
    "read_signal",
    "read_signals",
]


Values = np.ndarray[tuple[int, int], np.dtype[np.float32]]
"""Array of shape (T, D)."""

SIGNAL_SUFFIXES = (".csv", ".npy")
MOST_FEATURES = 1 << 16
"""Largest number of features per step."""

TAGS = ("tag", "label")
"""Names of a column with one label per step."""


class SignalSteps(NamedTuple):
    """Steps of one sequence and their labels."""

    values: Values
    tags: tuple[str, ...] | None
    """One label per step, if the file has them."""


def read_signal(path: Path | str, reading: Reading | None = None) -> SignalSteps:
    path = Path(path)
    reading = reading or Reading()
    with reading_file(path, "a sequence of numbers"):
        content = read_bounded(path, SIGNAL_CSV_BYTES if path.suffix.lower() == ".csv" else SIGNAL_BYTES)
        if path.suffix.lower() == ".npy":
            return SignalSteps(as_values(_filled(parse_npy(content), str(path), reading), str(path)), None)
        if path.suffix.lower() == ".csv":
            return parse_steps(_decoded(content, str(path), reading), str(path), reading)
    raise TextError(f"{path} is not a sequence of numbers: expected a file that ends in {' or '.join(SIGNAL_SUFFIXES)}")


def as_values(array: np.ndarray[Any, Any], where: str) -> Values:
    """Return (T,) or (T, D) as (T, D) in float32."""
    if array.dtype.kind not in "uifb":
        raise TextError(f"{where} holds {array.dtype}, and a sequence is made of numbers")
    found = array[:, None] if array.ndim == 1 else array
    if found.ndim != 2 or 0 in found.shape or found.shape[1] > MOST_FEATURES:
        raise TextError(
            f"{where} is not a sequence of numbers: expected (steps, features) or (steps,), got {array.shape}"
        )
    check_values(found, where)
    return np.ascontiguousarray(found, np.float32)


def _decoded(content: bytes, name: str, reading: Reading) -> str:
    encoding = reading.encoding or detect_encoding(content, True, reading.likely) or "utf-8"
    if (why := binary_error(name, content[:4096])) is not None:
        raise TextError(why)
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise TextError(encoding_error(name, error.start, content, error, encoding)) from None
    except UnicodeError as error:
        raise TextError(f"{name} is not {encoding}: {error}") from None


def parse_steps(text: str, name: str, reading: Reading | None = None) -> SignalSteps:
    """Parse a recording. A column of timestamps is left out; a missing value is the one before it, and is reported."""
    from recur.data.text.tables import delimited  # which needs this module to recognise files

    reading = reading or Reading()
    table = delimited(text.splitlines(), name, reading)
    rows = [CsvRow(row.line, [cell.strip() for cell in row.cells]) for row in table.rows]
    if not rows:
        raise TextError(f"{name} is empty: a sequence has a step at least")
    header = None if any(map(holds_number, rows[0].cells)) else [cell.lower() for cell in rows[0].cells]
    rows = rows if header is None else rows[1:]
    if not rows:
        raise TextError(f"{name} has a header and no steps")
    names = [""] * len(rows[0].cells) if header is None else header
    localise(names, rows, LocaleFormat(reading.decimal, reading.date_format or "dmy"), TAGS, name=name)
    width = len(rows[0].cells) if header is None else len(header)
    stamps = {k for k in range(width) if _holds_times(rows, k, "" if header is None else header[k])}
    tag = next((header.index(word) for word in TAGS if word in header), None) if header is not None else None
    if header is None and width > 1 and not any(_is_number(row.cells[-1]) for row in rows):
        tag = width - 1
    columns = [k for k in range(width) if k != tag and k not in stamps]
    if not columns or len(columns) > MOST_FEATURES:
        raise TextError(f"{name} has {len(columns)} columns of numbers; a step has 1 … {MOST_FEATURES:,}")
    values = np.empty((len(rows), len(columns)))
    for t, row in enumerate(rows):
        try:
            if len(row.cells) != width:
                raise TextError(f"{name}:{row.line}: {len(row.cells)} columns, where others have {width}")
            values[t] = [_number(row.cells[k], f"{name}:{row.line}") for k in columns]
        except TextError as error:
            reading.reject(error)
            values[t] = np.nan
    if stamps:
        reading.add_note("columns of timestamps are left out of recordings: each row is one step")
    tags = None if tag is None else tuple(row.cells[tag] if tag < len(row.cells) else "" for row in rows)
    if tags is not None and not all(tags):
        raise TextError(f"{name}:{rows[tags.index('')].line}: the step has no label, and others have one")
    return SignalSteps(as_values(_filled(values, name, reading), name), tags)


def _number(cell: str, where: str) -> float:
    if cell.lower() in MISSING:
        return math.nan
    if not _is_number(cell):
        raise TextError(f"{where}: {shown(cell)} is not a number")
    return float(cell)


TIMES = ("time", "timestamp", "datetime", "date", "时间", "时间戳")
"""Names of a column of times, if its numbers rise from row to row."""


def _holds_times(rows: Sequence[CsvRow], k: int, name: str) -> bool:
    """Return True if a column holds dates with or without a time, or is named like one and rises."""
    cells = [row.cells[k] for row in rows[:1000] if k < len(row.cells)]
    if name in TIMES and len(cells) > 1 and all(map(_is_number, cells)):
        return bool((np.diff([float(cell) for cell in cells]) > 0).all())
    found = [parse_date(cell) for cell in cells if cell]
    return bool(found) and all(date is not None and date.form != "number" for date in found)


def _filled(values: np.ndarray[Any, Any], name: str, reading: Reading) -> np.ndarray[Any, Any]:
    """Return numbers in which the value before stands for each missing one; missing ones are reported, or an error."""
    if values.dtype.kind != "f" or values.ndim not in (1, 2) or not np.isnan(values).any():
        return values
    steps = values.reshape(len(values), -1)
    missing = np.isnan(steps)
    if missing.all(0).any():
        raise TextError(f"{name}: column {int(missing.all(0).argmax()) + 1} has no number")
    t = int(missing.any(1).argmax())
    if reading.on_bad_rows == "error":
        raise TextError(
            f"{name}: step {t + 1} is not finite: a value is missing; --on-bad-rows warn repeats the value before it"
        )
    reading.add_gaps(f"{name}, first at step {t + 1}", int(missing.sum()))
    rows = np.where(missing, 0, np.arange(len(steps))[:, None])
    found = np.take_along_axis(steps, np.maximum.accumulate(rows, axis=0), axis=0)
    for column in found.T:
        seen = column[~np.isnan(column)]
        column[np.isnan(column)] = seen[0]
    return found.reshape(values.shape)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


LABELS = ("y", "label", "labels", "target", "targets", "tag", "tags")
LENGTHS = ("lengths", "x_lengths")
LABEL_LENGTHS = tuple(f"{name}_lengths" for name in LABELS)

SignalTarget = str | tuple[str, ...] | None
"""Label as written; or several separate labels; or None."""


class SignalArrays(NamedTuple):
    """Names of the arrays of a file, or of one part, and the contents of their headers."""

    x: str
    lengths: str | None
    y: str | None
    y_lengths: str | None
    shape: tuple[int, ...]
    """Shape of x."""
    kind: str
    """dtype kind of x."""
    y_shape: tuple[int, ...]
    sequences: int
    """Number of sequences."""
    parts: tuple[str, ...]
    """Names of the parts in the file; empty if it has none."""


def find_signal_arrays(name: str) -> SignalArrays:
    """Return the arrays of an .npz of sequences, or of one part; reads only array headers."""
    path, shapes, parts = read_part_headers(name, least_axes=0)
    own = {_role(array): array for array in shapes}
    named = listed([f"{array} {shapes[array][0]}" for array in own.values()]) or "nothing"
    roles = {*LABELS, *LENGTHS, *LABEL_LENGTHS}
    others = [array for role, array in own.items() if role not in roles]
    numbers = [array for array in others if shapes[array][1] in "uifb" and len(shapes[array][0]) in (1, 2, 3)]
    if len(numbers) != 1:
        many = "several arrays that could be sequences" if numbers else "no array of sequences (N, steps, features)"
        raise TextError(f"{path} has {many}: {named}")
    x, (shape, kind) = numbers[0], shapes[numbers[0]]
    lengths, y, y_lengths = (
        next((own[role] for role in names if role in own), None) for names in (LENGTHS, LABELS, LABEL_LENGTHS)
    )
    for array in filter(None, (lengths, y_lengths)):
        if len(shapes[array][0]) != 1 or shapes[array][1] not in "ui":
            raise TextError(f"{path}: {array} must be whole numbers (N,), got {shapes[array][0]}")
    if lengths is None and len(shape) == 1:
        raise TextError(f"{path}: {x} is {shape}: concatenated steps need an array `lengths` (N,)")
    count = shape[0] if lengths is None else shapes[lengths][0][0]
    if 0 in shape or not count or (len(shape) == 3 and shape[2] > MOST_FEATURES):
        raise TextError(f"{path}: {x} is {shape} with {count} lengths: no sequence of numbers")
    if len(shape) == 3 and count != shape[0]:
        raise TextError(f"{path}: {count} lengths, and {x} has {shape[0]} sequences")
    if y is not None and (shapes[y][1] not in "uibUS" or len(shapes[y][0]) not in (1, 2)):
        raise TextError(f"{path}: {y} must be whole numbers or text, (N,) or (N, L), got {shapes[y][0]}")
    check_items(path, "sequences", count)
    if y is not None:
        most = FREE_LABELS + 4 * os.path.getsize(path)
        check_count(path, "labels", math.prod(shapes[y][0]), most, "take fewer, or save it without compression")
    return SignalArrays(x, lengths, y, y_lengths, shape, kind, () if y is None else shapes[y][0], count, parts)


def _role(array: str) -> str:
    """Return the name of an array without its part."""
    words = array.lower().replace("-", "_").split("_")
    parts = {word for words_of_part in SPLIT_NAMES.values() for word in words_of_part}
    if len(words) > 1 and words[0] in parts:
        words = words[1:]
    elif len(words) > 1 and words[-1] in parts:
        words = words[:-1]
    return "_".join(words)


def read_sequences(name: str, reading: Reading | None = None) -> tuple[list[Values], list[SignalTarget]]:
    """Return all sequences of an .npz, (T, D) each, and their targets."""
    path, _ = split_name(name)
    found = find_signal_arrays(name)
    names = [array for array in (found.x, found.lengths, found.y, found.y_lengths) if array is not None]
    arrays = dict(zip(names, read_arrays(path, *names), strict=True))
    x = arrays[found.x]
    if x.dtype.kind == "f" and np.isnan(x).any() and reading is not None and reading.on_bad_rows != "error":
        x = _filled_sequences(x, f"{path}: {found.x}", reading)
    check_values(x, f"{path}: {found.x}")
    lengths = None if found.lengths is None else _lengths(arrays[found.lengths], path, found.lengths)
    rows = _cut(x, lengths, found.sequences, f"{path}: {found.x}")
    if min(map(len, rows)) == 0:
        raise TextError(f"{name}[{[len(row) for row in rows].index(0)}] has no step")
    values = [np.ascontiguousarray(row.reshape(len(row), -1), np.float32) for row in rows]
    return values, _targets(found, arrays, [len(row) for row in rows], path)


def _filled_sequences(x: np.ndarray[Any, Any], where: str, reading: Reading) -> np.ndarray[Any, Any]:
    """Return sequences without missing values: (N, T, D) each by itself, concatenated steps as they follow."""
    if x.ndim < 3:
        return _filled(x, where, reading) if x.ndim == 2 or x.ndim == 1 else x
    return np.stack([_filled(one, f"{where}[{k}]", reading) for k, one in enumerate(x)])


def _lengths(array: np.ndarray[Any, Any], path: str, name: str) -> list[int]:
    found: list[int] = array.tolist()
    if min(found, default=0) < 0:
        raise TextError(f"{path}: {name} holds {min(found)}: no length")
    return found


def _cut(x: np.ndarray[Any, Any], lengths: list[int] | None, count: int, where: str) -> list[np.ndarray[Any, Any]]:
    """Split an array of padded or concatenated sequences into one array per sequence."""
    if lengths is None:
        if len(x) != count or x.ndim < 2:
            raise TextError(f"{where} is {x.shape}, and there are {count} sequences")
        return list(x)
    if len(lengths) != count:
        raise TextError(f"{where}: {len(lengths)} lengths, and there are {count} sequences")
    if x.ndim < 3 and sum(lengths) == len(x):
        return np.split(x, np.cumsum(lengths)[:-1])
    if x.ndim > 1 and len(x) == count and max(lengths) <= x.shape[1]:
        return [row[:n] for row, n in zip(x, lengths, strict=True)]
    raise TextError(f"{where} is {x.shape}, and {count} lengths up to {max(lengths)} with a sum of {sum(lengths)}")


def _targets(
    found: SignalArrays, arrays: dict[str, np.ndarray[Any, Any]], steps: list[int], path: str
) -> list[SignalTarget]:
    if found.y is None:
        return [None] * found.sequences
    y, where = arrays[found.y], f"{path}: {found.y}"
    with reading_file(path, "an .npz"):
        text = y.astype(str)
    if found.y_lengths is not None:
        own = _lengths(arrays[found.y_lengths], path, found.y_lengths)
        return [tuple(row.tolist()) for row in _cut(text, own, found.sequences, where)]
    if text.shape in ((found.sequences,), (found.sequences, 1)):
        return list(text.reshape(-1).tolist())
    return [tuple(row.tolist()) for row in _cut(text, steps, found.sequences, where)]


LABEL_FILES = ("labels.csv", "labels.tsv")


class Signal(NamedTuple):
    """One sequence with its target and its place of origin."""

    values: Values
    target: SignalTarget
    """Label as written, possibly several symbols separated by spaces; or several separate labels; or None."""
    where: str


def is_signals(name: str) -> bool:
    """Return True if a name refers to sequences of numbers, not text: an .npz, an .npy, or a folder of such files."""
    path = Path(split_name(name)[0])
    if path.suffix.lower() in (".npz", ".npy"):
        return True
    return not too_long(name) and path.is_dir() and bool(label_file(path) or class_folders(path) or plain_files(path))


def read_signals(names: Sequence[str], labelled: bool = True, reading: Reading | None = None) -> list[Signal]:
    """Return all sequences of files, folders and .npz, with equal numbers of features; with `labelled`, all have
    labels.
    """
    reading = reading or Reading()
    found = [signal for name in names for signal in _read(str(name), reading)]
    if not found:
        raise TextError(f"{', '.join(names)} holds no sequence of numbers: no {' or '.join(SIGNAL_SUFFIXES)}")
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
    reading.check_share(len(found), ", ".join(names))
    return found


def label_of(signal: Signal) -> str:
    """Return the only label of a sequence."""
    if isinstance(signal.target, str):
        return signal.target
    raise TextError(f"{signal.where} has {len(signal.target or ())} labels, and a class is one: take --task tag")


def labels_of(signal: Signal) -> tuple[str, ...]:
    """Return the labels of a sequence in order; written ones are separated by spaces."""
    return tuple(signal.target.split()) if isinstance(signal.target, str) else signal.target or ()


def _read(name: str, reading: Reading) -> list[Signal]:
    if split_name(name)[0].lower().endswith(".npz"):
        values, targets = read_sequences(name, reading)
        return [Signal(v, t, f"{name}[{k}]") for k, (v, t) in enumerate(zip(values, targets, strict=True))]
    path = Path(name)
    if "\0" in name or too_long(name) or not path.exists():
        raise TextError(f"no file {shown(name)}")
    if not path.is_dir():
        return [Signal(*read_signal(path, reading), name)]
    if labels := label_file(path):
        return _by_list(path, labels, reading)
    if inner := class_folders(path):
        files = [(file, folder.name) for folder in inner for file in plain_files(folder)]
        return list(kept(files, lambda one: Signal(read_signal(one[0], reading).values, one[1], str(one[0])), reading))
    return list(kept(plain_files(path), lambda file: Signal(*read_signal(file, reading), str(file)), reading))


# Folders --------------------------------------------------------------------------------------------------------


def label_file(folder: Path) -> Path | None:
    """Return the list of labels of a folder, or None."""
    return next((folder / name for name in LABEL_FILES if (folder / name).is_file()), None)


def class_folders(folder: Path) -> list[Path]:
    """Return the folders of a folder, one per class, if there are two or more with nothing but sequences."""
    inner = [path for path in _visible(folder) if path.is_dir()]
    return inner if len(inner) > 1 and all(map(plain_files, inner)) else []


def plain_files(folder: Path) -> list[Path]:
    """Return the files of a folder if all of them are sequences."""
    files = _visible(folder)
    return files if all(path.suffix.lower() in SIGNAL_SUFFIXES and path.is_file() for path in files) else []


def _visible(folder: Path) -> list[Path]:
    with reading_file(folder, "a folder"):
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _by_list(folder: Path, labels: Path, reading: Reading) -> list[Signal]:
    """Return the sequences that a list of labels names, in its order."""

    def read(entry: tuple[int, tuple[str, str]]) -> Signal:
        line, (name, label) = entry
        try:
            file = find_file(folder, name)
        except TextError as error:
            raise TextError(f"{labels}:{line}: {error}") from None
        return Signal(read_signal(file, reading).values, label, str(file))

    return list(kept(read_list(labels), read, reading))


def find_file(folder: Path, name: str) -> Path:
    """Return the path of a sequence in a folder by name, with or without suffix; refuse paths outside the folder."""
    for end in ("", *SIGNAL_SUFFIXES):
        path = folder / f"{name}{end}"
        if not too_long(f"{name}{end}") and path.is_file() and folder.resolve() in path.resolve().parents:
            return path
    raise TextError(f"no file {shown(name)} in {folder}")


def read_list(path: Path) -> list[tuple[int, tuple[str, str]]]:
    """Return `file, label` of every line with its line number; a first line `file, …` names the columns."""
    found: list[tuple[int, tuple[str, str]]] = []
    with reading_file(path, "a list of labels"):
        text = read_bounded(path, LABEL_FILE_BYTES).decode("utf-8-sig")
        delimiter = "\t" if path.suffix == ".tsv" else ","
        for line, cells in read_rows(io.StringIO(text), str(path), delimiter=delimiter):
            if not any(cells) or (not found and cells[0].lower() in ("file", "name", "path")):
                continue
            if len(cells) != 2 or not all(cells) or "\0" in cells[0] or too_long(cells[0]):
                between = "a tab" if path.suffix == ".tsv" else "a comma"
                raise TextError(f"{path}:{line}: a line is a file and its label with {between} between")
            found.append((line, (cells[0], cells[1])))
            check_count(str(path), "sequences", len(found), MOST_ITEMS, "split the list")
    if not found:
        raise TextError(f"{path} is empty: a line is a file and its label")
    return found


MAX_INSPECTED_FILES = 50
"""Number of files per class whose headers are inspected."""


class SignalSummary(NamedTuple):
    """Summary of files with sequences of numbers."""

    labels: Literal["class", "steps", "sequences", "none"]
    """One label per sequence, one per step, label sequences, or none."""
    sure: bool
    """Whether these are certainly sequences, not images."""
    why: str
    """Description for the user."""


def inspect_signals(name: str) -> SignalSummary | None:
    """Return a summary of sequences of numbers; None if the name refers to something else, or to images."""
    path = Path(split_name(name)[0])
    if path.suffix.lower() == ".npz":
        return _inspect_arrays(name)
    if too_long(name) or not path.is_dir():
        return None
    if labels := label_file(path):
        return _inspect_list(path, labels)
    if classes := class_folders(path):
        return _inspect_classes(classes)
    if files := plain_files(path):
        return _inspect_files(files)
    return None


def _inspect_list(folder: Path, labels: Path) -> SignalSummary | None:
    try:
        rows = read_list(labels)
        find_file(folder, rows[0][1][0])
    except TextError:  # a text of that name
        return None
    written = [label for _, (_, label) in rows]
    why = f"{len(rows):,} sequences of numbers with labels in {labels.name}"
    if not any(len(label.split()) > 1 for label in written):
        return SignalSummary("class", True, why)
    return SignalSummary("sequences", len(set(written)) > len(written) / 2, f"{why}, several symbols each")


def _inspect_arrays(name: str) -> SignalSummary | None:
    try:
        found = find_signal_arrays(name)
    except TextError:  # images may be laid out otherwise; what is neither is refused by who reads images
        return None
    rows = f"{found.sequences:,} sequences of numbers (array {found.x}, labels {found.y})"
    if found.y is None:
        return SignalSummary("none", False, rows) if found.lengths is not None else None
    if found.y_lengths is not None:
        return SignalSummary("sequences", True, rows)
    if found.y_shape not in ((found.sequences,), (found.sequences, 1)):
        return SignalSummary("steps", True, rows)
    if found.lengths is not None or len(found.shape) == 2:
        return SignalSummary("class", True, rows)
    return (
        None if _like_images(found) else SignalSummary("class", False, f"{rows} of {found.shape[1]} × {found.shape[2]}")
    )


def _like_images(found: SignalArrays) -> bool:
    _, R, C = found.shape
    return found.kind != "f" or R == C


def _inspect_classes(classes: list[Path]) -> SignalSummary | None:
    why = "a folder of sequences of numbers for each class"
    files = [file for folder in classes for file in plain_files(folder)[:MAX_INSPECTED_FILES]]
    arrays = [file for file in files if file.suffix.lower() == ".npy"]
    if len(arrays) < len(files):
        return SignalSummary("class", True, why)
    shapes, kinds = zip(*map(_header, arrays), strict=True)
    axes = {len(shape) for shape in shapes}
    if axes == {1} or (axes == {2} and len({shape[0] for shape in shapes}) > 1 == len({s[1] for s in shapes})):
        return SignalSummary("class", True, why)
    square = all(len(shape) == 2 and shape[0] == shape[1] for shape in shapes)
    return None if axes != {2} or square or "f" not in kinds else SignalSummary("class", False, why)


def _header(path: Path) -> tuple[tuple[int, ...], str]:
    with reading_file(path, "an array"), open_stream(path) as stream:
        shape, dtype = read_header(stream, path.stat().st_size)
    return shape, dtype.kind


def _inspect_files(files: list[Path]) -> SignalSummary | None:
    """Return a summary of files that have one label per step; None for other files."""
    try:
        tags = read_signal(files[0]).tags
    except TextError:
        return None
    if tags is None:
        return None
    return SignalSummary("steps", True, f"{len(files):,} sequences of numbers with a label for each step")
