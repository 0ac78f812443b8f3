"""Runs the blocks of a page, one after the other, in a process and a folder of their own, and keeps what they give.

What a page gave is kept in build/executed under a digest of its code and of recur's: both languages of a page share it,
and a page that did not change is not run again.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from docs.maker.blocks import Block
from docs.maker.languages import ROOT

KEPT = ROOT / "build" / "executed"
REUSE = "RECUR_DOCS_REUSE"
"""Set, what a page gave is taken though recur has changed since: to look at pages while they are written."""
SHOWN = (".svg", ".png", ".html")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Result(dict[str, Any]):
    """`text`, what was printed; `files`, names of figures and pages that were made, in the folder of the page."""


def executed(name: str, blocks: Sequence[Block]) -> tuple[list[Result], Path]:
    """What the blocks of a page give when they are run, and the folder with their figures."""
    jobs = [[block.language, block.source] for block in blocks]
    meaning = json.dumps([[block.language, block.meaning] for block in blocks])
    folder = KEPT / f"{name.replace('/', '-')}-{hashlib.sha256(meaning.encode()).hexdigest()[:16]}"
    sources = folder / f"{sources_digest()}.done"
    if not (sources.exists() or (REUSE in os.environ and (folder / "results.json").exists())):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "docs.maker.executing", str(folder)]
        done = subprocess.run(command, input=json.dumps(jobs), text=True, cwd=ROOT, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: a block failed\n{done.stderr[-3000:]}")
        sources.touch()
    return [Result(result) for result in json.loads((folder / "results.json").read_text(encoding="utf-8"))], folder


@cache
def sources_digest() -> str:
    found = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


# In the process of its own ----------------------------------------------------------------------------------------


def main(folder: Path, jobs: list[list[str]]) -> None:
    os.environ.update(MPLBACKEND="Agg", COLUMNS="84", NO_COLOR="1", TERM="dumb", PYTHONHASHSEED="0")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as here:
        os.chdir(here)
        # Letters of figures stay letters: the reader's fonts draw them, and a Chinese page can say them in Chinese.
        Path(".matplotlibrc").write_text("svg.fonttype: none\n", encoding="utf-8")
        os.environ["MATPLOTLIBRC"] = f"{here}/.matplotlibrc"
        results = run(jobs, folder)
    (folder / "results.json").write_text(json.dumps(results, ensure_ascii=False), encoding="utf-8")


def run(jobs: list[list[str]], folder: Path) -> list[Result]:
    import random

    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "__main__"}
    results = []
    for number, (language, source) in enumerate(jobs, 1):
        before = made()
        printed, figures = run_python(source, names) if language == "python" else (run_shell(source), [])
        files = keep(sorted(path for path, when in made().items() if before.get(path) != when), folder, number)
        files += draw(folder, number, figures) if language == "python" else []
        results.append(Result(text=ESCAPES.sub("", printed).rstrip(), files=files))
    return results


def run_python(source: str, names: dict[str, Any]) -> tuple[str, list[Any]]:
    """What it prints; and the value of its last line where that is an expression, as in a notebook: a figure of
    recur's, which are made without pyplot, is drawn."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, figures = io.StringIO(), list[Any]()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<page>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<page>", "eval"), names)
            if type(value).__name__ == "Figure":
                figures.append(value)
            elif value is not None and not of_a_figure(value):
                print(repr(value))
    return printed.getvalue(), figures


def of_a_figure(value: object) -> bool:
    """What pyplot's functions return, or several of them: nobody wants to read it."""
    parts = value if isinstance(value, list | tuple) and value else [value]
    return all(type(part).__module__.startswith("matplotlib") for part in parts)


def run_shell(source: str) -> str:
    script = "set -euo pipefail\n" + source
    done = subprocess.run(["bash", "-c", script], text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"exit {done.returncode} of\n{source}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def made() -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path().iterdir() if path.suffix in SHOWN}


def keep(paths: list[Path], folder: Path, number: int) -> list[str]:
    names = [f"{number}-{path.name}" for path in paths]
    for path, name in zip(paths, names, strict=True):
        shutil.copy(path, folder / name)
    return names


def draw(folder: Path, number: int, figures: Sequence[Any] = ()) -> list[str]:
    """These, and the figures that are open, and then are not."""
    if "matplotlib" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    names = []
    for at, figure in enumerate([*figures, *map(plt.figure, plt.get_fignums())], 1):
        names.append(f"{number}-{at}.svg")
        figure.savefig(folder / names[-1], bbox_inches="tight", metadata={"Date": None})
    plt.close("all")
    return names


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.load(sys.stdin))
