"""What tests of JavaScript share."""

from __future__ import annotations

import pytest

from recur.export import javascript_check
from recur.export.graphs import Portable
from recur.export.javascript_check import in_node as in_node
from recur.export.javascript_model import javascript

needs_node = pytest.mark.skipif(javascript_check.node() is None, reason="no node here: apt-get install nodejs")


def difference(portable: Portable, quantize: bool = False) -> float:
    """The largest between node and PyTorch."""
    return javascript_check.difference(portable, javascript(portable, quantize), quantize)
