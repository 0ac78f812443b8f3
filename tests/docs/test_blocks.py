"""Every shell and Python block of the pages is run, with small budgets; the Chinese pages have the same ones."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from nbclient import NotebookClient

from docs.maker.blocks import blocks_of
from docs.maker.languages import DOCS, ROOT, Pair, pairs
from docs.maker.notebooks import notebook
from recur.cli.app import run
from tests.docs.samples import write_files
from tests.docs.shells import commands, run_line

NOTEBOOK = "docs/tutorials/vanishing.md"
"""Run as a notebook; the other pages are run here, in this process."""
PAGES = [
    pair
    for pair in pairs()
    if DOCS in pair.english.parents and pair.name != NOTEBOOK and blocks_of(pair.english.read_text())
]
TRAINED = {"book.txt": ("language", "book"), "names.tsv": ("classify", "names"), "pairs.tsv": ("seq2seq", "pairs-2")}
RULE = re.compile(r"[ |:]*-[ |:-]*")
COPIED = {"a": "names", "b": "names", "c": "names", "pairs-3": "pairs-2"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pages have trained before they begin."""
    here = tmp_path_factory.mktemp("before")
    write_files(here)
    for file, (task, name) in TRAINED.items():
        words = ["train", str(here / file), "--task", task, "--steps", "2", "--hidden-size", "8", "--threads", "1"]
        assert run([*words, "--out", str(here / "runs" / name)]) == 0
    for name, other in COPIED.items():
        shutil.copytree(here / "runs" / other, here / "runs" / name)
    return here


@pytest.mark.parametrize("pair", PAGES, ids=lambda pair: pair.name)
def test_every_block_of_a_page_runs(
    pair: Pair, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    shutil.copytree(runs, here)
    for name in ("recipes", "examples"):
        (here / name).symlink_to(ROOT / name)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(pair.english.read_text(encoding="utf-8")):
        if block.skip:
            continue
        if block.language == "python":
            exec(compile(block.shortened, pair.name, "exec"), names)
            close_figures()
            continue
        for line in commands(block.shortened):
            run_line(line)


def test_a_tutorial_runs_as_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a kernel of its own, shortened; its figures are shown in it."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = notebook((ROOT / NOTEBOOK).read_text(encoding="utf-8"), short=True)
    client = NotebookClient(made, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [output for cell in made.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in shown) == 2


def close_figures() -> None:
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_the_chinese_pages_have_the_same_blocks() -> None:
    """Up to comments: what is shown, run and left out is the same in both languages."""
    for pair in pairs():
        if not pair.chinese.exists():
            continue
        found = [
            [(block.language, block.meaning, block.run, block.skip) for block in blocks_of(path.read_text("utf-8"))]
            for path in pair
        ]
        for ours, theirs in zip(*found, strict=True):
            assert ours == theirs, pair.name


def test_the_chinese_pages_have_the_same_tables() -> None:
    """As many, of as many rows, each with a head."""
    for pair in pairs():
        shapes = []
        for path in pair:
            text = re.sub(r"^ *```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
            tables = re.findall(r"^ *\|.*(?:\n *\|.*)+", text, flags=re.M)
            for table in tables:
                lines = table.split("\n")
                assert not RULE.fullmatch(lines[0]), f"{path}: a table without a head: {lines[1]}"
                assert RULE.fullmatch(lines[1]), f"{path}: {lines[0]}"
            shapes.append([table.count("\n") for table in tables])
        assert shapes[0] == shapes[1], pair.name


NUMBER = re.compile(r"(?<![\d.])(?:(?:\d[\d,]*)?(?:\.\d+)+|\d[\d,]+)(?!\.?\d| million| ?[万亿])")
"""Millions are said differently."""


def figures(path: Path) -> Counter[str]:
    """The numbers of three digits or more of a page, outside its blocks and links."""
    text = re.sub(r"^ *```.*?^ *```|<!--.*?-->|\]\([^)]*\)", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = (number.strip(",").replace(",", "").lstrip("0") for number in NUMBER.findall(text))
    return Counter(number for number in found if len(number.replace(".", "")) >= 3)


def test_the_chinese_pages_have_the_same_figures() -> None:
    for pair in pairs():
        ours, theirs = map(figures, pair)
        assert ours == theirs, f"{pair.name}: {dict(ours - theirs)} in English, {dict(theirs - ours)} in Chinese"
