"""What the README and CONTRIBUTING show is run, so that it stays true."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from docs.maker.copied import typed, worked_out
from docs.maker.languages import without_stamp
from docs.maker.merit import read
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


def test_the_example_memorises_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "elman.py"), run_name="__main__")
    printed = capsys.readouterr().out
    losses = [float(loss) for loss in re.findall(r"loss +([\d.]+)", printed)]
    assert losses[0] > 2.5
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.01
    assert "it spells: a recurrent network reads one symbol at a time and remembers what it read." in printed


def measured() -> dict[str, str]:
    """Numbers of the READMEs by their place in the table, from bench/results and docs/results.md."""
    scans = {r["what"]: r for r in read("scan")["results"] if r["threads"] == 2}
    size = "B 32 T 35 H 128, forward + backward"
    known = worked_out() | typed()
    found = {}
    for row, cell, layer in ((0, "gru", "GRU"), (1, "lstm", "LSTM")):
        r = scans[f"{cell} on native / nn.{layer}, {size}"]
        found |= {f"{row}.1": f"{r['ours_ms']:.3g} ms", f"{row}.2": f"{r['peer_ms']:.3g} ms", f"{row}.3": known[cell]}
    step = next(r["microseconds"] for r in read("streaming")["results"] if (r["hidden"], r["threads"]) == (256, 1))
    times = f"{step['torch.nn'] / step['recur']:.1f}"
    found |= {"2.1": f"{known['stream']} µs", "2.2": f"{known['stream-torch']} µs", "2.3": times}
    found |= {"3.3": known["gpu-float32"], "4.3": known["gpu-bfloat16"]}
    found |= {"5.1": f"{float(known['awd']):.1f}", "5.2": known["awd-published"]}
    return found | {"6.1": known["m4-owa"], "6.2": known["m4-winner"]}


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_numbers_of_the_readme_were_measured(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    assert "<!--" not in without_stamp(text)
    assert len(text.splitlines()) < 130
    table = text.partition("recur | ")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    assert len(rows) == 7
    for place, value in measured().items():
        row, column = map(int, place.split("."))
        shown = rows[row][column]
        assert re.search(rf"(?<![\d.]){re.escape(value)}(?![\d.])", shown), f"{readme}: {shown!r}, measured {value!r}"
    dates = [read(name)["machine"]["date"] for name in ("scan", "scan", "streaming", "gpu", "gpu")]
    assert [date for row, date in zip(rows, dates, strict=False) if date not in row[4]] == []
    pydoc = [f"{float(typed()[name]):.2f}" for name in ("pydoc", "pydoc-ngram")]
    assert all(number in text for number in pydoc)


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
    assert {"train", "xray", "eval", "export"} <= set(ran)


def test_the_installation_has_what_the_first_commands_use() -> None:
    lines = [line for line in shell_lines() if not line.startswith(".venv/bin/recur")]
    assert len(lines) == 2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in lines:
        assert line.startswith("python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e ")
        (extras,) = re.findall(r"\[([\w,]+)\]", line)
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
    (extras,) = re.findall(r"\[([\w,]+)\]", lines[0])
    needed = {"matplotlib": "plot", "starlette": "studio", "uvicorn": "studio"}
    assert set(needed.values()) == set(extras.split(","))


def test_the_studio_of_the_readme_serves(tmp_path: Path) -> None:
    assert "`recur studio runs`" in (ROOT / "README.md").read_text()
    (tmp_path / "runs").mkdir()
    words = [sys.executable, "-m", "recur", "studio", "runs", "--port", "0"]
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
