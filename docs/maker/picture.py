"""README's picture: what a terminal shows while README's first command trains, as an SVG.

`python -m docs picture` trains for a minute, as the command does, and keeps the last screen before the end.
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from docs.maker.languages import DOCS

PLACE = DOCS / "assets" / "training.svg"
FONT = "ui-monospace, SFMono-Regular, Consolas, 'DejaVu Sans Mono', monospace"


def draw(**budget: float) -> None:
    """Train, and write the picture after each measurement."""
    from recur import fit
    from recur.cli.display import Display
    from recur.cli.options import Output
    from recur.cli.screen import Screen

    display = Display(Screen(Output(quiet=True)))

    def watch(event: Any) -> None:
        display(event)
        if event.kind == "measured":
            display.bar.update(display.task, completed=event.content.get("progress", 1.0))
            PLACE.write_text(svg(display._screenful()), encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder:
        fit("pydoc", task="language", callback=watch, out=Path(folder) / "run", **budget)


def svg(screenful: Any) -> str:
    """One screen of 92 columns; fonts are the reader's own, where rich would fetch one."""
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True)
    console.print("$ recur train", style="bold")
    console.print(screenful)
    found = console.export_svg(title="recur train", unique_id="recur")
    found = re.sub(r"@font-face \{.*?\}\s*", "", found, flags=re.S)
    return found.replace("Fira Code, monospace", FONT).replace("font-family: arial", f"font-family: {FONT}")
