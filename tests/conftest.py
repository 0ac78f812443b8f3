"""The suite sets its own thread count and seeds, so that it runs alike everywhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch reads it: as many test processes as cores share them

import pytest
import torch
from hypothesis import settings

# Tests must not use what the user trusts. All processes of a test run share one state folder: a run that one process
# trains for a shared fixture is then trusted by the others, too.
if "PYTEST_XDIST_WORKER" not in os.environ:
    STATE = tempfile.TemporaryDirectory(prefix="recur-state-", ignore_cleanup_errors=True)
    os.environ["RECUR_STATE"] = STATE.name
torch.set_num_threads(1)  # the tensors of tests are small: a second thread only waits
settings.register_profile("recur", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("recur")


def pytest_configure(config: pytest.Config) -> None:
    """Ignore the warning that a cell runs on the loop; in pyproject.toml, it would import recur before coverage."""
    config.addinivalue_line("filterwarnings", "ignore::recur.errors.RecurLoopWarning")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window: one for a process, since playwright allows no second one beside it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are tested with playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
