"""Imports of the packages of kernels: each when a scan first needs it, and neither from the other."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import recur

OPS = Path(recur.__file__).parent / "ops"

CODE = """
import sys
import torch
import recur

net = recur.Recurrent("gru", 3, 4, num_layers=2, direction="both")
net(torch.randn(2, 5, 3)).outputs.sum().backward()
recur.Recurrent("lstm", 3, 4).stream().step(torch.randn(1, 3))
print(*sorted(name for name in sys.modules if name.startswith("recur.ops.cuda")))
"""


def test_a_scan_on_the_cpu_imports_nothing_of_cuda() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert not ran.stdout.split(), ran.stdout


@pytest.mark.parametrize(("package", "other"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_kernels_import_neither_each_other_nor_ops(package: str, other: str) -> None:
    own = f"recur.ops.{package}"
    for path in (OPS / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                inside = name == own or name.startswith(f"{own}.")
                assert inside or not name.startswith("recur.ops"), f"{path.name} imports {name}, as {other} does not"
