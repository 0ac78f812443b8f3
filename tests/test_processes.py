"""Child processes import nothing from the current folder, whatever lies there and whatever PYTHONPATH says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import recur
from recur.utils.processes import map_in_processes, python_command, python_environment

MODULES = ("numpy", "json", "re", "typing", "pickle", "recur", "sitecustomize", "usercustomize")


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder of poisoned modules, and the file that they write."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write('{name} ')\n")
    monkeypatch.chdir(folder)
    return tmp_path / "executed"


@pytest.mark.parametrize("entry", ["", ".", "{here}"])
def test_workers_do_not_import_from_the_current_folder(
    entry: str, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/nowhere", entry.format(here=os.getcwd())]))
    assert list(map_in_processes(len, ["a", "ab", "abc"], 2)) == [1, 2, 3]
    assert not marker.exists()


def test_paths_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/a", "", "b", str(tmp_path)]))
    assert python_environment(X="1")["PYTHONPATH"] == os.pathsep.join(["/a", str(tmp_path / "b")])
    assert python_environment(X="1")["X"] == "1"
    assert python_command("recur.cli", "main", "--version")[1] == "-P"


def test_the_module_recur_leaves_the_current_folder(marker: Path) -> None:
    """`python -m recur` finds the package first; from then on the current folder is not on the path."""
    for name in ("recur", "re", "typing", "sitecustomize", "usercustomize"):  # Python's own, before recur begins
        Path(f"{name}.py").unlink()
    paths = os.pathsep.join(
        path for path in (str(Path(recur.__file__).parents[1]), os.environ.get("PYTHONPATH")) if path
    )
    env = {**os.environ, "PYTHONPATH": paths}
    found = subprocess.run([sys.executable, "-m", "recur", "--version"], env=env, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert not marker.exists()


def test_every_child_python_is_started_by_one_function() -> None:
    source = Path(recur.__file__).parent
    users = {str(path.relative_to(source)) for path in source.rglob("*.py") if "sys.executable" in path.read_text()}
    assert users == {"utils/processes.py"}
