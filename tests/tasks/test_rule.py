"""A recipe for a text of another size: the rule, what it leaves alone, and that it is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recur.errors import OptionError
from recur.options import read_toml
from recur.tasks import make_options
from recur.tasks.language.options import LanguageOptions
from recur.tasks.language.sizing import describe_rule, for_text
from recur.training import Event, train

RECIPE = Path(__file__).parents[2] / "recipes" / "awd-ptb.toml"


def recipe(**fields: Any) -> LanguageOptions:
    made = make_options("language", {**{k: v for k, v in read_toml(RECIPE).items() if k != "task"}, **fields})
    assert isinstance(made, LanguageOptions)
    return made


def test_at_its_own_size_a_recipe_is_itself() -> None:
    o = recipe()
    assert for_text(o, 929_589, 10_000) == o
    assert describe_rule(o, o).endswith("as they are")


def test_more_text_less_dropout_and_a_wider_network() -> None:
    o = recipe()
    sizes = [100_000, 929_589, 2_088_628, 103_000_000]
    made = [for_text(o, tokens, 10_000) for tokens in sizes]
    for name, rises in (("dropout_input", False), ("dropout_weight", False), ("alpha", False), ("hidden_size", True)):
        values = [getattr(one, name) for one in made]
        assert values == sorted(values, reverse=not rises), name
        assert len(set(values)) == 4, name
    assert made[-1].dropout_input == pytest.approx(0.1, abs=0.005), "as published for WikiText-103"
    assert made[-1].hidden_size == pytest.approx(2500, rel=0.02)
    assert made[-1].epochs == pytest.approx(14, abs=1)
    for one in made:
        assert one.epochs
        assert one.eval_every * o.epochs == pytest.approx(o.eval_every * one.epochs, rel=0.01)
    assert made[0].dropout_weight <= 0.75
    assert for_text(o, 103_000_000, 267_000).softmax == "sampled"


def test_what_is_typed_stays() -> None:
    o = recipe(untouched=("hidden_size", "dropout_input"))
    made = for_text(o, 9_000_000, 10_000)
    assert (made.hidden_size, made.dropout_input) == (o.hidden_size, o.dropout_input)
    assert made.dropout_output < o.dropout_output
    assert "dropout_output 0.6 → 0.265" in describe_rule(o, made)
    assert ", hidden " not in describe_rule(o, made)
    with pytest.raises(OptionError, match="untouched option"):
        recipe(untouched=("width",))
    with pytest.raises(OptionError, match="is for --tuned-on"):
        make_options("language", {"untouched": ("hidden_size",)})


def test_a_run_says_and_keeps_what_the_rule_made(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("a state is a word that the network keeps\n" * 50)
    notes: list[str] = []

    def hear(event: Event) -> None:
        notes.append(json.dumps(event.content, ensure_ascii=False))

    fields = {"hidden_size": 8, "tuned_on": 40, "token": "word", "dropout_output": 0.5, "steps": 1, "threads": 1}
    train(make_options("language", {**fields, "texts": str(book), "baseline": False}), tmp_path / "run", hear)
    assert any("settings of a text of 40 tokens, by rule: " in note for note in notes)
    config = (tmp_path / "run" / "config.toml").read_text()
    assert "tuned_on = 450" in config
    assert "dropout_output = 0.209" in config
    assert "hidden_size = 32" in config
