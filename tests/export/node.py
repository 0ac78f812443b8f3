"""What tests of JavaScript share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from recur.export import javascript_check
from recur.export.graphs import Portable
from recur.export.javascript_check import in_node as in_node
from recur.export.javascript_model import javascript

needs_node = pytest.mark.skipif(javascript_check.node() is None, reason="no node here: apt-get install nodejs")


def difference(portable: Portable, quantize: bool = False) -> float:
    """The largest between node and PyTorch."""
    return javascript_check.difference(portable, javascript(portable, quantize), quantize)


def differences_in_node(networks: Mapping[str, Portable], folder: Path) -> dict[str, float]:
    """Of many, by name: what tests.export.every compares."""
    return {name: max(difference(one), difference(one, quantize=True)) for name, one in networks.items()}
