"""A real browser, Chromium without a window, and a visit to the page with it. With SCREENSHOTS=1 in the environment,
tests leave pictures in screenshots/, which git ignores, for somebody to look at.

A file of tests that needs it says `pytestmark = needs_browser` and asks for the fixture `browser`, or for `visit`, a
page over the runs of conftest.py.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.studio.conftest import TOKEN, Served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HAS_PLAYWRIGHT = importlib.util.find_spec("playwright") is not None
needs_browser = [
    pytest.mark.skipif(not HAS_PLAYWRIGHT, reason="the page is tested with playwright"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]
SCREENSHOTS = Path(__file__).parent.parent.parent / "screenshots"
SETTLED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
SIZES = {"wide": (1280, 800), "phone": (390, 844)}


def picture(page: Any, name: str, whole: bool = True) -> None:
    """A screenshot of all of the page, or of what is in view, where somebody wants to see them."""
    if os.environ.get("SCREENSHOTS"):
        SCREENSHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)


def settle(page: Any) -> None:
    """Until what was changed is drawn."""
    page.evaluate(SETTLED)


class Visit:
    """One page, and all that went wrong or elsewhere while it was open."""

    def __init__(self, browser: Any, served: Served, size: str, theme: str, language: str, **options: Any) -> None:
        width, height = SIZES[size]
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            locale="zh-CN" if language == "zh" else "en-US",
            has_touch=size == "phone",
            **options,
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(90_000)  # a view may wait behind the report that a view before it began
        self.served, self.errors, self.elsewhere = served, [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("request", self._requested)
        self.page.on("response", self._responded)
        self.page.goto(f"{served.address}/?token={TOKEN}")
        assert TOKEN not in self.page.url.replace("%20", " ")

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.served.address, "data:", "about:")):
            self.elsewhere.append(request.url)

    def _responded(self, response: Any) -> None:
        if response.status >= 400:
            self.errors.append(f"{response.url} with {response.request.post_data!r} is refused")

    def open(self, view: str, run: str = "lstm") -> Any:
        """Open a view, and wait until its title has replaced the title of the view before it."""
        self.page.goto(f"{self.served.address}/#/{view}/{run}")
        self.page.wait_for_selector(f'main[data-place="{view}/{run.partition("?")[0]}"] h1')
        return self.page

    def close(self) -> None:
        self.context.close()
        assert self.errors == []
        assert self.elsewhere == [], "a request left the machine"
