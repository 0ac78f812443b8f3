"""X-ray of every task: the recurrent part of its network on a batch of its own, or what is not looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import recur
from recur.cli.app import run
from recur.diagnostics import Subject
from recur.diagnostics.diagnosis import diagnose
from recur.diagnostics.finding import Level
from recur.diagnostics.gates import turning_sentence
from recur.diagnostics.gradient_flow import flow
from recur.diagnostics.subject import recurrent_parts
from recur.diagnostics.task_probes import (
    Judged,
    bands_of,
    calibration,
    classes,
    correlation,
    heights,
    judge,
    leaf_depths,
    length,
)
from recur.errors import OptionError, RecurError
from recur.nn import Recurrent
from recur.tasks.common.verdict import FEW_STEPS
from recur.tasks.tree.task import EncodedTree

LONG = "some words that a network reads one by one"
FILES = {
    "classify": "".join(f"{'ab'[k % 2]}\t{LONG} {k}\n" for k in range(40)),
    "conditional": "".join(f"{'ab'[k % 2]}\t{LONG} {k % 3}\n" for k in range(40)),
    "seq2seq": "".join(f"abcabcabc{'de'[k % 2]}\t{'de'[k % 2]}cbacbacba\n" for k in range(40)),
    "tag": "".join("".join(f"{word}\tX{k % 2}\n" for word in LONG.split()) + "\n" for k in range(40)),
    "forecast": "date,y\n" + "".join(f"20{k // 12:02d}-{k % 12 + 1:02d},{k + (k % 12) * 3}\n" for k in range(120)),
    "tree": "".join(f"({k % 2} (0 a) (1 {'xy'[k % 2]}))\n" for k in range(40)),
}
WITHOUT_TIME = ("tree",)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    fields: dict[str, Any] = {"hidden_size": 6, "batch_size": 4, "steps": 5, "threads": 1, "baseline": False}
    found: dict[str, Any] = {}
    for task, text in FILES.items():
        file = folder / f"{task}.{'csv' if task == 'forecast' else 'tsv'}"
        file.write_text(text)
        found[task] = recur.fit(
            str(file), task=task, out=folder / f"run-{task}", **fields | {"hidden_size": 30 if task == "tag" else 6}
        )
    for task in ("adding", "copy"):
        found[task] = recur.fit(task=task, length=12, out=folder / f"run-{task}", **fields)
    return found


def test_a_forecaster_reads_a_file_that_is_named_once(models: dict[str, Any]) -> None:
    model = models["forecast"]
    own, named = (recurrent_parts(model, files) for files in ((), model.task.options.texts))
    assert [part.name for part in own] == [part.name for part in named]
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(own, named, strict=True))


@pytest.mark.parametrize("task", [*sorted(set(FILES) - set(WITHOUT_TIME)), "adding", "copy"])
def test_findings_of_a_recurrent_network(task: str, models: dict[str, Any]) -> None:
    model = models[task]
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    found = model.xray()
    probes = {finding.probe for finding in found.findings}
    assert {"gradient flow", "saturation", "spectrum", "states", "dead units", "training"} <= probes
    assert not probes & {"context", "units", "copying"}, "which are of texts"
    assert json.loads(json.dumps(found.as_dict(), default=str))["part"] == found.subject.part
    assert found.subject.net in list(model.model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.model.state_dict().items())
    assert all(p.requires_grad for p in model.model.parameters())
    training = next(finding for finding in found.findings if finding.probe == "training")
    steps = model.run.metrics()[-1]["step"]
    assert ("steps are too few" in training.verdict) == (steps < FEW_STEPS)
    assert "converged" not in training.verdict or steps >= FEW_STEPS


@pytest.mark.parametrize("task", WITHOUT_TIME)
def test_a_network_without_time_says_what_is_not_measured(task: str, models: dict[str, Any]) -> None:
    found = models[task].xray()
    said = {finding.probe: finding.verdict for finding in found.findings}
    own = {"classes", "length", "tree depth"} if task == "tree" else set()
    assert set(said) == {"network", "training", "rate", "fit"} | own
    assert f"the network of this {task} run" in said["network"]
    assert "has no recurrent layer over time" in found.html()
    with pytest.raises(OptionError, match="has no recurrent layer"):
        Subject.of(models[task])


def test_the_input_is_what_the_network_reads_of_a_batch(models: dict[str, Any]) -> None:
    """The embeddings of one of the texts, each word's."""
    model = models["classify"]
    (part,) = recurrent_parts(model)
    table = model.model.embedding.weight if hasattr(model.model, "embedding") else None
    assert part.inputs.shape[1] == len(LONG.split()) + 1
    if table is not None:
        ids = torch.tensor(model.run.vocab.encode(LONG).astype(np.int64))
        assert torch.allclose(part.inputs[0, : len(ids)], table[ids])


def test_parts_by_name(models: dict[str, Any]) -> None:
    model = models["seq2seq"]
    names = [part.name for part in recurrent_parts(model)]
    assert len(names) == 2
    for name in names:
        assert recur.xray(model, part=name).subject.part == name  # type: ignore[union-attr]
    with pytest.raises(OptionError, match=f"no recurrent part 'third'; this network has {', '.join(names)}"):
        model.xray(part="third")


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_gradients_start_at_the_end_of_each_direction(direction: Any) -> None:
    torch.manual_seed(0)
    net = Recurrent("gru", 3, 5, direction=direction)
    subject = Subject(net, net, torch.randn(4, 12, 3), predictor=cast(Any, "a run's"))
    for name, found in flow(subject).items():
        assert len(found.norms) == 12, name
        assert all(norm > 0 for norm in found.norms), name
        assert found.norms[0] > found.norms[-1], name


def test_a_file_of_what_the_task_reads(
    models: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.tsv"
    file.write_text("".join(f"{'ab'[k % 2]}\t{LONG} {LONG}\n" for k in range(40)))
    model = models["classify"]
    assert model.xray(str(file)).subject.length == 2 * len(LONG.split())
    assert run(["xray", str(model.run.path), str(file), "--html", str(tmp_path / "x.html")]) == 0
    assert "gradient flow" in capsys.readouterr().out
    assert "X-ray of run-classify" in (tmp_path / "x.html").read_text()
    with pytest.raises(RecurError, match="reads files, got Tensor"):
        model.xray(torch.zeros(3))
    with pytest.raises(RecurError, match="no file"):
        model.xray("nowhere.tsv")


# Probes of tasks -----------------------------------------------------------------------------------------


def probes_of(model: Any) -> dict[str, Any]:
    return {m.finding.probe: m for m in model.xray().measurements}


def test_a_classifier_a_tagger_and_a_tree_say_what_they_confuse(models: dict[str, Any]) -> None:
    for task in ("classify", "tag", "tree"):
        found = probes_of(models[task])
        table = np.array(found["classes"].numbers["confusion"])
        judged = judge(models[task])
        assert judged is not None
        assert table.sum() == len(judged.targets)
        assert np.trace(table) == sum(a == b for a, b in zip(judged.targets, judged.predictions, strict=True))
    assert "calibration" in probes_of(models["classify"])["classes"].numbers


def test_confusion_calibration_and_length_by_hand() -> None:
    made = Judged(("a", "b", "c"), [0, 0, 1, 1], [0, 1, 1, 1], [0.9, 0.8, 0.9, 0.6], [3, 9, 3, 9])
    rows, error = calibration(made)
    assert [(round(row["sure"], 2), row["right"]) for row in rows] == [(0.6, 1.0), (0.8, 0.0), (0.9, 1.0)]
    assert error == pytest.approx((0.4 + 0.8 + 2 * 0.1) / 4)
    measured = classes(made)
    assert measured.numbers["confusion"] == [[1, 1, 0], [0, 2, 0], [0, 0, 0]]
    assert "a predicted as b, 1 times; lowest recall: a, 50%" in measured.finding.verdict
    assert "never predicted: a" in classes(made._replace(predictions=[1, 1, 1, 1])).finding.verdict
    long = Judged(("a", "b"), [0] * 80, [0] * 40 + [1] * 40, [], [5] * 20 + [10] * 20 + [20] * 20 + [40] * 20)
    assert length(long).finding.level is Level.WARNING
    assert [row["right"] for row in length(long).numbers["rows"]] == [1.0, 1.0, 0.0, 0.0]
    assert length(made).finding.level is Level.UNKNOWN


def test_attention_is_measured_on_pairs(models: dict[str, Any]) -> None:
    """Against its definition: exp of the entropy over the length, and the share of columns that sum to half."""
    model = models["seq2seq"]
    numbers = probes_of(model)["attention"].numbers
    pair = model.task.read(model.run.vocabs).valid_pairs[0]
    weights = np.array(next(model.predictions([pair.source], attention=True))["attention"]["weights"])
    places = np.exp(-(weights * np.log(weights)).sum(1)).mean() / weights.shape[1]
    assert numbers["places"][0] == pytest.approx(places, rel=1e-4)
    assert numbers["coverage"][0] == pytest.approx((weights.sum(0) >= 0.5).mean(), abs=1e-6)


def test_depths_and_heights_of_a_tree() -> None:
    tree = EncodedTree([1, 2, 3], ((), (), (0, 1), (), (2, 3)), [0] * 5)  # ((1 2) 3)
    assert leaf_depths(tree) == [2, 2, 1]
    assert heights(tree) == [0, 0, 1, 0, 2]


def test_residuals_of_a_series(models: dict[str, Any]) -> None:
    found = probes_of(models["forecast"])
    assert {"residuals", "bands"} <= set(found)
    steady = np.sin(np.arange(200) / 10)
    assert correlation(steady, 1) == pytest.approx(np.corrcoef(steady[1:], steady[:-1])[0, 1], abs=0.02)
    draw = np.random.default_rng(0)
    came = draw.normal(size=(4000, 1, 1))
    honest = np.broadcast_to(np.array([-1.2816, 0.0, 1.2816]), (4000, 1, 1, 3))
    held = bands_of(came, honest, (0.1, 0.5, 0.9), move=False)
    assert held.finding.level is Level.OK
    assert held.numbers["covered"] == pytest.approx(0.8, abs=0.03)
    narrow = bands_of(came, 0.3 * honest, (0.1, 0.5, 0.9), move=False)
    assert narrow.finding.level is Level.WARNING
    assert "too narrow" in narrow.finding.verdict
    assert bands_of(came, 0.3 * honest, (0.1, 0.5, 0.9), move=True).finding.level is Level.OK, "offsets widen them"


def test_the_forget_gate_along_a_sentence(models: dict[str, Any]) -> None:
    assert turning_sentence("It rained today. It was slow, but it worked. Yes.") == "It was slow, but it worked."
    assert (
        turning_sentence("天下雨了，路很滑，大家走路。\n开头平淡，但是结尾很好，值得看。")
        == "开头平淡，但是结尾很好，值得看。"
    )
    report = models["classify"].xray(sentence="some words, but a network reads one by one")
    numbers = report.numbers("sentence")
    assert numbers["sentence"] == "some words, but a network reads one by one"
    assert len(numbers["tokens"]) == len(numbers["values"])
    assert all(0 < value < 1 for value in numbers["values"])
    assert "<svg" in report.html("zh")


def condition(model: Any, values: list[float], plain: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a model whose figure went like this, beside plain models."""
    entries = [{"step": 20 * k, model.task.curve: value} for k, value in enumerate(values, start=1)]
    monkeypatch.setattr(model.run, "metrics", lambda: entries)
    monkeypatch.setattr(
        model.run, "baselines", lambda: [{"name": name, "value": value, "metrics": {}} for name, value in plain.items()]
    )
    return diagnose(model, [], entries).condition


def test_what_is_no_better_than_guessing_is_not_fine(models: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    adding, pairs = models["adding"], models["seq2seq"]
    assert condition(adding, [0.167] * 7, {"always 1": 1 / 6}, monkeypatch) == "under-trained"
    assert condition(adding, [0.1, 0.05, 0.01, 0.01, 0.01, 0.01], {"always 1": 1 / 6}, monkeypatch) == "fine"
    assert condition(pairs, [1.0] * 7, {"copy": 1.0, "dictionary": 0.96}, monkeypatch) == "under-trained"
    assert condition(pairs, [0.9, 0.5, 0.2, 0.1, 0.05, 0.0], {"dictionary": 0.0}, monkeypatch) == "fine", "all right"


NUMBERS = ("classes", "steps", "sequences")


@pytest.fixture(scope="module")
def of_numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A class, a label for each step, and label sequences (CTC) of steps of two numbers."""
    folder, draw = tmp_path_factory.mktemp("numbers"), np.random.default_rng(0)
    lengths = draw.integers(12, 20, 40)
    x = draw.normal(3.0, 5.0, (int(lengths.sum()), 2)).astype(np.float32)
    labels: dict[str, dict[str, Any]] = {
        "classes": {"y": np.arange(40) % 2},
        "steps": {"y": (x[:, 0] > 3).astype(int)},
        "sequences": {"y": np.arange(80) % 3, "y_lengths": np.full(40, 2)},
    }
    found = {}
    for kind in NUMBERS:
        np.savez(folder / f"{kind}.npz", x=x, lengths=lengths, **labels[kind])
        found[kind] = recur.fit(
            str(folder / f"{kind}.npz"),
            task="classify" if kind == "classes" else "tag",
            out=folder / f"run-{kind}",
            hidden_size=6,
            batch_size=4,
            steps=5,
            threads=1,
            baseline=False,
        )
    return found


@pytest.mark.parametrize("kind", NUMBERS)
def test_sequences_of_numbers_with_labels_or_without(
    kind: str, of_numbers: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = of_numbers[kind]
    found = model.xray()
    assert {"gradient flow", "saturation", "spectrum", "states"} <= {finding.probe for finding in found.findings}
    assert found.subject.inputs.shape[2] == 2
    assert len(found.numbers("inputs")["features"]) == 2
    array = np.random.default_rng(1).normal(3.0, 5.0, (30, 2)).astype(np.float32)
    inputs = model.model.embedding
    standardised = (torch.from_numpy(array) - inputs.mean) / inputs.deviation
    np.save(tmp_path / "one.npy", array)
    for given in (array, str(tmp_path / "one.npy")):
        assert torch.equal(model.xray(given).subject.inputs, standardised[None])
    assert run(["xray", str(model.run.path), str(tmp_path / "one.npy"), "--json"]) == 0
    assert "gradient flow" in capsys.readouterr().out
    named = model.xray(model.task.options.texts[0]).subject.inputs
    assert len(named) > 4
    assert named.shape[1] >= 15, "the longest"
    with pytest.raises(RecurError, match="3 features per step, and this model was trained on 2"):
        model.xray(np.zeros((9, 3), np.float32))


def test_an_array_is_nothing_that_a_text_is_read_from(models: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="reads files, got an array"):
        models["classify"].xray(np.zeros((3, 2)))
