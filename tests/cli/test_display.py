"""Training as a terminal shows it: bar, numbers, curve against the baseline, sample."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import recur
from recur.cli.display import Display
from recur.cli.options import Output
from recur.cli.screen import DataConsole, Screen, table
from recur.training import Event
from recur.utils.progress import ProgressLine

MEASURED: dict[str, Any] = {
    "step": 40, "epoch": 1, "seconds": 2.0, "progress": 0.5, "predictions_per_second": 1234.0, "train_loss": 1.2,
    "train_perplexity": 3.3, "grad_norm": 0.7, "clipped": 0.25, "valid_perplexity": 3.1,
    "summary": "valid perplexity 3.100", "sample": "the network",
}  # fmt: skip


def test_a_terminal_is_redrawn_in_place() -> None:
    screen, drawn = Screen(Output()), io.StringIO()
    screen.err = Console(file=drawn, force_terminal=True, width=100, highlight=False)
    with Display(screen) as display:
        display(Event("data", {"text": "7 training texts"}))
        display(Event("baseline", {"name": "6-gram", "metric": "valid_perplexity", "value": 3.3}))
        display(Event("started", {"run": "runs/x", "curve": "valid_perplexity", "unit": "tokens"}))
        display(Event("progress", {name: MEASURED[name] for name in ("step", "epoch", "seconds", "progress")}))
        display(Event("measured", MEASURED))
        assert display.live is not None
    shown = drawn.getvalue()
    for words in ("7 training texts", "baseline: 6-gram, valid perplexity 3.300", "1,234 tokens/s", "25% of steps"):
        assert words in shown
    assert "6-gram 3.300" in shown
    assert "the network" in shown
    assert "●" in shown


def test_elsewhere_a_measurement_is_a_line() -> None:
    screen, drawn = Screen(Output()), io.StringIO()
    screen.err = Console(file=drawn, width=200, highlight=False)
    with Display(screen) as display:
        display(Event("baseline", {"name": "6-gram", "metric": "valid_perplexity", "value": 3.3}))
        display(Event("started", {"run": "runs/x", "curve": "valid_perplexity", "unit": "tokens"}))
        display(Event("measured", MEASURED))
        assert display.live is None
    assert drawn.getvalue().splitlines()[-1].endswith("train loss 1.200  1,234 tokens/s  better than 6-gram")


def test_a_progress_bar_counts_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.cli.screen.PATIENCE", -1.0)
    screen, drawn = Screen(Output()), io.StringIO()
    screen.err = Console(file=drawn, force_terminal=True, width=100)
    with screen.counting("measuring", total=10) as progress:
        assert progress is not None
        progress(4)
        progress(6)
    assert "measuring" in drawn.getvalue()
    assert "100%" in drawn.getvalue()
    with screen.busy("reading"):
        pass
    screen.err = Console(file=io.StringIO())
    with screen.counting("measuring") as progress:
        assert progress is None


def test_the_progress_line_says_how_long_it_takes() -> None:
    screen, drawn = Screen(Output()), io.StringIO()
    screen.err = Console(file=drawn, width=200, highlight=False)
    with Display(screen) as display:
        display(Event("started", {"run": "runs/x", "curve": "valid_perplexity", "unit": "tokens"}))
        display(Event("measured", {**MEASURED, "seconds": 20.0, "progress": 0.25}))
    assert "20.0 s, 1 min 0 s left  valid" in drawn.getvalue()


def test_a_table_fits_80_columns() -> None:
    screen, drawn = Screen(Output()), io.StringIO()
    screen.out = DataConsole(file=drawn, width=80)
    shown = table("", "model", *(f"metric {k}" for k in range(9)))
    shown.add_row("runs/a-very-long-name-of-a-folder/and-of-a-run-in-it-2026", *(f"{k:.3f}" for k in range(9)))
    screen.show(shown)
    lines = drawn.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" in lines[1]
    assert "0.000" in lines[1]
    assert "run-in-it-2026"[-6:] in lines[1]
    assert "more columns: --json" in lines[-1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_of_progress_is_rewritten_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out, elsewhere = Terminal(), io.StringIO()
    for stream in (out, elsewhere):
        line = ProgressLine("probing", stream)
        line("gradient flow", 0.5)
        line.close()
    assert "probing  50%" in out.getvalue()
    assert out.getvalue().endswith("\r")
    assert elsewhere.getvalue() == "", "nothing within ten seconds"


def test_fit_shows_its_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recur.utils.progress.QUIET", -1.0)
    (tmp_path / "text.txt").write_text("abba\nbaab\n" * 40)
    options: dict[str, Any] = {"task": "language", "hidden_size": 8, "steps": 4, "threads": 1, "baseline": False}
    recur.fit(tmp_path / "text.txt", **options, progress=True)
    assert "training 100%" in capsys.readouterr().err
    recur.fit(tmp_path / "text.txt", **options)
    assert capsys.readouterr().err == "", "no terminal"
