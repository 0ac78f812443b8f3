"""The page in a real browser: every view in both sizes, themes and languages; the frame."""

from __future__ import annotations

from typing import Any

import pytest

from recur.studio.structures import DIAGRAMS
from tests.studio.axe import AXE, needs_axe, violations
from tests.studio.browser import SIZES, Visit, needs_browser, picture, settle
from tests.studio.conftest import Served

pytestmark = needs_browser
READY = {
    "runs": "tr[data-run] >> nth=1",
    "train": "#main-hidden_size",
    "write": "#bars button >> nth=3",
    "see": "#coloured span >> nth=20",
    "gradients": "#circle circle >> nth=3",
    "step": ".step-row.now",
    "xray": "#report:not([hidden])",
    "unfold": "#unrolled rect >> nth=3",
    "labs": "#lab:not([hidden])",
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_view_opens(browser: Any, served: Served, size: str, theme: str, language: str) -> None:
    visit = Visit(browser, served, size, theme, language)
    for view in READY:
        page = visit.open(view)
        page.wait_for_selector(READY[view], timeout=90_000)
        settle(page)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view} is wider than the screen"
        picture(page, f"{view}-{size}-{theme}-{language}")
        title = page.inner_text("main h1")
        assert (title.isascii()) == (language == "en")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        if AXE is not None:
            assert violations(page) == [], f"{view} with {size}, {theme}, {language}"
    visit.close()


@needs_axe
def test_what_axe_would_find_is_found(visit: Visit) -> None:
    page = visit.open("runs")
    page.wait_for_selector(READY["runs"])
    page.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"/page/icon.svg\">')")
    assert "image-alt" in violations(page)[0]


def test_typing_shows_what_comes_next_and_a_branch_is_taken(visit: Visit) -> None:
    page = visit.open("write")
    page.wait_for_selector(READY["write"])
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
    page = visit.open("write")
    page.wait_for_selector(READY["write"])
    area = page.locator("textarea")
    area.fill("the ")
    page.get_by_role("button", name="generate").click()
    page.wait_for_function("document.querySelector('textarea').value.length > 150")
    page.get_by_role("button", name="generate").wait_for()


def test_a_span_is_dragged_over_and_similar_places_are_found(visit: Visit) -> None:
    page = visit.open("see")
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
    picture(page, "activations-span", whole=False)


def test_the_keyboard_is_enough(visit: Visit) -> None:
    page = visit.open("see")
    page.wait_for_selector(READY["see"])
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
    wanted, reached = {"#/write/lstm", "#/unfold/lstm", "language", "theme"}, set()
    page = visit.open("runs")
    page.wait_for_selector(READY["runs"])
    for _ in range(120):  # from where the focus was, through what the view has, and round
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.getAttribute('href') ?? document.activeElement.id"))
        if wanted <= reached:
            break
    assert wanted <= reached


def test_every_diagram_is_drawn_without_a_run_and_with_one(visit: Visit) -> None:
    page = visit.open("unfold", "")
    page.wait_for_selector(READY["unfold"])
    pictures = {}
    for name in DIAGRAMS:
        page.locator("select").first.select_option(value=name)
        pictures[name] = page.inner_html("#unrolled")
        assert not page.inner_text("#unrolled-about").startswith("about_"), f"{name} has a sentence"
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, name
        picture(page, f"unfold-{name}", whole=False)
    assert len(set(pictures.values())) == len(DIAGRAMS)
    page.locator("select").first.select_option(value="pattern-1")
    assert "H × D" in page.inner_text("#unrolled")
    page.locator("select").nth(1).select_option("gru")
    page.wait_for_selector("pre.equations")
    assert "W 72 × 24" in page.inner_text("#unrolled"), "three gates of 24 units"
    page.wait_for_function("location.hash.includes('unfold/gru?diagram=pattern-1')")


def test_language_and_theme_are_switched_and_kept(visit: Visit) -> None:
    page = visit.open("runs")
    page.click("#language")
    page.wait_for_function("document.querySelector('main h1').textContent === '运行'")
    page.click("#theme")
    page.reload()
    page.wait_for_selector("main h1")
    assert page.inner_text("main h1") == "运行"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
