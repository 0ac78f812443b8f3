"""Networks in forked children, threads and workers, and one cache for several processes: a short campaign of each."""

from __future__ import annotations

import os

import pytest
import torch

from campaigns import sharing
from recur.ops.cpu import library

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # that forking with threads is a risk
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "HANG", 20.0)


@pytest.mark.parametrize("number", range(len(sharing.KINDS)), ids=list(sharing.KINDS))
def test_all_is_as_for_one_alone(number: int) -> None:
    (attempt,) = sharing.attempts(0, [number])
    assert attempt.failure is None


def test_a_network_in_a_worker_that_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "WORKERS", 1)
    (attempt,) = sharing.attempts(0, [sharing.SPAWNED - 1])
    assert (attempt.what, attempt.failure) == ("a network in spawned workers", None)


def test_a_forked_child_has_one_thread_and_its_parent_keeps_its_own() -> None:
    """Also where torch alone is used: its pool does not come along either."""
    with sharing.threads(3):
        big = torch.ones(300, 300)
        big @ big
        made = sharing.in_child(lambda: [torch.tensor([torch.get_num_threads()]), big @ big])
        assert not isinstance(made, str), made
        assert made[0].item() == 1
        assert torch.equal(made[1], big @ big)
        assert torch.get_num_threads() == 3
        library._use_one_thread()  # what the child has done
        assert torch.get_num_threads() == 1
