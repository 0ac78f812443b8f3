"""schemathesis on the server, by its own description: requests that fit it and requests that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import Serving

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis: pip install schemathesis")
hypothesis = pytest.importorskip("hypothesis")

EXAMPLES = 3
"""Requests of each route, and as many that break its schema."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_answers_are_as_described(runs: Path) -> None:
    """No 500, no status, type or shape that is not in the document; and what breaks a schema is refused."""
    made = Serving(runs / "chars", max_tokens=20, choices=4, prompt_tokens=2000)
    try:
        schema = schemathesis.openapi.from_url(f"{made.address}/openapi.json", headers=made.headers)
        tried: set[str] = set()
        for result in schema.get_all_operations():
            _try(result.ok(), made, tried)
        paths = made.get("/openapi.json")["paths"].items()
        every = {f"{method.upper()} {path}" for path, methods in paths for method in methods}
        assert every - tried <= {"GET /openapi.json"}  # where the document itself is
        assert "Traceback" not in made.http.get("/metrics").text
        assert 'status="500"' not in made.http.get("/metrics").text
        assert made.registry.models.get("chars").pool.taken == len(made.registry.sessions)
    finally:
        made.stop()


def _try(operation: Any, made: Serving, tried: set[str]) -> None:
    excluded = [
        schemathesis.checks.positive_data_acceptance  # a token, an id or a word may fit its schema and not exist
    ] if hasattr(schemathesis.checks, "positive_data_acceptance") else []  # fmt: skip
    settings = hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
        try:
            strategy = operation.as_strategy(generation_mode=mode)

            @settings
            @hypothesis.given(case=strategy)
            def check(case: Any) -> None:
                case.call_and_validate(headers=made.headers, excluded_checks=excluded)

            check()
        except hypothesis.errors.Unsatisfiable:  # nothing of the route can be wrong
            continue
    tried.add(operation.label)
