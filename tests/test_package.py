"""The house: which way dependencies point, what is public, and what an import costs."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import recur

SOURCE = Path(recur.__file__).parent

ROOT = Path(__file__).parent.parent


def rooms() -> dict[str, list[str]]:
    """What each room may import, as CONTRIBUTING draws it."""
    picture = re.search(r"```rooms\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.DOTALL)
    assert picture is not None
    return {line.split()[0]: line.split()[1:] for line in picture[1].splitlines() if line.strip()}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms that a file names in an import of any form."""
    inside = ["recur", *path.relative_to(SOURCE).parts[:-1]]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "recur" else [module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "recur":
                found.add(parts[1] if len(parts) > 1 else "recur")
    return found - {"__version__"}


def test_dependencies_point_one_way() -> None:
    allowed = rooms()
    above: set[str] = set()
    for room, imports in allowed.items():
        assert set(imports) <= above, f"{room} imports {set(imports) - above}, which do not stand above it"
        above.add(room)
    files = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert {room_of(path) for path in files} == set(allowed), "a new room needs its line in CONTRIBUTING"
    used: dict[str, set[str]] = {room: set() for room in allowed}
    for path in files:
        room = room_of(path)
        extra = imported_rooms(path) - set(allowed[room]) - {room}
        assert not extra, f"{path.relative_to(SOURCE)} imports {extra}"
        used[room] |= imported_rooms(path) - {room}
    for room, imports in allowed.items():
        assert set(imports) == used[room], f"{room} is drawn with {set(imports) - used[room]}, which it does not import"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import recur", {"recur"}),
        ("import recur.training.trainer as t", {"training"}),
        ("from recur import text, scan", {"text", "scan"}),
        ("from recur.models import Seq2Seq", {"models"}),
        ("from . import options", {"tasks"}),
        ("from .. import cli", {"cli"}),
        ("from ..train import Trainer", {"train"}),
        ("def f():\n    from recur.studio import app", {"studio"}),
    ],
)
def test_every_form_of_import_is_seen(
    line: str, found: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.test_package.SOURCE", tmp_path)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "x.py").write_text(line)
    assert imported_rooms(tmp_path / "tasks" / "x.py") == found


def test_the_public_names() -> None:
    assert sorted(recur.__all__) == [
        "BPTT", "Cell", "MatrixCell", "RecurError", "Recurrent", "baselines", "cell_names", "cells", "data",
        "diagnostics", "fit", "from_pretrained", "load", "make_cell", "nn", "ops", "reference", "scan", "sweep", "xray",
    ]  # fmt: skip
    assert dir(recur) == sorted(recur.__all__)
    for name in recur.__all__:
        assert getattr(recur, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = recur.nothing


def test_import_alone_does_not_import_torch() -> None:
    code = "import sys, recur; recur.RecurError; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_cell_names_its_paper_and_what_differs_from_torch() -> None:
    for name in recur.cell_names():
        words = type(recur.make_cell(name)).__doc__ or ""
        assert any(str(year) in words for year in range(1990, 2027)), name
        assert "torch.nn" in words, name
        assert "'" in words, f"{name} has no equation"


def pins(file: str) -> dict[str, str]:
    """Return the version of each package that a requirements file pins, by canonical name."""
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / file).read_text(), flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_every_package_of_a_development_install_is_pinned() -> None:
    waiting, seen = [Requirement("recur[dev]")], set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, *sorted(requirement.extras)) in seen:
            continue
        seen.add((name, *sorted(requirement.extras)))
        for line in importlib.metadata.requires(name) or ():
            one = Requirement(line)
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in {"", *requirement.extras}):
                waiting.append(one)
    missing = {name for name, *_ in seen} - {"recur", *pins("constraints.txt")}
    assert not missing


def test_hashes_cover_every_pin_but_torch() -> None:
    pinned = pins("constraints.txt")
    del pinned["torch"]
    assert pins(".ci/hashes.txt") == pinned
    blocks = re.split(r"^(?=[\w.-]+==)", (ROOT / ".ci/hashes.txt").read_text(), flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)
