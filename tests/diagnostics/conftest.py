"""One healthy run for all tests of probes: a small LSTM after 300 steps on the language reference."""

from __future__ import annotations

from typing import Any

import pytest

import recur
from recur.tasks.language.predictor import Language

SMALL: dict[str, Any] = {
    "cell": "lstm", "hidden_size": 64, "steps": 300, "window": 48, "threads": 1, "baseline": False
}  # fmt: skip


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Language:
    return recur.fit("pydoc", task="language", out=tmp_path_factory.mktemp("runs") / "healthy", **SMALL)
