"""Train and Runs in a real browser: from a pasted text to its curve; many runs side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.studio.browser import Visit, needs_browser, picture
from tests.studio.conftest import BOOK, EXAMPLES, Served

pytestmark = needs_browser
LOSS = '[data-measure="train_loss"] .values b'


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "runs").mkdir()
    made = Served(tmp_path / "runs")
    yield made
    made.studio.training.queue.close()
    made.stop()


def points(folder: Path, file: str) -> list[Any]:
    return [json.loads(line) for line in (folder / file).read_text().splitlines()]


def test_from_a_pasted_text_to_its_curve(browser: Any, empty: Served, tmp_path: Path) -> None:
    """Paste, start, watch, stop, resume; a table waits meanwhile, and another is taken out of the queue."""
    runs = tmp_path / "runs"
    visit = Visit(browser, empty, "wide", "light", "en", bypass_csp=True)
    page = visit.open("train", "")
    page.set_default_timeout(60_000)
    page.fill("#paste", BOOK)
    page.wait_for_selector("text=Detected: lines of text.")
    assert page.input_value("#task") == "language"
    page.fill("#main-hidden_size", "8")
    page.select_option("select[data-key=unit]", "steps")
    page.fill("#main-budget", "1000000")  # it does not end by itself
    page.fill("#run-name", "book")
    page.click("summary")
    for option, value in (("threads", "1"), ("baseline", "off"), ("precision", "float32")):
        field = page.locator(f"#option-{option}")
        field.select_option(value) if option != "threads" else field.fill(value)
    page.get_by_role("button", name="Start training").click()
    page.wait_for_selector("#watched >> text=book")
    # Meanwhile: labelled lines by their file, and one more that is removed again.
    page.set_input_files(
        "#file", {"name": "labels.tsv", "mimeType": "text/plain", "buffer": EXAMPLES["classify.tsv"].encode()}
    )
    page.click("text=classify tells the label of a text")
    page.select_option("select[data-key=unit]", "steps")
    page.fill("#main-budget", "3")
    for name in ("first", "second"):
        page.fill("#run-name", name)
        page.get_by_role("button", name="Add to the queue").click()
        page.wait_for_selector(f'[data-job="{name}"]')
    assert "waiting, position 2" in page.inner_text('[data-job="second"]')
    page.click('[data-job="second"] >> text=Remove')
    page.wait_for_selector('[data-job="second"]', state="detached")
    assert (runs / "texts" / "labels.tsv").read_text() == EXAMPLES["classify.tsv"]
    # The curve as it goes.
    page.wait_for_selector(LOSS)
    seen = page.evaluate(
        """async () => {
            const value = () => document.querySelector('[data-measure="train_loss"] .values b')?.textContent;
            const before = value();
            while ([before, undefined].includes(value())) await new Promise((resolve) => setTimeout(resolve, 5));
            return value();
        }"""
    )
    shown = [
        point for point in points(runs / "book", "progress.jsonl") if abs(point["train_loss"] - float(seen)) < 5e-4
    ]
    assert shown, "the number on the page is one of the run's"
    page.goto(f"{empty.address}/#/runs/")
    page.wait_for_selector('tr[data-run="book"] .live')
    step = "Number(document.querySelector('tr[data-run=\"book\"] .step').textContent.replace(/\\D/g, ''))"
    before = page.evaluate(step)
    page.wait_for_function(f"{step} > {before}")
    page.goto(f"{empty.address}/#/train/")
    page.get_by_role("button", name="Stop", exact=True).click()
    page.wait_for_selector(".state.stopped")
    stopped = points(runs / "book", "progress.jsonl")[-1]["step"]
    assert not (runs / "book" / "lock").exists()
    assert page.get_by_text("Resume").first.is_visible()
    # The next one has its turn; then the first goes on.
    page.wait_for_selector('[data-job="first"] .state.done')
    for _ in range(20):  # a click may fall between two drawings
        page.click('[data-job="book"] .link')
        page.wait_for_timeout(200)
        if page.inner_text("#watched") == "book":
            break
    page.locator(".monitor").get_by_role("button", name="Resume").click()
    page.wait_for_selector(".monitor .state.running")
    while points(runs / "book", "progress.jsonl")[-1]["step"] <= stopped:
        page.wait_for_timeout(50)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.wait_for_selector(".monitor .state.stopped")
    # Its numbers in Runs are those of its files.
    page.goto(f"{empty.address}/#/runs/?runs=first")
    page.wait_for_selector('[data-measure="valid_error"] .values b')
    measured = points(runs / "first", "metrics.jsonl")[-1]
    assert float(page.inner_text('[data-measure="valid_error"] .values b')) == pytest.approx(
        measured["valid_error"], abs=1e-4
    )
    assert page.locator("tr[data-run]").count() == 2
    picture(page, "trained")
    visit.close()


def test_a_name_typed_while_a_start_is_answered_is_kept(browser: Any, empty: Served) -> None:
    visit = Visit(browser, empty, "wide", "light", "en", bypass_csp=True)
    held: list[Any] = []
    visit.page.route(
        "**/api/train", lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    page = visit.open("train", "")
    page.select_option("#task", "adding")
    page.fill("#run-name", "first")
    page.get_by_role("button", name="Start training").click()
    while not held:
        page.wait_for_timeout(10)
    page.fill("#run-name", "second")
    held.pop().fulfill(json={"name": "first", "jobs": []})
    page.wait_for_function("!document.querySelector('.train-form button.main').disabled")
    assert page.input_value("#run-name") == "second"
    visit.close()
