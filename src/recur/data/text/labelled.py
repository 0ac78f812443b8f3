"""Texts with a label each: two columns between tabs, or a CSV, in whichever order and with or without a header.

    label TAB text        as it is meant to be; all behind the first tab is the text
    text TAB label        known by its values: those of the second column repeat, and those of the first do not
    label,text            a .csv, quoted where it needs to be; of more columns, those that the header names so
    label;text            a .csv as some programs write it, also with tabs
    label TAB text        a first line of names is left out

What was found beside the plain form is said once: see `layout_note`.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from recur.data.text.lines import source_lines
from recur.data.text.sources import Source, find_sources
from recur.errors import TextError, shown

LABELS = frozenset(
    ("label", "labels", "class", "category", "target", "sentiment", "language", "lang", "intent", "y",
     "标签", "类别", "分类", "情感", "标注", "语言", "意图")
)  # fmt: skip
TEXTS = frozenset(
    ("text", "texts", "sentence", "review", "name", "content", "document", "message", "comment", "title", "word", "x",
     "文本", "句子", "评论", "内容", "文档", "消息", "标题", "姓名", "名字", "词")
)  # fmt: skip
"""What columns are called, in any case."""

LOOK = 1000
"""Rows of a file that tell how it is laid out."""

SHORT = 60
"""Characters of a label at most, where the values have to tell which column they are."""


class LabelledText(NamedTuple):
    """A text, its label, and where it stands.

    >>> first = recur.data.text.read_labelled(["names.tsv"])[0]
    >>> first.label, first.text
    ('Greek', 'Nabc0')
    """

    text: str
    label: str
    where: str


class Row(NamedTuple):
    where: str
    cells: list[str]


class Layout(NamedTuple):
    """Where label and text stand in a file's rows."""

    label: int = 0
    text: int = 1
    header: tuple[str, ...] = ()
    """The first row, if it is one of names."""

    def note(self, name: str) -> str:
        """What is worth saying of it; nothing of the plain form."""
        found = [f"its first line ({', '.join(self.header)}) is a header"] if self.header else []
        if (self.label, self.text) != (0, 1):
            found.append(f"column {self.text + 1} is the text and column {self.label + 1} its label")
        return f"{name}: {'; '.join(found)}" if found else ""


def read_labelled(names: Sequence[str], classes: Collection[str] = ()) -> list[LabelledText]:
    """The texts of files; with the `classes` of a model, by which its labels are known too.

    >>> sorted({line.label for line in recur.data.text.read_labelled(["names.tsv"])})
    ['Greek', 'Irish']
    """
    found: list[LabelledText] = []
    for source in find_sources(names)[0]:
        rows = list(_rows(source))
        layout = find_layout([row.cells for row in rows[:LOOK]], classes)
        if is_csv(source.name):
            _check_named(rows, layout, source.name)
        found += [_labelled(row, layout) for row in rows[bool(layout.header) :]]
    if not found:
        raise TextError(f"{', '.join(names)} holds no line; one is label TAB text")
    return found


def _check_named(rows: Sequence[Row], layout: Layout, name: str) -> None:
    """Which of several columns is the label is not guessed; a text with commas in it has more in some rows only."""
    width = len(rows[0].cells) if rows else 2
    if width > 2 and len(rows) > 1 and not layout.header and all(len(row.cells) == width for row in rows):
        raise TextError(
            f"{name}: {width} columns, and its first line does not name which is the label and which the text, such as "
            f"label and text; it is {shown(','.join(rows[0].cells)[:60])}"
        )


def named_columns(header: Sequence[str]) -> tuple[str, str] | None:
    """The columns of texts and of labels, by their names; x and y may be anything."""
    text, label = (next((name for name in header if name.lower() in names), "") for names in (TEXTS, LABELS))
    return (text, label) if text and label and (text, label) != ("x", "y") else None


def layout_note(names: Sequence[str]) -> str:
    """What is worth saying of files: headers, and columns in another order."""
    sources = find_sources(names)[0]
    layouts = (find_layout([row.cells for row in islice(_rows(source), LOOK)]) for source in sources)
    notes = (layout.note(source.name) for source, layout in zip(sources, layouts, strict=True))
    return "; ".join(filter(None, notes))


def _rows(source: Source) -> Iterator[Row]:
    return _between_commas(source_lines(source)) if is_csv(source.name) else _between_tabs(source_lines(source))


def is_csv(name: str) -> bool:
    return name.removesuffix(".gz").lower().endswith(".csv")


def _between_tabs(lines: Iterable[tuple[str, str]]) -> Iterator[Row]:
    for where, line in lines:
        cells = line.split("\t")
        if not line.strip():
            continue
        if len(cells) < 2:
            raise TextError(f"{where}: a line is label TAB text, got {line[:40]!r}")
        yield Row(where, cells)


def _between_commas(lines: Iterable[tuple[str, str]]) -> Iterator[Row]:
    """A quoted field may hold commas and line ends. Where the first line has no comma but semicolons or tabs, these
    are what is between columns."""
    lines = iter(lines)
    first = next(lines, None)
    if first is None:
        return
    mark = next((mark for mark in ",;\t" if mark in first[1]), ",")
    lines, at = chain([first], lines), ""

    def read() -> Iterator[str]:
        nonlocal at
        for where, line in lines:
            at = where
            yield f"{line}\n"

    try:
        for cells in csv.reader(read(), strict=True, delimiter=mark):
            if not any(cells):
                continue
            if len(cells) < 2:
                raise TextError(f"{at}: a row is label,text, got {shown(cells[0])}")
            yield Row(at, cells)
    except csv.Error as error:
        raise TextError(f"{at}: no CSV: {error}") from None


def find_layout(rows: Sequence[Sequence[str]], classes: Collection[str] = ()) -> Layout:
    """From a file's first rows."""
    first = [cell.strip() for cell in rows[0]] if rows else []
    named = [cell.lower() for cell in first]
    label = next((k for k, cell in enumerate(named) if cell in LABELS), None)
    text = next((k for k, cell in enumerate(named) if cell in TEXTS), None)
    if label is not None and text is not None:
        return Layout(label, text, tuple(first))
    values = [{row[k].strip() for row in rows[1:] if len(row) > k} for k in (0, 1)]
    # One name may be a class's own: it is a header's where no other row has it.
    header = tuple(first) if label in (0, 1) and len(rows) > 2 and first[label] not in values[label] else ()
    if header and label is not None:
        return Layout(label, 1 - label, header)
    swapped = any(len(row) == 2 for row in rows) and _is_swapped(rows, classes)
    return Layout(1, 0) if swapped else Layout()


def _is_swapped(rows: Sequence[Sequence[str]], classes: Collection[str]) -> bool:
    columns = [[row[k].strip() for row in rows if len(row) == 2] for k in (0, 1)]
    if classes:
        known = [sum(value in classes for value in column) for column in columns]
        if any(known):
            return known[1] > known[0]
    return _repeats(columns[1]) and not _repeats(columns[0])


def _repeats(values: Sequence[str]) -> bool:
    """Whether at most half of them are distinct, and all are short."""
    return 2 * len(set(values)) <= len(values) and max(map(len, values)) <= SHORT


def _labelled(row: Row, layout: Layout) -> LabelledText:
    """With two columns all behind the first tab is the text, tabs among it; with a header, what it names."""
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
