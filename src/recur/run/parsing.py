"""Parsers for the JSON files of a run, which may come from anybody."""

from __future__ import annotations

import json
import math
from typing import Any

from recur.typedefs import JsonObject

DIGITS = 19
"""Digits of an integer at most. More of them do not fit into 64 bits, and float() of a long integer overflows."""


def parse_json(content: bytes | str) -> Any:
    """Return the value that a JSON text holds; raise ValueError or RecursionError for anything else."""
    return json.loads(content, parse_int=_integer)


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def parse_object(content: bytes | str) -> JsonObject | None:
    """Return the object that a JSON text holds; None for anything else."""
    try:
        found = parse_json(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def parse_jsonl(content: bytes) -> list[JsonObject]:
    """Return the objects of JSON lines; skip every line that is not one whole object."""
    found = [parse_object(line) for line in content.decode(errors="replace").splitlines()]
    return [entry for entry in found if entry is not None]


def is_baseline(found: object) -> bool:
    """Return True if an entry of baselines.json has a name, a value that can be compared, and numbers as metrics."""
    return (
        isinstance(found, dict)
        and isinstance(found.get("name"), str)
        and isinstance(value := found.get("value"), int | float)
        and not (isinstance(value, bool) or math.isnan(value))
        and isinstance(metrics := found.get("metrics"), dict)
        and all(type(one) in (int, float) for one in metrics.values())
    )
