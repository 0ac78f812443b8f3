"""The page: what is in its file, and what it shows in a real browser."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import recur
from recur.data.series import parse_panel
from recur.data.series.reading import SeriesColumns
from recur.data.signals import Signal
from recur.errors import OptionError
from recur.export import ExportOptions, html, to_portable
from recur.export.graphs import PortableModel, dequantize
from recur.export.html import (
    EXAMPLE_ROWS,
    JavaScriptModel,
    build_javascript,
    example_input,
    page_kind,
    read_source,
    run_in_node,
    series_to_csv,
)
from tests.export import runs
from tests.export.conftest import Visit
from tests.export.node import needs_node
from tests.support import TOLERANCE


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """As wide as `recur train` makes it, of a text with hostile letters."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text(f"{runs.LINE}. </script><b>&amp; {{weights}}\n" * 20)
    options: Any = {"steps": 3, "threads": 1, "seed": 1, "device": "cpu", "baseline": False}
    return recur.fit(folder / "text.txt", task="language", window=8, batch_size=2, out=folder / "run", **options)


@pytest.fixture(scope="module")
def form(model: Any) -> PortableModel:
    return to_portable(model)


@pytest.fixture(scope="module")
def file(form: PortableModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    written = html.write(form, path, ExportOptions())
    assert written.paths == (path,)
    assert written.size == path.stat().st_size < 2_000_000
    assert written.difference is None or written.difference < TOLERANCE[torch.float32]
    return path


# The file ---------------------------------------------------------------------------------------------------------


def test_the_policy_allows_what_is_inside_and_nothing_else(file: Path) -> None:
    text = file.read_text()
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline" not in policy
    assert "unsafe-eval" not in policy.replace("wasm-unsafe-eval", "")
    for tag in ("style", "script"):
        inside = re.findall(f"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        assert len(inside) == 1
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', text), "the page asks for something"
    assert text.count("</script>") == 3, "what a vocabulary holds ends no element"
    assert "innerHTML" not in text
    assert f'"bytes":{file.stat().st_size}' in text


def test_weights_can_stay_as_they_are(form: PortableModel, file: Path) -> None:
    whole = html.page(form, build_javascript(form, quantize=False), quantize=False)
    assert '"weights":"float32"' in whole
    weights = sum(part.numel() for part in form.graphs["step"].program.state_dict.values())
    assert len(whole.encode()) - file.stat().st_size == pytest.approx(4 * weights, rel=0.05)  # of 3 bytes, 4 letters


def test_a_name_is_text(form: PortableModel) -> None:
    named = dataclasses.replace(form, name='runs/<i>&amp;"x')
    found = html.page(named, JavaScriptModel("", {}, ""), quantize=True)
    assert "<title>&lt;i&gt;&amp;amp;&quot;x · language</title>" in found


@needs_node
def test_both_languages_have_all_words() -> None:
    code = 'const navigator = { language: "en" };\n' + read_source("words.js")
    words = run_in_node(code, "return WORDS;")
    assert set(words["en"]) == set(words["zh"])
    scripts = {name: read_source(name) for name in html.PAGE_SCRIPTS}
    used = {
        name
        for text in scripts.values()
        for name in re.findall(r'\b(?:t|card|slider|picker|dial|TableError)\("([a-z_0-9]+)"', text)
    }
    used |= set(re.findall(r'new TableError\("([a-z_]+)"', read_source("series.js")))
    used |= {f"kind_{kind}" for kind in re.findall(r"^  (\w+): \[", scripts["app.js"], flags=re.MULTILINE)}
    assert used <= set(words["en"]), used - set(words["en"])
    for name, text in words["en"].items():
        assert set(re.findall(r"{\w+}", text)) == set(re.findall(r"{\w+}", words["zh"][name])), name


def test_an_example_is_the_end_of_a_series_with_its_dates() -> None:
    lines = ["month,a,b,c", *(f"{1900 + k // 12}-{k % 12 + 1:02d},{k},{k / 3},{-k}" for k in range(500)), "1941-09,,,7"]
    panel = parse_panel(lines, "t.csv", SeriesColumns(targets=("a", "b"), future=("c",)))
    made = series_to_csv(panel, panel.series[0], 12).split("\n")
    assert made[0] == "date,a,b,c"
    assert made[-2:] == ["1941-08,499,166.3333333,-499", "1941-09,,,7"]
    assert EXAMPLE_ROWS - 12 < len(made) - 2 <= EXAMPLE_ROWS
    assert made[1].startswith("1909-01,108,"), "whole seasons are left out"


def test_an_example_is_the_beginning_of_a_sequence(monkeypatch: pytest.MonkeyPatch, form: PortableModel) -> None:
    steps = np.arange(2.0 * EXAMPLE_ROWS + 6).reshape(-1, 2)
    monkeypatch.setattr("recur.export.html.with_run_texts", lambda run, options, parts, changed: options)
    monkeypatch.setattr("recur.export.html.read_signals", lambda names: [Signal(steps, None, "x")])
    numbers = dataclasses.replace(form, settings={"reads": "numbers"})
    assert example_input(numbers).split("\n")[:2] == ["0 1", "2 3"]
    assert example_input(numbers).count("\n") == EXAMPLE_ROWS - 1
    assert example_input(form) == "", "texts are left to the user"
    assert example_input(dataclasses.replace(numbers, run=None)) == ""


def test_every_kind_has_its_page_or_is_refused(form: PortableModel) -> None:
    def page(task: str, kind: str, graphs: tuple[str, ...] = ("sequence",), **settings: Any) -> str:
        return page_kind(PortableModel(task, kind, "x", dict.fromkeys(graphs, form.graphs["step"]), settings=settings))

    assert page("conditional", "writer") == "conditional"
    assert page("seq2seq", "writer") == "pairs"
    assert page("table", "classifier", ("row",)) == "row"
    assert page("copy", "tagger", reads="tokens") == "copy"
    assert page("tag", "transcriber", reads="numbers") == "numbers"
    assert page("forecast", "forecaster", known=["season, sine"]) == "forecaster"
    with pytest.raises(OptionError, match="--static"):
        page("forecast", "forecaster", known=["static town"])
    with pytest.raises(OptionError, match="--recurrence output"):
        page("tag", "tagger", ("step",), reads="tokens")


# The browser ------------------------------------------------------------------------------------------------------


def in_8_bits(network: nn.Module) -> None:
    for weight in network.parameters():
        weight.data = dequantize(weight.data)


def test_a_language_model_in_chromium(browser: Any, model: Any, file: Path) -> None:
    """Types, and reads the numbers that Python has with the same weights."""
    visit = Visit(browser, file, viewport={"width": 390, "height": 844}, color_scheme="dark")
    page = visit.page
    assert page.inner_text("h1") == "run"
    assert "Validation perplexity" in page.inner_text("dl.facts")
    page.fill("#text", "the cat sat on the mat an")
    page.locator("#heat span").nth(24).wait_for()
    kept = {name: value.clone() for name, value in model.model.state_dict().items()}
    in_8_bits(model.model)
    expected = sorted(model.probabilities("the cat sat on the mat an").items(), key=lambda item: -item[1])[:3]
    model.model.load_state_dict(kept)
    for k, (token, p) in enumerate(expected):
        row = page.locator("#next button").nth(k)
        assert row.locator(".name").inner_text() == token.replace(" ", "␣").replace("\n", "⏎")
        width = float(row.locator(".fill").evaluate("bar => bar.style.width").removesuffix("%"))
        assert width / 100 == pytest.approx(p, rel=1e-4)
    page.fill("#text", "the ж cat")
    page.locator(".unknown", has_text="ж").wait_for()
    page.locator("#next button:enabled").first.click()
    assert len(page.input_value("#text")) == len("the ж cat") + 1
    page.fill("#text", "the")
    page.click("#write")
    page.wait_for_timeout(50)
    page.locator("#write", has_text="Write on").wait_for()
    written = page.input_value("#text")
    assert len(written) >= 3 + 400
    page.fill("#text", "the")
    page.click("#write")
    page.locator("p.note", has_text="tokens a second").first.wait_for()
    assert page.input_value("#text") == written, "the same seed writes the same"
    page.click("#language")
    assert page.locator("html").get_attribute("lang") == "zh"
    assert page.inner_text("#write") == "继续写"
    visit.close()
