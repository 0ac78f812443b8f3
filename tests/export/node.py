"""What tests of JavaScript share."""

from __future__ import annotations

import pytest

from recur.export import html
from recur.export.graphs import PortableModel
from recur.export.html import build_javascript
from recur.export.html import run_in_node as run_in_node

needs_node = pytest.mark.skipif(html.find_node() is None, reason="no node here: apt-get install nodejs")


def difference(portable: PortableModel, quantize: bool = False) -> float:
    """The largest between node and PyTorch."""
    return html.node_difference(portable, build_javascript(portable, quantize), quantize)
