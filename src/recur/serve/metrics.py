"""/metrics: what the server does, in Prometheus's text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recur.serve.hub import Hub

TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics(hub: Hub) -> str:
    return "\n".join([*_lines(hub), ""])


def _lines(hub: Hub) -> Iterator[str]:
    counts, sessions = hub.engine.counts, hub.sessions
    yield from _family("recur_requests_total", "counter", "Requests answered, by route and status.", {
        f'route="{_quoted(route)}",status="{status}"': n for (route, status), n in sorted(hub.requests.items())
    })  # fmt: skip
    yield from _family("recur_requests_in_flight", "gauge", "Requests under way.", {"": hub.in_flight})
    for kind, found in (("read", dict(counts.read)), ("written", dict(counts.written))):
        yield from _family(f"recur_tokens_{kind}_total", "counter", f"Inputs or tokens {kind}, by model.", {
            f'model="{_quoted(name)}"': n for name, n in sorted(found.items())
        })  # fmt: skip
    yield from _family("recur_rows", "gauge", "Prompts and sessions that are being stepped.", {"": hub.engine.active})
    yield "# HELP recur_batch_rows Rows of a batch."
    yield "# TYPE recur_batch_rows histogram"
    total = counts.batches
    for size, n in counts.sizes.items():
        yield f'recur_batch_rows_bucket{{le="{size}"}} {n}'
    yield f'recur_batch_rows_bucket{{le="+Inf"}} {total}'
    yield f"recur_batch_rows_sum {counts.rows}"
    yield f"recur_batch_rows_count {total}"
    yield from _family("recur_batch_seconds_total", "counter", "Seconds spent in batches.", {"": counts.seconds})
    yield from _family("recur_sessions", "gauge", "Sessions, by where they are.", {
        'where="memory"': len(sessions), 'where="disk"': sessions.stored
    })  # fmt: skip
    for name, n in (("expired", sessions.expired), ("spilled", sessions.spilled), ("restored", sessions.restored)):
        yield from _family(f"recur_sessions_{name}_total", "counter", f"Sessions {name} so far.", {"": n})
    yield from _family("recur_reloads_total", "counter", "Newer weights loaded.", {"": hub.models.reloads})
    yield from _family("recur_uptime_seconds", "gauge", "Since the start.", {"": time.time() - hub.begun})


def _family(name: str, kind: str, text: str, values: dict[str, float]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield (
            f"{name}{{{labels}}} {value:g}"
            if isinstance(value, float) and labels
            else (f"{name}{{{labels}}} {value}" if labels else f"{name} {value}")
        )


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
