"""Data in memory written as the files that tasks read, so that a run that learned from it can be gone on with.

    labelled   label TAB text          frame[text], frame[label]; texts and labels; pairs (text, label)
    pairs      source TAB target       frame[source], frame[target]; sources and targets; pairs of them
    tagged     CoNLL: word TAB tag     frame[words], frame[tags], a row a sentence, or with `sentence` a row a word;
                                       sentences and their tags; pairs (words, tags)
    trees      a bracketed tree a line
    text       a text a line
    table      CSV                     a frame, a series, an array, columns by name; dates from an index
    images     .npz                    images (N, R, C) or (N, R, C, 3) and labels

Where the inputs of labels or tags are sequences of numbers, arrays (T, D) of any lengths, they go into an .npz too.

A tab or a line end inside a text would be read as the end of a column: it becomes a space, which is counted and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recur.data.frames.columns import cell, columns_of, csv_lines, is_frame, is_missing, is_series, one_line, values_of
from recur.errors import TextError, listed, shown
from recur.utils.files import replacing, write_atomically

NAMES = {"labelled": ("text", "label"), "pairs": ("source", "target"), "tagged": ("words", "tags", "sentence")}
"""The columns of a frame that a kind of file is made of, by the names they have if no others are given."""

ENDINGS = {"labelled": "tsv", "pairs": "tsv", "tagged": "conll", "trees": "txt", "text": "txt", "table": "csv"}


def is_data(given: object) -> bool:
    """Whether this is data itself, and not names of files."""
    if given is None or isinstance(given, str | Path):
        return False
    if isinstance(given, Sequence):
        return any(not isinstance(one, str | Path) or str(one).startswith("(") for one in given)  # which begins a tree
    return is_frame(given) or is_series(given) or isinstance(given, np.ndarray | Mapping)


def write_data(
    kind: str, given: Any, folder: Path, part: str, columns: Mapping[str, str] | None = None
) -> tuple[Path, list[str]]:
    """The file made of data, and what is worth saying of it. Inputs and their answers come as a tuple of two."""
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
    """Inputs and answers, out of whatever holds both."""
    names = NAMES[kind][:2]
    if is_frame(given) or isinstance(given, Mapping):
        found = columns_of(given)
        wanted = [columns.get(name, name) for name in names]
        for name, column in zip(names, wanted, strict=True):
            if column not in found:
                raise TextError(f"no column {column!r}; name it: {name}=…, one of {listed(list(found))}")
        return found[wanted[0]], found[wanted[1]]
    if isinstance(given, tuple) and len(given) == 2:
        inputs, answers = values_of(given[0]), values_of(given[1])
    else:
        rows = values_of(given)
        for k, row in enumerate(rows):
            if isinstance(row, str) or not isinstance(row, Sequence | np.ndarray) or len(row) != 2:
                raise TextError(f"row {k + 1}: {names[0]} and {names[1]} are expected, got {shown(row)}")
        inputs, answers = [row[0] for row in rows], [row[1] for row in rows]
    if len(inputs) != len(answers):
        raise TextError(f"{len(inputs)} of {names[0]} and {len(answers)} of {names[1]}: one belongs to the other")
    return inputs, answers


def _pairs(kind: str, given: Any, columns: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    names, changed = NAMES[kind], 0
    if kind == "labelled":
        yield "label\ttext"  # which column is which is known here, and not left to their values
    for k, pair in enumerate(zip(*_two(kind, given, columns), strict=True), start=1):
        fields = [cell(value) for value in pair]
        for name, field in zip(names, fields, strict=True):
            if not field.strip():
                raise TextError(f"row {k}: the {name} is empty")
        cut = [one_line(field) for field in fields]
        changed += cut != fields
        yield f"{cut[1]}\t{cut[0]}" if kind == "labelled" else f"{cut[0]}\t{cut[1]}"
    if changed:
        notes.append(f"{changed:,} rows had tabs or line ends inside; a space stands for each")


def _texts(kind: str, given: Any, columns: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    if is_frame(given) or isinstance(given, Mapping):
        name, found = columns.get("text", "text"), columns_of(given)
        if name not in found:
            raise TextError(f"no column {name!r}; give frame[name], of one of {listed(list(found))}")
        given = found[name]
    for k, text in enumerate(values_of(given), start=1):
        if not isinstance(text, str):
            raise TextError(f"row {k}: a text is expected, got {shown(text)}")
        yield one_line(text) if kind == "trees" else text


def _tagged(kind: str, given: Any, columns: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    by_word = columns.get("sentence", "sentence")
    if is_frame(given) and by_word in map(str, given.columns):
        yield from _word_by_word(columns_of(given)[by_word], *_two(kind, given, columns))
        return
    for k, (words, tags) in enumerate(zip(*_two(kind, given, columns), strict=True), start=1):
        words, tags = (part.split() if isinstance(part, str) else values_of(part) for part in (words, tags))
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
    fields = ["".join(cell(value).split()) for value in (word, tag)]
    if not all(fields):
        raise TextError(f"{where}: a word or its tag is empty")
    return "\t".join(fields)


def _table(kind: str, given: Any, columns: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    if isinstance(given, tuple) and len(given) == 2:
        inputs = columns_of(given[0])
        name = str(getattr(given[1], "name", None) or "target")
        given = inputs | {name if name not in inputs else f"{name} (target)": values_of(given[1])}
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
    labels = np.asarray(values_of(given[1]))
    if images.dtype.kind not in "buif" or images.ndim not in (3, 4):
        raise TextError(
            "images are an array (N, R, C) or (N, R, C, 3) of numbers; those of several sizes go into files"
        )
    if len(images) != len(labels):
        raise TextError(f"{len(images)} images and {len(labels)} labels: one belongs to the other")
    _write_npz(path, x=images, y=labels.astype(str) if labels.dtype.kind == "O" else labels)


def _signals(kind: str, given: Any) -> tuple[list[Any], list[Any]] | None:
    """Sequences of numbers and what is said of them; None where inputs are others."""
    if is_frame(given) or isinstance(given, Mapping):
        return None
    inputs, answers = _two(kind, given, {})
    numeric = all(isinstance(one, np.ndarray) and one.dtype.kind in "buif" and one.ndim in (1, 2) for one in inputs)
    return (inputs, answers) if inputs and numeric else None


def _write_signals(path: Path, kind: str, signals: list[np.ndarray[Any, Any]], answers: list[Any]) -> None:
    """All steps behind each other; a label for each sequence, or labels behind each other too."""
    shapes = {one.shape[1:] for one in signals}
    if len(shapes) > 1:
        raise TextError(f"sequences are (T, D) with one D for all, got {', '.join(map(str, sorted(shapes)))}")
    arrays: dict[str, Any] = {"x": np.concatenate(signals), "lengths": np.array([len(one) for one in signals])}
    if kind == "labelled":
        arrays["y"] = np.array([cell(one) for one in answers])
    else:
        each = [one.split() if isinstance(one, str) else [cell(label) for label in values_of(one)] for one in answers]
        arrays["y"] = np.array([label for labels in each for label in labels])
        if [len(labels) for labels in each] != arrays["lengths"].tolist():  # they are not one a step
            arrays["y_lengths"] = np.array([len(labels) for labels in each])
    _write_npz(path, **arrays)


def _write_npz(path: Path, **arrays: np.ndarray[Any, Any]) -> None:
    with replacing(path) as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]
