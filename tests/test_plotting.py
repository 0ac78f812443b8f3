"""Figures leave the process as they found it, and say what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recur.errors import OptionError, RecurError
from recur.utils.files import new_figure, save_figure


def test_formats_by_the_end_of_a_name(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure, axes = new_figure(2, 3)
    assert len(axes) == 6
    for name, start in {"a.png": b"\x89PNG", "a.svg": b"<?xml", "a.PDF": b"%PDF"}.items():
        save_figure(figure, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    for name in ("a.xyz", "a"):
        with pytest.raises(OptionError, match=rf"{name}: a figure's name ends in its format, one of .*png"):
            save_figure(figure, tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.PDF", "a.png", "a.svg"]


def test_no_backend_is_chosen_for_the_whole_process(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code = (
        "import sys, matplotlib; from recur.utils.files import new_figure, save_figure\n"
        "matplotlib.use = None\n"
        "save_figure(new_figure()[0], sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.png")], check=True)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RecurError, match=r"pip install 'recur\[plot\]'"):
        new_figure()
