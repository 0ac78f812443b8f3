"""A few attempts of each campaign that stops, damages, starves or renames a run; long form: `python -m campaigns`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from campaigns import crash, damage, export, kill, paths, power, trust
from campaigns.campaign import Campaign, load, names
from campaigns.small import TASKS
from recur.tasks import task_names

LANGUAGE = task_names().index("language")
"""Attempts of every so many are of the same task: one is enough here."""


def of_language(count: int) -> Iterable[int]:
    return range(LANGUAGE, LANGUAGE + count * len(task_names()), len(task_names()))


@pytest.mark.parametrize(
    ("campaign", "numbers"),
    [
        pytest.param(crash, range(0, 300, 61), id="crash"),
        pytest.param(kill, of_language(2), id="kill"),
        pytest.param(damage, of_language(12), id="damage"),
        pytest.param(paths, range(12), id="paths"),
        pytest.param(power, of_language(8), id="power"),
        pytest.param(export, (2, 16, 101), id="export"),
        pytest.param(trust, (*range(6), 9), id="trust"),
    ],
)
def test_nothing_is_lost_and_nothing_is_other(
    campaign: Campaign, numbers: Iterable[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RECUR_STATE", "RECUR_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))  # each campaign sets its own, which end with it
    made = list(campaign.attempts(0, numbers))
    assert len(made) == len(list(numbers))
    assert [attempt for attempt in made if attempt.failure is not None] == []
    assert torch.get_num_threads() == 1


def test_every_campaign_says_what_it_tries() -> None:
    expected = {"crash", "damage", "export", "fuzz", "http", "kill", "paths", "power", "serve", "sharing", "trust"}
    assert expected == set(names())
    for name in names():
        assert (load(name).__doc__ or "").splitlines()[0].endswith(".")
    assert set(TASKS) == set(task_names())
