"""The page in a real browser: Chromium, headless. Screenshots go to screenshots/, which git ignores."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recur.tasks import task_names
from tests.studio.conftest import SMALL, TOKEN, Served

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")

SCREENSHOTS = Path(__file__).parent.parent.parent / "screenshots"
VIEWS = ("runs", "generate", "activations", "gradients", "unfold")
SIZES = {"wide": (1280, 800), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


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
        self.page.set_default_timeout(20_000)
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
        self.page.goto(f"{self.served.address}/#/{view}/{run}")
        self.page.wait_for_selector("main h1")
        return self.page

    def close(self) -> None:
        self.context.close()
        assert self.errors == []
        assert self.elsewhere == [], "a request left the machine"


@pytest.fixture
def visit(browser: Any, served: Served) -> Iterator[Visit]:
    # Playwright's waiting for a condition is JavaScript from outside, which the page's own policy forbids.
    made = Visit(browser, served, "wide", "light", "en", bypass_csp=True)
    yield made
    made.close()


READY = {
    "runs": "tr[data-run] >> nth=1",
    "generate": "#bars button >> nth=3",
    "activations": "#coloured span >> nth=20",
    "gradients": "#heat .cell >> nth=20",
    "unfold": "#unrolled rect >> nth=3",
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_view_opens(browser: Any, served: Served, size: str, theme: str, language: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    visit = Visit(browser, served, size, theme, language)
    for view in VIEWS:
        page = visit.open(view)
        page.wait_for_selector(READY[view])
        page.wait_for_timeout(150)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view} is wider than the screen"
        page.screenshot(path=SCREENSHOTS / f"{view}-{size}-{theme}-{language}.png", full_page=True)
        title = page.inner_text("main h1")
        assert (title.isascii()) == (language == "en")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
    visit.close()


def test_typing_shows_what_comes_next_and_a_branch_is_taken(visit: Visit) -> None:
    page = visit.open("generate")
    area = page.locator("textarea")
    area.fill("")
    area.type("the netw")
    page.wait_for_function("document.querySelector('#bars code')?.textContent === 'o'")
    page.locator("#bars button").first.click()
    assert area.input_value() == "the netwo"
    page.wait_for_function("document.querySelector('#bars code')?.textContent === 'r'")
    page.locator("input[type=range]").nth(1).fill("1")
    page.wait_for_function("document.querySelectorAll('#bars .drawn')[0].style.width === '100%'")


def test_text_streams_into_the_page(visit: Visit) -> None:
    page = visit.open("generate")
    page.wait_for_selector(READY["generate"])
    area = page.locator("textarea")
    area.fill("the ")
    page.get_by_role("button", name="generate").click()
    page.wait_for_function("document.querySelector('textarea').value.length > 150")
    page.get_by_role("button", name="generate").wait_for()


def test_a_span_is_dragged_over_and_similar_places_are_found(visit: Visit) -> None:
    page = visit.open("activations")
    page.locator("textarea").fill("the network keeps a word\n" * 4)
    page.wait_for_function("document.querySelectorAll('#coloured span').length === 100")
    first, last = (
        page.locator("#coloured span").nth(27).bounding_box(),
        page.locator("#coloured span").nth(33).bounding_box(),
    )
    page.mouse.move(first["x"] + 2, first["y"] + 8)
    page.mouse.down()
    page.mouse.move(last["x"] + 2, last["y"] + 8, steps=4)
    page.mouse.up()
    page.wait_for_selector("#coloured .similar")
    assert page.locator("#similar li code").count() >= 1
    assert page.locator("#coloured .span").count() == 7
    assert page.locator("#coloured .similar").count() >= 7
    page.screenshot(path=SCREENSHOTS / "activations-span.png")


def test_the_keyboard_is_enough(visit: Visit) -> None:
    page = visit.open("activations")
    page.wait_for_selector(READY["activations"])
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "coloured":
            break
    else:
        pytest.fail("the text cannot be reached")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#coloured .similar")
    assert page.locator("#coloured .span").count() == 5
    reached = set()
    page = visit.open("runs")
    page.wait_for_selector(READY["runs"])
    for _ in range(20):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.getAttribute('href') ?? document.activeElement.id"))
    assert {"#/generate/lstm", "#/unfold/lstm", "language", "theme"} <= reached


def test_the_truncation_slider_cuts_the_heat_map(visit: Visit) -> None:
    page = visit.open("gradients", "gru")
    page.locator("textarea").fill("the network keeps a word")
    page.wait_for_function("document.querySelectorAll('#heat .cell').length === 24")
    cold = "[...document.querySelectorAll('#heat .cell')].filter((c) => c.style.background.includes('soft')).length"
    assert page.evaluate(cold) == 0
    page.locator("input[type=range]").first.fill("10")
    page.wait_for_function(f"{cold} > 0")
    cells = page.locator("#heat .cell").count()
    assert page.evaluate(cold) == cells - 10
    terms = "[...document.querySelectorAll('#terms .cell')].filter((c) => !c.style.background.includes('soft')).length"
    assert page.evaluate(terms) == 2 * 10, "of W and of U, the same ten steps"


def test_patterns_are_drawn(visit: Visit) -> None:
    page = visit.open("unfold")
    page.wait_for_selector(READY["unfold"])
    pictures = set()
    select = page.locator("select").nth(1)
    for k in range(6):
        select = page.locator("select").nth(1)
        select.select_option(index=k)
        pictures.add(page.inner_html("#unrolled"))
        page.screenshot(path=SCREENSHOTS / f"unfold-pattern-{k}.png")
    assert len(pictures) == 6
    assert "24" in page.inner_text("#unrolled"), "shapes are written beside"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_runs_of_every_task_are_shown(browser: Any, every_task: Path, language: str) -> None:
    server = Served(every_task)
    visit = Visit(browser, server, "wide", "light", language, bypass_csp=True)
    page = visit.open("runs", "")
    page.wait_for_selector("tr[data-run]")
    assert page.locator("tr[data-run]").count() == len(task_names())
    for box in page.locator("tr[data-run] input").all():
        box.check()
    label = {"en": "validation sequence error rate", "zh": "验证序列错误率"}[language]
    assert label in page.inner_text('tr[data-run="seq2seq"]')
    page.wait_for_function("[...document.querySelectorAll('select option')].some((o) => o.value === 'valid_mase')")
    for metric, run in (("valid_mase", "forecast"), ("valid_sequence_error_rate", "seq2seq")):
        page.select_option("select", metric)
        page.wait_for_function(f"document.querySelector('.legend')?.textContent === '{run}'")
        assert page.locator("svg.chart line[stroke-dasharray]").count() == 1, "its baseline"
    page.screenshot(path=SCREENSHOTS / f"runs-tasks-{language}.png", full_page=True)
    page = visit.open("gradients", "adding")
    expected = {"en": "adding is a run of the task adding; this view reads", "zh": "adding 是任务 adding 的训练"}
    assert expected[language] in page.inner_text("main .empty")
    page.screenshot(path=SCREENSHOTS / f"other-task-{language}.png", full_page=True)
    page.select_option("select", "language")
    page.wait_for_selector(READY["gradients"])
    visit.close()
    server.stop()


def test_language_and_theme_are_switched_and_kept(visit: Visit) -> None:
    page = visit.open("runs")
    page.click("#language")
    page.wait_for_function("document.querySelector('main h1').textContent === '训练'")
    page.click("#theme")
    page.reload()
    page.wait_for_selector("main h1")
    assert page.inner_text("main h1") == "训练"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_run_that_trains_meanwhile_appears_live(visit: Visit, runs: Path) -> None:
    page = visit.open("runs")
    page.wait_for_selector(READY["runs"])
    book = runs.parent / "book.txt"
    command = [sys.executable, "-m", "recur", "train", str(book), *SMALL, "--minutes", "0.06", "--no-baseline"]
    training = subprocess.Popen([*command, "--out", str(runs / "meanwhile")], stderr=subprocess.DEVNULL)
    try:
        page.wait_for_selector('tr[data-run="meanwhile"] .live', timeout=30_000)
        step = "Number(document.querySelector('tr[data-run=\"meanwhile\"] .step').textContent.replace(/\\D/g, ''))"
        page.wait_for_function(f"{step} > 0", timeout=30_000)
        before = page.evaluate(step)
        page.wait_for_function(f"{step} > {before}", timeout=30_000)
        page.screenshot(path=SCREENSHOTS / "runs-live.png")
    finally:
        training.wait(60)
        visit.page.goto("about:blank")
        shutil.rmtree(runs / "meanwhile")
