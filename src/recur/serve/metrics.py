"""/metrics: counters of the engine and the server in the text format of Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recur.serve.registry import Registry


class EngineCounters:
    """Counters of the engine since the start. Readers in other threads may see a batch counted in part."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self.batches = self.rows = 0
        self.seconds = 0.0
        self.sizes = dict.fromkeys((1, 4, 16, 64, 256, 1024, 4096, 16384), 0)
        """Number of batches with at most so many rows."""

    def batch(self, rows: int, seconds: float) -> None:
        self.batches += 1
        self.rows += rows
        self.seconds += seconds
        for size in self.sizes:
            if rows <= size:
                self.sizes[size] += 1


METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render_metrics(registry: Registry) -> str:
    """Return all metrics as text."""
    return "\n".join([*_metric_lines(registry), ""])


def _metric_lines(registry: Registry) -> Iterator[str]:
    counts, sessions = registry.engine.counts, registry.sessions
    yield from _metric_family(
        "recur_requests_total",
        "counter",
        "Requests answered, by route and status.",
        {
            f'route="{_escape_label(route)}",status="{status}"': n
            for (route, status), n in sorted(registry.requests.items())
        },
    )
    yield from _metric_family("recur_requests_in_flight", "gauge", "Requests in progress.", {"": registry.in_flight})
    for kind, found in (("read", dict(counts.read)), ("written", dict(counts.written))):
        yield from _metric_family(
            f"recur_tokens_{kind}_total",
            "counter",
            f"Inputs or tokens {kind}, by model.",
            {f'model="{_escape_label(name)}"': n for name, n in sorted(found.items())},
        )
    yield from _metric_family(
        "recur_rows", "gauge", "Prompts and sessions that are being stepped.", {"": registry.engine.active}
    )
    yield "# HELP recur_batch_rows Rows of a batch."
    yield "# TYPE recur_batch_rows histogram"
    total = counts.batches
    for size, n in counts.sizes.items():
        yield f'recur_batch_rows_bucket{{le="{size}"}} {n}'
    yield f'recur_batch_rows_bucket{{le="+Inf"}} {total}'
    yield f"recur_batch_rows_sum {counts.rows}"
    yield f"recur_batch_rows_count {total}"
    yield from _metric_family("recur_batch_seconds_total", "counter", "Seconds spent in batches.", {"": counts.seconds})
    yield from _metric_family(
        "recur_sessions",
        "gauge",
        "Sessions, by where they are.",
        {'where="memory"': len(sessions), 'where="disk"': sessions.stored},
    )
    for name, n in (("expired", sessions.expired), ("spilled", sessions.spilled), ("restored", sessions.restored)):
        yield from _metric_family(f"recur_sessions_{name}_total", "counter", f"Sessions {name} so far.", {"": n})
    yield from _metric_family("recur_reloads_total", "counter", "Newer weights loaded.", {"": registry.models.reloads})
    yield from _metric_family("recur_uptime_seconds", "gauge", "Since the start.", {"": time.time() - registry.begun})


def _metric_family(name: str, kind: str, text: str, values: dict[str, float]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield (
            f"{name}{{{labels}}} {value:g}"
            if isinstance(value, float) and labels
            else (f"{name}{{{labels}}} {value}" if labels else f"{name} {value}")
        )


def _escape_label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
