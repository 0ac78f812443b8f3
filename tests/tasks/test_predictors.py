"""What every trained model can do in the same words: one input or several, probabilities, and how they are shown."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recur
from recur.cli.app import run as command
from recur.errors import OptionError, TextError
from recur.tasks import task_names
from recur.tasks.common.metrics import format_metric
from recur.tasks.common.predictor import SHOWN, Prediction, Predictions

FILES = {
    "language": "the network reads a word and the word is kept\n" * 60,
    "conditional": "".join(f"{'ab'[k % 2]}\tsome text {k % 5}\n" for k in range(40)),
    "classify": "".join(f"{'ab'[k % 2]}\t{'ba'[k % 2]}ome text {k}\n" for k in range(40)),
    "seq2seq": "".join(f"ab{'cd'[k % 2]}\t{'cd'[k % 2]}ba\n" for k in range(40)),
    "tag": "".join(f"the\tDT\nw{k}\tNN\n\n" for k in range(40)),
    "tree": "".join(f"({k % 2} (0 a) (1 {'xy'[k % 2]}))\n" for k in range(40)),
    "forecast": "date,y\n" + "".join(f"20{k // 12:02d}-{k % 12 + 1:02d},{k + (k % 12) * 3}\n" for k in range(120)),
}
INPUTS: dict[str, Any] = {
    "language": "the ",
    "conditional": "a",
    "classify": "some text",
    "seq2seq": "abc",
    "tag": "the w1",
    "tree": "(1 (0 a) (1 x))",
    "grid": np.eye(8),
    "adding": np.array([[0.1, 1], [0.2, 0], [0.3, 1]]),
    "copy": "1 2 3 4 5 6 7 0 1 2",
}
"""One input of each task, and one answer to it; a forecaster's is a table."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model of every task, after two steps."""
    folder = tmp_path_factory.mktemp("models")
    fields: dict[str, Any] = {"hidden_size": 4, "batch_size": 4, "steps": 2, "threads": 1, "baseline": False}
    found: dict[str, Any] = {}
    for task, text in FILES.items():
        file = folder / f"{task}.{'csv' if task == 'forecast' else 'tsv'}"
        file.write_text(text)
        found[task] = recur.fit(str(file), task=task, out=folder / f"run-{task}", **fields)
    images = np.random.default_rng(0).random((40, 8, 8))
    np.savez(folder / "images.npz", x=images, y=np.arange(40) % 2)
    found["grid"] = recur.fit(str(folder / "images.npz"), task="grid", out=folder / "run-grid", **fields)
    for task in ("adding", "copy"):
        found[task] = recur.fit(task=task, length=12, out=folder / f"run-{task}", **fields)
    return found


def close_to(found: Any) -> Any:
    """The same but for the rounding of sums in batches of another size."""
    if isinstance(found, dict):
        return {name: close_to(value) for name, value in found.items()}
    if isinstance(found, list):
        return [close_to(value) for value in found]
    return pytest.approx(found, rel=1e-5) if isinstance(found, float) else found


def test_every_task_is_here() -> None:
    assert set(INPUTS) | {"forecast"} == set(task_names())


@pytest.mark.parametrize("task", sorted(INPUTS))
def test_one_input_or_several(task: str, models: dict[str, Any]) -> None:
    model, given = models[task], INPUTS[task]
    drawn = {"seed": 1} if task in ("language", "conditional") else {}
    one = model.predict(given, **drawn)
    assert isinstance(one, Prediction)
    assert {"input", "output"} <= set(one)
    assert json.loads(json.dumps(one)) == one, "a plain object"
    several = model.predict([given, given, given], **drawn)
    assert isinstance(several, Predictions)
    assert several == [close_to(one)] * 3
    assert list(model.predictions(iter([given, given]), **drawn)) == [close_to(one)] * 2
    answer = model(given, **drawn)
    assert model([given, given], **drawn) == [close_to(answer)] * 2
    assert isinstance(answer, {"tag": list, "copy": list, "adding": float}.get(task, str))


def test_a_table_is_one_input_of_a_forecaster(models: dict[str, Any], tmp_path: Path) -> None:
    model = models["forecast"]
    file = tmp_path / "series.csv"
    file.write_text(FILES["forecast"])
    whole = model.predict(file)
    assert len(whole) == model.task.horizon
    assert whole == model.predict(str(file))
    ahead = [row["quantiles"] for row in whole]
    assert [row["quantiles"] for row in model.predictions(FILES["forecast"].splitlines())] == ahead
    columns = {"date": [line.split(",")[0] for line in FILES["forecast"].split()[1:]],
               "y": [float(line.split(",")[1]) for line in FILES["forecast"].split()[1:]]}  # fmt: skip
    assert [row["quantiles"] for row in model.predict(columns)] == ahead
    assert model.predict([columns, columns]) == [model.predict(columns)] * 2
    answer = model(file)
    assert answer.shape == (model.task.horizon,)
    assert answer[0] == ahead[0]["0.5"]


@pytest.mark.parametrize("task", ["classify", "tree", "grid", "language"])
def test_probabilities(task: str, models: dict[str, Any]) -> None:
    model, given = models[task], INPUTS[task]
    found = model.probabilities(given)
    assert math.isclose(sum(found.values()), 1, abs_tol=1e-5)
    assert model.probabilities([given, given]) == [close_to(found)] * 2
    if task != "language":
        assert max(found, key=found.__getitem__) == model(given)
        assert model.predict(given)["probabilities"] == found


def test_a_task_without_classes_says_what_it_has_instead(models: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="seq2seq gives no probabilities; predict gives cut, nbest, score, unknown"):
        models["seq2seq"].probabilities("abc")


def test_inputs_are_taken_as_they_come(models: dict[str, Any]) -> None:
    taken = []

    def endless() -> Iterator[str]:
        for k in range(10**9):
            taken.append(k)
            yield "the w1"

    assert next(models["tag"].predictions(endless()))["tags"]
    assert len(taken) < 1000


@pytest.mark.parametrize("task", sorted(task_names()))
def test_a_model_says_what_it_is(task: str, models: dict[str, Any]) -> None:
    model = models[task]
    said, shown = repr(model), model._repr_html_()
    assert said.startswith(f"{type(model).__name__}({model.task.architecture}; ")
    assert f"{sum(p.numel() for p in model.model.parameters()):,} weights" in said
    assert f"run-{task}" in said
    assert "valid " in said
    assert f"<td>{task}</td>" in shown
    assert "run-" in shown
    if task == "classify":
        assert "classes a, b" in said


def test_what_is_shown_of_predictions() -> None:
    found = Prediction(input="x", output="<b>", probabilities={"<b>": 0.75, "c": 0.25})
    assert repr(found) == "x → <b>   <b> 75.0 %, c 25.0 %"
    assert "<b>" not in found._repr_html_()
    assert "&lt;b&gt; 75.0 %" in found._repr_html_()
    many = Predictions([found] * (SHOWN + 5))
    assert repr(many).endswith("… and 5 more")
    assert "and 5 more" in many._repr_html_()
    assert many._repr_html_().count("<tr>") == SHOWN + 1
    assert repr(Predictions()) == "no predictions"
    band = Prediction(input="y + 1", output="5", quantiles={"0.1": 3.0, "0.5": 5.0, "0.9": 8.0})
    assert repr(band) == "y + 1 → 5   10 … 90 % 3 … 8"
    assert "<td>90 %</td><td>8</td>" in band._repr_html_()
    tagged = Prediction(input="a b", output="X Y", words=["a", "b"], tags=["X", "Y"])
    assert tagged._repr_html_() == (
        "<table><tbody><tr><td>a</td><td>b</td></tr><tr><td>X</td><td>Y</td></tr></tbody></table>"
    )
    cut = Prediction(input="a\nb" * 50, output="c", score=-2.0, cut=True, unknown=["ä"])
    assert repr(cut).endswith("log P -2.00   cut did not end by itself   unknown ä")
    assert "\n" not in repr(cut)


@pytest.mark.parametrize(("task", "given", "says"), [
    ("classify", 5, "inputs come as a list"), ("classify", b"x", "inputs come as a list"),
    ("classify", Path("x"), "Path.read_text"), ("classify", [5], "an input is a str"), ("forecast", 5, "a table is"),
    ("forecast", [], "a table is"), ("adding", "1 x*", "a row is numbers"),
    ("adding", np.zeros(3), r"a row is \(T, 2\)"),
    ("copy", "1 2", "ten|10 symbols"), ("copy", "9 " * 10, "symbols of 0 … 7"), ("grid", np.zeros(3), "image"),
])  # fmt: skip
def test_what_is_no_input(task: str, given: Any, says: str, models: dict[str, Any]) -> None:
    with pytest.raises(TextError, match=says):
        models[task].predict(given)


def test_the_adding_and_copying_problems_take_arrays_and_lines(models: dict[str, Any]) -> None:
    adding, copying = models["adding"], models["copy"]
    array, line = INPUTS["adding"], "0.1* 0.2 0.3*"
    assert adding(array) == adding(line)
    assert adding.predict(line)["sum"] == pytest.approx(0.4)
    message = np.array([1, 2, 3, 4, 5, 6, 7, 0, 1, 2])
    assert copying(message) == copying("1 2 3 4 5 6 7 0 1 2")
    assert copying.predict(message)["right"] == sum(a == b for a, b in zip(message, copying(message), strict=True))


def test_a_label_is_written_for(models: dict[str, Any]) -> None:
    model = models["conditional"]
    assert model.predict("a", seed=3)["output"] == model.generate("a", seed=3)[0]
    found = model.predict("b", nbest=2)
    assert len(found["nbest"]) == 2
    assert found["nbest"][0]["score"] >= found["nbest"][1]["score"]
    assert model("b", beam=1) == model.generate("b", width=1)[0]


def test_a_language_model_ends_the_line(models: dict[str, Any]) -> None:
    model = models["language"]
    made = model("the ", seed=2, length=400)
    assert "\n" not in made
    assert model("the ", seed=2, length=7, stop="") == model.generate("the ", 7, seed=2)[0]
    assert len(model.predict("the ", samples=3)["nbest"]) == 3


@pytest.mark.parametrize("task", ["language", "conditional", "seq2seq"])
def test_what_a_writer_cannot_do_is_refused_in_a_line(task: str, models: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="--lm is not for the task"):
        models[task].predict(["a"], samples=1, lm="x.arpa")


@pytest.mark.parametrize("task", sorted(task_names()))
def test_every_run_has_a_card(
    task: str, models: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Figures, digests and options are the run's own, in Markdown and as JSON; what it does not know is left open."""
    path = models[task].run.path
    assert command(["card", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    measured = models[task].run.metrics()[-1]
    assert found["task"] == task
    assert found["metrics"][found["metric"]] == measured[found["metric"]]
    assert found["network"]["weights"] == sum(p.numel() for p in models[task].model.parameters())
    assert found["network"]["sha256"] == hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
    assert found["options"]["steps"] == found["training"]["step"] == 2
    assert found["training"]["machines"][0]["processes"] == 1
    assert found["licence"] is None
    if task in FILES:
        (data,) = found["data"]["train"]
        assert data["sha256"] == hashlib.sha256(FILES[task].encode()).hexdigest()
    assert command(["card", str(path), "--out", str(tmp_path / "card.md")]) == 0
    text = (tmp_path / "card.md").read_text()
    assert f"this one | {format_metric(found['metric'], found['metrics'][found['metric']])}" in text
    assert f'recur.load("{path}")' in text
    assert "*left to the author*" in text
    assert all(remark.split("|")[0] in text for remark in found["verdict"])


def test_a_card_says_what_it_was_measured_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a|b.tsv").write_text(FILES["classify"])
    fields: dict[str, Any] = {"hidden_size": 4, "steps": 2, "threads": 1, "device": "cpu"}
    run = recur.fit(str(tmp_path / "a|b.tsv"), task="classify", out=tmp_path / "run", **fields).run
    assert command(["card", str(run.path)]) == 0
    text = capsys.readouterr().out
    assert all(
        f"| {one['name']} | {format_metric('valid_error', one['value'])}" in text for one in run.baselines() or []
    )
    assert r"a\|b.tsv" in text, "a file's name is no Markdown"
    assert command(["card", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err
