"""The house: which way dependencies point, what is public, and what an import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import recur

SOURCE = Path(recur.__file__).parent

# A part may import those listed for it, and itself. What is not listed may be imported by nobody but the root.
MAY_IMPORT = {
    "errors": set(),
    "cells": {"errors"},
    "bptt": {"errors"},
    "reference": set(),
    "program": {"errors", "cells"},
    "native": {"errors", "cells", "program"},
    "scan": {"errors", "cells", "bptt", "native"},
    "layers": {"errors", "cells", "bptt", "native", "scan"},
    "nn": {"layers"},
    "text": {"errors"},
    "ngram": {"errors", "text"},
    "series": {"errors", "text"},
    "models": {"errors", "layers", "scan"},
    "decode": {"errors", "models", "text"},
    "train": {"errors", "decode", "layers", "models", "text", "ngram", "series"},
    "use": {"train"},
    "probes": {"errors", "cells", "bptt", "layers", "models", "text", "decode", "train", "use"},
    "studio": {"errors", "bptt", "text", "decode", "train", "use", "probes"},
    "cli": {
        "errors", "cells", "native", "scan", "text", "ngram", "decode", "train", "use", "probes", "studio",
        "__version__",
    },
    "__main__": {"cli"},
}  # fmt: skip


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "recur":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("recur."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("recur.")}
    return found


def test_dependencies_point_one_way() -> None:
    files = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert {part_of(path) for path in files} == set(MAY_IMPORT), "a new part of the house needs its line here"
    for path in files:
        part = part_of(path)
        extra = imported_parts(path) - MAY_IMPORT[part] - {part}
        assert not extra, f"{path.relative_to(SOURCE)} imports {extra}"


def test_files_stay_readable() -> None:
    long = {p.name: n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 300}
    assert not long


def test_the_public_names() -> None:
    assert sorted(recur.__all__) == [
        "BPTT", "Cell", "RecurError", "Recurrent", "bptt", "cell_names", "cells", "fit", "layers", "load", "make_cell",
        "ngram", "nn", "probes", "reference", "scan", "text", "xray",
    ]  # fmt: skip
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
        assert any(str(year) in words for year in range(1990, 2026)), name
        assert "torch.nn" in words, name
        assert "'" in words, f"{name} has no equation"
