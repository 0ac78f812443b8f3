"""Labels, tokens and file names that hold terminal control characters or rich markup, in the output of every verb."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recur.cli import screen as terminal
from recur.cli.app import run
from recur.cli.display import Display
from recur.cli.options import Output
from recur.cli.screen import UNSAFE, DataConsole, Screen, VisibleFormatter, facts, table, visible
from recur.training import Event
from tests.cli.test_cli import json_of
from tests.cli.test_display import MEASURED

TITLE = "\x1b]0;owned\x07"
"""Escape sequence that changes the title of a terminal's window."""

HOSTILE = ["[/b]", f"{TITLE}[red]", "a\u202eb\x9b31m\x08c"]
FOLDER = f"[/b]{TITLE}"
"""A `/` inside makes this a folder `[` that holds a folder `b]…`: a name that closes a rich tag."""

QUICK = ["--hidden-size", "8", "--threads", "1", "--steps", "3"]
STYLES = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
"""Control sequences that rich itself writes: colours, cursor movements."""

COMMANDS = [
    ["train", "labels.tsv", "--task", "classify", *QUICK],
    ["train", "labels.tsv", "--task", "classify", "--folds", "2", *QUICK],
    ["train", "labels.tsv", "--task", "conditional", *QUICK],
    ["train", f"{FOLDER}.conll", "--task", "tag", *QUICK],
    ["train", f"{FOLDER}.txt", *QUICK, "--window", "20", "--batch-size", "4"],
    ["resume", "runs/[/b]", "--steps", "4"],
    ["eval", "runs/[/b]", "labels.tsv"],
    ["predict", "runs/[/b]", "labels.tsv"],
    ["card", "runs/[/b]"],
    ["xray", "runs/[/b]"],
    ["export", "runs/[/b]", f"{FOLDER}.h"],
    ["eval", "runs/text", f"{FOLDER}.txt"],
    ["sample", "runs/text", "--prompt", "the [/b] ", "--length", "300"],
    ["sample", "runs/text", "--samples", "2", "--temperature", "2"],
    ["logprob", "runs/text", HOSTILE[1]],
    ["sample", "runs/lines", "--label", HOSTILE[1], "--samples", "3"],
    ["xray", "runs/text"],
    ["stats", f"{FOLDER}.txt"],
    ["ngram", f"{FOLDER}.txt", "--sample", "200"],
    ["sweep", "labels.tsv", "--task", "classify", "--trials", "2", *QUICK, "--out", f"sweeps/{FOLDER}"],
    ["cell", f"{FOLDER}.py:Mine", "--no-speed"],
    ["doctor", "--table", f"{FOLDER}.json"],
    ["train", "--help", "labels.tsv", "--out", FOLDER],
]

MISTAKES = [
    ["export", "runs/[/b]", f"{FOLDER}.none"],
    ["predict", "runs/[/b]", f"{FOLDER}.none"],
    ["sample", "runs/lines", "--label", f"[/b]{TITLE}"],
    ["train", f"{FOLDER}.txt", "--task", TITLE],
    ["train", f"{FOLDER}.txt", "--hidden-size", TITLE],
    ["train", "--config", f"{FOLDER}.toml"],
    ["train", "labels.tsv", "--task", "classify", "--out", "runs/[/b]"],
    ["card", f"{FOLDER}.none"],
    ["xray", f"{FOLDER}.none"],
    ["eval", "runs/text", f"{FOLDER}.none"],
    ["stats", f"{FOLDER}.none"],
    ["resume", f"{FOLDER}.none"],
    ["sweep", "--resume", f"{FOLDER}.none"],
    ["ngram", f"{FOLDER}.none"],
    ["cell", f"{FOLDER}.py:{TITLE}"],
    ["studio", f"{FOLDER}.none"],
    ["serve", f"{FOLDER}.none"],
    ["lab", TITLE],
    [TITLE],
]
"""Commands that end in an error message of one line."""

EVERY = [*((command, 0) for command in COMMANDS), *((command, 2) for command in MISTAKES)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path(FOLDER).parent.mkdir()
        rows = [(HOSTILE[k % 3], f"{HOSTILE[k % 3]} {'xyz'[k % 3]}{k}") for k in range(90)]
        Path("labels.tsv").write_bytes("".join(f"{label}\t{text}\n" for label, text in rows).encode())
        Path(f"{FOLDER}.txt").write_bytes(f"the [/b] {TITLE} \x9b31m \u202eodd\n".encode() * 200)
        Path(f"{FOLDER}.conll").write_text("".join(f"the [/b]\nw{k} {TITLE}\n\n" for k in range(60)))
        columns = f"[/b],{TITLE},target\n"
        Path(f"{FOLDER}.csv").write_text(columns + "".join(f"{k},{k % 7},{TITLE}{k % 2}\n" for k in range(60)))
        Path(f"{FOLDER}.py").write_text("from recur.cells import GRU\n\n\nclass Mine(GRU):\n    pass\n")
        assert run(["train", "labels.tsv", "--task", "classify", *QUICK, "-q", "--out", "runs/[/b]"]) == 0
        language = [f"{FOLDER}.txt", "--window", "20", "--batch-size", "4", *QUICK, "-q", "--out", "runs/text"]
        assert run(["train", *language]) == 0
        assert run(["train", "labels.tsv", "--task", "conditional", *QUICK, "-q", "--out", "runs/lines"]) == 0
    return folder


@pytest.mark.parametrize(
    ("command", "code"), EVERY, ids=lambda given: visible(" ".join(given)) if isinstance(given, list) else ""
)
def test_every_verb_escapes_data_on_a_terminal(
    command: list[str],
    code: int,
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(made)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then writes as to a terminal
    monkeypatch.setenv("COLUMNS", "400")
    if command[0] == "train" and "--out" not in command:
        command = [*command, "--out", str(tmp_path / FOLDER)]
    assert run(command) == code
    printed = capfd.readouterr()
    assert code == 0 or (printed.out == "" and printed.err.count("\n") == 1)
    for shown in (printed.out, printed.err):
        rest = STYLES.sub("", shown).replace("\r", "")
        assert not UNSAFE.search(rest), repr(rest)
    assert printed.out or printed.err


def test_labels_are_escaped_and_not_lost(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    monkeypatch.setenv("COLUMNS", "400")
    assert run(["eval", "runs/[/b]", "labels.tsv"]) == 0
    printed = capsys.readouterr().out
    for label in HOSTILE:
        assert visible(label) in printed
    assert json_of(capsys, "eval", "runs/[/b]", "labels.tsv")["classes"] == sorted(HOSTILE)


def test_suggested_commands_quote_the_folder(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(made)
    folder = str(tmp_path / "my run")
    assert run(["train", "labels.tsv", "--task", "classify", *QUICK, "--out", folder]) == 0
    assert f"use it: recur predict '{folder}' FILE" in capsys.readouterr().err
    assert run(["sample", folder]) == 2
    assert f"try recur predict '{folder}'" in capsys.readouterr().err


def test_json_is_exact_and_free_of_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(Output(json=True)).result({TITLE: [*HOSTILE, "\udcff", "中文 🙂\n\t"]})
    line = capsys.readouterr().out
    assert not UNSAFE.search(line)
    assert json.loads(line) == {TITLE: [*HOSTILE, "\udcff", "中文 🙂\n\t"]}


@given(st.text())
def test_visible_leaves_printable_text_newlines_and_tabs(text: str) -> None:
    shown = visible(text)
    assert not UNSAFE.search(shown)
    assert visible(shown) == shown
    shown.encode()
    if all(c.isprintable() or c in "\n\t" for c in text):
        assert shown == text


def test_generated_text_is_exact_in_a_pipe_and_escaped_on_a_terminal() -> None:
    for is_terminal, expected in ((False, f"a\tb\n{TITLE}\n"), (True, f"a\tb\n{visible(TITLE)}\n")):
        screen, drawn = Screen(Output()), io.StringIO()
        screen.out = DataConsole(file=drawn, force_terminal=is_terminal)
        screen.write(f"a\tb\n{TITLE}")
        assert drawn.getvalue() == expected


def test_tables_titles_and_spinners_show_markup_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.cli.screen.PATIENCE", -1.0)
    for is_terminal in (True, False):
        screen, drawn = Screen(Output()), io.StringIO()
        screen.out = screen.err = DataConsole(file=drawn, force_terminal=is_terminal, width=200)
        rows = table("[/title]", "[/name]", "[/header]")
        rows.add_row("[/cell]", f"[red]{TITLE}")
        screen.show(rows, facts("[/facts]", {"[/key]": "[/value]"}), "[/line]")
        screen.paragraph("[/paragraph]", indent=2)
        screen.note("[/note]")
        parts = ["title", "name", "header", "cell", "facts", "key", "value", "line", "paragraph", "note"]
        if is_terminal:
            with screen.status(f"[/status]{TITLE}"), screen.counting(f"[/count]{TITLE}", total=2) as progress:
                assert progress is not None
                progress(1)
            parts += ["status", "count"]
        shown = drawn.getvalue()
        assert all(f"[/{part}]" in shown for part in parts)
        assert f"[red]{visible(TITLE)}" in shown
        assert TITLE not in shown


def test_the_live_display_of_training_escapes_names_and_samples() -> None:
    screen, drawn = Screen(Output()), io.StringIO()
    screen.err = DataConsole(file=drawn, force_terminal=True, width=200)
    with Display(screen) as display:
        display(Event("data", {"text": f"[/data]{TITLE}"}))
        display(Event("baseline", {"name": f"[/plain]{TITLE}", "metric": "valid_perplexity", "value": 3.3}))
        display(Event("started", {"run": f"[/run]{TITLE}", "curve": "valid_perplexity", "unit": f"[/unit]{TITLE}"}))
        display(Event("measured", MEASURED | {"sample": f"[/sample]\t{TITLE}", "summary": f"[/valid]{TITLE}"}))
    shown = drawn.getvalue()
    assert all(f"[/{part}]" in shown for part in ("data", "plain", "unit", "sample", "valid"))
    assert TITLE not in shown


def test_warnings_and_logs_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.LogRecord("recur", logging.ERROR, "", 0, "%s", (TITLE,), None)
    assert VisibleFormatter("recur: %(message)s").format(record) == f"recur: {visible(TITLE)}"
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # restored afterwards
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler())
    terminal.escape_messages()
    assert logging.lastResort is not None
    assert logging.lastResort.format(record) == visible(TITLE)
    assert visible(TITLE) in warnings.formatwarning(UserWarning(TITLE), UserWarning, "file", 1)


def test_a_file_name_that_is_not_utf8_is_shown_escaped(tmp_path: Path) -> None:
    name = tmp_path / "\udcff.txt"
    name.write_text("the network reads a word\n" * 50)
    ended = subprocess.run([sys.executable, "-m", "recur", "ngram", str(name)], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert rb"\udcff.txt" in ended.stderr


def test_only_the_screen_makes_consoles_and_styled_text() -> None:
    for path in Path(terminal.__file__).parent.glob("*.py"):
        if path.name != "screen.py":
            text = path.read_text()
            assert "rich.text" not in text, path.name
            assert "Console" not in text, path.name
