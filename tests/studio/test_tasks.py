"""Runs of every task: listed, and opened by the views that read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recur.runs import Run
from recur.studio.app import VIEWS
from recur.studio.inspection import unit_activations, unit_map
from recur.studio.loaded_model import LoadedModel
from recur.studio.prediction import KINDS, READERS, mistakes, predict, samples, trace_model
from recur.tasks import open_predictor, task_names, task_of_run
from recur.tasks.common.metrics import best_value
from recur.tasks.common.predictor import Predictor
from tests.studio.axe import AXE, violations
from tests.studio.browser import Visit, needs_browser, picture, settle
from tests.studio.conftest import Served

httpx = pytest.importorskip("httpx")

OTHERS = sorted(set(task_names()) - {"language"})


@pytest.fixture(scope="module")
def all_tasks(every_task: Path) -> Iterator[Served]:
    server = Served(every_task)
    yield server
    server.stop()


def test_a_run_of_every_task_is_listed_with_its_own_metric(all_tasks: Served, every_task: Path) -> None:
    with httpx.Client(base_url=all_tasks.address, headers=all_tasks.headers, timeout=60) as client:
        found = {entry["name"]: entry for entry in client.get("/api/runs").json()["runs"]}
        assert set(found) == set(task_names())
        for task, entry in found.items():
            assert "error" not in entry
            assert entry["task"] == task
            run = Run.open(every_task / task)
            assert entry["metric"] == task_of_run(run).curve
            values = [line[entry["metric"]] for line in run.metrics()]
            assert entry["best"] == pytest.approx(best_value(entry["metric"], values))
            kept = [{"name": one["name"], "value": one["value"]} for one in run.baselines() or []]
            best = best_value(entry["metric"], [one["value"] for one in kept]) if kept else None
            assert entry["baseline"] == next((one for one in kept if one["value"] == best), None)
            curves = client.get(f"/api/runs/{task}").json()
            assert curves["curves"][entry["metric"]]["value"] == pytest.approx(values)
        assert found["tree"]["architecture"] == "tree-lstm"
        assert "layers" not in found["tree"]["options"], "only what the task has"
        assert "valid_perplexity" not in client.get("/api/runs/adding").json()["curves"]
        for view in ("next", "gradients", "unfold", "generate"):
            answer = client.post(f"/api/runs/adding/{view}", json={"text": "a"})
            assert answer.status_code == 409
            expected = "adding is a run of the task adding; this view reads runs of the task language"
            assert answer.json()["error"] == expected


@pytest.mark.parametrize("task", OTHERS)
def test_a_form_is_never_empty_and_says_what_the_model_says(every_task: Path, task: str) -> None:
    model = LoadedModel(Run.open(every_task / task))
    offered = samples(model, {})
    assert offered["own"]
    given = offered["examples"][0]["input"]
    found = predict(model, {"input": given})
    assert json.loads(json.dumps(found))["kind"] == KINDS[type(model.predictor).__name__] == offered["kind"]
    plain: Predictor[Any] = open_predictor([every_task / task], "cpu")
    if task in ("classify", "tree"):
        assert found["output"] == plain(given)
    elif task == "tag":
        assert found["tags"] == plain(given)
    elif task == "forecast":
        made = [row["quantiles"]["0.5"] for row in plain.predictions(given.split("\n"))]
        assert [row["quantiles"]["0.5"] for row in found["forecast"]] == made
        assert found["naive"][0] == found["history"][-found["season"]], "a season before"
    with pytest.raises(ValueError, match="the input is empty"):
        predict(model, {"input": " "})


@pytest.mark.parametrize("task", sorted(task_names()))
def test_no_view_fails_on_a_run_of_any_task(all_tasks: Served, task: str) -> None:
    """Every view answers a run of every task, or refuses it in one line."""
    with httpx.Client(base_url=all_tasks.address, headers=all_tasks.headers, timeout=60) as client:
        for view in VIEWS:
            for body in ({}, {"text": "a good film", "input": "a good film"}):
                answer = client.post(f"/api/runs/{task}/{view}", json=body)
                assert answer.status_code in (200, 400, 409), f"{view} {body}: {answer.text[:200]}"


def test_samples_of_a_language_model_are_its_example(every_task: Path) -> None:
    model = LoadedModel(Run.open(every_task / "language"))
    offered = samples(model, {})
    assert (offered["kind"], offered["own"]) == ("text", True)
    assert [example["input"] for example in offered["examples"]] == [model.example()]


def test_where_the_files_are_gone_the_vocabulary_serves(every_task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(predictor: Predictor[Any]) -> Any:
        raise OSError("no such file")

    for kind in ("classes", "tree"):
        monkeypatch.setitem(READERS, kind, gone)
    for task in ("classify", "tree"):
        model = LoadedModel(Run.open(every_task / task))
        offered = samples(model, {})
        assert not offered["own"]
        assert predict(model, {"input": offered["examples"][0]["input"]})["output"]


def test_what_is_not_in_the_vocabulary_is_named(every_task: Path) -> None:
    for task, given in (("classify", "a zebra film"), ("tag", "the zebra reads"), ("tree", "(2 (2 zebra) (2 film))")):
        assert predict(LoadedModel(Run.open(every_task / task)), {"input": given})["unknown"] == ["zebra"], task
    assert predict(LoadedModel(Run.open(every_task / "seq2seq")), {"input": "99 and 98"})["unknown"]


def test_the_confusion_table_is_the_models_and_its_cells_have_examples(every_task: Path) -> None:
    for task in ("classify", "tag", "tree", "grid"):
        model = LoadedModel(Run.open(every_task / task))
        found = mistakes(model, {})
        plain: Any = open_predictor([every_task / task], "cpu")
        total = sum(map(sum, found["table"]))
        assert total > 0
        right, said = next((r, s) for r, row in enumerate(found["table"]) for s, n in enumerate(row) if n)
        cell = mistakes(model, {"right": right, "said": said})
        assert cell["count"] == found["table"][right][said] == len(cell["examples"])
        text = cell["examples"][0]["text"]
        assert text
        if task == "classify":
            assert plain(text) == found["classes"][said]
    with pytest.raises(ValueError, match="tells no classes apart"):
        mistakes(LoadedModel(Run.open(every_task / "adding")), {})


def test_states_of_all_that_reads_along_time_are_shown(every_task: Path) -> None:
    for task in ("classify", "tag", "seq2seq", "forecast", "adding", "copy"):
        model = LoadedModel(Run.open(every_task / task))
        given = samples(model, {})["examples"][0]["input"]
        found = unit_activations(model, {"text": given})
        assert len(found["tokens"]) == len(found["values"]) > 1
        assert max(map(abs, found["values"])) == pytest.approx(1), "of the largest, which is the scale"
        if task in ("classify", "tag", "seq2seq"):
            assert (" " if found["words"] else "").join(found["tokens"]) == given
        assert unit_map(model, {"text": given})["units"] == found["units"] == 8
    series = LoadedModel(Run.open(every_task / "forecast"))
    looked = trace_model(series, samples(series, {})["examples"][0]["input"])
    assert looked.tokens[1][:7] == "2000-02"
    assert looked.features is not None
    np.testing.assert_array_equal(looked.features["input 1"], looked.subject.inputs[0, :, 0].numpy())
    with pytest.raises(ValueError, match="no layer that reads along time"):
        unit_activations(LoadedModel(Run.open(every_task / "tree")), {"text": "(2 (2 a) (2 film))"})


class TestPage:
    pytestmark = needs_browser

    @pytest.mark.parametrize("language", ["en", "zh"])
    def test_runs_of_every_task_are_shown(self, browser: Any, all_tasks: Served, language: str) -> None:
        visit = Visit(browser, all_tasks, "wide", "light", language, bypass_csp=True)
        page = visit.open("runs", "")
        page.wait_for_selector("tr[data-run]")
        assert page.locator("tr[data-run]").count() == len(task_names())
        for box in page.locator("tr[data-run] input").all():
            box.check()
        label = {"en": "validation sequence error rate", "zh": "验证序列错误率"}[language]
        assert label in page.inner_text('tr[data-run="seq2seq"]')
        for task in task_names():
            card = page.locator(f'[data-task="{task}"]')
            card.locator(".values li").first.wait_for()
            # The page draws the list anew while values arrive, so it may be empty for a moment.
            names = "items => [...new Set(items.map(item => item.dataset.name))]"
            for _ in range(100):
                drawn = card.locator(".values li").evaluate_all(names)
                if drawn:
                    break
                page.wait_for_timeout(50)
            assert drawn == [task], "tasks are never on one axis"
            assert card.locator(".base").count() <= 1
        assert page.locator('[data-task="forecast"] [data-measure="valid_mase"] .base').count() == 1, "its baseline"
        page.select_option('[data-task="seq2seq"] select', "valid_loss")
        page.wait_for_selector('[data-task="seq2seq"] [data-measure="valid_loss"]')
        picture(page, f"runs-tasks-{language}")
        page = visit.open("gradients", "adding")
        expected = {
            "en": "adding is a run of the task adding, which this view does not read",
            "zh": "adding 是任务 adding 的运行",
        }
        assert expected[language] in page.inner_text("main .empty")
        picture(page, f"other-task-{language}")
        page.select_option("select", "language")
        page.wait_for_selector("#sum .step >> nth=20")
        visit.close()

    @pytest.mark.parametrize(("size", "theme", "language"), [("wide", "light", "en"), ("phone", "dark", "zh")])
    def test_the_view_of_every_task_shows_its_numbers(
        self, browser: Any, all_tasks: Served, every_task: Path, size: str, theme: str, language: str
    ) -> None:
        visit = Visit(browser, all_tasks, size, theme, language)
        for task in ("seq2seq", "forecast"):
            page = visit.open("see", task)
            page.wait_for_selector("#coloured span >> nth=1")
            assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
            if AXE is not None:
                assert violations(page) == [], f"see {task}"
        for task in OTHERS:
            page = visit.open("predict", task)
            page.wait_for_selector(SHOWN[task])
            settle(page)
            assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
            picture(page, f"predict-{task}-{size}-{theme}-{language}")
            if AXE is not None:
                assert violations(page) == [], task
            model = LoadedModel(Run.open(every_task / task))
            if task == "classify":
                found = predict(model, {"input": page.input_value("#input")})
                shares = page.eval_on_selector_all(".chance", "all => all.map(one => Number(one.dataset.p))")
                assert shares == pytest.approx(sorted(found["probabilities"].values(), reverse=True))
                page.fill("#input", "a zebra film")
                page.wait_for_selector(".unknown:not(:empty)")
                page.locator("#confusion button").first.click()
                page.wait_for_selector("#cell-examples li button")
            if task == "forecast":
                found = predict(model, {"input": page.input_value("#input")})
                medians = page.eval_on_selector_all(
                    "td[data-q='0.5']", "all => all.map(one => Number(one.textContent))"
                )
                assert medians == pytest.approx([row["quantiles"]["0.5"] for row in found["forecast"]], rel=1e-3)
            if task == "grid":
                page.locator(".pixel").nth(1).click()
                page.wait_for_function("document.querySelector('#input').value.startsWith('1 1')")
        visit.close()


SHOWN = {
    "adding": "#answer",
    "classify": "#confusion button",
    "conditional": "#answer",
    "copy": "#answer",
    "forecast": "td[data-q]",
    "grid": "#pixels button",
    "seq2seq": "#answer",
    "tag": ".tagged",
    "tree": "#tree circle",
}
"""What stands in the page once it has answered."""
