"""Annotated sentences: tags in columns (CoNLL), and bracketed trees.

CoNLL has one word per line with its tag, and an empty line after each sentence.

CoNLL     columns separated by tabs or spaces: the first is the word, the last its tag. Lines that start with # before a
          sentence are comments; -DOCSTART- lines mark documents.
CoNLL-U   ten columns separated by tabs: `form` is the word and `upos` its tag. Multiword tokens (1-2) and empty nodes
          (1.1) are not words of the sentence.

A file of trees has one per line: `(3 (2 It) (4 (2 's) (4 great)))`. A node is `(label word)` or `(label node node …)`.
Errors name the file, line and column. Nodes are numbered children first, from left to right, the root last.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from recur.data.csv_files import CsvRow
from recur.data.reading import Reading, kept
from recur.data.text.labelled import LocatedRow, named_column, numbered_lines
from recur.data.text.tables import LIST_MARK, SENTENCES, TAGS, WORDS, Table, ending, is_table, read_table
from recur.data.text.tokenizers import between
from recur.errors import OptionError, TextError, listed, shown, unknown
from recur.utils.limits import TREE_DEPTH, TREE_NODES, check_count

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
DOCUMENT = "-DOCSTART-"

_ID = re.compile(r"[0-9]+([-.][0-9]+)?")


class Sentence(NamedTuple):
    """Words and tags of a sentence, and its place of origin.

    >>> first = recur.data.text.read_tagged(["tagged.conll"])[0]
    >>> first.words, first.tags
    (('the', 'w0'), ('DT', 'NN'))
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: str
    """File and number of its first line."""
    group: str = ""
    """Group of the sentence: a split keeps a group on one side."""


class TagColumns(NamedTuple):
    """Columns to read: a column name of CoNLL-U, a number from 1, or from −1 at the end.

    >>> recur.data.text.read_tagged(["ner.conll"], recur.data.text.TagColumns(tag="2"))[0].tags
    ('DT', 'NN')
    """

    word: str | None = None
    tag: str | None = None


def parse_column(column: str) -> None:
    """Return the column if it names one; else raise."""
    if column not in CONLLU and (not re.fullmatch(r"-?[0-9]{1,6}", column) or int(column) == 0):
        raise OptionError(
            f"a column is its number, 1 the first and -1 the last, or one of CoNLL-U's names: {', '.join(CONLLU)}; "
            f"got {shown(column)}"
        )


def fields_of(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split()


def is_conllu(fields: Sequence[str]) -> bool:
    return len(fields) == len(CONLLU) and _ID.fullmatch(fields[0]) is not None


def read_tagged(
    names: Sequence[str],
    columns: TagColumns = TagColumns(),  # noqa: B008  immutable
    reading: Reading | None = None,
) -> list[Sentence]:
    """Return the tagged sentences of files: CoNLL, or tables with columns of words and tags.

    >>> len(recur.data.text.read_tagged(["tagged.conll"]))
    60
    """
    reading = reading or Reading()
    found = [sentence for name in names for sentence in _sentences(name, columns, True, reading)]
    reading.check_share(len(found), names[0])
    if not found:
        raise TextError(f"{', '.join(names)} holds no sentence; one is lines of word TAB tag, and an empty line")
    return found


def read_words(
    name: str,
    columns: TagColumns = TagColumns(),  # noqa: B008  immutable
    reading: Reading | None = None,
) -> Iterator[Sentence]:
    """Yield sentences without their tags, which may be present or not.

    >>> next(recur.data.text.read_words("tagged.conll")).words
    ('the', 'w0')
    """
    return _sentences(name, columns, False, reading or Reading())


def _table_sentences(name: str, tagged: bool, reading: Reading) -> Iterator[Sentence]:
    """Yield the sentences of a table: a sentence in each row, as lists or between spaces; or a word in each row, and a
    column that names its sentence."""
    table = read_table(name, reading)
    header = table.header or tuple(cell.strip() for cell in table.rows[0].cells)
    lowered = [column.lower() for column in header]

    def find(role: str, usual: Sequence[str]) -> int | None:
        if own := getattr(reading, role):
            return named_column(table, header, own, role)
        return next((lowered.index(one) for one in usual if one in lowered), None)

    words, tags, sentence, group = find("words", WORDS), find("tags", TAGS), find("sentence", SENTENCES), None
    if words is None and sentence is not None and header[sentence].lower() == "sentence":
        words, sentence = sentence, None  # a column of sentences, not of their numbers
    if reading.group:
        group = named_column(table, header, reading.group, "group")
    if words is None or (tags is None and tagged):
        raise TextError(
            f"{name}: which columns hold the words and the tags? Name them with --words and --tags, of "
            f"{listed([shown(column) for column in header])}"
        )
    rows = table.rows[not table.header :]
    width = max(words, tags or 0, sentence or 0, group or 0) + 1
    if sentence is not None:
        yield from _word_rows(table, rows, words, tags if tagged else None, sentence, group, reading)
        return
    for row in rows:
        cells = [*row.cells, *[""] * (width - len(row.cells))]
        own, marks = (_items(cells[k]) if k is not None else () for k in (words, tags if tagged else None))
        try:
            if not own:
                raise TextError(f"{table.where(row)}: the sentence has no word")
            if tagged and len(own) != len(marks):
                raise TextError(f"{table.where(row)}: {len(own)} words and {len(marks)} tags")
        except TextError as error:
            reading.reject(error)
            continue
        yield Sentence(own, marks, table.where(row), cells[group] if group is not None else "")


def _items(cell: str) -> tuple[str, ...]:
    """Return the items of a list, or of a text between spaces."""
    if LIST_MARK in cell:
        return tuple("".join(item.split()) or "_" for item in cell.split(LIST_MARK))
    return tuple(cell.split())


def _word_rows(
    table: Table,
    rows: Sequence[CsvRow],
    words: int,
    tags: int | None,
    sentence: int,
    group: int | None,
    reading: Reading,
) -> Iterator[Sentence]:
    """Yield the sentences of a table with a word in each row; an empty cell continues the sentence above."""
    current, begun = "", 0
    collected: list[CsvRow] = []
    for row in [*rows, CsvRow(0, [])]:
        cells = row.cells
        name = cells[sentence].strip() if sentence < len(cells) else ""
        if collected and (not cells or (name and name != current)):
            own = tuple(one.cells[words].strip() for one in collected)
            marks = () if tags is None else tuple(one.cells[tags].strip() for one in collected)
            where = f"{table.name}:{begun}"
            try:
                if not all(own) or not all(marks):
                    raise TextError(f"{where}: a word of the sentence, or its tag, is empty")
                yield Sentence(own, marks, where, collected[0].cells[group] if group is not None else "")
            except TextError as error:
                reading.reject(error)
            collected = []
        if not cells:
            return
        if len(cells) <= max(words, tags or 0, sentence, group or 0):
            reading.reject(TextError(f"{table.where(row)}: {len(cells)} columns, where the header has more"))
            continue
        if not collected:
            begun = row.line
        current = name or current
        collected.append(row)


class _ColumnIndices(NamedTuple):
    """Indices of words and tags in a file's rows."""

    first: LocatedRow
    word: int
    tag: int | None
    conllu: bool

    @classmethod
    def of(cls, first: LocatedRow, columns: TagColumns, tagged: bool) -> _ColumnIndices:
        conllu = is_conllu(first.cells)
        word = _place(columns.word or ("form" if conllu else "1"), first, conllu)
        tag = _place(columns.tag or ("upos" if conllu else "-1"), first, conllu) if tagged else None
        if tag == word:
            raise TextError(f"{first.where}: a line is a word, its columns and its tag, got {_shown(first)}")
        return cls(first, word, tag, conllu)

    def check(self, row: LocatedRow) -> None:
        count = len(self.first.cells)
        if len(row.cells) != count:
            raise TextError(f"{row.where}: {len(row.cells)} columns, where {self.first.where} has {count}")
        if self.conllu and not is_conllu(row.cells):
            raise TextError(f"{row.where}: CoNLL-U has a word's number in its first column, got {shown(row.cells[0])}")
        for place in (self.word, self.tag):
            if place is not None and not row.cells[place].strip():
                raise TextError(f"{row.where}: a line is a word, its columns and its tag, got {_shown(row)}")


def _place(column: str, row: LocatedRow, conllu: bool) -> int:
    count = len(row.cells)
    if column in CONLLU:
        if not conllu:
            raise TextError(
                f"{row.where}: {column} is a column of CoNLL-U, and here are {count} columns; give a number"
            )
        return CONLLU.index(column)
    number = int(column)
    place = number - 1 if number > 0 else count + number
    if not 0 <= place < count:
        raise TextError(f"{row.where}: there is no column {number}, for there are {count}")
    return place


def _shown(row: LocatedRow) -> str:
    return repr(" ".join(row.cells)[:40])


def _sentences(name: str, columns: TagColumns, tagged: bool, reading: Reading) -> Iterator[Sentence]:
    if is_table(name) and (ending(name) not in (".tsv", ".tab") or reading.words or reading.tags):
        yield from _table_sentences(name, tagged, reading)
        return
    places: _ColumnIndices | None = None
    sentence: list[LocatedRow] = []
    wrong: TextError | None = None
    for where, line in itertools.chain(numbered_lines(name, reading), [(name, "")]):
        if not line.strip():
            if wrong is not None:
                reading.reject(wrong)
            elif sentence and places is not None:
                yield _sentence(sentence, places)
            sentence, wrong = [], None
        elif not _comment(line, bool(sentence), places):
            row = LocatedRow(where, fields_of(line))
            if row.cells[0] == DOCUMENT:
                continue
            places = places or _ColumnIndices.of(row, columns, tagged)
            try:
                places.check(row)
            except TextError as error:
                if reading.on_bad_rows == "error":
                    raise
                wrong = wrong or error
            if not places.conllu or row.cells[0].isdecimal():
                sentence.append(row)


def _comment(line: str, inside: bool, places: _ColumnIndices | None) -> bool:
    """Return True if a line that starts with # is a comment; inside a sentence of tab-separated columns it may be a
    word.
    """
    if not line.startswith("#"):
        return False
    return (places is not None and places.conllu) or (not inside and "\t" not in line)


def _sentence(rows: list[LocatedRow], places: _ColumnIndices) -> Sentence:
    words = tuple(row.cells[places.word] for row in rows)
    tags = () if places.tag is None else tuple(row.cells[places.tag] for row in rows)
    return Sentence(words, tags, rows[0].where)


Children = tuple[tuple[int, ...], ...]

STRUCTURES = ("given", "balanced", "left", "right")

_PART = re.compile(r"[()]|[^ \t()]+")  # a word may hold a space of another kind, as in 8\u00a01\/2


@dataclass(frozen=True)
class Tree:
    """Words, children and labels of the nodes of a tree; children come before their parent.

    >>> tree = recur.data.text.parse_tree("(3 (2 It) (4 (2 's) (4 great)))")
    >>> tree.words, tree.labels[-1]
    (('It', "'s", 'great'), '3')
    """

    words: tuple[str, ...]
    """Leaves from left to right."""
    children: Children
    """Children of every node; () is a leaf."""
    labels: tuple[str | None, ...]
    """Label of every node; None if there is none."""
    where: str = ""
    """File and line."""
    columns: tuple[int, ...] = ()
    """Column of every node's label."""

    def spans(self) -> list[tuple[int, int]]:
        """Return the first and last word of each node."""
        found: list[tuple[int, int]] = []
        leaves = 0
        for below in self.children:
            found.append((found[below[0]][0], found[below[-1]][1]) if below else (leaves, leaves + 1))
            leaves += not below
        return found

    def bracketed(self) -> str:
        """Return the tree as text; the inverse of `parse_tree`."""
        words = iter(self.words)
        word_of = {k: next(words) for k, below in enumerate(self.children) if not below}
        written: list[str] = []
        waiting: list[int | str] = [len(self.children) - 1]
        while waiting:  # a stack: a tree may be deeper than Python's own
            part = waiting.pop()
            if isinstance(part, str):
                written.append(part)
                continue
            label, below = self.labels[part], self.children[part]
            written.append("(" if label is None else f"({label} ")
            inside: list[int | str] = [*below[::-1]] if below else [word_of[part]]
            waiting += [")", *between(inside, " ")]
        return "".join(written)


def read_trees(names: Sequence[str], reading: Reading | None = None) -> list[Tree]:
    """Return the trees of files, one per line.

    >>> len(recur.data.text.read_trees(["trees.txt"]))
    60
    """
    reading = reading or Reading()
    lines = ((where, line) for name in names for where, line in numbered_lines(name, reading) if line.strip())
    found = list(kept(lines, lambda one: parse_tree(one[1], one[0]), reading))
    reading.check_share(len(found), names[0])
    if not found:
        raise TextError(f"{', '.join(names)} holds no tree; one is (label (label word) (label word)), on a line")
    return found


def parse_tree(line: str, where: str = "") -> Tree:
    """Parse one line.

    >>> recur.data.text.parse_tree("(1 (0 not) (1 bad))").bracketed()
    '(1 (0 not) (1 bad))'
    """
    parser = _Parser(where)
    for found in _PART.finditer(line):
        parser.read(found.group(), found.start())
    return parser.finish()


@dataclass
class _Open:
    """Node whose bracket is not closed yet."""

    at: int
    column: int
    label: str | None = None
    word: str | None = None
    children: list[int] = field(default_factory=list)


class _Parser:
    """Parser of one line, with an explicit stack so that only TREE_DEPTH limits the depth."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[_Open] = []
        self.words: list[str] = []
        self.children: list[tuple[int, ...]] = []
        self.labels: list[str | None] = []
        self.columns: list[int] = []

    def read(self, part: str, at: int) -> None:
        if self.children and not self.stack:
            raise self.wrong(at, f"{part!r} stands behind the end of the tree; a line holds one")
        if part == "(":
            self.open(at)
        elif not self.stack:
            raise self.wrong(at, f"{part!r} stands outside of all brackets")
        elif part == ")":
            self.close(self.stack.pop())
        else:
            self.name(self.stack[-1], part, at)

    def open(self, at: int) -> None:
        if self.stack and self.stack[-1].word is not None:
            word = self.stack[-1].word
            raise self.wrong(at, f"a node has a word or nodes under it, and this one has {word!r} already")
        self.stack.append(_Open(at, at + 1))
        if len(self.stack) > TREE_DEPTH or len(self.children) >= TREE_NODES:
            where = self.where or "the tree"
            check_count(where, "levels", len(self.stack), TREE_DEPTH, "take parses of single sentences")
            check_count(where, "nodes", len(self.children) + 1, TREE_NODES, "put each sentence on a line of its own")

    def close(self, node: _Open) -> None:
        if node.word is not None:
            self.words.append(node.word)
        elif not node.children:
            raise self.wrong(node.at, "a node without a word or nodes under it; one is (label word)")
        self.children.append(tuple(node.children))
        self.labels.append(node.label)
        self.columns.append(node.column)
        if self.stack:
            self.stack[-1].children.append(len(self.children) - 1)

    def name(self, node: _Open, part: str, at: int) -> None:
        """Store the label (first) or the word (second) of a node."""
        if node.children or node.word is not None:
            raise self.wrong(at, f"{part!r} is one word too many; a node has a label, and a word or nodes under it")
        if node.label is None:
            node.label, node.column = part, at + 1
        else:
            node.word = part

    def finish(self) -> Tree:
        if self.stack:
            count = len(self.stack)
            raise self.wrong(
                self.stack[-1].at, f"this bracket is never closed ({count} of them at the end of the line)"
            )
        if not self.children:
            raise self.wrong(0, "no tree; one is (label (label word) (label word))")
        return Tree(tuple(self.words), tuple(self.children), tuple(self.labels), self.where, tuple(self.columns))

    def wrong(self, at: int, what: str) -> TextError:
        return TextError(f"{self.where}{':' if self.where else 'column '}{at + 1}: {what}")


def restructured(tree: Tree, structure: str) -> Tree:
    """Return the same words under another tree. A label is kept if its span of words is a node again."""
    if structure == "given":
        return tree
    children = structure_of(structure, len(tree.words))
    labels = {span: label for span, label in zip(tree.spans(), tree.labels, strict=True) if label is not None}
    made = replace(tree, children=children, labels=(None,) * len(children), columns=())
    return replace(made, labels=tuple(labels.get(span) for span in made.spans()))


def structure_of(structure: str, leaves: int) -> Children:
    """Return a binary tree that needs no parser.

    balanced   halves of halves: ⌈log₂ τ⌉ deep for τ leaves
    left       (((a b) c) d), a chain from the left
    right      (a (b (c d))), a chain from the right
    """
    if structure not in STRUCTURES[1:]:
        raise OptionError(unknown("structure", structure, STRUCTURES))
    if leaves < 1:
        raise OptionError(f"a tree has at least one leaf, got {leaves}")
    check_count("the tree", "nodes", 2 * leaves - 1, TREE_NODES, "put each sentence on a line of its own")
    if structure != "balanced":
        check_count("the tree", "levels", leaves, TREE_DEPTH, "use --structure balanced, or fewer words on a line")
    children: list[tuple[int, ...]] = []
    if structure == "left":
        for k in range(leaves):
            children.append(())
            if k:
                children.append((len(children) - 2, len(children) - 1))
    elif structure == "right":
        children = [()] * leaves
        for k in range(leaves - 1):
            children.append((leaves - 2 - k, len(children) - 1))
    else:
        _balance(leaves, children)
    return tuple(children)


def _balance(leaves: int, children: list[tuple[int, ...]]) -> int:
    """Add the nodes over these leaves to the list; return the index of the root."""
    below = () if leaves == 1 else (_balance((leaves + 1) // 2, children), _balance(leaves // 2, children))
    children.append(below)
    return len(children) - 1
