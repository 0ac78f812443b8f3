"""The command that trains a run again with another option."""

from __future__ import annotations

import shlex
from pathlib import Path

from recur.runs import Run


def tried_folder(run: Run) -> Path:
    """Beside the run: the first of its name with -try behind it that is free."""
    name = run.path.resolve().name
    for k in range(1, 10_000):
        folder = run.path.parent / f"{name}-try{'' if k == 1 else f'-{k}'}"
        if not folder.exists():
            return folder
    raise AssertionError("there are thousands of them")


def arguments(run: Run, option: str, folder: Path) -> list[str]:
    """Of `recur`: its own options, but for what is typed."""
    return ["train", "--config", str(run.config), *option.split(), "--out", str(folder)]


def command(run: Run | None, option: str) -> str:
    """For a person to type."""
    if run is None:
        return f"recur train {option}"
    return shlex.join(["recur", *arguments(run, option, tried_folder(run))])
