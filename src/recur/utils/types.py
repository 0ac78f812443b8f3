"""Types that many packages use."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
"""A JSON object: strings, numbers, lists and objects by name."""

Metrics = dict[str, float]
"""Metrics by name."""
