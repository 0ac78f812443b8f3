"""Files of lines: each line with the place it comes from, and two kinds of tables made of them.

label TAB text            a text and its class
word TAB … TAB tag        a token and its tag (CoNLL); an empty line ends a sentence
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recur.errors import TextError
from recur.text.corpus import Corpus
from recur.text.cutting import whole_lines
from recur.text.sources import find_sources


class LabelledText(NamedTuple):
    text: str
    label: str
    where: str


class Sentence(NamedTuple):
    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: str
    """Of its first line."""


def numbered_lines(name: str) -> Iterator[tuple[str, str]]:
    """The file and number of every line, and the line without its end. A folder's files come one after the other."""
    for source in find_sources([name])[0]:
        pieces = Corpus(source.name, (source,)).pieces()
        for number, line in enumerate(whole_lines(pieces, source.name), start=1):
            yield f"{source.name}:{number}", line


def read_labelled(names: Sequence[str]) -> list[LabelledText]:
    found = []
    for where, line in (pair for name in names for pair in numbered_lines(name)):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if not tab or not label.strip() or not text.strip():
            raise TextError(f"{where}: a line is label TAB text, got {line[:40]!r}")
        found.append(LabelledText(text.strip(), label.strip(), where))
    if not found:
        raise TextError(f"{', '.join(names)} holds no line; one is label TAB text")
    return found


def read_tagged(names: Sequence[str]) -> list[Sentence]:
    """CoNLL columns, between tabs or spaces: the first is the word, the last its tag. Lines with # are comments."""
    found = [sentence for name in names for sentence in _sentences(name)]
    if not found:
        raise TextError(f"{', '.join(names)} holds no sentence; one is lines of word TAB tag, and an empty line")
    return found


class _TaggedWord(NamedTuple):
    where: str
    columns: list[str]


def _sentences(name: str) -> Iterator[Sentence]:
    first: _TaggedWord | None = None
    sentence: list[_TaggedWord] = []
    for where, line in (*numbered_lines(name), (name, "")):
        if not line.strip():
            if sentence:
                yield _sentence(sentence)
            sentence = []
        elif sentence or not line.startswith("#"):
            word = _tagged_word(where, line)
            first = first or word
            if len(word.columns) != len(first.columns):
                count = len(word.columns)
                raise TextError(f"{where}: {count} columns, where {first.where} has {len(first.columns)}")
            sentence.append(word)


def _tagged_word(where: str, line: str) -> _TaggedWord:
    columns = line.split("\t") if "\t" in line else line.split()
    if len(columns) < 2 or not columns[0].strip() or not columns[-1].strip():
        raise TextError(f"{where}: a line is a word, its columns and its tag, got {line[:40]!r}")
    return _TaggedWord(where, columns)


def _sentence(rows: list[_TaggedWord]) -> Sentence:
    words, tags = tuple(row.columns[0] for row in rows), tuple(row.columns[-1] for row in rows)
    return Sentence(words, tags, rows[0].where)
