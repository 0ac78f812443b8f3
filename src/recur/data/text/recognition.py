"""Recognition of the kind of data in a file: images, signals, trees, tags, series, pairs, labelled or plain text.

Only the first lines or the array headers are read.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from recur.data.csv_files import MISSING, CsvRow, format_row, parse_date, parse_number, read_rows
from recur.data.encodings import binary_error, detect_encoding, encoding_error
from recur.data.frames import single_line
from recur.data.images import find_image_arrays, is_image_folder, split_name
from recur.data.locales import LocaleFormat, localise
from recur.data.reading import Reading
from recur.data.signals import inspect_signals
from recur.data.text.labelled import named_columns
from recur.data.text.sources import BUILT_IN, find_sources, raw_source
from recur.data.text.tables import (
    Table,
    delimited,
    ending,
    is_dataset_folder,
    is_delimited,
    is_table,
    read_table,
    tagged_columns,
)
from recur.data.text.tokenizers import between_spaces
from recur.data.text.treebanks import DOCUMENT, fields_of, is_conllu, parse_tree
from recur.errors import TextError, shown
from recur.i18n import Message
from recur.utils.files import too_long

IDS = ("unique_id", "series_id", "item_id", "ts_id", "id", "series", "item")
"""Usual names of an id column, in lower case."""

_NUMBERED = re.compile(r"[A-Za-z_]{0,8}(\d{1,6})")


class TableColumns(NamedTuple):
    """Names of the columns of a table by content."""

    header: tuple[str, ...]
    dates: str | None
    """First column that holds only dates."""
    steps: str | None
    """Without dates: the first column, if it counts regularly."""
    numbers: list[str]
    """Other numeric columns, possibly with missing values."""
    words: list[str]
    """Other columns that are not empty."""
    rows: int
    ids: str | None = None
    """Column that names the series of each row, if there are several series."""


def read_columns(lines: Sequence[str]) -> TableColumns | None:
    """Return the columns of a table with a header and rows of equal length; None for other text."""
    header, *rows = _read_cells(lines) or [[]]
    if not rows or {*map(len, rows)} != {len(header)}:
        return None
    columns = list(zip(*rows, strict=True))
    kinds = [(name, _kind(fields)) for name, fields in zip(header, columns, strict=True)]
    dates = next((name for name, kind in kinds if kind == "dates"), None)
    by_name = dict(zip(header, columns, strict=True))
    ids = find_id_column(by_name, dates) if dates else None
    steps = header[0] if dates is None and len(header) > 1 and _count_evenly(columns[0]) else None
    return TableColumns(
        tuple(header),
        dates,
        steps,
        numbers=[name for name, kind in kinds if kind == "numbers" and name != steps],
        words=[name for name, kind in kinds if kind in ("words", "dates") and name not in (dates, ids)],
        rows=len(rows),
        ids=ids,
    )


def find_id_column(columns: Mapping[str, Sequence[str]], date: str) -> str | None:
    """Return the column that distinguishes series: by its name, if its values repeat.

    Otherwise the first text column with which no date occurs twice.
    """
    free = {name: fields for name, fields in columns.items() if name != date}
    usual = {name.lower(): name for name in reversed(free)}
    named = (usual[name] for name in IDS if name in usual)
    found = next((name for name in named if _repeats(free[name])), None)
    if found is not None or not _repeats(columns[date]):
        return found
    words = (name for name, fields in free.items() if _kind(fields) == "words")
    return next((name for name in words if not _repeats(list(zip(columns[date], free[name], strict=True)))), None)


def has_series_per_row(header: Sequence[str], first: Sequence[str]) -> bool:
    """Return True if each row is a series: V1, V2, V3 … or dates in the header, and distinct ids in front."""
    if len(header) < 3 or _repeats(first) or any(cell.lower() in MISSING for cell in first):
        return False
    counted = [int(match[1]) for name in header[1:] if (match := _NUMBERED.fullmatch(name))]
    in_order = len(counted) == len(header) - 1 and all(b == a + 1 for a, b in itertools.pairwise(counted))
    if not in_order and _kind(header[1:]) != "dates":
        return False
    # Dates down the side are a wide table, even of variables x1, x2 and x3.
    return not any(parse_number(cell) is not None or parse_date(cell) is not None for cell in first)


def _repeats(values: Sequence[object]) -> bool:
    return len(set(values)) < len(values)


def _read_cells(lines: Sequence[str]) -> list[list[str]]:
    """Return the non-empty rows of a file's first lines; empty if they are not a CSV. The last row may be truncated."""
    try:
        return [cells for _, cells in read_rows(lines, "", strict=False) if any(cells)]
    except TextError:
        return []


def _kind(fields: Sequence[str]) -> Literal["dates", "numbers", "words", "nothing"]:
    if all((date := parse_date(field)) is not None and date.form != "number" for field in fields):
        return "dates"
    there = [field for field in fields if field.lower() not in MISSING]
    if not there:
        return "nothing"
    return "numbers" if all(parse_number(field) is not None for field in there) else "words"


def _count_evenly(fields: Sequence[str]) -> bool:
    """Return True for at least three regularly increasing integers, such as 1, 2, 3 or 1700, 1701, 1702."""
    dates = [date for field in fields if (date := parse_date(field)) is not None]
    places = [date.place for date in dates if date.form == "number"]
    steps = {b - a for a, b in itertools.pairwise(places)}
    return len(places) == len(fields) >= 3 and len(steps) == 1 and min(steps) > 0


BYTES, LINES = 1 << 16, 1000
"""Part of a file that is inspected."""

COUNTED = 1 << 28
"""Largest size in bytes of files whose lines are counted, to detect parallel files."""

Kind = Literal["images", "signals", "steps", "trees", "tagged", "series", "pairs", "labelled", "text"]


class RecognisedData(NamedTuple):
    kind: Kind
    sure: bool
    """Whether there is no doubt."""
    why: str
    """Description of the file for the user."""
    columns: tuple[str, ...] = ()
    """Column names of a series."""


class _Head(NamedTuple):
    """First lines of a file."""

    name: str
    lines: list[str]
    whole: bool
    """Whether these are all lines."""

    @property
    def rows(self) -> list[str]:
        return [line for line in self.lines if line.strip()]


def recognise(names: Sequence[str]) -> RecognisedData:
    """Return the kind of data that the files hold together."""
    if not names:
        raise TextError("no text given; name a file, a folder, - for standard input, pydoc or stdlib")
    found = [_recognise(str(name)) for name in names]
    kinds = {one.kind for one in found}
    if kinds == {"text"} and len(names) == 2 and _same_number_of_lines(str(names[0]), str(names[1])):
        return RecognisedData("pairs", False, "two texts with the same number of lines")
    if len(kinds) == 1 or kinds == {"labelled", "pairs"}:  # of those two the first file, the one to learn from, decides
        return found[0]._replace(sure=all(one.sure for one in found))
    named = "; ".join(f"{name} has {one.why}" for name, one in zip(names, found, strict=True))
    return RecognisedData("text", False, f"files of several kinds: {named}")


def _recognise(name: str) -> RecognisedData:
    path = Path(name)
    if too_long(name):
        raise TextError(f"no file {shown(name)}: its name is too long")
    if (signals := inspect_signals(name)) is not None:
        kind: Kind = "steps" if signals.labels in ("steps", "sequences") else "signals"
        return RecognisedData(kind, signals.sure, signals.why)
    if split_name(name)[0].endswith(".npz"):
        arrays = find_image_arrays(name)
        n, *size = arrays.shape
        labels = f", labels {arrays.labels}" if arrays.labels is not None else " and no labels"
        why = f"{n:,} images of {' × '.join(map(str, size))} (array {arrays.images}{labels})"
        return RecognisedData("images", arrays.labels is not None, why)
    if path.is_dir() and is_dataset_folder(name):
        return _recognise_table(name)
    if path.is_dir() and is_image_folder(path):
        return RecognisedData("images", True, "a folder of images for each class")
    if path.is_dir():
        return RecognisedData("text", True, "a folder of texts")
    if name in ("-", "/dev/stdin") or (path.exists() and not path.is_file()):
        return RecognisedData("text", True, "a stream of text")  # which could not be read again
    if name in BUILT_IN and not path.exists():
        return RecognisedData("text", True, "a text that comes with Python")
    if is_table(name) and not is_delimited(name):
        return _recognise_table(name)
    head = _head(name)
    rules = (_between_commas,) if ending(name) == ".csv" else (_trees, _tagged, _between_tabs, _between_commas)
    for rule in rules:
        if (found := rule(head)) is not None:
            return found
    return RecognisedData("text", True, "lines of text" if head.rows else "nothing")


def _recognise_table(name: str) -> RecognisedData:
    """Recognise a table that is no text, by its column names and its cells."""
    table = read_table(name)
    if table.header and (tagged := tagged_columns(table)) is not None:
        return RecognisedData(
            "tagged",
            True,
            Message("rows with lists of words ({words}) and tags ({tags})", words=tagged[0], tags=tagged[1]),
        )
    return _between_commas(_table_head(table, True)) or RecognisedData("text", False, Message("a table of text"))


def _head(name: str, reading: Reading | None = None) -> _Head:
    """Return the first lines of a file; those of a table as lines of a CSV with commas."""
    reading = reading or Reading()
    if is_table(name) and not is_delimited(name):
        return _table_head(read_table(name, reading), True)
    (source,), _ = find_sources([name], reading)
    with source.open() as stream:
        data = source.read(stream, BYTES + 1)
    if (why := binary_error(name, data[:4096])) is not None:
        raise TextError(why)
    whole = len(data) <= BYTES
    encoding = reading.encoding or detect_encoding(data, whole, reading.likely) or "utf-8"
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(data[:BYTES], whole)
    except UnicodeDecodeError as error:
        raise TextError(encoding_error(name, error.start, data, error, encoding)) from None
    except UnicodeError as error:
        raise TextError(f"{name} is not {encoding}: {error}") from None
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.removesuffix("\n").split("\n")
    if not whole and len(lines) > 1:
        lines.pop()  # it may be cut
    whole = whole and len(lines) <= LINES
    if ending(name) == ".csv" and any(line.strip() for line in lines):
        with suppress(TextError):
            return _table_head(delimited(lines[:LINES], name, reading), whole)
    return _Head(name, lines[:LINES], whole)


def _table_head(table: Table, whole: bool) -> _Head:
    rows = [*([[*table.header]] if table.header else []), *(row.cells for row in table.rows[:LINES])]
    header = [cell.strip() for cell in rows[0]] if rows else []
    body = [CsvRow(k, [cell.strip() for cell in row]) for k, row in enumerate(rows[1:])]
    with suppress(TextError):  # it asks for what only the reader of series needs
        localise(header, body, LocaleFormat(decimal="." if table.typed else ""))
    lines = [format_row(map(single_line, row)) for row in (header, *(row.cells for row in body))]
    return _Head(table.name, lines, whole and len(table.rows) <= LINES)


def one_encoding(name: str) -> str | None:
    """Return the encoding of the first bytes of a text file; None for other files, and if it cannot be told."""
    if not Path(name).is_file() or (is_table(name) and not is_delimited(name)):
        return None
    source = raw_source(name)
    with source.open() as stream:
        data = source.read(stream, BYTES)
    return detect_encoding(data, len(data) < BYTES)


def _same_number_of_lines(*names: str) -> bool:
    if not all(Path(name).is_file() and Path(name).stat().st_size <= COUNTED for name in names):
        return False
    one, other = map(_count_lines, names)
    return one == other > 0


def _count_lines(name: str) -> int:
    (source,), _ = find_sources([name])
    count, last = 0, b""
    with source.open() as stream:
        while data := source.read(stream, 1 << 20):
            count += data.count(b"\n")
            last = data[-1:]
    return count + (last not in (b"", b"\n"))


# Trees and tags -------------------------------------------------------------------------------------------------


def _trees(head: _Head) -> RecognisedData | None:
    """Recognise bracketed trees: every line is one, and at least one has nested nodes."""
    rows = head.rows
    if not rows or not all(row.lstrip().startswith("(") for row in rows):
        return None
    try:
        nested = [len(parse_tree(row).children) > 1 for row in rows]
    except TextError:
        return None
    return RecognisedData("trees", True, "bracketed trees, one a line") if any(nested) else None


def _tagged(head: _Head) -> RecognisedData | None:
    """Recognise sentences separated by blank lines, with equal numbers of columns and repeating tags in the last
    one."""
    sentences = _sentences(head.lines)
    rows = list(itertools.chain.from_iterable(sentences))
    if rows and all(map(is_conllu, rows)):
        return RecognisedData("tagged", True, Message("CoNLL-U: ten columns a word, blank lines between sentences"))
    if len(sentences) < 2 or len(rows) < 2 * len(sentences) or {*map(len, rows)} != {len(rows[0])}:
        return None
    tags, width = [row[-1] for row in rows], len(rows[0])
    usual = _look_like_tags(tags)
    if width == 1 or not _repeat(tags, 0.75) or not (usual or "\t" in head.rows[-1]):
        return None
    if width > 2:
        sure = usual and sum(parse_number(tag) is not None for tag in tags) < 0.5 * len(tags)
        why = (
            Message("{n} columns, blank lines between sentences: the last is a tag", n=width)
            if sure
            else Message("{n} columns, blank lines between sentences: the last may be a tag", n=width)
        )
        return RecognisedData("tagged", sure, why)
    return RecognisedData("tagged", usual, "CoNLL columns: a word and a tag a line, blank lines between sentences")


def _sentences(lines: list[str]) -> list[list[list[str]]]:
    """Return the columns of every line, grouped by blank lines, without comments."""
    found: list[list[list[str]]] = [[]]
    for line in lines:
        if not line.strip():
            found.append([])
        elif not line.startswith("# ") and (fields := fields_of(line))[0] != DOCUMENT:
            found[-1].append(fields)
    return list(filter(None, found))


def has_columns(name: str, reading: Reading | None = None) -> bool:
    """Return True if a file has one word per line, with or without tags; else each line is a sentence."""
    head = _head(name, reading)
    sentences = _sentences(head.lines)
    rows = list(itertools.chain.from_iterable(sentences))
    if not rows or {*map(len, rows)} != {len(rows[0])}:
        return False
    parted = len(sentences) > 1 or len(rows[0]) == 1 or "\t" in head.rows[-1]
    named = re.search(r"\.(conllu?|iob2?|bio|bioes)(\.gz)?$", head.name.lower())
    return all(map(is_conllu, rows)) or (parted and (len(sentences) > 1 or named is not None))


_TAG = re.compile(r"(?=.*[^a-z])[!-~]+")  # B-NP, O, PRP$ or a mark: no word in lower case, and no letters but ASCII's


def _look_like_tags(tags: Sequence[str]) -> bool:
    return len(list(filter(_TAG.fullmatch, tags))) >= 0.9 * len(tags)


# Tables ---------------------------------------------------------------------------------------------------------


def _between_tabs(head: _Head) -> RecognisedData | None:
    rows = [row.split("\t") for row in head.rows]
    widths = [len(row) for row in rows if row[0].strip()]  # a tab in front is indentation
    width = max(set(widths), key=widths.count, default=1)
    if width == 1 or widths.count(width) < 0.9 * len(rows):
        return None
    if width > 2:
        return RecognisedData("text", False, Message("{n} columns between tabs", n=width))
    first, second = zip(*(row for row in rows if len(row) == 2), strict=True)
    labels, texts = len(set(first)), len(set(second))
    if _repeat(first) and labels <= texts:
        why = (
            Message("{n} columns between tabs, the first one of {m} short values that repeat", n=2, m=labels)
            if labels > 1
            else Message("{n} columns between tabs, the first one of one value", n=2)
        )
        return RecognisedData("labelled", False, why)
    if _repeat(second):
        why = Message("{n} columns between tabs, the second one of {m} short values that repeat", n="2", m=texts)
        return RecognisedData("labelled", False, why)
    why = (
        Message("{n} columns between tabs, of values that hardly repeat, the second one of symbols between spaces", n=2)
        if between_spaces(second)
        else Message("{n} columns between tabs, of values that hardly repeat", n=2)
    )
    return RecognisedData("pairs", False, why)


def _repeat(values: Sequence[str], distinct: float = 0.5) -> bool:
    """Return True if at most this fraction of the values is distinct and all are short."""
    return len(set(values)) <= distinct * len(values) and max(map(len, values)) <= 60


def _between_commas(head: _Head) -> RecognisedData | None:
    if (several := _series_in_rows(head)) is not None:
        return several
    found = read_columns(head.lines)
    named = is_table(head.name)
    if named and len(head.rows) < 2:
        raise TextError(f"{head.name} has {'a header and no rows' if head.rows else 'nothing in it'}")
    if named and (names := named_columns(next(csv.reader(head.rows[:1])))) and (found is None or not found.dates):
        return RecognisedData(
            "labelled",
            False,
            Message("rows with a text ({text}) and its label ({label})", text=names[0], label=names[1]),
        )
    if found is None or not found.numbers:
        if named and found is not None and len(found.header) == 2 and len(found.words) == 2:
            return RecognisedData(
                "labelled",
                False,
                Message("{n} columns between commas, {names}", n="2", names=" and ".join(found.header)),
            )
        return RecognisedData("text", False, Message("a .csv without a column of numbers")) if named else None
    rows = Message("{n} rows", n=found.rows) if head.whole else Message("rows")
    if found.ids is not None:
        why = Message("{rows} of several series, told apart by {column}", rows=rows, column=shown(found.ids))
        return RecognisedData("series", True, why, found.header)
    columns = len(found.numbers)
    count = Message("one") if columns == 1 else columns
    if found.dates:
        why = Message("{rows} of a column of dates and {m} of numbers", rows=rows, m=count)
    elif found.steps:
        why = Message("{rows} of a column of evenly counted steps and {m} of numbers", rows=rows, m=count)
    elif columns == 1:
        why = Message("{rows} with one column of numbers and none of dates", rows=rows)
    else:
        why = Message("{rows} with {m} columns of numbers and none of dates", rows=rows, m=columns)
    plain = why
    if found.words:
        why = Message("{what}, beside words ({words})", what=why, words=", ".join(found.words[:3]))
    if any(map(_OTHER_DATE.search, head.rows[1:2])):
        why = Message("{what}; --date-format dmy or mdy tells how dates are written", what=why)
    if all(parse_number(name) is not None for name in found.numbers):
        why = Message("{what}, without a header", what=why)
    sure = bool(found.dates or found.steps) and why is plain
    return RecognisedData("series", sure, why, found.header)


_OTHER_DATE = re.compile(r"(^|,)\s*\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\s*(,|$)")


def _series_in_rows(head: _Head) -> RecognisedData | None:
    """Recognise one series per row: ids in front, then numbers, of which the last may be missing."""
    header, *rows = _read_cells(head.lines) or [[]]
    if not rows and not head.whole:  # a header longer than what is looked at
        return (
            RecognisedData("series", True, Message("a series in each row"))
            if has_series_per_row(header[:-1], ["a"])
            else None
        )
    if not rows or not has_series_per_row(header, [row[0] for row in rows]):
        return None
    cells = [cell for row in rows for cell in row[1:] if cell.lower() not in MISSING]
    if max(map(len, rows)) > len(header) or not cells or any(parse_number(cell) is None for cell in cells):
        return None
    return RecognisedData("series", True, Message("{n} series, a row each", n=len(rows) if head.whole else "several"))
