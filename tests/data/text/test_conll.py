"""Sentences in columns: CoNLL of any width, CoNLL-U, with and without their tags, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from recur.data.text import TagColumns, read_tagged, read_words
from recur.data.text.recognition import has_columns
from recur.errors import OptionError, TextError
from recur.tasks import make_options

CONLL = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n"
CONLLU = """\
# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tV\tMood=Imp|Number=Plur\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\tCase=Acc\t1\tobj\t_\t_
2.1\t_\t_\t_\t_\t_\t_\t_\t2:x\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\tE\t_\t5\tcase\t_\t_
# a comment among words
4\tel\tel\tDET\tD\tDefinite=Def\t5\tdet\t_\t_
5\tmar azul\tmar\tNOUN\tN\t_\t1\tobl\t_\tSpaceAfter=No

1\t#\t#\tSYM\tS\t_\t0\troot\t_\t_
"""


def written(folder: Path, text: str, name: str = "a.conll") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def tags_of(
    name: str, word: str | None = None, tag: str | None = None
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(s.words, s.tags) for s in read_tagged([name], TagColumns(word, tag))]


def test_any_column_can_be_the_word_and_the_tag(tmp_path: Path) -> None:
    name = written(tmp_path, CONLL)
    assert tags_of(name) == [(("EU", "rejects"), ("B-ORG", "O")), (("Peter",), ("B-PER",))]
    assert tags_of(name, tag="2")[0] == (("EU", "rejects"), ("NNP", "VBZ"))
    assert tags_of(name, tag="-2")[1] == (("Peter",), ("B-NP",))
    assert tags_of(name, word="-1", tag="1")[1] == (("B-PER",), ("Peter",))
    assert [s.words for s in read_words(name)] == [("EU", "rejects"), ("Peter",)]


def test_conllu_has_words_and_neither_ranges_nor_empty_nodes(tmp_path: Path) -> None:
    name = written(tmp_path, CONLLU, "a.conllu")
    first, second = read_tagged([name])
    assert first.words == ("Vamos", "nos", "a", "el", "mar azul")
    assert first.tags == ("VERB", "PRON", "ADP", "DET", "NOUN")
    assert (first.where, second.words) == (f"{name}:4", ("#",))
    assert tags_of(name, tag="feats")[0][1] == ("Mood=Imp|Number=Plur", "Case=Acc", "_", "Definite=Def", "_")
    assert tags_of(name, tag="xpos")[0][1] == tags_of(name, tag="5")[0][1] == ("V", "P", "E", "D", "N")
    assert tags_of(name, word="lemma")[1] == (("#",), ("SYM",))


def test_words_alone_are_enough_to_predict(tmp_path: Path) -> None:
    bare = written(tmp_path, "the\ndog\n\nit\n")
    assert [s.words for s in read_words(bare)] == [("the", "dog"), ("it",)]
    assert has_columns(bare)
    assert has_columns(written(tmp_path, CONLL))
    assert has_columns(written(tmp_path, CONLLU))
    assert has_columns(written(tmp_path, "the\tDT\ndog\tNN\n"))
    assert not has_columns(written(tmp_path, "the dog reads\nit is here\n", "lines.txt"))
    assert not has_columns(written(tmp_path, "the dog reads\n\nit stays\n", "lines.txt"))


def test_what_begins_with_a_sign_for_comments(tmp_path: Path) -> None:
    assert tags_of(written(tmp_path, "#\tB-NP\n5\tI-NP\n")) == [(("#", "5"), ("B-NP", "I-NP"))], "tabs: it is a word"
    assert tags_of(written(tmp_path, "# one two\n5 I-NP\n# O\n")) == [(("5", "#"), ("I-NP", "O"))]


@pytest.mark.parametrize(
    ("text", "columns", "says"),
    [
        ("We PRP O\nsaw O\n", TagColumns(), "a.conll:2: 2 columns, where .*:1 has 3"),
        ("We\n", TagColumns(), "a.conll:1: a line is a word, its columns and its tag, got 'We'"),
        ("We\t\n", TagColumns(), "a line is a word, its columns and its tag"),
        ("We PRP\n", TagColumns(tag="3"), "a.conll:1: there is no column 3, for there are 2"),
        ("We PRP\n", TagColumns(tag="-3"), "there is no column -3, for there are 2"),
        ("We PRP\n", TagColumns(tag="upos"), "upos is a column of CoNLL-U, and here are 2 columns; give a number"),
        (CONLLU.replace("2\tnos", "x\tnos"), TagColumns(), "CoNLL-U has a word's number in its first column, got 'x'"),
        ("# nothing\n", TagColumns(), "holds no sentence; one is lines of word TAB tag, and an empty line"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, columns: TagColumns, says: str, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=says):
        read_tagged([written(tmp_path, text)], columns)


@pytest.mark.parametrize("column", ["0", "pos", "1.5", ""])
def test_columns_are_numbers_or_names(column: str) -> None:
    with pytest.raises(OptionError, match="a column is its number, 1 the first and -1 the last, or one of CoNLL-U's"):
        make_options("tag", {"tag_column": column})
