"""What the README and CONTRIBUTING show is run, so that it stays true."""

from __future__ import annotations

import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

import pytest

from recur.cells import Cell
from recur.layers import Init, Recurrent

ROOT = Path(__file__).parent.parent


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text()
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", text, flags=re.DOTALL | re.MULTILINE)
    return ["\n".join(line.removeprefix(indent) for line in body.splitlines()) for indent, body in found]


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    namespace: dict[str, Any] = {}
    sources = blocks("README.md", "python")
    assert len(sources) >= 3
    for source in sources:
        exec(source, namespace)
    assert namespace["outputs"].shape == (8, 50, 256)


def test_the_first_result_is_the_one_shown(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "elman.py"), run_name="__main__")
    printed = capsys.readouterr().out
    losses = [float(loss) for loss in re.findall(r"loss +([\d.]+)", printed)]
    assert losses[0] > 2.5
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.01
    # Line by line as the README shows it; numbers may move a little from processor to processor.
    shown = (ROOT / "README.md").read_text().partition("prints\n\n```\n")[2].partition("```")[0]
    for ours, theirs in zip(printed.splitlines(), shown.splitlines(), strict=True):
        numbers = [[float(n) for n in re.findall(r"[\d.]+\d", line)] for line in (ours, theirs)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.1, abs=0.02), (ours, theirs)
        assert re.sub(r"[\d.█ ]", "", ours) == re.sub(r"[\d.█ ]", "", theirs)


def test_the_worked_example_of_contributing_is_a_cell() -> None:
    (source,) = blocks("CONTRIBUTING.md", "python")
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    cell = namespace["UGRNN"]()
    assert isinstance(cell, Cell)
    Recurrent(cell, 3, 4, init=Init(forget_bias=1.0))
