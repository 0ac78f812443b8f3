"""Accessibility by axe-core, where it is installed: `npm install axe-core` in a folder above, or AXE_CORE names it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
FILES = [
    Path(os.environ.get("AXE_CORE", "")),
    *(above / "node_modules/axe-core/axe.min.js" for above in (ROOT, *ROOT.parents)),
]
AXE = next((file for file in FILES if file.is_file()), None)
needs_axe = pytest.mark.skipif(AXE is None, reason="no axe-core here: npm install axe-core")


def violations(page: Any) -> list[str]:
    """What axe has against a page: the rule, how grave it is, and where."""
    assert AXE is not None
    page.evaluate(AXE.read_text() + ";0")  # as the debugger does, which the page's policy does not bind
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [f"{one['id']} ({one['impact']}): {[node['target'] for node in one['nodes'][:3]]}" for one in found]
