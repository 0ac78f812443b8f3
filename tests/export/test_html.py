"""The page: what is in its file, and what it shows in a real browser."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pytest
import torch
from torch import nn

import recur
from recur.errors import OptionError
from recur.export import Options, html
from recur.export.graphs import Portable
from recur.export.html_example import ROWS, example, table_of
from recur.export.javascript_check import in_node, with_model
from recur.export.javascript_model import JavaScript, javascript, page_of, source
from recur.export.portable import portable
from recur.export.quantise import dequantised
from recur.series import Columns, parse_panel
from recur.signals import Signal
from tests.export import runs
from tests.export.node import needs_node
from tests.support import TOLERANCE


class Subject(NamedTuple):
    """A trained model, as graphs, and as JavaScript with the weights that it has."""

    model: Any
    form: Portable
    code: JavaScript

    @classmethod
    def of(cls, model: Any) -> Self:
        form = portable(model)
        return cls(model, form, javascript(form, quantize=False))


Made = Callable[[str], Subject]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """As wide as `recur train` makes it, of a text with hostile letters."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text(f"{runs.LINE}. </script><b>&amp; {{weights}}\n" * 20)
    options: Any = {"steps": 3, "threads": 1, "seed": 1, "device": "cpu", "baseline": False}
    return recur.fit(folder / "text.txt", task="language", window=8, batch=2, out=folder / "run", **options)


@pytest.fixture(scope="module")
def form(model: Any) -> Portable:
    return portable(model)


@pytest.fixture(scope="module")
def file(form: Portable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    written = html.write(form, path, Options())
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


def test_weights_can_stay_as_they_are(form: Portable, file: Path) -> None:
    whole = html.page(form, javascript(form, quantize=False), quantize=False)
    assert '"weights":"float32"' in whole
    weights = sum(part.numel() for part in form.graphs["step"].program.state_dict.values())
    assert len(whole.encode()) - file.stat().st_size == pytest.approx(4 * weights, rel=0.05)  # of 3 bytes, 4 letters


def test_a_name_is_text(form: Portable) -> None:
    named = dataclasses.replace(form, name='runs/<i>&amp;"x')
    found = html.page(named, JavaScript("", {}, ""), quantize=True)
    assert "<title>&lt;i>&amp;amp;&quot;x · language</title>" in found


@needs_node
def test_both_languages_have_all_words() -> None:
    code = 'const navigator = { language: "en" };\n' + source("words.js")
    words = in_node(code, "return WORDS;")
    assert set(words["en"]) == set(words["zh"])
    scripts = {name: source(name) for name in html.PAGE}
    used = {
        name
        for text in scripts.values()
        for name in re.findall(r'\b(?:t|card|slider|picker|dial|TableError)\("([a-z_0-9]+)"', text)
    }
    used |= set(re.findall(r'new TableError\("([a-z_]+)"', source("series.js")))
    used |= {f"kind_{kind}" for kind in re.findall(r"^  (\w+): \[", scripts["app.js"], flags=re.MULTILINE)}
    assert used <= set(words["en"]), used - set(words["en"])
    for name, text in words["en"].items():
        assert set(re.findall(r"{\w+}", text)) == set(re.findall(r"{\w+}", words["zh"][name])), name


def test_an_example_is_the_end_of_a_series_with_its_dates() -> None:
    lines = ["month,a,b,c", *(f"{1900 + k // 12}-{k % 12 + 1:02d},{k},{k / 3},{-k}" for k in range(500)), "1941-09,,,7"]
    panel = parse_panel(lines, "t.csv", Columns(targets=("a", "b"), future=("c",)))
    made = table_of(panel, panel.series[0], 12).split("\n")
    assert made[0] == "date,a,b,c"
    assert made[-2:] == ["1941-08,499,166.3333333,-499", "1941-09,,,7"]
    assert ROWS - 12 < len(made) - 2 <= ROWS
    assert made[1].startswith("1909-01,108,"), "whole seasons are left out"


def test_an_example_is_the_beginning_of_a_sequence(monkeypatch: pytest.MonkeyPatch, form: Portable) -> None:
    steps = np.arange(2.0 * ROWS + 6).reshape(-1, 2)
    monkeypatch.setattr("recur.export.html_example.with_own_texts", lambda run, options, parts, changed: options)
    monkeypatch.setattr("recur.export.html_example.read_signals", lambda names: [Signal(steps, None, "x")])
    numbers = dataclasses.replace(form, settings={"reads": "numbers"})
    assert example(numbers).split("\n")[:2] == ["0 1", "2 3"]
    assert example(numbers).count("\n") == ROWS - 1
    assert example(form) == "", "texts are left to the user"
    assert example(dataclasses.replace(numbers, run=None)) == ""


def test_every_kind_has_its_page_or_is_refused(form: Portable) -> None:
    def page(task: str, kind: str, graphs: tuple[str, ...] = ("sequence",), **settings: Any) -> str:
        return page_of(Portable(task, kind, "x", dict.fromkeys(graphs, form.graphs["step"]), settings=settings))

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


# What a page asks its model ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Of each task, made once."""
    kept: dict[str, Subject] = {}
    options: dict[str, dict[str, Any]] = {
        "language": {"token": "word", "layers": 2, "cell": "lstm", "tied": True, "embedding": 8},
        "forecast": {"base": "seasonal", "bands": "conformal"},
        "seq2seq": {"copy": True},
    }

    def make(name: str) -> Subject:
        if name not in kept:
            kept[name] = Subject.of(getattr(runs, name)(tmp_path_factory.mktemp(name), **options.get(name, {})))
        return kept[name]

    return make


@needs_node
def test_a_language_model_follows_a_text_that_changes(made: Made) -> None:
    model, _, code = made("language")
    texts = ["the cat", "the cat sat on the old mat", "the dog sat zebra", ""]
    body = """
      const language = new LanguageModel(model, about), follower = new Follower(language);
      return texts.map((text) => {
        for (const token of follower.rewind(language.encode(text))) follower.push(token);
        return [softmax(follower.now.logits), [...follower.surprise], language.continued(follower.ids, [5, 7])];
      });
    """
    found = with_model(code, body, texts=texts)
    for text, (p, surprise, more) in zip(texts, found, strict=True):
        if "zebra" not in text:  # which Python refuses as a prompt
            assert np.abs(np.array(p) - [*model.probabilities(text).values()]).max() < 1e-6
            assert more == model._continued(text, [5, 7])
        if text:
            assert np.abs(np.array(surprise) + model.logprobs(model.vocab.encode(text))).max() < 1e-5


@needs_node
def test_a_classifier_says_what_python_says(made: Made) -> None:
    model, _, code = made("classify")
    texts = ["good thing number 3", "Bad  THING, is poor!", "zzz", "é"]
    found = with_model(
        code, "const own = new TextClassifier(model, about); return texts.map((x) => own.classify(x));", texts=texts
    )
    for text, one in zip(texts, found, strict=True):
        assert np.abs(np.array(one["p"]) - [*model.probabilities(text).values()]).max() < 1e-5, text
        assert one["unknown"] == list(model.run.vocab.unknown_tokens(text))
    assert with_model(code, "return new TextClassifier(model, about).classify('  ');") is None


@needs_node
def test_a_tagger_says_what_python_says(made: Made) -> None:
    model, _, code = made("tag")
    texts = ["Anna lives in Rome", "x", "Bob saw Quux-1990 and " + "l" * 40 + "ong words"]
    body = "const own = new WordTagger(model, about); return texts.map((text) => own.tag(text));"
    for text, one in zip(texts, with_model(code, body, texts=texts), strict=True):
        python = model.predict(text, marginals=True)
        assert [model.tags[k] for k in one["tags"]] == python["tags"]
        expected = [[*row.values()] for row in python["probabilities"]]
        assert np.abs(np.array(one["p"]) - expected).max() < 1e-5


@needs_node
@pytest.mark.parametrize("stop", ["eos", "length"])
def test_pairs_are_searched_as_in_python(stop: str, made: Made, tmp_path: Path) -> None:
    """By an end that is written, with attention and copies; by a length that is drawn first, without."""
    subject = made("seq2seq") if stop == "eos" else Subject.of(runs.seq2seq(tmp_path, stop=stop, attention="none"))
    model, _, code = subject
    sources = ["abc", "cabba", "zb"]
    body = """
      const own = new PairsModel(model, about);
      return sources.map((text) => [own.write(text), own.write(text, 4, 3)]);
    """
    for text, (greedy, beam) in zip(sources, with_model(code, body, sources=sources), strict=True):
        first, best = model.predict(text), model.predict(text, beam=4, nbest=3)
        assert greedy["nbest"][0]["output"] == first["output"]
        assert abs(greedy["nbest"][0]["score"] - first["score"]) < 1e-4
        assert greedy["unknown"] == first["unknown"]
        assert [one["output"] for one in beam["nbest"]] == [one["output"] for one in best["nbest"]]
        assert np.abs([a["score"] - b["score"] for a, b in zip(beam["nbest"], best["nbest"], strict=True)]).max() < 1e-4
        if model.model.decoder.attention is not None:
            looked = model.predict(text, attention=True)["attention"]
            assert np.abs(np.array(greedy["nbest"][0]["looked"]) - looked["weights"]).max() < 1e-5
            assert greedy["nbest"][0]["tokens"] == looked["target"]


@needs_node
def test_lines_of_a_label_begin_as_in_python(tmp_path: Path) -> None:
    model, _, code = Subject.of(runs.conditional(tmp_path))
    line, label = "".join(model.vocab.tokens[4:6]), model.labels[-1]
    body = """
      const own = new ConditionalModel(model, about), follower = new Follower(own, label);
      for (const token of own.encode(line)) follower.push(token);
      return [follower.surprise, greedy(own.writer(label)), own.names];
    """
    surprise, best, names = with_model(code, body, line=line, label=label)
    assert np.abs(np.array(surprise) + model.logprobs(model.vocab.encode(line), label)[:2]).max() < 1e-5
    assert model.vocab.decode(best["ids"]) == model.generate(label, width=1)[0]
    assert names == list(model.labels)


@needs_node
def test_a_table_is_forecast_as_in_python(made: Made, tmp_path: Path) -> None:
    model, _, code = made("forecast")
    values = [20 + 3 * np.sin(k) + 0.2 * k for k in range(40)]
    table = "value\n" + "\n".join(f"{value:.3f}" for value in values)
    body = "const own = new SeriesForecaster(model, about); return tables.map((text) => own.forecast(text));"
    gaps = table.replace(f"{values[25]:.3f}", "NA")
    with_gap, (whole,), (spaced,) = with_model(
        code, body, tables=[gaps, table, " ".join(f"{value:.3f}" for value in values)]
    )
    (tmp_path / "table.csv").write_text(table)
    expected = [[*row["quantiles"].values()] for row in model.predict(tmp_path / "table.csv")]
    assert np.abs(np.array(whole["quantiles"]) / expected - 1).max() < 1e-5
    assert whole["quantiles"] == spaced["quantiles"]
    assert with_gap[0]["past"][25] == pytest.approx(float(f"{values[19]:.3f}"))
    body = """
      const own = new SeriesForecaster(model, about);
      const fault = (text) => { try { own.forecast(text); } catch (error) { return [error.message, error.values]; } };
      return texts.map(fault);
    """
    wrong, short = with_model(code, body, texts=["1\n2\nx3", "1\n2\n3"])
    assert wrong == ["not_number", {"line": 3, "value": "x3"}]
    assert short == ["too_few", {"count": 3, "least": 7}]


@needs_node
def test_sequences_of_numbers_are_read(tmp_path: Path) -> None:
    model = runs.numbers(tmp_path, stack=2)
    x = runs.signals(1)[0]
    text = "\n".join(" ".join(f"{v:.6f}" for v in row) for row in x.tolist())
    body = "return model.run('sequence', { x: stacked(readRows(text, 3), about.settings.stack) }).log_p;"
    found = with_model(Subject.of(model).code, body, text=text)
    assert np.abs(np.exp(found) - [*model.probabilities(x).values()]).max() < 1e-5


# The browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


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


def in_8_bits(network: nn.Module) -> None:
    for weight in network.parameters():
        weight.data = dequantised(weight.data)


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


def test_other_pages_open_in_chromium(browser: Any, made: Made, tmp_path: Path) -> None:
    shown = {
        "classify": ("good thing", "#verdict", "up|down"),
        "tag": ("Anna lives in Rome", "#tagged", "Anna"),
        "seq2seq": ("abc", "#output", "[abc ]*|∅"),
        "forecast": (None, "#charts", "value"),
    }
    for task, (typed, place, expected) in shown.items():
        _, form, code = made(task)
        code.about["example"] = example(form)
        (tmp_path / f"{task}.html").write_text(html.page(form, code, quantize=False))
        visit = Visit(browser, tmp_path / f"{task}.html", viewport={"width": 1280, "height": 800})
        if typed is not None:
            visit.page.fill("#text", typed)
        visit.page.locator(place, has_text=re.compile(expected)).wait_for()
        assert visit.page.locator(".unknown:not(:empty)").count() == 0
        visit.close()
