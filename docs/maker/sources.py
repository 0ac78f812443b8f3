"""Links from a page to a file of the repository: in the site they lead to a listing of it, at the line that is meant.

A page writes [`elman.py`](../src/recur/reference/elman.py#step_backward): a file, and where it matters the name of a
function, a class, a method (`Class.method`) or a constant in it. The line is looked up, so that it cannot be wrong
tomorrow, and a link whose text ends in the file's name says it: `elman.py:23`. Without a name it is the whole file, or
a folder. With a title, as in [`elman.py`](../src/recur/reference/elman.py#step_forward "s_next ="), it is the first
line inside of what is named that holds those words, and that line stands behind the link.
"""

from __future__ import annotations

import ast
import html
import posixpath
import re
from functools import cache
from pathlib import Path

from docs.maker.languages import DOCS, ROOT

LINK = re.compile(r'(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>\.\./[^)\s]*)(?: "(?P<words>[^"]*)")?\)')


class Sources:
    """What pages of one language link to, and the links they get."""

    def __init__(self) -> None:
        self.files: set[Path] = set()

    def linked(self, markdown: str, page: str, folder: Path) -> str:
        """A page's text with its links out of `docs` turned to listings; `page` is its path in the site."""

        def replace(match: re.Match[str]) -> str:
            address, _, name = match["target"].partition("#")
            target = (folder / address).resolve()
            if DOCS in target.parents or target == DOCS:
                return match[0]
            if not target.exists() or ROOT not in target.parents:
                raise ValueError(f"{page}: {match['target']} leads to nothing")
            self.files.add(target)
            line = line_of(target, name) if name else None
            content = ""
            if match["words"]:
                line, content = line_with(target, name, match["words"])
            text = match["text"]
            if line is not None and re.search(r"\w\.(py|h|cpp|cu)`?$", text):
                text = f"{text[:-1]}:{line}`" if text.endswith("`") else f"{text}:{line}"
            place = posixpath.relpath(listing(target), posixpath.dirname(page) or ".")
            link = f'<a href="{place}{f"#L-{line}" if line else ""}">{inline(text)}</a>'
            return f"{link} `{content}`" if content else link

        return LINK.sub(replace, markdown)

    def write(self, site: Path) -> None:
        done: set[Path] = set()
        while todo := self.files - done:
            for path in todo:
                place = site / listing(path)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(self.of_folder(path) if path.is_dir() else of_file(path), encoding="utf-8")
            done |= todo

    def of_folder(self, folder: Path) -> str:
        shown = [
            p for p in sorted(folder.iterdir()) if p.suffix in (".py", ".toml", ".md", ".h", ".cpp", ".cu", ".json")
        ]
        self.files |= set(shown)
        here = posixpath.dirname(listing(folder))
        rows = "".join(f'<li><a href="{posixpath.relpath(listing(p), here)}">{p.name}</a></li>' for p in shown)
        return page_of(folder, f"<ul>{rows}</ul>", "")


def inline(text: str) -> str:
    """Code in a link's text; Markdown is not read inside of HTML."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))


def listing(path: Path) -> str:
    return f"source/{path.relative_to(ROOT).as_posix()}.html"


@cache
def line_of(path: Path, name: str) -> int:
    """The line on which a name of a file is defined."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        names = {known: first for known, first, _ in defined(ast.parse(text))}
        if name in names:
            return names[name]
    elif path.suffix in (".h", ".cpp", ".cu"):
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(rf"\b{re.escape(name)}\b\s*[({{<=]", line) and not line.lstrip().startswith(("//", "return")):
                return number
    elif path.suffix == ".md":
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith("#") and re.sub(r"[^\w\s-]", "", line).strip().lower().replace(" ", "-") == name:
                return number
    raise ValueError(f"{path.relative_to(ROOT)} has no {name}")


def line_with(path: Path, name: str, words: str) -> tuple[int, str]:
    """The first line of a file, or of what a name in it stands for, that holds some words; and what stands there."""
    lines = path.read_text(encoding="utf-8").splitlines()
    spans = {known: (first, last) for known, first, last in defined(ast.parse("\n".join(lines)))}
    if name and name not in spans:
        raise ValueError(f"{path.relative_to(ROOT)} has no {name}")
    first, last = spans[name] if name else (1, len(lines))
    for number in range(first, last + 1):
        if words in lines[number - 1] and not lines[number - 1].lstrip().startswith(">>>"):
            shown = re.sub(r"  # .*", "", lines[number - 1].strip()).rstrip(",")
            return number, re.sub(r" {2,}", "  ", shown)
    raise ValueError(f"{path.relative_to(ROOT)}: {words!r} does not stand in {name or 'it'}")


def defined(tree: ast.Module | ast.ClassDef, before: str = "") -> list[tuple[str, int, int]]:
    """Names, each with the first and the last of its lines."""
    found: list[tuple[str, int, int]] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.append((before + node.name, node.lineno, node.end_lineno or 0))
            if isinstance(node, ast.ClassDef):
                found += defined(node, f"{before}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            found += [(before + name, node.lineno, node.end_lineno or 0) for name in names]
    return found


def of_file(path: Path) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import TextLexer, get_lexer_for_filename
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    form = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True, cssclass="source")
    text = path.read_text(encoding="utf-8")
    return page_of(path, highlight(text, lexer, form), str(form.get_style_defs(".source")))


def page_of(path: Path, body: str, style: str) -> str:
    name = path.relative_to(ROOT).as_posix()
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{name}</title><style>body{{margin:1.5rem;font-size:14px}}h1{{font-size:1rem}}pre{{overflow-x:auto}}"
        f"a{{color:#4051b5;text-decoration:none}}:target,a:target~*{{background:#fff3c4}}{style}</style>"
        f"<h1>{name}</h1>{body}</html>\n"
    )
