"""A lesson that was run, as a notebook in one language: JSON of nbformat 4.5."""

from __future__ import annotations

import base64
import json
from typing import Any

from lessons.running import Output, Ran
from lessons.source import Lesson
from lessons.where import linked


def notebook(lesson: Lesson, ran: Ran, language: str) -> str:
    cells: list[dict[str, Any]] = []
    for cell, output in zip(lesson.cells, ran.outputs, strict=True):
        common = {"id": f"cell-{len(cells)}", "metadata": {}}
        if cell.kind == "markdown":
            if cell.language == language:
                cells.append({"cell_type": "markdown", "source": linked(cell.text), **common})
            continue
        source = cell.shown
        if cell.kind == "sh":
            source = "\n".join(f"!{line}" for line in source.splitlines())
        elif not any(found["cell_type"] == "code" for found in cells):
            source = f"%matplotlib inline\n{source}"
        code = {"cell_type": "code", "execution_count": None, "source": source, "outputs": _outputs(output)}
        cells.append({**code, **common})
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def _outputs(output: Output) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if output.text:
        found.append({"output_type": "stream", "name": "stdout", "text": output.text + "\n"})
    for picture in output.pictures:
        data = {"image/png": base64.b64encode(picture).decode()}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
    return found
