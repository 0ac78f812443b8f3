"""Recipes are configurations of today: each names its task, sets options that the task has, and says how to run it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from recur.tasks import make_options, options_class, read_config, task_class
from recur.training.optim import Schedule

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("*.toml"))
FILES = ("texts", "valid", "test")
OF_THE_RUN = ("config", "out", "folds")
"""Flags of `recur train` that are no options of a task."""

recipes = pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)


def test_there_are_recipes() -> None:
    assert len(RECIPES) >= 15


@recipes
def test_it_makes_valid_options(path: Path) -> None:
    fields = read_config(path)
    task = fields.pop("task")
    assert isinstance(task, str)
    options = make_options(task, fields, f"{path}: ")
    assert options.epochs is not None or options.steps is not None or options.minutes is not None
    task_class(task)(options)  # small languages in strings (teacher, schedule) are read when they are used
    Schedule(options.schedule, options.warmup_steps)


@recipes
def test_it_says_what_follows_from_tokens_elsewhere(path: Path) -> None:
    """A default that depends on the kind of token may move; what a published figure rests on may not."""
    fields = read_config(path)
    by_token = options_class(str(fields["task"])).by_token
    needed = {name for defaults in by_token.values() for name in defaults} - {"epochs"}
    tokens = {str(fields.get(name)) for name in ("token", "source_token", "target_token")}
    if tokens & set(by_token):
        assert needed <= set(fields)


@recipes
def test_its_files_are_named_on_the_command_line(path: Path) -> None:
    """A path in a configuration is relative to the configuration, and no data lies there."""
    assert not set(FILES) & set(read_config(path))


@recipes
def test_its_command_has_flags_that_there_are(path: Path) -> None:
    about = tomllib.loads(path.read_text(encoding="utf-8"))["about"]
    (command,) = re.findall(r"recur train [^&;]*", about["command"])
    assert f"--config recipes/{path.name}" in command
    task = str(read_config(path)["task"])
    known = {*options_class(task).names(), *OF_THE_RUN}
    flags = {flag.replace("-", "_") for flag in re.findall(r"--([\w-]+)", command)}
    assert flags <= known


@recipes
def test_its_figures_stand_in_one_section_that_names_it(path: Path) -> None:
    """`figure` is a page and how a heading of it begins: no recipe repeats what a page tells."""
    page, heading = tomllib.loads(path.read_text(encoding="utf-8"))["about"]["figure"].split(", ", 1)
    text = (path.parent.parent / page).read_text(encoding="utf-8")
    (section,) = [part for part in re.split(r"^#+ ", text, flags=re.M) if part.startswith(heading)]
    assert f"`{path.stem}`" in section or f"recipes/{path.name}" in section
