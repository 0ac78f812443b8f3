"""Custom cells: the user's word executes a file, and a name that was read from a file does not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import recur
from recur.cells.registry import configured_cell
from recur.cli.app import run
from recur.errors import RunError
from recur.tasks import make_options
from recur.training import train
from recur.utils.trust import check_cells, name_cell
from tests.support import become_another_user

SOURCE = Path(recur.__file__).parent
CELL = "import pathlib\npathlib.Path('executed').touch()\nfrom recur.cells import GRU\nclass Mine(GRU): name = ''\n"
FLAGS = ["--hidden-size", "4", "--steps", "2", "--threads", "1", "--no-baseline", "-q"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    become_another_user(monkeypatch, tmp_path / "state")
    Path("book.txt").write_text("the network reads a word\n" * 40)
    Path("mine.py").write_text(CELL)


def executed() -> bool:
    return Path("executed").exists()


@pytest.mark.parametrize("verb", ["train", "sweep"])
def test_a_configuration_file_asks_for_trust_once(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("theirs.toml").write_text('task = "language"\ntexts = ["book.txt"]\ncell = "mine.py:Mine"\n')
    more = ["--trials", "1", "--search", "lr"] if verb == "sweep" else []
    command = [verb, "--config", "theirs.toml", *FLAGS, *more]
    assert run([*command, "--out", "a"]) == 2
    assert "mine.py, 4 lines, SHA-256" in capsys.readouterr().err
    assert not executed()
    assert run([*command, "--out", "a", "--trust"]) == 0
    assert executed()
    assert run([*command, "--out", "b"]) == 0, "trusted from now on"


def test_a_cell_that_is_typed_beside_a_configuration_file_is_executed() -> None:
    Path("mine.toml").write_text('task = "language"\ntexts = ["book.txt"]\ncell = "gru"\n')
    assert run(["train", "--config", "mine.toml", "--cell", "mine.py:Mine", *FLAGS, "--out", "a"]) == 0
    assert executed()


def test_options_alone_do_not_execute_a_file() -> None:
    options = make_options("language", {"texts": ["book.txt"], "cell": "mine.py:Mine", "hidden_size": 4, "steps": 2})
    with pytest.raises(RunError, match="a custom cell would be executed: mine.py, 4 lines"):
        train(options, "a")
    assert not executed()
    assert recur.make_cell("mine.py:Mine").gates == ("r", "z", "n"), "Python code that names the file means it"
    assert executed()


def test_a_file_that_changes_after_it_was_named_is_refused() -> None:
    name_cell("mine.py:Mine")
    Path("mine.py").write_text(CELL + "# changed\n")
    with pytest.raises(RunError, match="5 lines"):
        configured_cell("mine.py:Mine")
    assert not executed()


def test_what_is_no_file_is_left_to_whoever_makes_the_cell() -> None:
    check_cells([None, 3, "gru", "leaky:alpha=0.5", "absent.py:Cell", "\0.py:Cell", ".:x"])


def test_no_other_module_makes_a_cell_of_what_options_name() -> None:
    """Options may come from a file, so their `cell` goes through `configured_cell`, whoever reads it."""
    named = {"cells/registry.py", "nn/recurrent.py", "cli/cell.py"}  # by code, or typed
    fixed = {"cli/doctor.py", "ops/cuda/report.py", "ops/trace.py"}  # registered names
    of_weights = {"exchange/weights.py"}  # elman, gru or lstm, by the number of gates of the weights
    makes, passed, executes = set(), [], set()
    for path in SOURCE.rglob("*.py"):
        where = str(path.relative_to(SOURCE))
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            function = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if function == "make_cell":
                makes.add(where)
            if function in ("exec", "compile") and isinstance(node.func, ast.Name):
                executes.add(where)
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if function in ("Recurrent", "Conditioned") and any(
                isinstance(value, ast.Attribute) and value.attr == "cell" for value in given
            ):
                passed.append(where)
    assert makes <= named | fixed
    assert set(passed) == of_weights
    assert executes == {"cells/registry.py"}
