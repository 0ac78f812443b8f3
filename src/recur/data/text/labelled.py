"""Text examples from files: lines, labelled texts (TSV or CSV), and pairs of source and target.

Every example carries the file and line it comes from, for error messages.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from recur.data.csv_files import CsvRow
from recur.data.encodings import check_encoding, display_name
from recur.data.reading import Reading, kept
from recur.data.text.corpus import Corpus, normalised
from recur.data.text.sources import Source, find_sources
from recur.data.text.tables import LIST_MARK, Table, delimited, find_delimiter, is_delimited, is_table, read_table
from recur.data.text.tokenizers import whole_lines
from recur.errors import TextError, listed, shown
from recur.utils.files import ends


def numbered_lines(name: str, reading: Reading | None = None) -> Iterator[tuple[str, str]]:
    """Yield `file:number` and the text of every line; the files of a folder follow one another."""
    for source in find_sources([name], reading)[0]:
        yield from source_lines(source)


def source_lines(source: Source) -> Iterator[tuple[str, str]]:
    """Yield `file:number` and the text of every line of one source."""
    pieces = Corpus(source.name, (source,)).pieces()
    for number, line in enumerate(whole_lines(pieces, source.name), start=1):
        yield f"{source.name}:{number}", line


MAX_LINE_BYTES = 1 << 26
"""Largest number of bytes of a line of standard input."""


def read_standard_input(blank: bool = False, encoding: str = "utf-8") -> Iterator[list[str]]:
    """Yield the lines that have arrived so far, in batches, without waiting for a batch to fill.

    blank      accept blank lines; else raise TextError
    encoding   one in which a line ends with the byte of ASCII
    """
    encoding = check_encoding(encoding) or "utf-8"
    if encoding.startswith(("utf-16", "utf-32")):
        raise TextError(f"standard input is read line by line, which {encoding} does not allow; name a file")
    held, number = b"", 0
    if sys.stdin is None or not ends(sys.stdin.buffer):
        raise TextError("standard input is closed or endless")
    while True:
        read = sys.stdin.buffer.read1(1 << 16)  # type: ignore[union-attr]
        *lines, held = (held + read).split(b"\n") if read else (held, b"")
        if len(held) > MAX_LINE_BYTES:
            raise TextError(f"standard input:{number + len(lines) + 1}: a line of more than {MAX_LINE_BYTES:,} bytes")
        texts = []
        for line in lines if read or lines[0] else []:
            number += 1
            try:
                text = normalised(line.decode(encoding).rstrip("\r"))
            except UnicodeDecodeError:
                name = display_name(encoding)
                raise TextError(f"standard input:{number} is not {name}; name its --encoding") from None
            except TextError as error:
                raise TextError(f"standard input:{number}: {error}") from None
            if not blank and not text.strip():
                raise TextError(f"standard input:{number}: the source is empty")
            texts.append(text)
        if texts:
            yield texts
        if not read:
            return


class LocatedRow(NamedTuple):
    """Cells of a row, and the file and line that they come from."""

    where: str
    cells: list[str]


LABELS = frozenset(
    ("label", "labels", "class", "category", "target", "sentiment", "language", "lang", "intent", "y",
     "标签", "类别", "分类", "情感", "标注", "语言", "意图")
)  # fmt: skip
TEXTS = frozenset(
    ("text", "texts", "sentence", "review", "name", "content", "document", "message", "comment", "title", "word", "x",
     "文本", "句子", "评论", "内容", "文档", "消息", "标题", "姓名", "名字", "词")
)  # fmt: skip
"""Usual names of label and text columns, in lower case."""

MAX_INSPECTED_ROWS = 1000
"""Number of rows from which the layout of a file is inferred."""

MAX_LABEL_LENGTH = 60
"""Largest number of characters of a label, if the layout is inferred from the values."""


class LabelledText(NamedTuple):
    """Text with its label and its place of origin.

    >>> first = recur.data.text.read_labelled(["names.tsv"])[0]
    >>> first.label, first.text
    ('Greek', 'Nabc0')
    """

    text: str
    label: str
    """Label; several labels of a text are joined by bars."""
    where: str
    id: str = ""
    """Name of the example, from the column `id`."""
    group: str = ""
    """Group of the example, from the column `group`: a split keeps a group on one side."""


class LabelledLayout(NamedTuple):
    """Columns of label and text in a file's rows."""

    label: int = 0
    text: int = 1
    header: tuple[str, ...] = ()
    """First row, if it names the columns."""
    id: int | None = None
    group: int | None = None

    def note(self, name: str) -> str:
        """Return a note on the layout for the user; empty for the default layout."""
        found = [f"its first line ({', '.join(self.header)}) is a header"] if self.header else []
        if (self.label, self.text) != (0, 1):
            found.append(f"column {self.text + 1} is the text and column {self.label + 1} its label")
        return f"{name}: {'; '.join(found)}" if found else ""


def read_labelled(
    names: Sequence[str], classes: Collection[str] = (), reading: Reading | None = None
) -> list[LabelledText]:
    """Return the labelled texts of files. `classes` of a model help to find the label column.

    >>> sorted({line.label for line in recur.data.text.read_labelled(["names.tsv"])})
    ['Greek', 'Irish']
    """
    reading = reading or Reading()
    found: list[LabelledText] = []
    for table in labelled_tables(names, reading):
        layout = table_layout(table, classes, reading)
        reading.add_note(layout.note(table.name) if not table.typed else "")
        multi = _has_several(table, layout, reading)
        rows = table.rows[bool(layout.header) and not table.header :]
        own = list(kept(rows, lambda row: _labelled(row, layout, table, multi), reading))  # noqa: B023  called at once
        reading.check_share(len(own), table.name)
        found += own
    reading.check_share(len(found), names[0])
    if not found:
        raise TextError(f"{', '.join(names)} holds no line; one is label TAB text")
    return found


def labelled_tables(names: Sequence[str], reading: Reading) -> Iterator[Table]:
    """Yield files as tables: by their endings, or lines with tabs."""
    for name in map(str, names):
        if is_table(name):
            yield read_table(name, reading)
            continue
        for source in find_sources([name], reading)[0]:
            yield read_table(source.name, reading) if is_table(source.name) else _text_table(source, reading)


def _text_table(source: Source, reading: Reading) -> Table:
    """Return a text file as a table: lines with tabs, or with the delimiter that is named or that its header has."""
    read = (line for _, line in source_lines(source))
    first = next(read, "")
    lines = chain([first], read)
    commas = "\t" not in first and any(named_columns(first.split(mark)) for mark in ",;|")
    if reading.delimiter or commas or ((reading.text or reading.label) and "\t" not in first):
        return delimited(lines, source.name, reading)
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) < 2:
            reading.reject(TextError(f"{source.name}:{number}: a line is label TAB text, got {line[:40]!r}"))
            continue
        rows.append(CsvRow(number, cells))
    reading.check_share(len(rows), source.name)
    return Table(source.name, (), rows, delimiter="\t")


def table_layout(table: Table, classes: Collection[str], reading: Reading) -> LabelledLayout:
    """Return the columns of a table: those that are named, else those with usual names, else by their values."""
    rows = [row.cells for row in table.rows[:MAX_INSPECTED_ROWS]]
    first = table.header or (tuple(cell.strip() for cell in rows[0]) if rows else ())
    named = bool(table.header) or reading.header == "yes"
    own = _by_usual_names(table, first, rows, classes, reading)
    if own is not None:
        return own
    id_, group = (named_column(table, first, getattr(reading, role), role) for role in ("id", "group"))
    if reading.text or reading.label:
        text, label = (named_column(table, first, getattr(reading, role), role) for role in ("text", "label"))
        if text is None or label is None:
            text, label = _other_column(table, first, rows, text, label)
        wanted = [reading.text, reading.label, reading.id, reading.group]
        header = named or (
            reading.header != "no" and any(one and one in (cell.strip() for cell in first) for one in wanted)
        )
        return LabelledLayout(label, text, first if header else (), id_, group)
    if named:
        found = find_layout([list(first), *rows], classes)
        if not found.header:
            if len(first) != 2:
                raise TextError(
                    f"{table.name}: which column is the text and which the label? Name them with --text and --label; "
                    f"columns: {listed(list(first))}"
                )
            found = found._replace(header=tuple(first))
        return found._replace(id=id_, group=group)
    found = find_layout(rows, classes) if reading.header != "no" else _without_header(rows, classes)
    if is_table(table.name):
        _check_named(table, found)
    return found._replace(id=id_, group=group)


def _by_usual_names(
    table: Table, first: Sequence[str], rows: Sequence[Sequence[str]], classes: Collection[str], reading: Reading
) -> LabelledLayout | None:
    """Return the layout of a table that has other columns than the training files, such as another header; None if it
    has the columns that are named, or none are named."""
    wanted = [name for name in (reading.text, reading.label) if name]
    if reading.strict or not wanted or _has_columns(first, wanted, reading):
        return None
    found = find_layout([list(first), *rows] if table.header else rows, classes)
    if not found.header and (table.header or len(first) != 2):
        return None  # which is refused for the missing column
    return found


def _has_columns(first: Sequence[str], wanted: Sequence[str], reading: Reading) -> bool:
    folded = [cell.strip().casefold() for cell in first]
    if all(name.isdecimal() for name in wanted):
        usual = any(cell in LABELS for cell in folded) and any(cell in TEXTS for cell in folded)
        return all(int(name) <= len(first) for name in wanted) and not (usual and reading.header == "no")
    return all(name.casefold() in folded for name in wanted)


def recorded_columns(names: Sequence[str], reading: Reading) -> dict[str, Any]:
    """Return how the first file is laid out, as options that a run records: header, columns, delimiter."""
    table = next(labelled_tables(names[:1], reading))
    layout = table_layout(table, (), reading)
    found: dict[str, Any] = {"header": "yes" if layout.header else "no"}
    for role, place in (("text", layout.text), ("label", layout.label)):
        found[role] = layout.header[place] if layout.header else str(place + 1)
    found["multi_label"] = _has_several(table, layout, reading)
    if is_delimited(table.name) and table.delimiter:
        found["delimiter"] = table.delimiter
    return found


def named_column(table: Table, first: Sequence[str], name: str, role: str) -> int | None:
    """Return the index of a column that the user named: by its name, or its number from 1; None for an empty name."""
    if not name:
        return None
    cells = [cell.strip() for cell in first]
    if name in cells:
        return cells.index(name)
    folded = [cell.casefold() for cell in cells]
    if folded.count(name.casefold()) == 1:
        return folded.index(name.casefold())
    if name.isdecimal() and 1 <= int(name) <= len(cells):
        return int(name) - 1
    raise TextError(
        f"{table.name}: no column {shown(name)} for --{role}; its columns are {listed([shown(c) for c in cells])}, or "
        f"1 … {len(cells)}"
    )


def _other_column(
    table: Table, first: Sequence[str], rows: Sequence[Sequence[str]], text: int | None, label: int | None
) -> tuple[int, int]:
    """Return the columns of text and label, of which one is named."""
    known = text if text is not None else label
    lowered = [cell.strip().lower() for cell in first]
    usual = LABELS if text is not None else TEXTS
    found = next((k for k, cell in enumerate(lowered) if cell in usual and k != known), None)
    if found is None and len(first) == 2:
        found = 1 - int(known or 0)
    if found is None:
        what = "label" if text is not None else "text"
        raise TextError(
            f"{table.name}: which column is the {what}? Name it with --{what}; its columns are "
            f"{listed([shown(cell) for cell in first])}"
        )
    return (int(known or 0), found) if text is not None else (found, int(known or 0))


def _without_header(rows: Sequence[Sequence[str]], classes: Collection[str]) -> LabelledLayout:
    swapped = any(len(row) == 2 for row in rows) and _is_swapped(rows, classes)
    return LabelledLayout(1, 0) if swapped else LabelledLayout()


def _check_named(table: Table, layout: LabelledLayout) -> None:
    """Raise TextError if several columns have no names: which one is the label is not guessed."""
    rows = table.rows
    width = len(rows[0].cells) if rows else 2
    if width == 1:
        raise TextError(
            f"{table.name}: one column, and a label and a text were expected; name the mark between columns with "
            f"--delimiter; its first line is {shown(rows[0].cells[0][:60])}"
        )
    if width > 2 and len(rows) > 1 and not layout.header and all(len(row.cells) == width for row in rows):
        raise TextError(
            f"{table.name}: {width} columns, and its first line does not name which is the label and which the text, "
            f"such as label and text; name them with --text and --label (a name or a number); it is "
            f"{shown(','.join(rows[0].cells)[:60])}"
        )


LABEL_MARK = "|"
"""Mark between several labels of a text."""

MIN_REPEATS = 2


def _has_several(table: Table, layout: LabelledLayout, reading: Reading) -> bool:
    """Return True if labels are lists: by the user's word, by the type of the column, or by bars between labels that
    also occur apart."""
    if reading.multi_label is not None:
        return reading.multi_label
    if layout.header and layout.label < len(layout.header) and layout.header[layout.label] in table.lists:
        return True
    rows = table.rows[bool(layout.header) and not table.header :]
    cells = [row.cells[layout.label] for row in rows if layout.label < len(row.cells)]
    joined = [cell for cell in cells if LABEL_MARK in cell]
    if not joined or table.delimiter == LABEL_MARK:
        return False
    parts = Counter(part.strip() for cell in cells for part in cell.split(LABEL_MARK))
    several = all(count >= MIN_REPEATS for part, count in parts.items() if part) and len(parts) < len(set(cells)) + 2
    if several:
        reading.add_note(f"{table.name}: labels between bars are several labels of a text (--no-multi-label: one)")
    return several


def several_labels(cell: str) -> list[str]:
    """Return the labels in a cell, sorted, each once."""
    mark = LIST_MARK if LIST_MARK in cell else LABEL_MARK
    return sorted({part.strip() for part in cell.split(mark)} - {""})


def named_columns(header: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the text and label columns, if the header has them; x and y are too ambiguous."""
    text, label = (next((name for name in header if name.strip().lower() in names), "") for names in (TEXTS, LABELS))
    return (text, label) if text and label and (text, label) != ("x", "y") else None


def layout_note(names: Sequence[str]) -> str:
    """Return notes on headers and swapped columns of files."""
    reading = Reading()
    for table in labelled_tables(names, reading):
        reading.add_note(table_layout(table, (), reading).note(table.name))
    return "; ".join(reading.notes)


class PredictionRow(NamedTuple):
    """Input of a model from a table, with what else its row tells."""

    text: str
    where: str
    label: str | None = None
    """Label of the row, if the table has labels: it is compared with the prediction, and never read by the model."""
    id: str = ""


class TableInputs:
    """Inputs of a model from a table, in the order of its rows."""

    def __init__(self, name: str, rows: Sequence[PredictionRow]) -> None:
        self.name, self.rows = name, rows

    def __iter__(self) -> Iterator[str]:
        return (row.text for row in self.rows)


def read_inputs(name: str, reading: Reading, classes: Collection[str] = ()) -> list[PredictionRow] | None:
    """Return the texts of a table, read as the training files were; None for a text file with an input on each line.

    Columns of labels are kept apart. A table may have the text column alone.
    """
    if is_table(name):
        table = read_table(name, reading)
    else:
        sources = find_sources([name], reading)[0]
        if len(sources) != 1:
            return None
        lines = [line for _, line in source_lines(sources[0])]
        filled = [(k, line) for k, line in enumerate(lines, start=1) if line.strip()]
        mark = _own_delimiter([line for _, line in filled], reading, classes)
        if not mark:
            return None
        rows = [CsvRow(k, line.split(mark)) for k, line in filled]
        table = Table(name, (), rows) if mark == "\t" else delimited(lines, name, reading)
    layout, label = _input_layout(table, reading, classes)
    body = table.rows[bool(layout.header) and not table.header :]
    found = []
    for row in body:
        cells = [*row.cells, *[""] * (1 + max(layout.text, label or 0, layout.id or 0) - len(row.cells))]
        text = "\t".join(cells[1:]) if not layout.header and label == 0 and layout.text == 1 else cells[layout.text]
        own = None if label is None else cells[label].strip().replace(LIST_MARK, LABEL_MARK) or None
        id_ = "" if layout.id is None else cells[layout.id]
        found.append(PredictionRow(" ".join(text.split("\n")).strip(), table.where(row), own, id_))
    return found


def _own_delimiter(lines: Sequence[str], reading: Reading, classes: Collection[str]) -> str:
    """Return the delimiter of a text file that is a table as the training files were; empty for plain lines."""
    if not lines:
        return ""
    if reading.delimiter and all(reading.delimiter in line for line in lines[:MAX_INSPECTED_ROWS]):
        return reading.delimiter
    if (reading.text or reading.label) and "\t" not in lines[0]:
        found = find_delimiter(lines[:MAX_INSPECTED_ROWS])
        return found if reading.text in [cell.strip() for cell in lines[0].split(found)] else ""
    if not all("\t" in line for line in lines):
        return ""
    columns = [[line.split("\t")[k].strip() for line in lines[:MAX_INSPECTED_ROWS]] for k in (0, 1)]
    named = named_columns(lines[0].split("\t")) is not None
    return "\t" if named or any(2 * sum(c in classes for c in column) > len(column) for column in columns) else ""


def _input_layout(table: Table, reading: Reading, classes: Collection[str]) -> tuple[LabelledLayout, int | None]:
    """Return the layout of a table of inputs, and the column of labels; None if it has none."""
    first = table.header or (tuple(cell.strip() for cell in table.rows[0].cells) if table.rows else ())
    lowered = [cell.lower() for cell in first]
    id_ = lowered.index(reading.id.lower()) if reading.id and reading.id.lower() in lowered else None
    named = reading.text and not (reading.header == "no" and reading.text.isdecimal())
    text = lowered.index(reading.text.lower()) if named and reading.text.lower() in lowered else None
    if text is None and (table.header or reading.header != "no"):
        text = next((k for k, cell in enumerate(lowered) if cell in TEXTS), None)
    if text is not None:
        usual = {reading.label.lower()} if reading.label else LABELS
        label = next((k for k, cell in enumerate(lowered) if cell in usual and k != text), None)
        return LabelledLayout(label or 0, text, first, id_), label
    if len(first) == 1:
        return LabelledLayout(0, 0, table.header), None
    if reading.header == "no" and reading.text.isdecimal() and not table.header:
        text, label = int(reading.text) - 1, int(reading.label) - 1 if reading.label.isdecimal() else None
        if text < len(first) and (label is None or label < len(first)):
            return LabelledLayout(label or 0, text), label
    if len(first) == 2 and not table.header:
        found = find_layout([row.cells for row in table.rows[:MAX_INSPECTED_ROWS]], classes)
        return found, found.label
    raise TextError(
        f"{table.name}: which column is the text? The training files call it {shown(reading.text or 'text')}, and the "
        f"columns here are {listed([shown(cell) for cell in first])}; name it with --text"
    )


def find_layout(rows: Sequence[Sequence[str]], classes: Collection[str] = ()) -> LabelledLayout:
    """Infer the layout from a file's first rows."""
    first = [cell.strip() for cell in rows[0]] if rows else []
    named = [cell.lower() for cell in first]
    label = next((k for k, cell in enumerate(named) if cell in LABELS), None)
    text = next((k for k, cell in enumerate(named) if cell in TEXTS), None)
    if label is not None and text is not None:
        return LabelledLayout(label, text, tuple(first))
    values = [{row[k].strip() for row in rows[1:] if len(row) > k} for k in (0, 1)]
    # One name may be a class's own: it is a header's where no other row has it.
    header = tuple(first) if label in (0, 1) and len(rows) > 2 and first[label] not in values[label] else ()
    if header and label is not None:
        return LabelledLayout(label, 1 - label, header)
    swapped = any(len(row) == 2 for row in rows) and _is_swapped(rows, classes)
    return LabelledLayout(1, 0) if swapped else LabelledLayout()


def _is_swapped(rows: Sequence[Sequence[str]], classes: Collection[str]) -> bool:
    columns = [[row[k].strip() for row in rows if len(row) == 2] for k in (0, 1)]
    if classes:
        known = [sum(value in classes for value in column) for column in columns]
        if any(known):
            return known[1] > known[0]
    return _repeats(columns[1]) and not _repeats(columns[0])


def _repeats(values: Sequence[str]) -> bool:
    """Return True if at most half of the values are distinct and all are short."""
    return 2 * len(set(values)) <= len(values) and max(map(len, values)) <= MAX_LABEL_LENGTH


def _labelled(row: CsvRow, layout: LabelledLayout, table: Table, multi: bool) -> LabelledText:
    """Return the labelled text of a row. Without a header, everything after the first tab is the text."""
    cells, where = row.cells, table.where(row)
    if len(cells) < 2:
        raise TextError(f"{where}: a row is label,text, got {shown(cells[0])}")
    if not layout.header and (layout.label, layout.text) == (0, 1):
        label, text = cells[0], "\t".join(cells[1:])
    elif len(cells) > max(layout.label, layout.text):
        label, text = cells[layout.label], cells[layout.text]
    else:
        raise TextError(f"{where}: {len(cells)} columns, where the first line names {len(layout.header)}")
    if multi:
        label = LABEL_MARK.join(several_labels(label))  # a text may have no label at all
    label = label.replace(LIST_MARK, LABEL_MARK)
    if (not label.strip() and not multi) or not text.strip():
        what, at = ("text", layout.text) if not text.strip() else ("label", layout.label)
        if layout.header:
            raise TextError(f"{where}: its {what} is empty (column {layout.header[at]}); leave such rows out")
        raise TextError(f"{where}: a line is label TAB text, and its {what} is empty: {shown(' '.join(cells)[:40])}")
    id_, group = (cells[k].strip() if k is not None and k < len(cells) else "" for k in (layout.id, layout.group))
    return LabelledText(" ".join(text.split("\n")).strip(), label.strip(), where, id_, group)


class Pair(NamedTuple):
    """Source and target with their place of origin.

    >>> recur.data.text.read_pairs(["pairs.tsv"])[0].target
    'c b 0 a'
    """

    source: str
    target: str
    where: str
    """File and line."""
    group: str = ""
    """Group of the pair: a split keeps a group on one side."""


SOURCES = ("source", "src", "input", "question", "en", "原文", "输入", "问题")
TARGETS = ("target", "tgt", "output", "answer", "de", "译文", "输出", "答案")
"""Usual names of the columns of pairs, in lower case."""


def read_pairs(names: Sequence[str], reading: Reading | None = None) -> list[Pair]:
    """Return pairs of source and target.

    One file, or several tables (.tsv, .csv, .jsonl …), have both; two text files are sources and targets, line by line.

    >>> len(recur.data.text.read_pairs(["train.de", "train.en"]))      # line by line
    60
    """
    reading = reading or Reading()
    tables = len(names) == 1 or all(is_table(name) for name in names)
    if not tables and len(names) != 2:
        raise TextError(f"pairs come as tables (.tsv) or as two files, sources and targets; got {', '.join(names)}")
    found = (
        (pair for name in names for pair in _table(name, reading)) if tables else _parallel(names[0], names[1], reading)
    )
    pairs = list(kept(found, _checked_pair, reading))
    reading.check_share(len(pairs), names[0])
    if not pairs:
        raise TextError(f"{names[0]} holds no pair")
    return pairs


def _tables(names: Sequence[str], reading: Reading) -> Iterator[Pair]:
    for name in names:
        yield from _table(name, reading)


def _checked_pair(pair: Pair) -> Pair:
    if not pair.source.strip():
        raise TextError(f"{pair.where}: the source is empty")
    if not pair.target.strip():
        raise TextError(f"{pair.where}: the target is empty")
    return pair


def _table(name: str, reading: Reading) -> Iterator[Pair]:
    if not (is_table(name) or reading.delimiter or reading.source or reading.target):
        for where, line in numbered_lines(name, reading):
            if not line:
                continue
            columns = line.split("\t")
            if len(columns) != 2:
                reading.reject(
                    TextError(f"{where}: a pair is source TAB target, 2 columns; this line has {len(columns)}")
                )
                continue
            yield Pair(columns[0], columns[1], where)
        return
    table = read_table(name, reading) if is_table(name) else delimited(_lines_of(name, reading), name, reading)
    if not table.rows:
        return
    source, target, group, header = _pair_columns(table, reading)
    for row in table.rows[header and not table.header :]:
        if len(row.cells) != len(table.rows[0].cells) or len(row.cells) <= max(source, target):
            width = len(table.rows[0].cells)
            reading.reject(
                TextError(
                    f"{table.where(row)}: a pair is source TAB target, {width} columns; this line has {len(row.cells)}"
                )
            )
            continue
        texts = [" ".join(row.cells[k].split("\n")).strip("\r") for k in (source, target)]
        yield Pair(texts[0], texts[1], table.where(row), row.cells[group] if group is not None else "")


def _lines_of(name: str, reading: Reading) -> Iterator[str]:
    return (line for _, line in numbered_lines(name, reading))


def _pair_columns(table: Table, reading: Reading) -> tuple[int, int, int | None, bool]:
    """Return the columns of source, target and group, and whether the first row is a header."""
    first = table.header or tuple(cell.strip() for cell in table.rows[0].cells) if table.rows else ()
    lowered = [cell.lower() for cell in first]
    roles = (("source", SOURCES), ("target", TARGETS))
    found = [named_column(table, first, getattr(reading, role), role) for role, _ in roles]
    usual = [next((k for k, cell in enumerate(lowered) if cell in names), None) for _, names in roles]
    named = bool(table.header) or reading.header == "yes" or None not in usual
    named = named or any(getattr(reading, role) in first for role, _ in roles if getattr(reading, role))
    both = [own if own is not None else other for own, other in zip(found, usual, strict=True)]
    if None in both and len(first) == 2:
        known = both[0] if both[1] is None else 1 - int(both[1])
        both = [0, 1] if known is None else [known, 1 - known]
    source, target = both
    if source is None or target is None:
        where = f"{table.name}:{table.rows[0].line}" if table.rows else table.name
        raise TextError(
            f"{where}: a pair is source TAB target, 2 columns; this line has {len(first)}: name the columns with "
            f"--source and --target, of {listed([shown(cell) for cell in first])}"
        )
    return source, target, named_column(table, first, reading.group, "group"), named and reading.header != "no"


def read_pair_inputs(name: str, reading: Reading) -> list[PredictionRow] | None:
    """Return the sources of a table of pairs, and their targets if it has some; None for a source on each line."""
    if not is_table(name):
        lines = list(_lines_of(name, reading))
        filled = [line for line in lines if line.strip()]
        if not filled or not all(line.count("\t") == 1 for line in filled):
            return None
        table = Table(name, (), [CsvRow(k, line.split("\t")) for k, line in enumerate(lines, start=1) if line.strip()])
    else:
        table = read_table(name, reading)
    first = table.header or tuple(cell.strip() for cell in table.rows[0].cells)
    lowered = [cell.lower() for cell in first]
    if len(first) == 1:
        header = bool(table.header) or lowered[0] in (reading.source.lower(), *SOURCES)
        return [PredictionRow(r.cells[0], table.where(r)) for r in table.rows[header and not table.header :]]
    if (reading.source or "source").lower() in lowered and (reading.target or "target").lower() not in lowered:
        k = lowered.index((reading.source or "source").lower())
        return [PredictionRow(r.cells[k], table.where(r)) for r in table.rows[not table.header :] if k < len(r.cells)]
    source, target, _, header = _pair_columns(table, reading)
    rows = table.rows[header and not table.header :]
    return [
        PredictionRow(row.cells[source], table.where(row), row.cells[target] or None)
        for row in rows
        if len(row.cells) > max(source, target)
    ]


def read_lines(name: str, reading: Reading | None = None) -> Iterator[str]:
    """Yield the lines of a file without line ends."""
    return whole_lines(Corpus.of(name, reading=reading).pieces(), name)


def _parallel(sources: str, targets: str, reading: Reading) -> Iterator[Pair]:
    left, right = list(read_lines(sources, reading)), list(read_lines(targets, reading))
    if len(left) != len(right):
        raise TextError(f"{sources} has {len(left)} lines and {targets} {len(right)}; line by line they are pairs")
    for number, (source, target) in enumerate(zip(left, right, strict=True), start=1):
        yield Pair(source, target, f"{sources if not source.strip() else targets}:{number}")
