"""The experiments show what the textbook says, in numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from recur.cli.app import run
from tests.cli.test_cli import json_of

pytest.importorskip("matplotlib")


def experiment(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    path = tmp_path / "figure.svg"
    found = json_of(capsys, "lab", name, "--figure", str(path))
    assert path.read_text().startswith("<?xml")
    assert len(found["paragraph"]) > 200
    numbers: dict[str, float] = found["numbers"]
    return numbers


def test_vanishing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sigmoid, tanh, memory = (found["decay"] for found in experiment("vanishing", tmp_path, capsys).values())  # type: ignore[index]
    assert sigmoid < 0.25 < tanh < 0.8 < 0.97 < memory < 1


def test_exploding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = experiment("exploding", tmp_path, capsys)
    low, one, high, bounded = found.values()
    assert (low, one, high) == pytest.approx((0.9**60, 1.0, 1.1**60))
    assert bounded < 32**0.5


def test_truncation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = experiment("truncation", tmp_path, capsys)
    assert all(0.4 < found[name] < 0.6 for name in ("τ = 3", "τ = 5")), "chance"
    assert all(found[name] > 0.95 for name in ("τ = 20", "full"))


def test_forget_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decays = [found["decay"] for found in experiment("forget-gate", tmp_path, capsys).values()]  # type: ignore[index]
    assert decays == sorted(decays)
    assert decays[0] < 0.3
    assert 0.98 < decays[-1] < 1


def test_clipping(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = experiment("clipping", tmp_path, capsys)
    free, bound = found["no clipping"], found["θ = 1"]
    assert free["largest_loss"] > 1.5 * bound["largest_loss"]  # type: ignore[index]
    assert 0 < found["clipped"] < 1


def test_what_cannot_be_drawn_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "exploding", "--figure", "figure.xyz"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run(["lab", "nothing"]) == 2
