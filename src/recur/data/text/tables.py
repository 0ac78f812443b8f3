"""Tables from files of any kind: CSV, Excel, JSON, JSON lines, Parquet, Feather, folders of Hugging Face `datasets`.

Every reader of tables gets the same `Table`: column names, and rows of text cells with their line numbers. The items of
a list are joined by LIST_MARK; a missing value becomes an empty cell; dates are written 2024-01-31.

    .csv .tsv .txt    commas, semicolons, tabs or bars, in any encoding; .gz and .zst are unpacked
    .xlsx             the first sheet
    .jsonl .ndjson    an object on each line
    .json             a list of objects, columns of lists, or an object with one such list
    .parquet .feather .arrow, and folders that `Dataset.save_to_disk` wrote: with polars
"""

from __future__ import annotations

import csv
import importlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from recur.data.csv_files import CsvRow, format_row, read_rows
from recur.data.frames import format_cell, single_line
from recur.data.reading import Reading
from recur.data.text.corpus import Corpus, normalised
from recur.data.text.sources import Source, raw_source
from recur.data.text.tokenizers import whole_lines
from recur.data.workbooks import read_workbook
from recur.errors import TextError, listed, shown
from recur.utils.files import read_bounded, too_long
from recur.utils.limits import JSON_BYTES, JSON_VALUES, TABLE_BYTES, TABLE_CELLS, TABLE_COLUMNS, check_count, check_json

PACKED = (".gz", ".zst")
DELIMITED = (".csv", ".tsv", ".tab")
JSON_LINES = (".jsonl", ".ndjson")
COLUMNAR = (".parquet", ".feather", ".arrow", ".ipc")
TABLES = (*DELIMITED, *JSON_LINES, *COLUMNAR, ".json", ".xlsx", ".xlsm")
"""Endings of files that are tables whatever they hold."""

DELIMITERS = (",", ";", "\t", "|")

LIST_MARK = "\x1f"
"""Mark between the items of a list in a cell: the unit separator, which no text has."""

WORDS = ("words", "tokens", "word", "token", "form")
TAGS = ("tags", "ner_tags", "pos_tags", "tag", "ner", "pos", "upos", "labels", "label", "chunk_tags")
SENTENCES = ("sentence", "sentence_id", "sent_id", "sentence #", "sentence_idx", "doc_id")
"""Usual names of the columns of tagged sentences."""


@dataclass
class Table:
    """Rows of text cells under column names."""

    name: str
    """Name of the file."""
    header: tuple[str, ...]
    """Names of the columns; empty if the first row is not known to name them."""
    rows: list[CsvRow]
    typed: bool = False
    """Whether the file has types, so that no number or date is guessed from its spelling."""
    lists: frozenset[str] = frozenset()
    """Columns whose cells hold lists."""
    delimiter: str = ""
    empty: tuple[int, ...] = ()
    """Lines of the empty rows before the last row."""

    def column(self, name: str) -> int | None:
        """Return the index of a column by name, without regard to case if it is unambiguous; None if there is none."""
        if name in self.header:
            return self.header.index(name)
        folded = [column.strip().casefold() for column in self.header]
        found = name.strip().casefold()
        return folded.index(found) if folded.count(found) == 1 else None

    def where(self, row: CsvRow) -> str:
        return f"{self.name}:{row.line}"


def tagged_columns(table: Table) -> tuple[str, str] | None:
    """Return the columns of words and tags, if the table has lists in columns with usual names; else None."""
    words = next((name for name in WORDS if name in table.lists), None)
    tags = next((name for name in TAGS if name in table.lists), None)
    return (words, tags) if words and tags else None


def ending(name: str) -> str:
    """Return the ending of a file's name in lower case, without that of its compression."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def is_table(name: str) -> bool:
    """Return True if the name is that of a table: by its ending, or a folder of a saved dataset."""
    return ending(name) in TABLES or is_dataset_folder(name)


def is_delimited(name: str) -> bool:
    """Return True if the name ends as that of a CSV does."""
    return ending(name) in DELIMITED


def is_dataset_folder(name: str) -> bool:
    """Return True for a folder that Hugging Face `datasets` saved: one dataset, or one folder per split."""
    if too_long(name) or "\0" in name:
        return False
    path = Path(name)
    with suppress(OSError):
        return path.is_dir() and (
            (path / "dataset_dict.json").is_file()
            or ((path / "dataset_info.json").is_file() and any(path.glob("*.arrow")))
        )
    return False


SPLITS = {"texts": ("train",), "valid": ("validation", "valid", "val", "dev"), "test": ("test",)}


def dataset_parts(name: str) -> dict[str, str]:
    """Return the folder of each split of a saved dataset: texts, valid and test, where there are such."""
    path = Path(name)
    found = {part: next((str(path / n) for n in names if (path / n).is_dir()), "") for part, names in SPLITS.items()}
    return {part: folder for part, folder in found.items() if folder}


def read_table(name: str, reading: Reading | None = None) -> Table:
    """Read a file as a table."""
    reading = reading or Reading()
    kind = ending(name)
    if is_dataset_folder(name):
        return normalised_cells(_dataset(name))
    if kind in (".xlsx", ".xlsm"):
        return normalised_cells(_workbook(name))
    if kind in COLUMNAR:
        return normalised_cells(_columnar(name, kind))
    source = raw_source(name, reading)
    if kind in JSON_LINES:
        return normalised_cells(_json_lines(source, reading))
    if kind == ".json":
        return normalised_cells(_json(source, reading))
    return delimited(source_lines_of(source), name, reading)


def source_lines_of(source: Source) -> Iterator[str]:
    """Yield the lines of a source without line ends."""
    return whole_lines(Corpus(source.name, (source,)).pieces(), source.name)


# Delimited text -----------------------------------------------------------------------------------------------------


def delimited(lines: Iterable[str], name: str, reading: Reading | None = None) -> Table:
    """Parse the lines of a CSV; its delimiter is detected. Empty rows are left out; quoted cells may span lines."""
    reading = reading or Reading()
    lines = iter(lines)
    head = list(itertools.islice(lines, SNIFFED))
    filled = next((line for line in head if line.strip()), "")
    mark = reading.delimiter if reading.delimiter and reading.delimiter in filled else ""
    mark = mark or ("\t" if ending(name) in (".tsv", ".tab") else find_delimiter(head))
    text = itertools.chain(head, lines)
    rows: list[CsvRow] = []
    empty: list[int] = []
    cells = 0
    for row in _cut(text, name, mark):
        if not any(cell.strip() for cell in row.cells):
            empty.append(row.line)
            continue
        cells += len(row.cells)
        check_count(name, "cells", cells, TABLE_CELLS, "split the table")
        rows.append(row)
    last = rows[-1].line if rows else 0
    return Table(name, (), rows, delimiter=mark, empty=tuple(line for line in empty if line < last))


def _cut(lines: Iterable[str], name: str, mark: str) -> Iterator[CsvRow]:
    """Yield rows; in a table between tabs, quotation marks are letters like others, unless it is named .csv."""
    if mark == "\t" and ending(name) != ".csv":
        return (CsvRow(number, line.split(mark)) for number, line in enumerate(lines, start=1))
    return read_rows((f"{line}\n" for line in lines), name, delimiter=mark, strip=False)


SNIFFED = 200
"""Lines from which the delimiter is inferred."""


def find_delimiter(lines: Sequence[str]) -> str:
    """Return the mark that cuts most of the first lines into the same number (over one) of cells; a comma if none."""
    best, best_score = ",", (0.0, 0)
    filled = [line for line in lines if line.strip()]
    for mark in DELIMITERS:
        if not filled or mark not in filled[0]:
            continue
        with suppress(TextError, csv.Error):
            widths = [
                len(row.cells) for row in read_rows((f"{one}\n" for one in filled), "", delimiter=mark, strict=False)
            ]
            width, count = Counter(widths).most_common(1)[0]
            if width > 1 and (score := (round(count / len(widths), 2), width if mark != "|" else 1)) > best_score:
                best, best_score = mark, score
    return best


# Workbooks ----------------------------------------------------------------------------------------------------------


def _workbook(name: str) -> Table:
    path = Path(name)
    rows = read_workbook(path, _content(path))
    if not rows:
        raise TextError(f"{name}: its first sheet is empty")
    width = max(len(cells) for _, cells in rows)
    whole_days = [
        all(not isinstance(v, datetime) or v.time() == time() for _, cells in rows for v in cells[k : k + 1])
        for k in range(width)
    ]
    table = [
        CsvRow(
            number,
            [cell_text(v, whole_days[k]) for k, v in enumerate([*cells, *[None] * (width - len(cells))])],
        )
        for number, cells in rows
    ]
    return _with_header(name, [cells for _, cells in rows], table)


def _with_header(name: str, cells: Sequence[Sequence[Any]], rows: list[CsvRow]) -> Table:
    """Return a table whose first row is the header if it is all text, and other rows are not."""
    first = rows[0].cells
    names = all(isinstance(v, str) and v.strip() for v in cells[0]) and len(set(first)) == len(first)
    typed = any(not isinstance(v, str) and v is not None for row in cells[1:] for v in row)
    if names and typed and len(rows) > 1:
        return Table(name, tuple(cell.strip() for cell in first), rows[1:], typed=True)
    return Table(name, (), rows, typed=typed)


def _content(path: Path) -> bytes:
    if not path.exists():
        raise TextError(f"no file {shown(str(path))}")
    try:
        return read_bounded(path, TABLE_BYTES)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror or error}") from None


# JSON ---------------------------------------------------------------------------------------------------------------


def _json_lines(source: Source, reading: Reading) -> Table:
    columns = _Columns(source.name)
    for number, line in enumerate(source_lines_of(source), start=1):
        if not line.strip():
            continue
        try:
            columns.add(number, _object(f"{source.name}:{number}", line))
        except TextError as error:
            reading.reject(error)
    return columns.table()


def _object(where: str, line: str) -> Mapping[str, Any]:
    check_json(where, line)
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TextError(f"{where} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise TextError(f'{where}: a line is an object such as {{"text": "…", "label": "…"}}, got {shown(found)}')
    return found


def _json(source: Source, reading: Reading) -> Table:
    with source.open() as stream:
        content = source.read(stream, JSON_BYTES + 1)
    check_count(source.name, "bytes", len(content), JSON_BYTES, "write JSON lines (.jsonl)")
    text = "".join(Corpus(source.name, (source,)).pieces())
    check_json(source.name, text, JSON_VALUES)
    columns = _Columns(source.name)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) > 1 and all(line.lstrip().startswith("{") for line in lines[:2]):
            return _json_lines(source, reading)  # JSON lines in a .json
        raise TextError(f"{source.name} is not JSON: {error}") from None
    for number, row in enumerate(_objects(found, source.name), start=1):
        columns.add(number, row)
    return columns.table()


def _objects(found: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield rows from a list of objects, from columns of lists, or from an object with exactly one of these."""
    if isinstance(found, dict):
        lists = {key: value for key, value in found.items() if isinstance(value, list)}
        if lists and len(lists) == len(found) and len({*map(len, lists.values())}) == 1 and not _all_objects(lists):
            for cells in zip(*lists.values(), strict=True):
                yield dict(zip(lists, cells, strict=True))
            return
        inner = [value for value in lists.values() if value and all(isinstance(row, dict) for row in value)]
        found = inner[0] if len(inner) == 1 else None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise TextError(f"{name}: a table in JSON is a list of objects, or an object with a list for each column")
    yield from found


def _all_objects(lists: Mapping[str, list[Any]]) -> bool:
    return all(isinstance(value, dict) for column in lists.values() for value in column)


class _Columns:
    """Rows of objects that may have different keys, collected as a table."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: dict[str, int] = {}
        self.rows: list[tuple[int, dict[str, str]]] = []
        self.lists: set[str] = set()
        self.cells = 0

    def add(self, number: int, row: Mapping[str, Any]) -> None:
        cells: dict[str, str] = {}
        for key, value in row.items():
            if isinstance(value, dict):  # keys of nested objects are joined by a point
                cells |= {f"{key}.{k}": cell_text(v) for k, v in value.items()}
                continue
            if isinstance(value, list):
                self.lists.add(key)
            cells[key] = cell_text(value)
        self.names |= dict.fromkeys(cells, 0)
        self.cells += len(cells)
        check_count(self.name, "columns", len(self.names), TABLE_COLUMNS, "take fewer keys")
        check_count(self.name, "cells", self.cells, TABLE_CELLS, "split the file")
        self.rows.append((number, cells))

    def table(self) -> Table:
        if not self.rows:
            raise TextError(f"{self.name} holds no row")
        check_count(self.name, "cells", len(self.rows) * len(self.names), TABLE_CELLS, "take fewer keys")
        rows = [CsvRow(number, [cells.get(name, "") for name in self.names]) for number, cells in self.rows]
        return Table(self.name, tuple(self.names), rows, True, frozenset(self.lists))


def cell_text(value: object, whole_days: bool = False) -> str:
    """Return a value of a typed file as a cell."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, list | tuple):
        return LIST_MARK.join(cell_text(item) for item in value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    return format_cell(value, whole_days)


# Columnar files, with polars ------------------------------------------------------------------------------------------


def _polars(name: str) -> Any:
    try:
        return importlib.import_module("polars")
    except ImportError:
        raise TextError(f"{name}: polars is not installed: pip install 'recur[tables]'") from None


def _columnar(name: str, kind: str) -> Table:
    polars = _polars(name)
    path = Path(name)
    _content_check(path)
    if kind == ".parquet":
        return _frame(name, lambda: polars.scan_parquet(path, glob=False), polars)
    return _frame(name, lambda: polars.scan_ipc(path), polars, lambda: polars.read_ipc_stream(path).lazy())


def _content_check(path: Path) -> None:
    if not path.is_file():
        raise TextError(f"no file {shown(str(path))}")
    check_count(str(path), "bytes", path.stat().st_size, TABLE_BYTES, "split the file")


def _dataset(name: str) -> Table:
    """Read a folder of Hugging Face `datasets`: the shards of one dataset, or of its training split."""
    path = Path(name)
    if (path / "dataset_dict.json").is_file():
        parts = dataset_parts(name)
        if "texts" not in parts:
            raise TextError(f"{name} has no split train; name the folder of a split")
        path = Path(parts["texts"])
    polars = _polars(name)
    shards = sorted(path.glob("*.arrow"))
    if not shards:
        raise TextError(f"{path} holds no .arrow file")
    tables = []
    for shard in shards:
        _content_check(shard)
        tables.append(_arrow_file(polars, shard))
    names = _class_names(path)
    first = tables[0]
    rows = [row for table in tables for row in table.rows]
    numbered = [CsvRow(k, row.cells) for k, row in enumerate(rows, start=1)]
    for column, labels in names.items():
        at = first.column(column)
        if at is not None:
            for row in numbered:
                row.cells[at] = LIST_MARK.join(_label_name(cell, labels) for cell in row.cells[at].split(LIST_MARK))
    return Table(name, first.header, numbered, True, first.lists)


def _arrow_file(polars: Any, path: Path) -> Table:
    """Read an Arrow file: a stream, as `datasets` writes it, or a file with an index."""
    return _frame(str(path), lambda: polars.read_ipc_stream(path).lazy(), polars, lambda: polars.scan_ipc(path))


def _label_name(cell: str, labels: Sequence[str]) -> str:
    return labels[int(cell)] if cell.isdecimal() and int(cell) < len(labels) else cell


def _class_names(folder: Path) -> dict[str, list[str]]:
    """Return the names of the classes of columns whose cells are numbers of classes."""
    found: dict[str, list[str]] = {}
    with suppress(OSError, ValueError, RecursionError):
        content = read_bounded(folder / "dataset_info.json", 1 << 24)
        features = json.loads(content).get("features")
        for column, feature in (features or {}).items():
            inner = feature.get("feature", feature) if isinstance(feature, dict) else {}
            names = inner.get("names") if isinstance(inner, dict) else None
            if isinstance(names, list) and all(isinstance(one, str) for one in names):
                found[str(column)] = names
    return found


def _frame(name: str, scan: Callable[[], Any], polars: Any, other: Callable[[], Any] | None = None) -> Table:
    """Return a table of a polars frame; its size is checked before its cells are read."""
    damaged = (Exception, polars.exceptions.PanicException)  # polars raises errors of many types, and panics
    try:
        frame = scan()
        header = [str(column) for column in frame.collect_schema().names()]
    except damaged as error:
        if other is not None:
            return _frame(name, other, polars)
        raise TextError(
            f"{name} cannot be read: {str(error).splitlines()[0][:200] if str(error) else 'damaged'}"
        ) from None
    try:
        height = int(frame.select(polars.len()).collect().item())
        check_count(name, "columns", len(header), TABLE_COLUMNS, "take fewer columns")
        check_count(name, "cells", height * len(header), TABLE_CELLS, "split the table")
        columns = {}
        left = TABLE_BYTES
        for column in header:  # equal cells take a few bytes in a file, and each its own in a list
            series = frame.select(polars.col(column)).collect().to_series()
            check_count(f"{name}: {column}", "bytes", size := int(series.estimated_size()), left, "split the table")
            left -= size
            columns[column] = series.to_list()
    except TextError:
        raise
    except damaged as error:
        raise TextError(
            f"{name} cannot be read: {str(error).splitlines()[0][:200] if str(error) else 'damaged'}"
        ) from None
    if not height:
        raise TextError(f"{name} holds no row")
    lists = frozenset(c for c, values in columns.items() if any(isinstance(v, list) for v in values[:1000]))
    days = {c: all(not isinstance(v, datetime) or v.time() == time() for v in values) for c, values in columns.items()}
    text = [[cell_text(v, days[c]) for v in values] for c, values in columns.items()]
    rows = [CsvRow(k, list(cells)) for k, cells in enumerate(zip(*text, strict=True), start=1)]
    return Table(name, tuple(header), rows, True, lists)


def normalised_cells(table: Table) -> Table:
    """Return the table with composed characters and \\n line ends, as text files are read."""
    for row in table.rows:
        row.cells[:] = [cell if cell.isascii() else normalised(cell) for cell in row.cells]
    return table


def table_lines(name: str, reading: Reading) -> Iterator[str]:
    """Yield a file as lines of a CSV: the lines of a text file as they are, and the rows of other tables."""
    if not is_table(name) or is_delimited(name):
        yield from source_lines_of(raw_source(name, reading))
        return
    table = read_table(name, reading)
    for row in [*([table.header] if table.header else []), *(row.cells for row in table.rows)]:
        yield format_row(map(single_line, row))


# Columns of text ----------------------------------------------------------------------------------------------------

TEXT_COLUMNS = (
    "text",
    "content",
    "document",
    "sentence",
    "review",
    "message",
    "comment",
    "body",
    "文本",
    "内容",
    "正文",
)


def text_column(name: str, reading: Reading | None = None) -> list[str]:
    """Return the texts of a table: of the column that is named, or has a usual name, or is alone."""
    table = read_table(name, reading)
    header = table.header or tuple(cell.strip() for row in table.rows[:1] for cell in row.cells)
    named = reading.text if reading is not None else ""
    at = Table(name, header, []).column(named) if named else None
    if named and at is None:
        raise TextError(f"{name}: no column {shown(named)} for --text; its columns are {listed(list(header))}")
    lowered = [column.lower() for column in header]
    at = at if at is not None else next((lowered.index(one) for one in TEXT_COLUMNS if one in lowered), None)
    if at is None and len(header) > 1:
        raise TextError(f"{name} is a table, not text; name the column of texts: --text, of {listed(list(header))}")
    if not header:
        raise TextError(f"{name} holds no row")
    at = at or 0
    rows = table.rows[bool(not table.header and (named or lowered[at] in TEXT_COLUMNS)) :]
    return [row.cells[at] for row in rows if at < len(row.cells) and row.cells[at].strip()]
