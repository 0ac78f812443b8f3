"""Where a thing stands: `[[recur.bptt.BPTT.draw: xi[window::window] = 0]]` is a file and a line, found when a page is made."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent
MARK = re.compile(r"\[\[(?P<symbol>[\w.]+)(?:: (?P<text>.+?))?\]\]")


def linked(text: str) -> str:
    """With every mark as `file:line`, and the line itself where a text was asked for."""
    return MARK.sub(lambda found: shown(*where(found["symbol"], found["text"])), text)


def shown(path: str, line: int, content: str) -> str:
    place = f"`{path}:{line}`"
    return f"{place} `{content}`" if content else place


def where(symbol: str, text: str | None = None) -> tuple[str, int, str]:
    """The file, the line, and what stands there, if `text` was asked for."""
    thing = resolve(symbol)
    lines, first = inspect.getsourcelines(thing)
    path = Path(inspect.getsourcefile(thing) or "").resolve().relative_to(ROOT).as_posix()
    first = max(first, 1)  # 0 for a module
    if text is None:
        return path, first, ""
    found = [at for at, line in enumerate(lines) if text in line]
    if not found:
        raise LookupError(f"{text!r} does not stand in the source of {symbol}")
    return path, first + found[0], re.sub(r"  +", "  ", lines[found[0]].strip().replace("`", ""))


def resolve(symbol: str) -> Any:
    parts = symbol.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            thing = getattr(thing, name)
        if not isinstance(thing, ModuleType) and not hasattr(thing, "__qualname__"):
            raise LookupError(f"{symbol} has no source of its own: name its module, and the text that stands there")
        return inspect.unwrap(thing) if callable(thing) else thing
    raise LookupError(f"there is no {symbol}")
