"""Unknown options: one suggestion function for flags, TOML keys and Python keywords."""

from __future__ import annotations

from pathlib import Path

import pytest

from recur.cli.app import run
from recur.errors import OptionError
from recur.options.suggestions import SYNONYMS, suggest_option, unknown_option
from recur.tasks import make_options, options_class, read_config


@pytest.mark.parametrize("known", ["lr", "rate"])
def test_a_synonym_finds_the_name_that_exists(known: str) -> None:
    for name in ("learning_rate", "learning-rate", "--learning-rate", "Learning_Rate", "learningrate", "lr0"):
        assert suggest_option(name, [known, "cell", "layers"]) == known, name
    assert (
        unknown_option("--learning-rate", [f"--{known}"]) == f"unknown option --learning-rate; did you mean --{known}?"
    )


def test_a_name_that_nothing_is_near_lists_what_there_is() -> None:
    assert unknown_option("zzzzzz", ["lr", "cell"]) == "unknown option 'zzzzzz'; known: cell, lr"
    assert unknown_option("--zzzzzz", ["--lr"]) == "unknown option --zzzzzz."


def test_no_synonym_hides_an_option() -> None:
    """A name that exists is its own suggestion, whatever line of synonyms it stands in."""
    names = options_class("language").names()
    assert [suggest_option(name, names) for name in names] == list(names)
    assert all(len({final, *others}) == 1 + len(others) for final, others in SYNONYMS.items())


def test_python_and_toml_suggest_the_same(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"unknown option 'num_units'; did you mean '(hidden|hidden_size)'\?"):
        make_options("language", {"num_units": 3})
    file = tmp_path / "c.toml"
    file.write_text("num_units = 3\n")
    with pytest.raises(OptionError, match=r"unknown option 'num_units'; did you mean '(hidden|hidden_size)'\?"):
        make_options("language", read_config(file))


def test_names_are_suggested_by_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    for typed, meant in (("--learning-rate", "--lr"), ("--epoch", "--epochs"), ("--batch", "--batch-size")):
        assert run(["train", "--task", "adding", typed, "3"]) == 2
        assert f"did you mean {meant}?" in capsys.readouterr().err


def test_o_is_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    given = ["--task", "adding", "--steps", "1", "--length", "5", "--hidden-size", "4", "--quiet", "--threads", "1"]
    assert run(["train", *given, "-o", str(folder)]) == 0
    assert (folder / "manifest.json").exists()
    assert run(["card", str(folder), "-o", str(tmp_path / "card.md"), "--quiet"]) == 0
    assert (tmp_path / "card.md").exists()
    capsys.readouterr()
    assert run(["train", "--help"]) == 0
    assert "-o" in capsys.readouterr().out
