"""The suite sets its own thread count and seeds, so that it runs alike everywhere."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch reads it: as many test processes as cores share them

import pytest
import torch
from hypothesis import settings

STATE = tempfile.TemporaryDirectory(prefix="recur-state-", ignore_cleanup_errors=True)  # goes with the process
os.environ["RECUR_STATE"] = STATE.name  # what tests trust, the user need not
torch.set_num_threads(1)  # the tensors of tests are small: a second thread only waits
settings.register_profile("recur", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("recur")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
