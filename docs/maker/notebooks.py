"""A tutorial's page as a notebook: its words, and its blocks as cells. One source, so they cannot differ."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from docs.maker.blocks import Block, blocks_of
from docs.maker.languages import without_stamp

LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\((?!https?:)[^)]*\)")


def notebook(text: str, short: bool = False) -> Any:
    """Cells of a page; `short` as tests run them. Links lead out of a notebook to nothing: their words are kept."""
    text = without_stamp(text)
    cells, last = [], 0
    for block in blocks_of(text):
        cells += words(text[last : block.span[0]])
        last = block.span[1]
        if not block.skip:
            cells.append(new_code_cell(code(block, short)))
    cells += words(text[last:])
    first = next((at for at, cell in enumerate(cells) if cell["cell_type"] == "code"), len(cells))
    cells.insert(first, new_code_cell("%matplotlib inline"))  # figures made without pyplot are shown too
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # nbformat draws one at random
    about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return new_notebook(cells=cells, metadata=about)


def words(text: str) -> list[Any]:
    text = LINK.sub(r"\1", text).strip()
    return [new_markdown_cell(text)] if text else []


def code(block: Block, short: bool) -> str:
    source = (block.shortened if short else block.source).rstrip()
    return source if block.language == "python" else f"%%bash\n{source}"


def write(page: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook(page.read_text(encoding="utf-8")), place)
