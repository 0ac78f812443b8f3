"""Bracketed trees, one a line: `(3 (2 It) (4 (2 's) (4 great)))`.

A node is `(label word)` or `(label node node …)`. What is wrong with a line is said with its file, line and column. The
nodes of a tree are numbered children first, from left to right, the root last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recur.errors import OptionError, TextError, unknown
from recur.text.lines import numbered_lines

Children = tuple[tuple[int, ...], ...]

STRUCTURES = ("given", "balanced", "left", "right")

_PART = re.compile(r"[()]|[^ \t()]+")  # a word may hold a space of another kind, as in 8\u00a01\/2


@dataclass(frozen=True)
class Tree:
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
        words, said = iter(self.words), list[str]()
        for below, label in zip(self.children, self.labels, strict=True):
            inside = " ".join(said[k] for k in below) if below else next(words)
            said.append(f"({label} {inside})" if label is not None else f"({inside})")
        return said[-1]


def read_trees(names: Sequence[str]) -> list[Tree]:
    found = [parse_tree(line, where) for name in names for where, line in numbered_lines(name) if line.strip()]
    if not found:
        raise TextError(f"{', '.join(names)} holds no tree; one is (label (label word) (label word)), on a line")
    return found


def parse_tree(line: str, where: str = "") -> Tree:
    """One line. Open nodes wait on a stack, so that a tree may be as deep as its line is long."""
    words: list[str] = []
    children: list[tuple[int, ...]] = []
    labels: list[str | None] = []
    columns: list[int] = []
    open_at: list[int] = []
    open_column: list[int] = []
    open_label: list[str | None] = []
    open_word: list[str | None] = []
    open_children: list[list[int]] = []

    def wrong(column: int, what: str) -> TextError:
        return TextError(f"{where}{':' if where else 'column '}{column + 1}: {what}")

    for found in _PART.finditer(line):
        part, at = found.group(), found.start()
        if children and not open_at:
            raise wrong(at, f"{part!r} stands behind the end of the tree; a line holds one")
        if part == "(":
            if open_at and open_word[-1] is not None:
                raise wrong(at, f"a node has a word or nodes under it, and this one has {open_word[-1]!r} already")
            open_at.append(at)
            open_column.append(at + 1)
            open_label.append(None)
            open_word.append(None)
            open_children.append([])
        elif not open_at:
            raise wrong(at, f"{part!r} stands outside of all brackets")
        elif part == ")":
            begin, label, word, below = open_at.pop(), open_label.pop(), open_word.pop(), open_children.pop()
            if word is None and not below:
                raise wrong(begin, "a node without a word or nodes under it; one is (label word)")
            words += [word] if word is not None else []
            children.append(tuple(below))
            labels.append(label)
            columns.append(open_column.pop())
            if open_at:
                open_children[-1].append(len(children) - 1)
        elif open_children[-1] or open_word[-1] is not None:
            raise wrong(at, f"{part!r} is one word too many; a node has a label, and a word or nodes under it")
        elif open_label[-1] is None:
            open_label[-1], open_column[-1] = part, at + 1
        else:
            open_word[-1] = part
    if open_at:
        raise wrong(open_at[-1], f"this bracket is never closed ({len(open_at)} of them at the end of the line)")
    if not children:
        raise wrong(0, "no tree; one is (label (label word) (label word))")
    return Tree(tuple(words), tuple(children), tuple(labels), where, tuple(columns))


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
