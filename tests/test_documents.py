"""What the README and CONTRIBUTING show is run, so that it stays true."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from recur.cells import Cell
from recur.nn import Init, Recurrent
from tests.docs.samples import write_files
from tests.docs.shells import commands, run_line

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
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


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


# The shell of the README ------------------------------------------------------------------------------------------


def shell_lines() -> list[str]:
    return [line for block in blocks("README.md", "sh") for line in commands(block)]


def test_every_shell_line_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    ran = []
    for line in shell_lines():
        command = line.rpartition("&& ")[2]
        if command.startswith(".venv/bin/recur "):
            ran.append(run_line(command))
    assert {"train", "resume", "sample", "xray", "export", "doctor"} <= set(ran)
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_the_other_shell_lines_of_the_readme_are_known() -> None:
    """Those that install are run by .ci/run, or by whoever reads them; their extras exist."""
    others = [line for line in shell_lines() if not line.startswith(".venv/bin/recur")]
    assert len(others) == 2
    assert all(
        line.startswith("python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e ") for line in others
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in others:
        (extras,) = re.findall(r"\[([\w,]+)\]", line)
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
    # What the first screen uses is installed by the first command.
    needed = {"matplotlib": "plot", "starlette": "studio", "uvicorn": "studio"}
    (first,) = re.findall(r"\[([\w,]+)\]", others[0])
    assert set(needed.values()) == set(first.split(","))


def test_the_studio_line_of_the_readme_serves(tmp_path: Path) -> None:
    (line,) = [line for line in shell_lines() if "recur studio" in line]
    (tmp_path / "runs").mkdir()
    words = [sys.executable, "-m", "recur", *shlex.split(line)[1:], "--port", "0"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(address[0], timeout=20) as answer:
            assert answer.status == 200
    finally:
        process.terminate()
        process.wait(timeout=20)
        process.stdout.close()  # type: ignore[union-attr]
