"""Text examples from files: lines, labelled texts (TSV or CSV), and pairs of source and target.

Every example carries the file and line it comes from, for error messages.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from recur.data.csv_files import find_delimiter, is_csv, read_rows
from recur.data.text.corpus import Corpus, normalised
from recur.data.text.sources import Source, find_sources
from recur.data.text.tokenizers import whole_lines
from recur.errors import TextError, shown
from recur.utils.files import ends


def numbered_lines(name: str) -> Iterator[tuple[str, str]]:
    """Yield `file:number` and the text of every line; the files of a folder follow one another."""
    for source in find_sources([name])[0]:
        yield from source_lines(source)


def source_lines(source: Source) -> Iterator[tuple[str, str]]:
    """Yield `file:number` and the text of every line of one source."""
    pieces = Corpus(source.name, (source,)).pieces()
    for number, line in enumerate(whole_lines(pieces, source.name), start=1):
        yield f"{source.name}:{number}", line


MAX_LINE_BYTES = 1 << 26
"""Largest number of bytes of a line of standard input."""


def read_standard_input(blank: bool = False) -> Iterator[list[str]]:
    """Yield the lines that have arrived so far, in batches, without waiting for a batch to fill.

    blank   accept blank lines; else raise TextError
    """
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
                text = normalised(line.decode().rstrip("\r"))
            except UnicodeDecodeError:
                raise TextError(f"standard input:{number} is not UTF-8") from None
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
    where: str


class LabelledLayout(NamedTuple):
    """Columns of label and text in a file's rows."""

    label: int = 0
    text: int = 1
    header: tuple[str, ...] = ()
    """First row, if it names the columns."""

    def note(self, name: str) -> str:
        """Return a note on the layout for the user; empty for the default layout."""
        found = [f"its first line ({', '.join(self.header)}) is a header"] if self.header else []
        if (self.label, self.text) != (0, 1):
            found.append(f"column {self.text + 1} is the text and column {self.label + 1} its label")
        return f"{name}: {'; '.join(found)}" if found else ""


def read_labelled(names: Sequence[str], classes: Collection[str] = ()) -> list[LabelledText]:
    """Return the labelled texts of files. `classes` of a model help to find the label column.

    >>> sorted({line.label for line in recur.data.text.read_labelled(["names.tsv"])})
    ['Greek', 'Irish']
    """
    found: list[LabelledText] = []
    for source in find_sources(names)[0]:
        rows = list(_rows(source))
        layout = find_layout([row.cells for row in rows[:MAX_INSPECTED_ROWS]], classes)
        if is_csv(source.name):
            _check_named(rows, layout, source.name)
        found += [_labelled(row, layout) for row in rows[bool(layout.header) :]]
    if not found:
        raise TextError(f"{', '.join(names)} holds no line; one is label TAB text")
    return found


def _check_named(rows: Sequence[LocatedRow], layout: LabelledLayout, name: str) -> None:
    """Raise TextError if several columns have no names: which one is the label is not guessed."""
    width = len(rows[0].cells) if rows else 2
    if width > 2 and len(rows) > 1 and not layout.header and all(len(row.cells) == width for row in rows):
        raise TextError(
            f"{name}: {width} columns, and its first line does not name which is the label and which the text, such as "
            f"label and text; it is {shown(','.join(rows[0].cells)[:60])}"
        )


def named_columns(header: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the text and label columns, if the header has them; x and y are too ambiguous."""
    text, label = (next((name for name in header if name.lower() in names), "") for names in (TEXTS, LABELS))
    return (text, label) if text and label and (text, label) != ("x", "y") else None


def layout_note(names: Sequence[str]) -> str:
    """Return notes on headers and swapped columns of files."""
    sources = find_sources(names)[0]
    layouts = (find_layout([row.cells for row in islice(_rows(source), MAX_INSPECTED_ROWS)]) for source in sources)
    notes = (layout.note(source.name) for source, layout in zip(sources, layouts, strict=True))
    return "; ".join(filter(None, notes))


def _rows(source: Source) -> Iterator[LocatedRow]:
    return _between_commas(source) if is_csv(source.name) else _between_tabs(source_lines(source))


def _between_tabs(lines: Iterable[tuple[str, str]]) -> Iterator[LocatedRow]:
    for where, line in lines:
        cells = line.split("\t")
        if not line.strip():
            continue
        if len(cells) < 2:
            raise TextError(f"{where}: a line is label TAB text, got {line[:40]!r}")
        yield LocatedRow(where, cells)


def _between_commas(source: Source) -> Iterator[LocatedRow]:
    """Yield the rows of a CSV; a quoted cell may hold commas and line ends."""
    lines = (f"{line}\n" for _, line in source_lines(source))
    first = next(lines, "")
    for line, cells in read_rows(chain([first], lines), source.name, delimiter=find_delimiter(first), strip=False):
        if not any(cells):
            continue
        if len(cells) < 2:
            raise TextError(f"{source.name}:{line}: a row is label,text, got {shown(cells[0])}")
        yield LocatedRow(f"{source.name}:{line}", cells)


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


def _labelled(row: LocatedRow, layout: LabelledLayout) -> LabelledText:
    """Return the labelled text of a row. Without a header, everything after the first tab is the text."""
    cells = row.cells
    if not layout.header and layout.label == 0:
        label, text = cells[0], "\t".join(cells[1:])
    elif len(cells) > max(layout.label, layout.text):
        label, text = cells[layout.label], cells[layout.text]
    else:
        raise TextError(f"{row.where}: {len(cells)} columns, where the first line names {len(layout.header)}")
    if not label.strip() or not text.strip():
        what, at = ("label", layout.label) if not label.strip() else ("text", layout.text)
        if layout.header:
            raise TextError(f"{row.where}: its {what} is empty (column {layout.header[at]}); leave such rows out")
        raise TextError(
            f"{row.where}: a line is label TAB text, and its {what} is empty: {shown(' '.join(cells)[:40])}"
        )
    return LabelledText(" ".join(text.split("\n")).strip(), label.strip(), row.where)


class Pair(NamedTuple):
    """Source and target with their place of origin.

    >>> recur.data.text.read_pairs(["pairs.tsv"])[0].target
    'c b 0 a'
    """

    source: str
    target: str
    where: str
    """File and line."""


def read_pairs(names: Sequence[str]) -> list[Pair]:
    """Return pairs of source and target.

    One file, or several .tsv files, are tables; two other files are sources and targets, line by line.

    >>> len(recur.data.text.read_pairs(["train.de", "train.en"]))      # line by line
    60
    """
    tables = len(names) == 1 or all(name.removesuffix(".gz").endswith(".tsv") for name in names)
    if not tables and len(names) != 2:
        raise TextError(f"pairs come as tables (.tsv) or as two files, sources and targets; got {', '.join(names)}")
    pairs = [pair for name in names for pair in _table(name)] if tables else list(_parallel(*names))
    if not pairs:
        raise TextError(f"{names[0]} holds no pair")
    for source, target, where in pairs:
        if not source.strip():
            raise TextError(f"{where}: the source is empty")
        if not target.strip():
            raise TextError(f"{where}: the target is empty")
    return pairs


def read_lines(name: str) -> Iterator[str]:
    """Yield the lines of a file without line ends."""
    return whole_lines(Corpus.of(name).pieces(), name)


def _table(name: str) -> Iterator[Pair]:
    for where, line in numbered_lines(name):
        if not line:
            continue
        columns = line.split("\t")
        if len(columns) != 2:
            raise TextError(f"{where}: a pair is source TAB target, 2 columns; this line has {len(columns)}")
        yield Pair(columns[0], columns[1], where)


def _parallel(sources: str, targets: str) -> Iterator[Pair]:
    left, right = list(read_lines(sources)), list(read_lines(targets))
    if len(left) != len(right):
        raise TextError(f"{sources} has {len(left)} lines and {targets} {len(right)}; line by line they are pairs")
    for number, (source, target) in enumerate(zip(left, right, strict=True), start=1):
        yield Pair(source, target, f"{sources if not source.strip() else targets}:{number}")
