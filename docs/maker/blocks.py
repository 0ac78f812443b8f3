"""The fenced blocks of a page.

```python                     shown; the tests run it
```python run                 run when the site is built: what it prints and draws stands below it
```sh run                     the same, a command a line
```sh skip="needs a GPU"      not run by anyone, and why
```python run short="minutes=1 => steps=2"     what the tests replace before they run it; several with " ;; "
```python run alt="the loss falls"             what its figure shows, for who cannot see it
```python run hide                             what it shows without the code
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>python|sh)(?P<rest>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```[ \t]*$", re.S | re.M
)
OPTION = re.compile(r'\s+(?:(?P<key>skip|short|alt)="(?P<value>[^"]*)"|(?P<word>run|hide))')


@dataclass
class Block:
    language: str
    source: str
    run: bool = False
    hide: bool = False
    options: dict[str, str] = field(default_factory=dict)
    indent: str = ""
    span: tuple[int, int] = (0, 0)
    """Where the fence stands in the page."""

    @property
    def skip(self) -> str | None:
        return self.options.get("skip")

    @property
    def shortened(self) -> str:
        """The source as tests run it."""
        source = self.source
        for change in filter(None, self.options.get("short", "").split(" ;; ")):
            old, arrow, new = change.partition(" => ")
            if not arrow or old not in source:
                raise ValueError(f"short={change!r}: no such text in\n{source}")
            source = source.replace(old, new)
        return source

    @property
    def meaning(self) -> str:
        """The source without its comments and docstrings, which each language says its own way."""
        if self.language == "python":
            tree = ast.parse(self.source)
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
                    node.body[0] = ast.Pass()
            return ast.unparse(tree)
        lines = (re.sub(r"(^|\s)#.*", "", line).rstrip() for line in self.source.splitlines())
        return "\n".join(" ".join(line.split()) for line in lines if line)


def blocks_of(text: str) -> list[Block]:
    """Those of a page that can be run, in order."""
    found = []
    for match in FENCE.finditer(text):
        rest = match["rest"].rstrip()
        options = list(OPTION.finditer(rest))
        if "".join(option[0] for option in options) != rest:
            raise ValueError(f"unknown words behind ```{match['language']}:{rest}")
        words = {option["word"] for option in options}
        indent = match["indent"]
        source = "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))
        named = {option["key"]: option["value"] for option in options if option["key"]}
        found.append(Block(match["language"], source, "run" in words, "hide" in words, named, indent, match.span()))
    return found
