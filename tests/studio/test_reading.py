"""Texts that are read along: the same numbers as reading them whole, however they were typed."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from recur.cli.app import run
from recur.data.text import EOS
from recur.data.text.corpus import normalised
from recur.runs import Run
from recur.serve.http import GoneError
from recur.studio import loaded_model
from recur.studio.generation import generate, next_tokens
from recur.studio.inspection import similar, unit_map
from recur.studio.loaded_model import LoadedModel, PrefixCache
from tests.studio.browser import Visit, needs_browser
from tests.studio.conftest import BOOK, SMALL, Served

TEXT = "the network keeps a word and the word is kept\n"


@pytest.fixture(scope="module")
def word(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one run, `word`, of words; its rarest are left out."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "book.txt").write_text(BOOK + "a zebra is rare\n" + BOOK)
    options = [*SMALL, "--cell", "gru", "--steps", "60", "--token", "word", "--min-freq", "2", "--no-baseline"]
    assert run(["train", str(folder / "book.txt"), *options, "--out", str(folder / "runs" / "word")]) == 0
    return folder / "runs"


@pytest.fixture(scope="module")
def backward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two runs that read from the end: `char` and `word`."""
    folder = tmp_path_factory.mktemp("backward")
    (folder / "book.txt").write_text(BOOK)
    for token in ("char", "word"):
        options = ["--direction", "backward", "--token", token, "--steps", "3", "--no-baseline"]
        assert run(["train", str(folder / "book.txt"), *SMALL, *options, "--out", str(folder / "runs" / token)]) == 0
    return folder / "runs"


def whole(model: LoadedModel, text: str) -> Any:
    """Logits behind a text that is read at once."""
    vocab = model.language.vocab
    first = vocab.ids["\n"] if vocab.tokenizer.kind == "char" else EOS
    read = [int(k) for k in vocab.encode(normalised(text))]
    ids = torch.tensor([[first, *(read[::-1] if model.language.backward else read)]])
    return model.language.model(ids).logits[0, -1].detach()


def test_typing_deleting_and_pasting_give_what_reading_whole_gives(
    runs: Path, word: Path, backward: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded_model, "BLOCK", 7)
    monkeypatch.setattr(loaded_model, "NEAR", 60)
    monkeypatch.setattr(loaded_model, "LONG_BLOCK", 31)
    draw = random.Random(0)
    for path in (runs / "gru", word / "word", backward / "char", backward / "word"):
        model = LoadedModel(Run.open(path))
        readings = PrefixCache(model.language)
        text, key = "", ""
        for _ in range(60):
            keep = max(0, len(text) - draw.choice([0, 0, 0, 1, 5, 40]))
            added = draw.choice(["a", "the ", " word\n", "netw", TEXT * 3, "", "e\u0301"])
            key, found = readings.read(added, key, keep)
            ends = model.language.backward
            text = added + text[len(text) - keep :] if ends else text[:keep] + added
            assert found.text == text
            read = text[: len(text) - len(found.half)]
            assert torch.allclose(found.end.logits, whole(model, read), atol=2e-4), repr(text[-60:])
        assert any(mark.tokens > 5 for mark in found.marks[1:-1]), "not read in one piece"


def test_marks_stand_close_together_near_the_end_and_nowhere_else(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_model, "BLOCK", 8)
    monkeypatch.setattr(loaded_model, "NEAR", 64)
    monkeypatch.setattr(loaded_model, "LONG_BLOCK", 128)
    readings = PrefixCache(LoadedModel(Run.open(runs / "gru")).language)
    text, key = TEXT * 40, ""
    for at in range(0, len(text), 150):  # as a text that is pasted comes
        key, found = readings.read(text[at : at + 150], key, at)
    ends = [mark.characters for mark in found.marks]
    gaps = [b - a for a, b in itertools.pairwise(ends)]
    assert ends[-1] == len(text)
    assert max(gap for gap, end in zip(gaps, ends[1:], strict=True) if end > len(text) - 64) <= 8
    assert max(gaps) <= 128
    assert len(ends) <= 2 + 64 // 8 + 2 * len(text) // 128


def test_a_text_that_is_forgotten_has_to_be_sent_again(runs: Path) -> None:
    readings = PrefixCache(LoadedModel(Run.open(runs / "gru")).language)
    first, _ = readings.read("the ")
    assert readings.read("", first, 4)[0] == first, "what has not changed is not read"
    for _ in range(loaded_model.KEPT):
        readings.read("a")
    with pytest.raises(GoneError, match="send it again"):
        readings.read("w", first, 4)
    key, _ = readings.read("the ")
    with pytest.raises(GoneError):
        readings.read("w", key, 5)
    with pytest.raises(ValueError, match="too long"):
        readings.read("the " * (loaded_model.LONGEST // 4 + 1))


def test_half_typed_words_are_finished(word: Path) -> None:
    model = LoadedModel(Run.open(word / "word"))
    found = next_tokens(model, {"text": "the netw"})
    assert found["half"] == "netw"
    assert [(bar["token"], bar["insert"]) for bar in found["bars"]] == [("network", "ork")]
    begun = next_tokens(model, {"text": "the network is a w"})
    chances = whole(model, "the network is a ").softmax(-1)
    words = [k for k, token in enumerate(model.language.vocab.tokens) if token.startswith("w")]
    assert begun["bars"][0]["p"] == pytest.approx(float(chances[words].max() / chances[words].sum()), rel=1e-3)
    assert "".join(generate(model, {"text": "the netw", "length": 2, "seed": 0})).startswith("ork ")
    assert next_tokens(model, {"text": "the network"})["bars"][0]["insert"] == "", "a whole word may go on"
    assert next_tokens(model, {"text": "the network "})["half"] == ""
    assert next_tokens(model, {"text": "the networkx"})["bars"][0]["insert"].startswith(" ")


def test_unk_says_what_it_stands_for(word: Path, runs: Path) -> None:
    found = next_tokens(LoadedModel(Run.open(word / "word")), {"text": "the gnu is a gnat see a gnu "})["unknown"]
    assert (found["tokens"], found["count"]) == (["gnu", "gnat", "see"], 4)
    assert found["seen"] == 2, "zebra and rare, left out by --min-freq"
    assert 0 < found["p"] < 1
    characters = next_tokens(LoadedModel(Run.open(runs / "gru")), {"text": "the 龘"})
    assert characters["unknown"]["tokens"] == ["龘"]
    assert characters["unknown"]["seen"] == 0
    assert len("".join(generate(LoadedModel(Run.open(runs / "gru")), {"text": "the 龘", "length": 5, "seed": 0}))) == 5


def test_the_map_has_every_unit_and_similar_states_are_found_in_the_training_text(runs: Path) -> None:
    import base64

    import numpy as np

    model = LoadedModel(Run.open(runs / "lstm"))
    found = unit_map(model, {"text": TEXT, "layer": 1, "signal": "state c"})
    cells = np.frombuffer(base64.b64decode(found["cells"]), np.int8).reshape(24, len(TEXT))
    states = model.subject(TEXT).layers[1].states["c"][0]
    assert cells / 127 * found["scale"] == pytest.approx(states.t().numpy(), abs=found["scale"] / 200)
    answer = similar(model, {"text": TEXT, "begin": 4, "end": 11})
    best = answer["training"][0]
    assert best["similarity"] > 0.8
    assert best["text"] in BOOK, "and as it stands there"
    assert best["before"] + best["text"] + best["after"] in BOOK


class TestPage:
    pytestmark = needs_browser

    def test_a_long_text_is_typed_into_undone_and_linked(self, visit: Visit, runs: Path) -> None:
        page = visit.open("write", "gru")
        page.wait_for_selector("#bars button")
        long = TEXT * 300
        page.locator("#written").fill(long + "the netw")
        page.wait_for_function(f"document.querySelector('main').innerText.includes('{len(long) + 8:,} tokens read')")
        sent = []
        page.on("request", lambda request: sent.append(len(request.post_data or "")))
        page.locator("#written").press("End")
        page.keyboard.type("o")
        page.wait_for_function(f"document.querySelector('main').innerText.includes('{len(long) + 9:,} tokens read')")
        assert max(sent) < 300, "only what changed is sent"
        model = LoadedModel(Run.open(runs / "gru"))
        best = whole(model, long + "the netwo")
        best[:3] = -torch.inf  # what is never written
        shown = page.locator("#bars button").first
        assert float(shown.get_attribute("data-p")) == pytest.approx(float(best.softmax(-1).max()), abs=1e-4)
        shown.click()
        page.wait_for_function(f"document.querySelector('#written').value.length === {len(long) + 10}")
        page.locator("#written").focus()
        page.keyboard.press("Control+z")
        assert page.input_value("#written").endswith("the netwo")
        page.get_by_role("button", name="redo").click()
        assert len(page.input_value("#written")) == len(long) + 10
        page.locator("#written").fill("a state ")
        page.wait_for_function("location.hash.includes('text=a+state')")
        again = page.evaluate("location.hash")
        page.evaluate("localStorage.clear()")
        page.goto("about:blank")
        page.goto(f"{visit.served.address}/{again}")
        page.wait_for_selector("#bars button")
        assert page.input_value("#written") == "a state "

    def test_words_are_finished_and_unk_is_told(self, browser: Any, word: Path) -> None:
        server = Served(word)
        visit = Visit(browser, server, "phone", "dark", "zh", bypass_csp=True)
        page = visit.open("write", "word")
        page.locator("#written").fill("the gnu netw")
        page.wait_for_function("document.querySelector('#bars code')?.textContent === 'network'")
        assert "gnu" in page.inner_text("#unknown")
        page.locator("#bars button").first.tap()
        assert page.input_value("#written") == "the gnu network"
        visit.close()
        server.stop()
