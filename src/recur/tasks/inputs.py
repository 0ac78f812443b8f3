"""What is handed to a trained model: one input or several, checked when their turn comes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from recur.data.frames import columns_of, csv_lines, is_frame, is_series
from recur.data.text.labelled import read_lines
from recur.errors import TextError, shown


class Inputs:
    """What is to be predicted, each checked when its turn comes: a line, words, or an image's file or pixels."""

    def __init__(self, given: Iterable[Any], files: bool, arrays: bool = False, words: bool = False) -> None:
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise TextError(f"inputs come as a list of them, got {type(given).__name__} {shown(given)}")
        self.given = given
        self.kinds: tuple[type, ...] = (str, Path, np.ndarray) if files else (str, np.ndarray) if arrays else (str,)
        self.kinds += (list, tuple) if words else ()
        self.name = str(getattr(given, "name", None) or "the table")
        """Of the file that they come from, for messages."""

    def __iter__(self) -> Iterator[Any]:
        for one in self.given:
            if not isinstance(one, self.kinds):
                raise TextError(f"an input is a {self.kinds[0].__name__}, got {type(one).__name__} {shown(one)}")
            yield one


def source_name(lines: object) -> str:
    """Of the file that lines come from, where they say so."""
    return str(getattr(lines, "name", "the table"))


def inputs_of(given: Any, files: bool) -> tuple[bool, Iterable[Any]]:
    """Whether it is one input, and the inputs: a text, a file or an image is one, a list or a series is several."""
    if is_frame(given):
        names = [str(name) for name in given.columns]
        if len(names) != 1:
            raise TextError(f"which column is the input? Give frame[name]; the frame has {', '.join(names)}")
        return False, [str(value) for value in next(iter(columns_of(given).values()))]
    if isinstance(given, np.ndarray) and given.dtype.kind in "OUT":
        return False, given.tolist()
    if isinstance(given, Path) and not files:
        raise TextError(f"an input is a str, got the path {given}; read it: Path.read_text")
    if isinstance(given, str | Path | np.ndarray):
        return not (files and _holds_several(given)), [given]
    return False, given


def _holds_several(given: str | Path | np.ndarray[Any, Any]) -> bool:
    """A folder of images, or an archive of them."""
    return isinstance(given, str | Path) and (Path(given).suffix == ".npz" or Path(given).is_dir())


class Lines:
    """Lines that have a name, for messages."""

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self.lines, self.name = lines, name

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)


Kind = Literal["table", "row", "several"]


def table_of(given: Any) -> tuple[list[Lines], Kind]:
    """Tables as lines of CSV: a file by its name, a frame, an array, columns by name or a list of rows; or several."""
    if isinstance(given, str | Path):
        return [Lines(read_lines(str(given)), str(given))], "table"
    if _is_row(given):
        return [_lines({name: [value] for name, value in given.items()})], "row"
    if is_frame(given) or is_series(given) or isinstance(given, Mapping | np.ndarray):
        return [_lines(given)], "table"
    if isinstance(given, Sequence) and not isinstance(given, bytes) and given:
        if all(_is_row(row) for row in given):
            names = list(dict.fromkeys(itertools.chain.from_iterable(given)))
            return [_lines({name: [row.get(name) for row in given] for name in names})], "table"
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
            return [_lines(given)], "table"
        return [table_of(one)[0][0] for one in given], "several"
    raise TextError(
        f"a table is a file, a frame, an array or columns by name, got {type(given).__name__} {shown(given)}"
    )


def _is_row(given: Any) -> bool:
    """Whether it is one value for each column."""
    return isinstance(given, Mapping) and bool(given) and all(v is None or np.isscalar(v) for v in given.values())


def _lines(given: Any) -> Lines:
    return Lines(list(csv_lines(columns_of(given))), "the table")
