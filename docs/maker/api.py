"""The reference of public names, made of their docstrings: a page for each public module.

A docstring here is plain text: paragraphs, and what is laid out by hand (equations, tables, examples), which stays so.
"""

from __future__ import annotations

import html
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

MODULES = (
    "recur", "recur.ops.bptt", "recur.cells", "recur.nn", "recur.ops", "recur.data.text",
    "recur.baselines.ngram", "recur.diagnostics", "recur.reference",
    "recur.reference.elman", "recur.reference.lstm", "recur.reference.gru",
    "recur.reference.sequence", "recur.reference.network",
    "recur.sklearn", "recur.errors",
)  # fmt: skip
"""What is public: these, and what the `__all__` of each names. help(recur) says so."""

LAID_OUT = re.compile(r"\S {2,}\S|^ |>>>|^[\w'′α-ω]+'? *= |├|^[-*] ", re.M)


def public_names(module: str) -> Iterator[tuple[str, Any]]:
    """The names of a public module and what they are; a module among them has a page of its own."""
    found = importlib.import_module(module)
    for name in found.__all__:
        value = getattr(found, name)
        if not isinstance(value, ModuleType):
            yield name, value


def page_name(module: str) -> str:
    return f"api/{module}.md"


SAID = {
    "en": "Made from the docstrings. The examples are run by the tests, after `import numpy as np, recur, torch`, with "
    "small files of the names that they read beside them.",
    "zh": "本页由源码中的文档字符串（英文）生成。示例都由测试执行：先 `import numpy as np, recur, torch`，"
    "并备好示例要读的小文件。",
}


def page(module: str, language: str = "en") -> str:
    """In Markdown."""
    found = importlib.import_module(module)
    parts = [f"# {module}", SAID[language], prose(inspect.getdoc(found) or "")]
    homes = {id(value): other for other in MODULES[1:] for _, value in public_names(other)} if module == "recur" else {}
    for name, value in public_names(module):
        if id(value) in homes:
            parts += [f"## {name}", f"[{homes[id(value)]}.{name}]({homes[id(value)]}.md#{anchor(name)})"]
        else:
            parts += described(name, value)
    return "\n\n".join(parts) + "\n"


def anchor(name: str) -> str:
    return name.lower()


def described(name: str, value: Any) -> list[str]:
    if inspect.isclass(value) and isinstance(value, type) and value.__module__ != "builtins":
        parts = [f"## {name}", signature(name, value), prose(own_doc(value))]
        for method, member in vars(value).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(function) and not method.startswith("_"):
                doc = prose(inspect.cleandoc(function.__doc__ or ""))  # its own: torch's would tell of any module
                shown = signature(method, function)
                shown = shown.replace("() ->", ":") if isinstance(member, property) else shown
                parts += [f"### {name}.{method}", shown, doc]
        return parts
    if inspect.isroutine(value):
        return [f"## {name}", signature(name, value), prose(inspect.getdoc(value) or "")]
    shown = value.__name__ if isinstance(value, type) else repr(value)
    shown = re.sub(r"<module '([\w.]+)' from '[^']*'>", r"\1", shown)  # not where it lies
    return [f"## {name}", fenced(textwrap.shorten(f"{name} = {shown}", 300), "python")]


def own_doc(value: type) -> str:
    """A docstring that was written: not what a dataclass or a named tuple makes of its fields."""
    found = inspect.cleandoc(value.__doc__ or "")
    return "" if found.startswith(f"{value.__name__}(") else found


def signature(name: str, value: Any) -> str:
    try:
        found = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    found = re.sub(r"ForwardRef\('([^']*)'[^)]*\)|(?<=: )'([^']*)'|(?<=-> )'([^']*)'", r"\1\2\3", found)
    line = name + re.sub(r" -> None$|\bself(, )?", "", found)
    return fenced(line if len(line) < 90 else textwrap.fill(line, 90, subsequent_indent="    "), "python")


def fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def prose(text: str) -> str:
    """Paragraphs as Markdown; what is laid out by hand as it stands."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if paragraph.lstrip().startswith(">>>"):
            parts.append(fenced(textwrap.dedent(paragraph), "pycon"))
        elif LAID_OUT.search(paragraph):
            parts.append(fenced(textwrap.dedent(paragraph), "text"))
        else:
            parts.append(escaped(paragraph))
    return "\n\n".join(parts)


def escaped(paragraph: str) -> str:
    """Only backticks mean something in a docstring."""
    pieces = re.split(r"(`[^`]*`)", paragraph)
    return "".join(
        piece if piece.startswith("`") else html.escape(re.sub(r"([\\*_\[\]$#])", r"\\\1", piece), quote=False)
        for piece in pieces
    )
