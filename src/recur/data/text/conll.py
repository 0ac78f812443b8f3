"""Tagged sentences in columns: one word per line with its tag, and an empty line after each sentence.

CoNLL     columns separated by tabs or spaces: the first is the word, the last its tag. Lines that start with # before a
          sentence are comments; -DOCSTART- lines mark documents.
CoNLL-U   ten columns separated by tabs: `form` is the word and `upos` its tag. Multiword tokens (1-2) and empty nodes
          (1.1) are not words of the sentence.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recur.data.text.labelled import numbered_lines
from recur.errors import OptionError, TextError, shown

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


def read_tagged(names: Sequence[str], columns: TagColumns = TagColumns()) -> list[Sentence]:  # noqa: B008  immutable
    """Return the tagged sentences of files.

    >>> len(recur.data.text.read_tagged(["tagged.conll"]))
    60
    """
    found = [sentence for name in names for sentence in _sentences(name, columns, tagged=True)]
    if not found:
        raise TextError(f"{', '.join(names)} holds no sentence; one is lines of word TAB tag, and an empty line")
    return found


def read_words(name: str, columns: TagColumns = TagColumns()) -> Iterator[Sentence]:  # noqa: B008  immutable
    """Yield sentences without their tags, which may be present or not.

    >>> next(recur.data.text.read_words("tagged.conll")).words
    ('the', 'w0')
    """
    return _sentences(name, columns, tagged=False)


class _Row(NamedTuple):
    where: str
    fields: list[str]


class _ColumnIndices(NamedTuple):
    """Indices of words and tags in a file's rows."""

    first: _Row
    word: int
    tag: int | None
    conllu: bool

    @classmethod
    def of(cls, first: _Row, columns: TagColumns, tagged: bool) -> _ColumnIndices:
        conllu = is_conllu(first.fields)
        word = _place(columns.word or ("form" if conllu else "1"), first, conllu)
        tag = _place(columns.tag or ("upos" if conllu else "-1"), first, conllu) if tagged else None
        if tag == word:
            raise TextError(f"{first.where}: a line is a word, its columns and its tag, got {_shown(first)}")
        return cls(first, word, tag, conllu)

    def check(self, row: _Row) -> None:
        count = len(self.first.fields)
        if len(row.fields) != count:
            raise TextError(f"{row.where}: {len(row.fields)} columns, where {self.first.where} has {count}")
        if self.conllu and not is_conllu(row.fields):
            raise TextError(f"{row.where}: CoNLL-U has a word's number in its first column, got {shown(row.fields[0])}")
        for place in (self.word, self.tag):
            if place is not None and not row.fields[place].strip():
                raise TextError(f"{row.where}: a line is a word, its columns and its tag, got {_shown(row)}")


def _place(column: str, row: _Row, conllu: bool) -> int:
    count = len(row.fields)
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


def _shown(row: _Row) -> str:
    return repr(" ".join(row.fields)[:40])


def _sentences(name: str, columns: TagColumns, tagged: bool) -> Iterator[Sentence]:
    places: _ColumnIndices | None = None
    sentence: list[_Row] = []
    for where, line in itertools.chain(numbered_lines(name), [(name, "")]):
        if not line.strip():
            if sentence and places is not None:
                yield _sentence(sentence, places)
            sentence = []
        elif not _comment(line, bool(sentence), places):
            row = _Row(where, fields_of(line))
            if row.fields[0] == DOCUMENT:
                continue
            places = places or _ColumnIndices.of(row, columns, tagged)
            places.check(row)
            if not places.conllu or row.fields[0].isdecimal():
                sentence.append(row)


def _comment(line: str, inside: bool, places: _ColumnIndices | None) -> bool:
    """Return True if a line that starts with # is a comment; inside a sentence of tab-separated columns it may be a
    word.
    """
    if not line.startswith("#"):
        return False
    return (places is not None and places.conllu) or (not inside and "\t" not in line)


def _sentence(rows: list[_Row], places: _ColumnIndices) -> Sentence:
    words = tuple(row.fields[places.word] for row in rows)
    tags = () if places.tag is None else tuple(row.fields[places.tag] for row in rows)
    return Sentence(words, tags, rows[0].where)
