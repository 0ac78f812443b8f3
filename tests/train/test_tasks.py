"""What every task owes: all options are read by one, none is ignored in silence."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from recur.errors import OptionError
from recur.train.config import COMMON, Config
from recur.train.tasks import TASKS, task_of

FIELDS = {field.name for field in dataclasses.fields(Config)}


def test_every_option_is_read_by_some_task_and_every_option_read_is_one() -> None:
    read = set(COMMON)
    for name in TASKS:
        reads = importlib.import_module(f"recur.train.tasks.{name}").TASK.reads
        assert reads <= FIELDS, name
        read |= reads
    assert read == FIELDS


def test_a_task_that_is_not_there() -> None:
    with pytest.raises(OptionError, match="unknown task 'langage'; did you mean 'language'?"):
        task_of(Config.of(task="langage"))
