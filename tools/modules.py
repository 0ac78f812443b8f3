"""Print the size of the package: modules, lines, comments and docstring openings.

python tools/modules.py [FOLDER]        the folder is src/recur by default
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

AVOIDED = ("What ", "Of ", "Those ", "The same ", "…")
"""Openings of docstrings that the language standard of this project avoids."""


def count_lines(path: Path) -> Counter[str]:
    """Count the lines of a module: all, code (docstrings included, without comments and blank lines), comments."""
    text = path.read_text(encoding="utf-8")
    found = Counter(modules=1, lines=len(text.splitlines()))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            found["comments"] += 1
        elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            code.update(range(token.start[0], token.end[0] + 1))
    lines = text.splitlines()
    found["code"] = sum(1 for number in code if lines[number - 1].strip())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            opening = ast.get_docstring(node) or ""
            found["avoided openings"] += opening.startswith(AVOIDED)
    return found


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "src/recur")
    found: Counter[str] = Counter()
    short = long = 0
    for path in sorted(folder.rglob("*.py")):
        counted = count_lines(path)
        found += counted
        short += counted["lines"] < 60 and path.name != "__init__.py" and path.parent.name != "cells"
        long += counted["lines"] > 600
    entries = sum(not path.name.startswith(("__pycache__", ".")) for path in folder.iterdir())
    rows = {
        "Python modules": f"{found['modules']}",
        "lines per module": f"{found['lines'] / found['modules']:.0f}",
        "top-level entries": f"{entries}",
        "lines of code": f"{found['code']:,}",
        "comments": f"{100 * found['comments'] / found['lines']:.1f} %",
        "modules under 60 lines": f"{short}",
        "modules over 600 lines": f"{long}",
        "docstrings that start with What, Of, Those …": f"{found['avoided openings']}",
    }
    for name, value in rows.items():
        print(f"{name:46}{value:>8}")


if __name__ == "__main__":
    main()
