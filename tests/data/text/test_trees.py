"""Bracketed trees: read, written back, given other structures; errors that name line and column."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recur.data.text.treebanks import Children, Tree, parse_tree, read_trees, restructured, structure_of
from recur.errors import OptionError, TextError

LINE = "(3 (2 It) (4 (2 's) (4 great)))"


def test_a_tree_as_it_is_read_and_written_back() -> None:
    tree = parse_tree(LINE)
    assert tree.words == ("It", "'s", "great")
    assert tree.children == ((), (), (), (1, 2), (0, 3))
    assert tree.labels == ("2", "2", "4", "4", "3")
    assert tree.spans() == [(0, 1), (1, 2), (2, 3), (1, 3), (0, 3)]
    assert tree.bracketed() == LINE
    assert tree.columns == (5, 15, 22, 12, 2)


def test_any_number_of_children_any_label_and_deep_trees() -> None:
    assert parse_tree("(S (NP We) (VP (V saw) (NP it) (ADV now)))").children == ((), (), (), (), (1, 2, 3), (0, 4))
    assert parse_tree("(word a)").children == ((),)
    deep = "(1 " * 5000 + "x" + ")" * 5000
    assert len(parse_tree(deep).children) == 5000
    assert parse_tree(deep).bracketed() == deep


@pytest.mark.parametrize(
    ("line", "column", "what"),
    [
        ("(3 (2 It) (4 (2 's) (4 great))", 1, "this bracket is never closed (1 of them"),
        ("(3 (2 It) (4 (2 's) (4 great", 21, "this bracket is never closed (3 of them"),
        ("(3 (2 It) (4 great)))", 21, "')' stands behind the end of the tree"),
        (")", 1, "')' stands outside of all brackets"),
        ("great", 1, "'great' stands outside of all brackets"),
        ("(3 (2 It) great)", 11, "'great' is one word too many"),
        ("(3 It is)", 7, "'is' is one word too many"),
        ("(3 It (2 is))", 7, "a node has a word or nodes under it"),
        ("(3 (2 It) ())", 11, "a node without a word"),
        ("(3 (2 It) (4))", 11, "a node without a word"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_column(tmp_path: Path, line: str, column: int, what: str) -> None:
    path = tmp_path / "trees.txt"
    path.write_text(f"{LINE}\n\n{line}\n")
    with pytest.raises(TextError) as error:
        read_trees([str(path)])
    assert str(error.value).startswith(f"{path}:3:{column}: ")
    assert what in str(error.value)


def test_a_file_without_trees(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(TextError, match="holds no tree"):
        read_trees([str(tmp_path / "empty.txt")])


def depth(children: Children) -> int:
    found: list[int] = []
    for below in children:
        found.append(1 + max((found[k] for k in below), default=-1))
    return found[-1]


@given(st.integers(1, 70))
def test_structures_are_binary_trees_of_the_depth_they_promise(leaves: int) -> None:
    for name in ("balanced", "left", "right"):
        children = structure_of(name, leaves)
        assert len(children) == 2 * leaves - 1
        assert sorted(k for below in children for k in below) == list(range(len(children) - 1))
        assert Tree(("w",) * leaves, children, (None,) * len(children)).spans()[-1] == (0, leaves)
        assert depth(children) == (math.ceil(math.log2(leaves)) if name == "balanced" else leaves - 1)


def test_a_label_stays_with_its_span_of_words() -> None:
    tree = parse_tree("(3 (2 a) (1 (2 b) (0 (2 c) (4 d))))")
    assert restructured(tree, "given") is tree
    assert restructured(tree, "right").bracketed() == tree.bracketed()
    assert restructured(tree, "left").bracketed() == "(3 (((2 a) (2 b)) (2 c)) (4 d))"
    assert restructured(tree, "balanced").bracketed() == "(3 ((2 a) (2 b)) (0 (2 c) (4 d)))"


def test_a_structure_that_is_not_there() -> None:
    with pytest.raises(OptionError, match="unknown structure 'balance'; did you mean 'balanced'?"):
        structure_of("balance", 3)
