"""What a header or a page is asked, and a browser to ask in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple, Self

from recur.export import to_portable
from recur.export.graphs import PortableModel
from recur.export.html import JavaScriptModel, build_javascript

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Subject(NamedTuple):
    """A trained model, as graphs, and as JavaScriptModel with the weights that it has."""

    model: Any
    form: PortableModel
    code: JavaScriptModel

    @classmethod
    def of(cls, model: Any, page: bool = True) -> Self:
        form = to_portable(model)
        return cls(model, form, build_javascript(form, quantize=False) if page else JavaScriptModel("", {}, ""))


class Visit:
    """A page from a file, and all that went wrong or elsewhere while it was open."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(locale="en-US", **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on(
            "request", lambda r: self.errors.append(r.url) if not r.url.startswith(("file:", "data:")) else None
        )
        self.page.goto(file.as_uri())

    def close(self) -> None:
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.evaluate(wide) <= 0, "it is wider than the screen"
        self.context.close()
        assert self.errors == []
