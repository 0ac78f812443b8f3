"""Step: the server's numbers against NumPy, the reference and the network itself; the page's against the server's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from recur.cli.app import run
from recur.errors import OptionError, RecurError
from recur.i18n import translate
from recur.runs import Run
from recur.studio.equations.textbook import TEXTBOOK
from recur.studio.loaded_model import LoadedModel
from recur.studio.step import run_step, step
from tests.studio.axe import needs_axe, violations
from tests.studio.browser import SIZES, Visit, needs_browser, picture
from tests.studio.conftest import BOOK, Served

OWN = "z = σ(U_z x + W_z h + b_z)\nh' = (1 − z) ⊙ h + z ⊙ tanh(U x + W h + b)"


def numbers(found: dict[str, Any], t: int, symbol: str, what: str = "values") -> list[float]:
    k = next(k for k, row in enumerate(found["rows"]) if row["symbol"] == symbol)
    answer: list[float] = found[what][t][k]
    return answer


def matrix(found: dict[str, Any], name: str) -> np.ndarray:
    weight = next(weight for weight in found["weights"] if weight["name"] == name)
    return np.array(found["numbers"][name]).reshape(len(weight["rows"]), -1)


# The server -----------------------------------------------------------------------------------------------


def test_the_first_example_is_the_notes_by_hand() -> None:
    found = step({})
    assert "".join(found["inputs"]), "".join(found["targets"]) == ("machin", "achine")
    assert found["symbols"] == list("machine")
    U, W, V = (matrix(found, name) for name in "UWV")
    b, c = (matrix(found, name)[:, 0] for name in "bc")
    h, loss = np.zeros(4), 0.0
    for t, (sign, target) in enumerate(zip("machin", "achine", strict=True)):
        x = np.eye(7)["machine".index(sign)]
        h = np.tanh(U @ x + W @ h + b)
        o = V @ h + c
        y_hat = np.exp(o) / np.exp(o).sum()
        loss -= np.log(y_hat["machine".index(target)])
        for symbol, value in (("x_t", x), ("h_t", h), ("o_t", o), ("ŷ_t", y_hat)):
            np.testing.assert_allclose(numbers(found, t, symbol), value, rtol=1e-12, atol=1e-15)
        y = np.eye(7)["machine".index(target)]
        np.testing.assert_allclose(numbers(found, t, "o_t", "gradients"), y_hat - y, atol=1e-12)
    assert found["loss"] == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize("cell", TEXTBOOK)
def test_all_gradients_agree_with_the_reference(cell: str) -> None:
    edits = {"weights": {"V": {"3": 2.5}}, "x": {"1": {"0": -0.5}}, "start": {"h": {"1": 0.7}}}
    found = step({"cell": cell, "units": 8, "seed": 3, "text": "hello, world", **edits})
    assert 0 <= found["reference"] < 1e-12
    assert found["numbers"]["V"][3] == 2.5
    assert numbers(found, 1, "x_t")[0] == -0.5
    assert numbers(found, 0, "h_{t−1}")[1] == 0.7
    last = len(found["inputs"]) - 1
    assert found["sums"][last] == found["terms"][last]
    for name in found["numbers"]:
        total = np.sum([terms[name] for terms in found["terms"]], axis=0)
        np.testing.assert_allclose(found["sums"][0][name], total, atol=1e-13)
    assert step({"cell": cell, "held": {"0.2": {"0": 1.0}}})["reference"] is None


def test_a_number_that_is_held_is_followed_by_all_behind_it() -> None:
    plain, row = step({}), 8
    assert next(one["symbol"] for one in plain["rows"] if one["node"] == row) == "h_t"
    held = step({"held": {f"2.{row}": {"1": 0.5}}})
    assert numbers(held, 2, "h_t")[1] == 0.5
    assert numbers(held, 2, "h_t")[0] == numbers(plain, 2, "h_t")[0]
    assert numbers(held, 2, "a_t") == numbers(plain, 2, "a_t")
    assert numbers(held, 3, "h_t") != numbers(plain, 3, "h_t")
    assert numbers(held, 2, "a_t", "gradients")[1] == 0.0, "as with detach"
    assert numbers(held, 2, "h_t", "gradients")[1] != 0.0


def test_a_cell_of_ones_own_is_read_and_refused_in_both_languages() -> None:
    found = step({"cell": "own", "equations": OWN})
    assert "class Typed(Cell):" in found["python"]
    assert next(row["code"]["text"] for row in found["rows"] if row["symbol"] == "z_t") == "z = sigmoid(x.z + h.z)"
    mistake = step({"cell": "own", "equations": "h' = tanh(U x + W h"})["mistake"]
    assert (mistake["line"], mistake["column"]) == (1, 20)
    assert mistake["en"] == "line 1, column 20: ')' expected, got the end of the line"
    assert mistake["zh"] == "第 1 行第 20 列：此处应为 ')'，却是 行尾"
    without = step({"cell": "own", "equations": "h' = W tanh([h, x])"})
    assert without["python"] is None
    assert "through matrices only" in without["no_python"]
    assert step({"cell": "own", "equations": "h' = exp(9 U x + 900 h)", "text": "aaaaaaaaaaaa"})["loss"] in ("∞", "NaN")


@pytest.mark.parametrize(
    "request_",
    [
        {"cell": "transformer"}, {"text": "a"}, {"text": "a" * 14}, {"units": 9}, {"weights": {"Q": {"0": 1}}},
        {"weights": {"U": {"99": 1}}}, {"weights": []}, {"weights": {"U": 1}}, {"weights": {"U": {"0": "1"}}},
        {"x": {"6": {"0": 1}}}, {"x": {"a": {"0": 1}}}, {"start": {"k": {"0": 1}}}, {"held": {"0.1": {"0": 1}}},
        {"held": {"0.99": {"0": 1}}}, {"held": {"0.8": {"4": 1}}}, {"held": {"0.8": {"-1": 1}}},
        {"held": {"0." + "9" * 5000: {"0": 1}}},
    ],
)  # fmt: skip
def test_bad_requests_are_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as refused:
        step(request_)
    chinese = translate(str(refused.value), "zh")
    assert any("\u4e00" <= sign <= "\u9fff" for sign in chinese), chinese


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, hardly trained: one of six units, one of more than are shown."""
    made = tmp_path_factory.mktemp("step")
    (made / "book.txt").write_text(BOOK)
    for name, cell, units in (("small", "elman-relu", "6"), ("large", "gru", "12")):
        options = ["--cell", cell, "--hidden-size", units, "--steps", "1", "--threads", "1", "--no-baseline", "-q"]
        assert run(["train", str(made / "book.txt"), *options, "--out", str(made / "runs" / name)]) == 0
    return made / "runs"


def test_the_network_of_a_run(folder: Path) -> None:
    small = run_step(LoadedModel(Run.open(folder / "small")), {"text": "a word"})
    assert small["units"] == list(range(6))
    assert small["reference"] < 1e-12
    assert small["difference"] < 1e-5
    model = LoadedModel(Run.open(folder / "large"))
    found = run_step(model, {"text": "a word"})
    assert (found["units_of"], len(found["units"])) == (12, 8)
    assert found["difference"] < 1e-5
    ids = [model.language.vocab.ids[sign] for sign in "a word"]
    with torch.no_grad():
        logits = model.language.model(torch.tensor([ids[:-1]])).logits[0]
        loss = cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum")
    assert found["loss"] == pytest.approx(float(loss), abs=1e-4)
    # What is shown and what is not add up to the network's own product.
    k = next(k for k, row in enumerate(found["rows"]) if row["symbol"] == "W_z h_{t−1}")
    W, h = matrix(found, "W_z"), np.array(numbers(found, 3, "h_{t−1}"))
    np.testing.assert_allclose(W @ h + found["others"][3][k], found["values"][3][k], atol=1e-12)
    y_hat = next(k for k, row in enumerate(found["rows"]) if row["symbol"] == "ŷ_t")
    assert sum(found["values"][2][y_hat]) + found["others"][2][y_hat][0] == pytest.approx(1, abs=1e-12)
    chosen = run_step(model, {"text": "a word", "shown": [5, 2], "weights": {"W_z": {"1": 0.25}}})
    assert chosen["units"] == [2, 5]
    assert matrix(chosen, "W_z")[0, 1] == 0.25
    assert chosen["loss"] != found["loss"]
    for request in ({"text": "a word", "shown": [12]}, {"text": "a wörd"}):
        with pytest.raises(RecurError) as refused:
            run_step(model, request)
        assert translate(str(refused.value), "zh") != str(refused.value), "as the page shows it"
    model.language.model.recurrent.num_layers = 2
    with pytest.raises(RecurError, match="one layer of elman, lstm or gru"):
        run_step(model, {"text": "a word"})


# The page -------------------------------------------------------------------------------------------------

SEEN = """[...document.querySelectorAll('.step-row')].map((row) => ({
  node: Number(row.dataset.node), math: row.querySelector('.math').textContent,
  values: [...row.querySelectorAll('.n')].map((n) => n.title),
  slopes: [...row.querySelectorAll('.g:not(.sum)')].map((g) => g.title) }))"""
WEIGHTS = """Object.fromEntries([...document.querySelectorAll('.weight')].map((weight) => [weight.dataset.weight, {
  values: [...weight.querySelectorAll('.n')].map((n) => n.title),
  terms: [...weight.querySelectorAll('.g:not(.sum)')].map((g) => g.title),
  sums: [...weight.querySelectorAll('.g.sum')].map((g) => g.title) }]))"""


def read_numbers(texts: list[str]) -> list[float]:
    return [float(text.replace("−", "-")) for text in texts]


def same(page: Any, found: dict[str, Any], t: int, slopes: bool = False) -> None:
    """All numbers that the page has in view are the server's, digit for digit."""
    for k, row in enumerate(page.evaluate(SEEN)):
        assert row["node"] == found["rows"][k]["node"]
        assert read_numbers(row["values"]) == found["values"][t][k]
        if slopes:
            assert read_numbers(row["slopes"]) == found["gradients"][t][k]
    for name, weight in page.evaluate(WEIGHTS).items():
        assert read_numbers(weight["values"]) == found["numbers"][name]
        if slopes:
            assert read_numbers(weight["terms"]) == found["terms"][t][name]
            assert read_numbers(weight["sums"]) == found["sums"][t][name]


@pytest.fixture(scope="module")
def stepped(folder: Path) -> Iterator[Served]:
    server = Served(folder)
    yield server
    server.stop()


@pytest.fixture
def opened(browser: Any, stepped: Served) -> Iterator[Any]:
    visit = Visit(browser, stepped, "wide", "light", "en", bypass_csp=True)
    page = visit.open("step", "")
    page.wait_for_selector(".step-row.now")
    yield page
    visit.close()


def until(page: Any, loss: float) -> None:
    page.wait_for_function(f"document.querySelector('#whole-loss').title === '{loss!r}'.replace('-', '−')")


def test_updates_are_gradient_descent_on_the_whole_network() -> None:
    before, once = step({"cell": "gru"}), step({"cell": "gru", "updates": 1, "rate": 0.2})
    for name, numbers in before["numbers"].items():
        assert once["numbers"][name] == pytest.approx(
            [w - 0.2 * g for w, g in zip(numbers, before["sums"][0][name], strict=True)], abs=1e-12
        )
    assert once["losses"] == [before["loss"], once["loss"]]
    assert once["reference"] < 1e-9, "the reference agrees after an update"
    typed = step({"weights": {"W": {"1": 0.75}}, "updates": 3})
    assert typed["numbers"]["W"][1] == 0.75, "a number that was typed stays"
    with pytest.raises(OptionError):
        step({"updates": 101})


class TestPage:
    pytestmark = needs_browser

    def test_forward_and_back_through_every_number(self, opened: Any) -> None:
        page, found = opened, step({})
        same(page, found, 0)
        rows = len(found["rows"])
        assert page.locator(".tile").count() == 6
        assert page.locator(".step-row.later").count() == rows - 1
        page.keyboard.press("ArrowRight")
        assert page.inner_text(".step-row.now .math").startswith("h")
        for _ in range(rows - 1):
            page.get_by_role("button", name="Next quantity").click()
        assert page.get_attribute(".tile[aria-current]", "data-key") == "tile1"
        same(page, found, 1)
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("Shift+ArrowRight")
        same(page, found, 3)
        page.get_by_role("button", name="Backward").click()
        assert page.get_attribute(".tile[aria-current]", "data-key") == "tile5"
        assert page.locator(".step-row .g:not(:empty)").count() == 1, "the loss; the others come one by one"
        for _ in range(4):
            page.keyboard.press("ArrowRight")
        shown = page.inner_text(".step-row.now")
        assert "from this step" in shown
        assert "no gradient from a later step" in shown
        page.keyboard.press("Shift+ArrowRight")
        for _ in range(rows - 1):
            page.keyboard.press("ArrowRight")
        same(page, found, 4, slopes=True)
        parts = page.locator(".step-row[data-node='8'] tfoot .slope").all_inner_texts()
        assert len(parts) == 2
        page.keyboard.press("End")
        same(page, found, 0, slopes=True)
        assert "each sum is ∇" in page.inner_text(".where")
        assert "agree with recur.reference" in page.inner_text(".step-view")
        picture(page, "step-end")

    def test_numbers_are_typed_over_held_undone_and_linked(self, opened: Any, stepped: Served) -> None:
        page = opened
        field = page.locator(".weight[data-weight='W'] .n").nth(1)
        field.focus()
        page.keyboard.type("0.75")
        page.keyboard.press("Enter")
        changed = step({"weights": {"W": {"1": 0.75}}})
        until(page, changed["loss"])
        same(page, changed, 0)
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "W, 0, 1", "the focus stays"
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "W, 1, 1"
        page.locator(".tile").nth(2).click()
        page.locator(".step-row[data-node='8'] .n").nth(1).fill("-0.5")
        page.keyboard.press("Enter")
        held = step({"weights": {"W": {"1": 0.75}}, "held": {"2.8": {"1": -0.5}}})
        until(page, held["loss"])
        same(page, held, 2)
        assert page.locator("td.held").count() == 1
        assert page.locator(".chip").count() == 2
        assert "as with detach()" in page.inner_text(".changes")
        page.wait_for_function("location.hash.includes('held')")
        link = page.evaluate("location.hash")
        page.keyboard.press("Control+z")
        until(page, changed["loss"])
        page.keyboard.press("Control+z")
        until(page, step({})["loss"])
        page.keyboard.press("Control+Shift+z")
        until(page, changed["loss"])
        page.locator(".weight[data-weight='W'] .n").nth(1).fill("what?")
        page.keyboard.press("Enter")
        assert page.inner_text("#notice") == "This is not a number."
        page.locator(".weight[data-weight='W'] .n").nth(1).fill("")
        page.keyboard.press("Enter")
        until(page, step({})["loss"])
        page.goto("about:blank")
        page.goto(f"{stepped.address}/{link}")
        page.wait_for_selector("td.held")
        until(page, held["loss"])
        same(page, held, 2)

    def test_numbers_are_hidden_until_they_are_guessed(self, opened: Any) -> None:
        page, found = opened, step({})
        page.get_by_label("predict first").check()
        now = page.locator(".step-row.now")
        first = now.locator(".n").first
        node = int(now.get_attribute("data-node"))
        k = next(k for k, row in enumerate(found["rows"]) if row["node"] == node)
        value = found["values"][0][k][0]
        assert first.input_value() == first.get_attribute("title") == ""
        hidden = page.locator("td.secret").count()
        first.fill(str(round(value + 1, 3)))
        page.keyboard.press("Enter")
        assert "Not quite" in page.inner_text("#step-exact")
        assert float(first.get_attribute("title").replace("−", "-")) == value, "the row is shown after a guess"
        assert page.locator("td.secret").count() == hidden - len(found["values"][0][k])
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Next quantity").click()
        second = page.locator(".step-row.now .n").first
        second.fill(str(found["values"][0][k + 1][0]))
        page.keyboard.press("Enter")
        assert page.inner_text("#step-exact").startswith("Right."), "the exact number is a guess, too"
        page.get_by_label("predict first").uncheck()
        assert page.locator("td.secret").count() == 0
        same(page, found, 0)

    def test_an_update_changes_all_weights_and_is_undone(self, opened: Any) -> None:
        page = opened
        page.locator("[data-key=update]").click()
        once = step({"updates": 1})
        until(page, once["loss"])
        same(page, once, 0)
        page.locator("[data-key=rate]").fill("0.5")
        page.keyboard.press("Tab")
        page.locator("[data-key='update-10']").click()
        later = step({"updates": 11, "rate": 0.5})
        until(page, later["loss"])
        assert later["loss"] < once["loss"]
        assert f"Updates: 11. Loss of all steps: {later['losses'][0]:.4f}" in page.inner_text("#step-updates")
        page.wait_for_function("location.hash.includes('updates=11&rate=0.5')")
        page.keyboard.press("Control+z")
        page.keyboard.press("Control+z")
        until(page, once["loss"])
        page.get_by_role("button", name="Undo all updates").click()
        until(page, step({})["loss"])

    def test_the_tour_visits_every_stop(self, opened: Any) -> None:
        page = opened
        page.get_by_role("button", name="Tour").click()
        seen = [page.inner_text("#step-tour p")]
        while page.get_by_role("button", name="Next", exact=True).count():
            page.get_by_role("button", name="Next", exact=True).click()
            assert page.locator(".toured").count() == 1
            seen.append(page.inner_text("#step-tour p"))
        assert len(set(seen)) == len(seen) == 9
        page.get_by_role("button", name="End the tour").click()
        assert page.locator(".toured, #step-tour p").count() == 0
        assert page.evaluate("document.activeElement.dataset.key") == "tour"

    @pytest.mark.parametrize(
        ("cell", "parts"), [("lstm", ["f", "i", "g", "o", "c", "h"]), ("gru", ["r", "h̃", "z", "h"])]
    )
    def test_the_picture_shows_the_numbers_of_the_gates(self, opened: Any, cell: str, parts: list[str]) -> None:
        page, found = opened, step({"cell": cell})
        page.get_by_role("button", name=cell.upper()).click()
        until(page, found["loss"])
        page.click("#step-picture summary")
        page.wait_for_selector("#step-picture .value")
        drawn = page.eval_on_selector_all("#step-picture .value title", "all => all.map((one) => one.textContent)")
        assert len(drawn) == 4 * len(parts)
        gate = next(k for k, row in enumerate(found["rows"]) if row["name"] == parts[0])
        shown = [float(line.split(": ")[1].replace("−", "-")) for line in drawn if line.startswith(f"{parts[0]} ")]
        assert sorted(shown) == sorted(round(value, 3) for value in found["values"][0][gate])
        page.locator(f"#step-picture [data-part='{parts[0]}']").click()
        assert page.get_attribute(".step-row.now", "data-node") == str(found["rows"][gate]["node"])

    def test_a_cell_is_typed_into_the_page(self, opened: Any) -> None:
        page = opened
        page.get_by_role("button", name="custom").click()
        area = page.locator("#step-equations")
        area.fill("h' = tanh(U x + W h")
        page.wait_for_selector("#step-mistake p")
        assert "line 1, column 20: ')' expected" in page.inner_text("#step-mistake")
        area.fill(OWN)
        found = step({"cell": "own", "equations": OWN})
        until(page, found["loss"])
        same(page, found, 0)
        assert page.inner_text("#step-mistake") == ""
        assert page.inner_text("#step-python").strip() == found["python"].strip()
        page.get_by_role("button", name="LSTM").click()
        until(page, step({"cell": "lstm"})["loss"])
        same(page, step({"cell": "lstm"}), 0)

    def test_a_run_of_many_units(self, opened: Any, folder: Path) -> None:
        page = opened
        page.get_by_label("text", exact=True).fill("a word")
        page.keyboard.press("Enter")
        page.get_by_label("weights").select_option("large")
        found = run_step(LoadedModel(Run.open(folder / "large")), {"text": "a word"})
        until(page, found["loss"])
        same(page, found, 0)
        assert "the other 4 units" in page.inner_text(".step-rows")
        assert page.locator("select").first.locator("option").all_inner_texts() == [
            "toy weights",
            "run large",
            "run small",
        ]

    @needs_axe
    @pytest.mark.parametrize("size", ["wide", "phone"])
    def test_nothing_is_in_the_way_of_anybody(self, browser: Any, stepped: Served, size: str) -> None:
        """Axe finds nothing in both themes, forward, back and with changed numbers."""
        changed = quote(json.dumps({"held": {"4.8": {"1": 0.5}}, "weights": {"U": {"0": 1}}}))
        for theme, language, link in (
            ("light", "en", "?at=f1.3"),
            ("dark", "zh", f"?at=b4.5&edits={changed}"),
            ("dark", "en", f"?cell=own&at=b2.3a&equations={quote(OWN)}"),
        ):
            visit = Visit(browser, stepped, size, theme, language, bypass_csp=True)
            page = visit.open("step", link)
            page.wait_for_selector(".step-row.now")
            assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
            assert violations(page) == []
            picture(page, f"step-{size}-{theme}-{language}")
            visit.close()
