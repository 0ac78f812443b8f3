"""Cells in C: a sample, with a user's own and odd sizes; all of them by `python -m tests.export.every --to c`."""

from __future__ import annotations

from pathlib import Path

from tests.export.c_library import needs_gcc
from tests.export.cells import Leaning
from tests.export.networks import TOLERANCE, differences_in_c, portable_of

CELL = """
from torch import sigmoid, tanh
from recur.cells import Cell


class Own(Cell):
    gates = ("z", "n")
    states = ("h", "m")
    extras = {"a": ("H",)}

    def step(self, x, h, s, w):
        z, n = sigmoid(x.z + h.z + w.a), tanh(x.n + h.n)
        return z * s.h + (1 - z) * n, 0.5 * s.m + n * n
"""


@needs_gcc
def test_cells_in_c_are_those_of_python(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(CELL)
    networks = {
        "slstm": portable_of("slstm"),  # heads, and a state that starts at −∞
        "lstmp": portable_of("lstm", projection=5),
        "own": portable_of(f"{tmp_path / 'own.py'}:Own"),
        "leaning": portable_of(Leaning(), bias=False),
    }
    for name, difference in differences_in_c(networks, tmp_path).items():
        assert difference <= TOLERANCE, name
