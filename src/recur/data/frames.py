"""Data in memory: pandas or polars frames, arrays and lists, converted to the columns and files that tasks read.

Neither package is imported: an object with the interface of a frame is treated as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np

from recur.data.csv_files import format_row
from recur.errors import TextError, listed, shown
from recur.utils.files import replacing, write_atomically

__all__ = [
    "DEFAULT_COLUMNS",
    "column_roles",
    "columns_of",
    "csv_lines",
    "has_label_lists",
    "is_frame",
    "is_in_memory",
    "is_series",
    "single_line",
    "write_data",
]


ColumnDict = dict[str, list[Any]]


def is_frame(given: object) -> bool:
    """Return True if the object has named columns and rows, like the frames of pandas and polars."""
    shape = getattr(given, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 2 and hasattr(given, "columns") and hasattr(given, "__getitem__")


def is_series(given: object) -> bool:
    """Return True if the object is one column of a frame."""
    shape = getattr(given, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 1 and hasattr(given, "to_list")


def column_values(column: object) -> list[Any]:
    """Return the values of a column or list as Python objects."""
    if is_series(column):
        return list(column.to_list())  # type: ignore[attr-defined]
    if isinstance(column, np.ndarray):
        return list(column.tolist()) if column.ndim == 1 else list(column)
    if isinstance(column, str | bytes | Mapping) or not isinstance(column, Sequence):
        raise TextError(f"a column is a list or a series, got {type(column).__name__} {shown(column)}")
    return list(column)


def columns_of(given: object) -> ColumnDict:
    """Return the columns of a frame, series, mapping of lists or array. A date index becomes a column."""
    if isinstance(given, Mapping):
        found = {str(name): column_values(column) for name, column in given.items()}
    elif is_frame(given):
        names = list(given.columns)  # type: ignore[attr-defined]
        if len({str(name) for name in names}) < len(names):
            raise TextError(f"two columns of the frame have the same name: {', '.join(map(str, names))}")
        found = _dates(given) | {str(name): column_values(given[name]) for name in names}  # type: ignore[index]
    elif is_series(given):
        name = getattr(given, "name", None)
        found = _dates(given) | {"value" if name in (None, "") else str(name): column_values(given)}
    elif isinstance(given, np.ndarray) and given.ndim == 2:
        found = {f"x{k}": column.tolist() for k, column in enumerate(given.T, start=1)}
    elif isinstance(given, np.ndarray | Sequence) and not isinstance(given, str | bytes):
        found = {"value": column_values(given)}
    else:
        raise TextError(f"a table is a frame, an array or columns by name, got {type(given).__name__} {shown(given)}")
    if not found or len({len(column) for column in found.values()}) > 1:
        sizes = ", ".join(f"{name}: {len(column)}" for name, column in found.items())
        raise TextError(f"the columns of a table must have equal length, got {sizes or 'none'}")
    return found


def _dates(given: object) -> ColumnDict:
    """Return the date index of a pandas object as a column; nothing if the index only counts rows."""
    index = getattr(given, "index", None)
    if index is None or not hasattr(index, "to_list"):
        return {}
    values = list(index.to_list())
    if not values or not (isinstance(values[0], date) or hasattr(values[0], "start_time")):  # a Period has one
        return {}
    name = str(getattr(index, "name", None) or "date")
    return {name: values}


def csv_lines(columns: ColumnDict) -> Iterator[str]:
    """Yield a header and one CSV line per row, without line ends."""
    whole_days = {name: all(_is_midnight(v) for v in values) for name, values in columns.items()}
    yield format_row(map(single_line, columns))
    for row in zip(*columns.values(), strict=True):
        cells = [format_cell(v, whole_days[name]) for name, v in zip(columns, row, strict=True)]
        if not any(cells):
            cells[0] = "NA"  # a line without anything would be none
        yield format_row(map(single_line, cells))


def format_cell(value: object, whole_days: bool = False) -> str:
    """Return a value as text for a file; empty if it is missing."""
    if is_missing(value):
        return ""
    if isinstance(value, datetime):
        return value.date().isoformat() if whole_days else value.isoformat()
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, np.generic):
        value = value.item()
    return repr(value) if isinstance(value, float) else str(value)


def is_missing(value: object) -> bool:
    """Return True for None, NaN and pandas' NA."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor not; arrays are both
        return type(value).__name__ == "NAType"


def _is_midnight(value: object) -> bool:
    return is_missing(value) or not isinstance(value, datetime) or value.time() == time()


def single_line(text: str) -> str:
    """Replace tabs and line ends in a text by single spaces."""
    return " ".join(text.split()) if any(mark in text for mark in "\t\n\r") else text


DEFAULT_COLUMNS = {
    "labelled": ("text", "label"),
    "pairs": ("source", "target"),
    "tagged": ("words", "tags", "sentence"),
}
"""Default names of the columns that each kind of file is made of."""

EXTRA_COLUMNS = {"labelled": ("group", "id"), "pairs": ("group",)}
"""Further columns of a frame that are written if they are named."""


def column_roles(kind: str) -> tuple[str, ...]:
    """Return the options that name columns of a frame."""
    if kind in ("table", "images", "trees"):
        return ()
    return (*DEFAULT_COLUMNS.get(kind, ("text",)), *EXTRA_COLUMNS.get(kind, ()))


def has_label_lists(given: Any, columns: Mapping[str, str]) -> bool:
    """Return True if labels are lists: several labels of each text."""
    try:
        return any(_is_label_list(label) for label in _two("labelled", given, columns)[1])
    except TextError:  # which `write_data` reports
        return False


def _is_label_list(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset) or (isinstance(value, np.ndarray) and value.ndim == 1)


ENDINGS = {"labelled": "tsv", "pairs": "tsv", "tagged": "conll", "trees": "txt", "text": "txt", "table": "csv"}


def is_in_memory(given: object) -> bool:
    """Return True if the argument is data, not names of files."""
    if given is None or isinstance(given, str | Path):
        return False
    if isinstance(given, Sequence):
        return any(not isinstance(one, str | Path) or str(one).startswith("(") for one in given)  # which begins a tree
    return is_frame(given) or is_series(given) or isinstance(given, np.ndarray | Mapping)


def write_data(
    kind: str, given: Any, folder: Path, part: str, columns: Mapping[str, str] | None = None
) -> tuple[Path, list[str]]:
    """Write data to a file in `folder`. Return its path and notes for the user.

    given   a frame, or a tuple of inputs and targets
    """
    notes: list[str] = []
    if kind == "images":
        path = folder / f"{part}.npz"
        _write_images(path, given)
        return path, notes
    if kind in ("labelled", "tagged") and (signals := _signals(kind, given)) is not None:
        path = folder / f"{part}.npz"
        _write_signals(path, kind, *signals)
        return path, notes
    lines = {"tagged": _tagged, "table": _table, "trees": _texts, "text": _texts}.get(kind, _pairs)
    path = folder / f"{part}.{ENDINGS[kind]}"
    write_atomically(path, "".join(f"{line}\n" for line in lines(kind, given, columns or {}, notes)).encode())
    return path, notes


def _two(kind: str, given: Any, columns: Mapping[str, str]) -> tuple[list[Any], list[Any]]:
    """Return inputs and targets from a frame, a tuple or a list of pairs."""
    names = DEFAULT_COLUMNS[kind][:2]
    if is_frame(given) or isinstance(given, Mapping):
        found = columns_of(given)
        wanted = [columns.get(name, name) for name in names]
        for name, column in zip(names, wanted, strict=True):
            if column not in found:
                raise TextError(f"no column {column!r}; name it: {name}=…, one of {listed(list(found))}")
        return found[wanted[0]], found[wanted[1]]
    if isinstance(given, tuple) and len(given) == 2:
        inputs, answers = column_values(given[0]), column_values(given[1])
    else:
        rows = column_values(given)
        for k, row in enumerate(rows):
            if isinstance(row, str) or not isinstance(row, Sequence | np.ndarray) or len(row) != 2:
                raise TextError(f"row {k + 1}: {names[0]} and {names[1]} are expected, got {shown(row)}")
        inputs, answers = [row[0] for row in rows], [row[1] for row in rows]
    if len(inputs) != len(answers):
        raise TextError(
            f"expected one {names[1]} per {names[0]}, got {len(inputs)} of {names[0]} and {len(answers)} of {names[1]}"
        )
    return inputs, answers


def _pairs(kind: str, given: Any, columns: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    names, changed = DEFAULT_COLUMNS[kind], 0
    inputs, answers = _two(kind, given, columns)
    extra = [role for role in EXTRA_COLUMNS.get(kind, ()) if role in columns]
    more = [_named_column(given, columns[role], role) for role in extra]
    if kind == "labelled":
        # which column is which is known here, and not left to their values
        yield "\t".join(("label", "text", *extra))
    elif extra:
        yield "\t".join((*names, *extra))
    for k, (one, answer, *beside) in enumerate(zip(inputs, answers, *more, strict=True), start=1):
        several = kind == "labelled" and _is_label_list(answer)
        labels = "|".join(sorted({format_cell(label) for label in answer})) if several else format_cell(answer)
        fields = [format_cell(one), labels]
        for name, field in zip(names, fields, strict=True):
            if not field.strip() and not (several and name == "label"):
                raise TextError(f"row {k}: the {name} is empty")
        cut = [single_line(field) for field in fields]
        changed += cut != fields
        rest = [single_line(format_cell(value)) for value in beside]
        yield "\t".join((cut[1], cut[0], *rest) if kind == "labelled" else (*cut, *rest))
    if changed:
        notes.append(f"{changed:,} rows had tabs or line ends inside; a space stands for each")


def _named_column(given: Any, column: str, role: str) -> list[Any]:
    found = columns_of(given) if is_frame(given) or isinstance(given, Mapping) else {}
    if column not in found:
        raise TextError(f"no column {column!r}; name it: {role}=…, one of {listed(list(found))}")
    return found[column]


def _texts(kind: str, given: Any, columns: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    if is_frame(given) or isinstance(given, Mapping):
        name, found = columns.get("text", "text"), columns_of(given)
        if name not in found:
            raise TextError(f"no column {name!r}; give frame[name], of one of {listed(list(found))}")
        given = found[name]
    for k, text in enumerate(column_values(given), start=1):
        if not isinstance(text, str):
            raise TextError(f"row {k}: a text is expected, got {shown(text)}")
        yield single_line(text) if kind == "trees" else text


def _tagged(kind: str, given: Any, columns: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    by_word = columns.get("sentence", "sentence")
    if is_frame(given) and by_word in map(str, given.columns):
        yield from _word_by_word(columns_of(given)[by_word], *_two(kind, given, columns))
        return
    for k, (words, tags) in enumerate(zip(*_two(kind, given, columns), strict=True), start=1):
        words, tags = (part.split() if isinstance(part, str) else column_values(part) for part in (words, tags))
        if len(words) != len(tags) or not words:
            raise TextError(f"sentence {k} has {len(words)} words and {len(tags)} tags")
        yield from (_word(word, tag, f"sentence {k}") for word, tag in zip(words, tags, strict=True))
        yield ""


def _word_by_word(sentences: Iterable[Any], words: Iterable[Any], tags: Iterable[Any]) -> Iterator[str]:
    before: object = None
    for k, (sentence, word, tag) in enumerate(zip(sentences, words, tags, strict=True), start=1):
        if k > 1 and sentence != before and not is_missing(sentence):
            yield ""
        before = before if is_missing(sentence) else sentence  # some name a sentence at its first word only
        yield _word(word, tag, f"row {k}")


def _word(word: Any, tag: Any, where: str) -> str:
    fields = ["".join(format_cell(value).split()) for value in (word, tag)]
    if not all(fields):
        raise TextError(f"{where}: a word or its tag is empty")
    return "\t".join(fields)


def _table(kind: str, given: Any, columns: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    if isinstance(given, tuple) and len(given) == 2:
        inputs = columns_of(given[0])
        name = str(getattr(given[1], "name", None) or "target")
        given = inputs | {name if name not in inputs else f"{name} (target)": column_values(given[1])}
    elif isinstance(given, Sequence) and given and all(isinstance(row, Mapping) for row in given):
        names = list(dict.fromkeys(name for row in given for name in row))
        given = {name: [row.get(name) for row in given] for name in names}
    return csv_lines(columns_of(given))


def _write_images(path: Path, given: Any) -> None:
    if not isinstance(given, tuple) or len(given) != 2:
        raise TextError("images come with their labels: (images, labels), an array (N, R, C) and as many labels")
    try:
        images = np.asarray(given[0])
    except ValueError:  # of several sizes
        images = np.empty(0, object)
    labels = np.asarray(column_values(given[1]))
    if images.dtype.kind not in "buif" or images.ndim not in (3, 4):
        raise TextError(
            "images are an array (N, R, C) or (N, R, C, 3) of numbers; those of several sizes go into files"
        )
    if len(images) != len(labels):
        raise TextError(f"expected one label per image, got {len(images)} images and {len(labels)} labels")
    _write_npz(path, x=images, y=labels.astype(str) if labels.dtype.kind == "O" else labels)


def _signals(kind: str, given: Any) -> tuple[list[Any], list[Any]] | None:
    """Return sequences of numbers and their labels; None if the inputs are not sequences of numbers."""
    if is_frame(given) or isinstance(given, Mapping):
        return None
    inputs, answers = _two(kind, given, {})
    numeric = all(isinstance(one, np.ndarray) and one.dtype.kind in "buif" and one.ndim in (1, 2) for one in inputs)
    return (inputs, answers) if inputs and numeric else None


def _write_signals(path: Path, kind: str, signals: list[np.ndarray[Any, Any]], answers: list[Any]) -> None:
    """Write all steps concatenated, with one label per sequence or concatenated label sequences."""
    shapes = {one.shape[1:] for one in signals}
    if len(shapes) > 1:
        raise TextError(f"all sequences must be (T, D) with the same D, got {', '.join(map(str, sorted(shapes)))}")
    arrays: dict[str, Any] = {"x": np.concatenate(signals), "lengths": np.array([len(one) for one in signals])}
    if kind == "labelled":
        arrays["y"] = np.array([format_cell(one) for one in answers])
    else:
        each = [
            one.split() if isinstance(one, str) else [format_cell(label) for label in column_values(one)]
            for one in answers
        ]
        arrays["y"] = np.array([label for labels in each for label in labels])
        if [len(labels) for labels in each] != arrays["lengths"].tolist():  # they are not one a step
            arrays["y_lengths"] = np.array([len(labels) for labels in each])
    _write_npz(path, **arrays)


def _write_npz(path: Path, **arrays: np.ndarray[Any, Any]) -> None:
    with replacing(path) as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]
