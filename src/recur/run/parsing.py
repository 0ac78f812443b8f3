"""Parsers for the JSON files of a run, which may come from anybody."""

from __future__ import annotations

import json
import math
from typing import Any

from recur.errors import RunError
from recur.limits import JSON_VALUES, LOG_LINE, LOG_RECORDS, check_json, json_values
from recur.typedefs import JsonObject

DIGITS = 19
"""Digits of an integer at most. More of them do not fit into 64 bits, and float() of a long integer overflows."""


def parse_json(content: bytes | str, name: str = "the file") -> Any:
    """Return the value that a JSON text holds; raise ValueError or RecursionError for anything else.

    A text with more values than recur writes raises TextError before it is parsed.
    """
    check_json(name, content)
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


def parse_jsonl(content: bytes, refuse: str = "") -> list[JsonObject]:
    """Return the JSON objects of lines, and skip other lines.

    Lines behind the first LOG_RECORDS, or behind JSON_VALUES values in all, are skipped without being read; `refuse`
    names the file whose extra lines are an error instead.
    """
    found: list[JsonObject] = []
    lines = values = at = 0
    while at < len(content):
        end = content.find(b"\n", at) + 1 or len(content)
        line, at = content[at : min(end, at + LOG_LINE + 1)], end
        lines, values = lines + 1, values + (json_values(line) if len(line) <= LOG_LINE else 0)
        if lines > LOG_RECORDS or values > JSON_VALUES:
            if refuse:
                raise RunError(
                    f"{refuse}: expected at most {LOG_RECORDS:,} lines of {JSON_VALUES:,} values in all, got more; "
                    "it is no log of recur: move it away"
                )
            break
        if len(line) <= LOG_LINE and (entry := parse_object(line.decode(errors="replace"))) is not None:
            found.append(entry)
    return found


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
