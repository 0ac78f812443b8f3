"""With and without the compiled core: recur installs, runs, and says what it does."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from recur.errors import BackendError
from recur.nn import Recurrent
from recur.ops.cpu import library
from recur.utils import core_library
from tests.support import ISAS, Case, needs_core

ROOT = Path(__file__).parents[3]


def test_without_a_compiler_recur_installs_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "build_ext", f"--build-lib={tmp_path / 'lib'}", f"--build-temp={tmp_path}"]
    without = {**os.environ, "CC": "/bin/false", "CXX": "/bin/false"}
    built = subprocess.run(command, cwd=ROOT, env=without, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert 'building extension "recur.ops.cpu._core" failed' in built.stdout + built.stderr
    assert not list(tmp_path.rglob("_core*"))


@pytest.fixture
def nothing_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_library, "built", lambda: None)
    monkeypatch.setattr(core_library, "load", core_library.load.__wrapped__)
    monkeypatch.setattr(library, "_load", library._load.__wrapped__)


@pytest.mark.usefixtures("nothing_built")
def test_without_the_core_other_backends_run() -> None:
    assert library.core() is None
    assert Case("lstm").scan().trace.backend == "torch"
    assert Case("peephole").scan().trace.backend == "loop"
    with pytest.raises(
        BackendError, match=r"its C\+\+ core is missing: it was not built .* \(recur doctor says more\)"
    ):
        Case("lstm").scan(backend="native")
    net = Recurrent("lstm", 3, 4, num_layers=2)
    x = torch.randn(2, 1, 3)
    torch.testing.assert_close(net.step(x[:, 0])[0], net(x).outputs[:, 0])
    torch.testing.assert_close(net.stream(2).step(x[:, 0]), net(x).outputs[:, 0])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The library and its sources in a folder of their own."""
    path: Any = core_library.built()
    folders = path.parent, path.parent.with_name("cuda")
    for source in [path, *(source for folder in folders for kind in ("*.h", "*.cpp") for source in folder.glob(kind))]:
        shutil.copy(source, tmp_path)
    return tmp_path / path.name


@needs_core
def test_a_library_of_other_sources_is_not_used(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an update without a new build, its structs would be read wrongly."""
    assert library.Core(core_library.open_library(copy)).best_isa >= 0, "it is used as long as the sources are its own"
    with (copy.parent / "vector.h").open("a") as header:
        header.write("// changed\n")
    monkeypatch.setattr(core_library, "built", lambda: copy)
    monkeypatch.setattr(core_library, "load", core_library.load.__wrapped__)
    monkeypatch.setattr(library, "_load", library._load.__wrapped__)
    stale = "was built from other sources than the installed ones; build it again: pip install -e ."
    assert library.missing_reason() == f"{copy.name} {stale}"
    assert Case("peephole").scan().trace.backend == "loop"
    with pytest.raises(BackendError, match=rf"{re.escape(copy.name)} {re.escape(stale)} \(recur doctor says more\)"):
        Case("lstm").scan(backend="native")


@needs_core
@pytest.mark.parametrize("change", ["a source more", "a source less"])
def test_sources_that_come_or_go_are_a_change_too(copy: Path, change: str) -> None:
    if change == "a source more":
        (copy.parent / "more.h").touch()
    else:
        (copy.parent / "table.h").unlink()
    with pytest.raises(core_library.StaleError, match="build it again"):
        library.Core(core_library.open_library(copy))


@needs_core
def test_an_installed_library_has_no_sources_beside_it(copy: Path) -> None:
    for source in [*copy.parent.glob("*.h"), *copy.parent.glob("*.cpp")]:
        source.unlink()
    assert library.Core(core_library.open_library(copy)).best_isa >= 0


@needs_core
def test_both_sides_hold_the_same_struct() -> None:
    assert ctypes.CDLL(str(core_library.built())).recur_scan_bytes() == ctypes.sizeof(library.ScanStruct)
    assert ctypes.CDLL(str(core_library.built())).recur_grid_bytes() == ctypes.sizeof(library.GridStruct)


@needs_core
def test_a_file_that_is_no_library_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_core.so").write_bytes(b"for another machine")
    monkeypatch.setattr(core_library, "built", lambda: tmp_path / "_core.so")
    assert core_library.load.__wrapped__().startswith("_core.so cannot be used:")


@needs_core
def test_the_instruction_set_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    path: Any = core_library.built()
    assert library.Core(core_library.open_library(path)).isa == len(ISAS) - 1
    monkeypatch.setenv("RECUR_ISA", "portable")
    chosen = library.Core(core_library.open_library(path))
    assert chosen.isa == 0
    with pytest.raises(BackendError, match="unknown instruction set 'avx3'; did you mean 'avx2'"):
        chosen.use("avx3")
    chosen.best_isa = 0
    with pytest.raises(BackendError, match="this machine has no avx512; its best is portable"):
        chosen.use("avx512")


@needs_core
def test_every_operation_and_place_is_known_to_both_sides() -> None:
    from recur.compiler.assembly import FUSED
    from recur.compiler.expressions import OPERATIONS

    found: Any = library.core()
    along_time = {"scan_state", "scan_back_state", "scan_factor", "shift"}
    own = {*OPERATIONS, *FUSED.values(), *along_time, "copy", "sum"} - {"custom"}  # which is no instruction
    assert own == found.operations.keys()
    assert {"temp", "constant", "extra", "share", "saved", "product", "before", "after", "sum"} < found.places.keys()


@needs_core
def test_a_scan_does_not_import_torch_compile() -> None:
    """Its modules take longer to import than torch does."""
    code = (
        "import sys, torch; before = set(sys.modules); from recur.ops import scan; from recur.cells import make_cell;"
        "cell = make_cell('lstm'); x = torch.zeros(1, 2, 3);"
        "scan(cell, {k: torch.zeros(s) for k, s in cell.shapes(3, 4).items()}, x, backend='native');"
        "sys.exit('torch._dynamo' in set(sys.modules) - before)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
