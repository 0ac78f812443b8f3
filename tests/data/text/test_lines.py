"""Tables of lines: labelled texts and tagged sentences, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from recur.data.text import numbered_lines, read_labelled, read_tagged
from recur.errors import TextError


def written(folder: Path, text: str) -> str:
    (folder / "file.txt").write_text(text)
    return str(folder / "file.txt")


def test_every_line_has_its_place(tmp_path: Path) -> None:
    name = written(tmp_path, "a\r\n\nb")
    assert list(numbered_lines(name)) == [(f"{name}:1", "a"), (f"{name}:2", ""), (f"{name}:3", "b")]


def test_labelled_texts(tmp_path: Path) -> None:
    name = written(tmp_path, "English\tGoodman\n\nCzech\tde la Tour\tx\n")
    one, other = read_labelled([name])
    assert (one.label, one.text, one.where) == ("English", "Goodman", f"{name}:1")
    assert (other.label, other.text, other.where) == ("Czech", "de la Tour\tx", f"{name}:3")
    for bad in ("Goodman\n", "\tGoodman\n", "English\t \n"):
        with pytest.raises(TextError, match=r"file.txt:1: a line is label TAB text"):
            read_labelled([written(tmp_path, bad)])
    with pytest.raises(TextError, match="holds no line"):
        read_labelled([written(tmp_path, "\n")])


def test_tagged_sentences(tmp_path: Path) -> None:
    name = written(tmp_path, "# id 1\nWe PRP O\nsaw VBD O\n\n\nParis NNP B-LOC\n")
    one, other = read_tagged([name])
    assert (one.words, one.tags, one.where) == (("We", "saw"), ("O", "O"), f"{name}:2")
    assert (other.words, other.tags, other.where) == (("Paris",), ("B-LOC",), f"{name}:6")
    spaced = read_tagged([written(tmp_path, "New York\tLOC\n#\tPUNCT\n")])
    assert spaced[0].words == ("New York", "#")
    with pytest.raises(TextError, match=r"file.txt:2: 2 columns, where .*file.txt:1 has 3"):
        read_tagged([written(tmp_path, "We PRP O\nsaw O\n")])
    with pytest.raises(TextError, match=r"file.txt:1: a line is a word"):
        read_tagged([written(tmp_path, "We\n")])
    with pytest.raises(TextError, match="holds no sentence"):
        read_tagged([written(tmp_path, "# nothing\n")])
