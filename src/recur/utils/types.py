"""Types that many rooms name."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
"""What JSON can hold under names: strings, numbers, lists and objects of them."""

Metrics = dict[str, float]
"""Figures by name."""
