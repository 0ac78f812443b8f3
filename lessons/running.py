"""A lesson is run, cell by cell, as a notebook would: what is printed, then what the last expression is."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import shlex
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lessons.source import Cell, Lesson

WIDTH = 110
"""Columns of what is printed, on a page."""


@dataclass
class Output:
    """Of a cell."""

    text: str = ""
    figures: list[bytes] = field(default_factory=list)
    """SVG."""
    pictures: list[bytes] = field(default_factory=list)
    """The same as PNG, which notebooks hold."""


@dataclass
class Ran:
    outputs: list[Output]
    """One for each cell of the lesson."""
    seconds: float
    files: dict[str, bytes]
    """What it wrote for its page: files that begin with `page-`."""


class CellError(Exception):
    """A cell failed; `__cause__` is what it raised."""


def run(lesson: Lesson, *, quick: bool = False) -> Ran:
    """All of its cells, in a folder of their own that goes when they have run."""
    import torch

    outputs, begun = [], time.process_time()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory(prefix="recur-lesson-") as folder, _inside(Path(folder)):
        torch.manual_seed(0)
        for cell in lesson.cells:
            try:
                outputs.append(_ran(cell, lesson, namespace, quick) if cell.kind != "markdown" else Output())
            except Exception as error:
                raise CellError(f"{lesson.path}:{cell.line}: {type(error).__name__}: {error}") from error
        files = {path.name: path.read_bytes() for path in Path(folder).glob("page-*")}
    return Ran(outputs, time.process_time() - begun, files)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before, columns = Path.cwd(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns


def _ran(cell: Cell, lesson: Lesson, namespace: dict[str, Any], quick: bool) -> Output:
    source = cell.shortened if quick else cell.text
    printed, output, value = io.StringIO(), Output(), None
    with contextlib.redirect_stdout(printed):
        if cell.kind == "sh":
            for line in source.splitlines():
                _command(line.partition("  #")[0])
        else:
            value = _evaluated("\n" * (cell.line - 1) + source, str(lesson.path), namespace)
    output.text = _wrapped(printed.getvalue().rstrip())
    if type(value).__name__ == "Figure":
        for kind, found in (("svg", output.figures), ("png", output.pictures)):
            drawn = io.BytesIO()
            # Without a date, the same figure is the same file.
            value.savefig(drawn, format=kind, dpi=100, metadata={"Date": None} if kind == "svg" else None)
            found.append(drawn.getvalue())
    elif value is not None:
        output.text = "\n".join(part for part in (output.text, repr(value)) if part)
    return output


def _wrapped(text: str) -> str:
    """Paragraphs in lines that a page can show."""
    lines = [textwrap.wrap(line, WIDTH) if len(line) > WIDTH and "│" not in line else [line] for line in text.split("\n")]
    return "\n".join(part for line in lines for part in line)


def _evaluated(source: str, name: str, namespace: dict[str, Any]) -> Any:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), name, "eval"), namespace)


def _command(line: str) -> None:
    """`recur …`, in this process."""
    from recur.cli.app import run as recur

    words = shlex.split(line)
    if not words:
        return
    if words.pop(0) != "recur":
        raise ValueError(f"a lesson runs recur alone, not {line!r}")
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = recur(words)
    if code:
        raise RuntimeError(f"{line!r} ended with {code}: {errors.getvalue().strip()}")
    sys.stdout.flush()
