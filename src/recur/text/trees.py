"""Bracketed trees, one a line: `(3 (2 It) (4 (2 's) (4 great)))`.

A node is `(label word)` or `(label node node …)`. Errors name the file, the line and the column. The
nodes of a tree are numbered children first, from left to right, the root last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from recur.errors import OptionError, TextError, unknown
from recur.text.cutting import between
from recur.text.lines import numbered_lines

Children = tuple[tuple[int, ...], ...]

STRUCTURES = ("given", "balanced", "left", "right")

_PART = re.compile(r"[()]|[^ \t()]+")  # a word may hold a space of another kind, as in 8\u00a01\/2


@dataclass(frozen=True)
class Tree:
    """Words, and the children and labels of every node, leaves first; a node comes behind its children.

    >>> tree = recur.text.parse_tree("(3 (2 It) (4 (2 's) (4 great)))")
    >>> tree.words, tree.labels[-1]
    (('It', "'s", 'great'), '3')
    """

    words: tuple[str, ...]
    """The leaves, from left to right."""
    children: Children
    """Of every node; () is a leaf."""
    labels: tuple[str | None, ...]
    """Of every node; None where there is none."""
    where: str = ""
    """The file and line it comes from …"""
    columns: tuple[int, ...] = ()
    """… and the column of every node's label."""

    def spans(self) -> list[tuple[int, int]]:
        """From which word to which each node reaches."""
        found: list[tuple[int, int]] = []
        leaves = 0
        for below in self.children:
            found.append((found[below[0]][0], found[below[-1]][1]) if below else (leaves, leaves + 1))
            leaves += not below
        return found

    def bracketed(self) -> str:
        """The tree as it is read; the inverse of `parse_tree`."""
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


def read_trees(names: Sequence[str]) -> list[Tree]:
    """The trees of files, a line each.

    >>> len(recur.text.read_trees(["trees.txt"]))
    60
    """
    found = [parse_tree(line, where) for name in names for where, line in numbered_lines(name) if line.strip()]
    if not found:
        raise TextError(f"{', '.join(names)} holds no tree; one is (label (label word) (label word)), on a line")
    return found


def parse_tree(line: str, where: str = "") -> Tree:
    """One line.

    >>> recur.text.parse_tree("(1 (0 not) (1 bad))").bracketed()
    '(1 (0 not) (1 bad))'
    """
    parser = _Parser(where)
    for found in _PART.finditer(line):
        parser.read(found.group(), found.start())
    return parser.finish()


@dataclass
class _Open:
    """A node whose bracket is not closed yet."""

    at: int
    column: int
    label: str | None = None
    word: str | None = None
    children: list[int] = field(default_factory=list)


class _Parser:
    """Open nodes wait on a stack, so that a tree may be as deep as its line is long."""

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
        """The first part in a bracket is a node's label, the second its word."""
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
    """The same words under another tree. A label belongs to a span of words: it stays where that is a node again."""
    if structure == "given":
        return tree
    children = structure_of(structure, len(tree.words))
    labels = {span: label for span, label in zip(tree.spans(), tree.labels, strict=True) if label is not None}
    made = replace(tree, children=children, labels=(None,) * len(children), columns=())
    return replace(made, labels=tuple(labels.get(span) for span in made.spans()))


def structure_of(structure: str, leaves: int) -> Children:
    """A binary tree that needs no parse.

    balanced   halves of halves: ⌈log₂ τ⌉ deep for τ leaves
    left       (((a b) c) d), a chain from the left
    right      (a (b (c d))), a chain from the right
    """
    if structure not in STRUCTURES[1:]:
        raise OptionError(unknown("structure", structure, STRUCTURES))
    if leaves < 1:
        raise OptionError(f"a tree has at least one leaf, got {leaves}")
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
    """Nodes over so many leaves, added to the list; the number of the topmost."""
    below = () if leaves == 1 else (_balance((leaves + 1) // 2, children), _balance(leaves // 2, children))
    children.append(below)
    return len(children) - 1
