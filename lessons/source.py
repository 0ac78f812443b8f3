"""From a script in percent format to cells."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

HEAD = re.compile(r'# %%(?: \[(?P<kind>markdown|sh)\])?(?: lang="(?P<language>en|zh)")?')
QUICK = re.compile(r"  # quick: (?P<long>.+?) → (?P<short>.+)$")
WHOLE = re.compile(r"  # whole$")


@dataclass(frozen=True)
class Cell:
    """A piece of a lesson."""

    kind: str
    """markdown, python or sh."""
    text: str
    language: str = ""
    """Of Markdown; of code, none."""
    line: int = 1
    """Where in its file the text begins."""

    @property
    def shown(self) -> str:
        """As a reader sees it."""
        return "\n".join(WHOLE.sub("", QUICK.sub("", line)) for line in self.text.splitlines())

    @property
    def shortened(self) -> str:
        """As it is run where time is short, line by line as many."""
        lines = []
        for line in self.text.splitlines():
            found = QUICK.search(line)
            if found and found["long"] not in line[: found.start()]:
                raise ValueError(f"{found['long']!r} does not stand in the line {line!r}")
            lines.append(QUICK.sub("", line).replace(found["long"], found["short"]) if found else line)
        return "\n".join("" if WHOLE.search(line) else line for line in lines)


@dataclass(frozen=True)
class Lesson:
    """A page."""

    name: str
    """Of the page, such as `tutorials/first-model`."""
    path: Path
    cells: tuple[Cell, ...]

    @staticmethod
    def read(path: Path, name: str) -> Lesson:
        lines = path.read_text(encoding="utf-8").splitlines()
        heads = [at for at, line in enumerate(lines) if line.startswith("# %%")]
        if any(line.strip() for line in lines[: heads[0]]):
            raise ValueError(f"{path}: a lesson begins with a cell")
        cells = []
        for begin, end in zip(heads, [*heads[1:], len(lines)], strict=True):
            found = HEAD.fullmatch(lines[begin])
            if found is None:
                raise ValueError(f"{path}:{begin + 1}: not the head of a cell: {lines[begin]}")
            text = "\n".join(lines[begin + 1 : end]).strip("\n")
            kind = found["kind"] or "python"
            if kind != "python":  # a string that stands alone
                text = ast.literal_eval(text).strip("\n")
            cells.append(Cell(kind, text, found["language"] or "", begin + 2))
        return Lesson(name, path, tuple(cells))

    def title(self, language: str) -> str:
        first = next(cell for cell in self.cells if cell.language == language)
        return first.text.splitlines()[0].removeprefix("# ")

    def missing(self) -> list[str]:
        """Text that stands there in one language only: both come in turn, English first."""
        texts = [cell for cell in self.cells if cell.kind == "markdown"]
        pairs = list(zip(texts[::2], texts[1::2], strict=False))
        wrong = [f"{self.path}:{a.line}" for a, b in pairs if (a.language, b.language) != ("en", "zh")]
        return wrong + [f"{self.path}:{texts[-1].line}"] * (len(texts) % 2)
