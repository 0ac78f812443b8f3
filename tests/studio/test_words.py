"""Every word of the page in both languages, and every error that it shows."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import recur
from recur.diagnostics import labs
from recur.i18n import catalogue, translate
from recur.studio.app import STYLES
from recur.studio.reports import run_lab
from tests.studio.browser import Visit, needs_browser
from tests.studio.conftest import Served

httpx = pytest.importorskip("httpx")

SOURCE = Path(recur.__file__).parent
PAGE = SOURCE / "studio" / "page"
HAN = re.compile("[\u4e00-\u9fff]")


def raised() -> list[str]:
    """Return where the studio and its HTTP code raise an error whose text is no message."""
    found = []
    for path in sorted([*(SOURCE / "studio").rglob("*.py"), SOURCE / "serve" / "http.py"]):
        if path.name in ("address.py", "server.py"):  # of the command line
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            error = node.exc if isinstance(node, ast.Raise) else None
            if not isinstance(error, ast.Call) or ast.unparse(error.func) == "LookupError":  # a mistake of ours
                continue
            texts = [one for one in error.args if isinstance(one, ast.JoinedStr | ast.Constant)]
            if any(isinstance(one, ast.JoinedStr) or isinstance(one.value, str) for one in texts):
                found.append(f"{path.name}:{error.lineno}: {ast.unparse(error)}")
    return found


def test_every_error_of_the_page_is_a_message() -> None:
    assert raised() == []


def test_errors_come_in_the_language_that_is_asked_for(served: Served) -> None:
    with httpx.Client(base_url=served.address, headers=served.headers, timeout=60) as client:
        for language, expected in (
            ("zh", "没有运行 'none'"),
            ("en", "unknown run 'none'"),
            ("", "unknown run 'none'"),
        ):
            answer = client.post("/api/runs/none/next", json={}, headers={"Accept-Language": language})
            assert answer.json()["error"] == expected
        runs = client.get("/api/runs", headers={"Accept-Language": "zh"}).json()["runs"]
        assert {run["name"] for run in runs if "error" in run} == {"damaged"}
        answer = client.post("/api/lab", json={"name": "nothing"}, headers={"Accept-Language": "zh-CN"})
        assert (answer.status_code, answer.json()["error"][:3]) == (400, "未知的")
        assert client.post("/api/nothing", json={}).status_code == 404


def test_reports_and_labs_come_in_chinese_and_for_a_frame_alone(served: Served) -> None:
    with httpx.Client(base_url=served.address, headers=served.headers, timeout=120) as client:
        verdict = client.post("/api/runs/gru/diagnosis", json={"language": "zh"}).json()
        assert HAN.search(verdict["diagnosis"]["name"])
        assert {finding["level"] for finding in verdict["findings"]} <= {"ok", "warning", "fault", "unknown"}
        report = client.get("/api/runs/gru/xray?language=en")
        assert report.headers["content-type"].startswith("text/html")
        assert 'lang="en"' in report.text
        policy = report.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script" not in policy
        assert "frame-ancestors 'self'" in policy
        assert "frame-ancestors 'none'" in client.get("/").headers["Content-Security-Policy"]
        assert client.get("/api/runs/none/xray").status_code == 404
        offered = client.post("/api/labs", json={}).json()["labs"]
        assert {"vanishing", "exploding", "clipping", "parameters"} <= set(offered)
        dark = client.post("/api/lab", json={"name": "exploding", "T": 10, "language": "zh", "theme": "dark"}).json()
        assert HAN.search(dark["paragraph"])
        assert ">往回：梯度<" in dark["figure"]
        assert "#1c2430" not in dark["figure"], "ink of a light page"


def test_a_lab_measures_what_it_is_set_to() -> None:
    found = run_lab({"name": "parameters", "k": 10, "tau": 3})
    assert "k = 10 tokens has k^τ numbers: 10 for one token, 1,000 for 3" in found["paragraph"]
    for made in (labs.vanishing(0, 8, 12), labs.forget_gate(0, 8, 12)):
        assert HAN.search(translate(made.paragraph, "zh"))
    with pytest.raises(ValueError, match="T must lie in 10 … 120, got 9"):
        run_lab({"name": "vanishing", "T": 9})


def modules(name: str, found: set[str]) -> set[str]:
    """A module of the page with all that it imports."""
    if name not in found:
        found.add(name)
        for other in re.findall(r"(?:from|import) \"\./(\w+)\.js\"", (PAGE / f"{name}.js").read_text()):
            modules(other, found)
    return found


def english(text: str) -> set[str]:
    """Return the names that a module has English sentences for."""
    part = re.search(r"^words\({\n(.*?)\n}\);", text, re.DOTALL | re.MULTILINE)
    found = re.findall(r"(?:^|[{,])\s*(?:(\w+)|\"([^\"]+)\"):\s*\"", part[1], re.MULTILINE) if part else []
    return {plain or quoted for plain, quoted in found}


def test_every_word_has_its_chinese() -> None:
    chinese = {name for context, name in catalogue("zh") if context == "page"}
    texts = [path.read_text(encoding="utf-8") for path in PAGE.glob("*.js") if path.name != "chinese.js"]
    used = {name for text in texts for name in re.findall(r"\bt\(\"([^\"]+)\"", text)}
    either = (two for text in texts for two in re.findall(r"\bt\([^()]*\? \"([^\"]+)\" : \"([^\"]+)\"\)", text))
    used |= {name for two in either for name in two}
    assert len(used) > 100
    assert used - chinese == set()
    assert {name for text in texts for name in english(text)} - chinese == set()


def test_the_first_view_is_fetched_at_once() -> None:
    asked = re.findall(r"modulepreload\" href=\"/page/(\w+)\.js", (PAGE / "index.html").read_text())
    assert {"app", *asked} == modules("runs", modules("app", set())), "what index.html names, no more and no less"
    assert {f"{style}.css" for style in STYLES} == {path.name for path in PAGE.glob("*.css")}


class TestPage:
    pytestmark = needs_browser

    def test_the_keyboard_leads_everywhere_and_focus_stays(self, visit: Visit) -> None:
        page = visit.open("labs", "")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        assert page.evaluate("location.hash").startswith("#/labs"), "the way to the content leads to no other view"
        page.locator("#views a[data-key=write]").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#bars button")
        assert page.evaluate("document.activeElement.dataset.key") == "write", "of the menu"
        page.locator("#bars button").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_timeout(300)
        assert page.evaluate("document.activeElement.closest('#bars') !== null"), "of the bars that were drawn again"

    def test_a_frame_shows_the_report(self, visit: Visit, served: Served) -> None:
        page = visit.open("xray", "gru")
        page.wait_for_selector("#report:not([hidden])", timeout=90_000)
        frame: Any = page.frame_locator("#report")
        frame.locator("section").nth(5).wait_for(timeout=90_000)
        assert page.inner_text("#verdict")
