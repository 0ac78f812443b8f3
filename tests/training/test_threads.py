"""How many threads pay is measured, and the process is left as it was."""

from __future__ import annotations

import time

import pytest
import torch

from recur.training.autoconfig import pick_threads


@pytest.mark.parametrize("slow", [1, 2])
def test_the_faster_number_is_taken(slow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    torch.set_num_threads(2)
    try:
        assert pick_threads(lambda: time.sleep(0.02 if torch.get_num_threads() == slow else 0)) == 3 - slow
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert pick_threads(lambda: None) == 1, "nothing to choose from"
