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
from recur.errors import OptionError, RecurError
from recur.layers import Recurrent
from recur.probes import Subject
from recur.probes.batch import recurrent_parts
from recur.probes.flow import flow

LONG = "some words that a network reads one by one"
FILES = {
    "classify": "".join(f"{'ab'[k % 2]}\t{LONG} {k}\n" for k in range(40)),
    "conditional": "".join(f"{'ab'[k % 2]}\t{LONG} {k % 3}\n" for k in range(40)),
    "seq2seq": "".join(f"abcabcabc{'de'[k % 2]}\t{'de'[k % 2]}cbacbacba\n" for k in range(40)),
    "tag": "".join("".join(f"{word}\tX{k % 2}\n" for word in LONG.split()) + "\n" for k in range(40)),
    "forecast": "date,y\n" + "".join(f"20{k // 12:02d}-{k % 12 + 1:02d},{k + (k % 12) * 3}\n" for k in range(120)),
    "tree": "".join(f"({k % 2} (0 a) (1 {'xy'[k % 2]}))\n" for k in range(40)),
    "table": "a,b,y\n" + "".join(f"{k},{k % 7},{k * 2 % 5}.5\n" for k in range(80)),
}
WITHOUT_TIME = ("tree", "table")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    fields: dict[str, Any] = {"hidden": 6, "batch": 4, "steps": 5, "threads": 1, "baseline": False}
    found: dict[str, Any] = {}
    for task, text in FILES.items():
        file = folder / f"{task}.{'csv' if task in ('forecast', 'table') else 'tsv'}"
        file.write_text(text)
        found[task] = recur.fit(
            str(file), task=task, out=folder / f"run-{task}", **fields | {"hidden": 30 if task == "tag" else 6}
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
    assert "too few" not in training.verdict


@pytest.mark.parametrize("task", WITHOUT_TIME)
def test_a_network_without_time_says_what_is_not_measured(task: str, models: dict[str, Any]) -> None:
    found = models[task].xray()
    said = {finding.probe: finding.verdict for finding in found.findings}
    own = {"classes", "length", "tree depth"} if task == "tree" else set()
    assert set(said) == {"network", "training", "rate", "fit"} | own
    assert f"the network of this {task} run" in said["network"]
    assert "has no recurrent layer that reads along time" in found.html()
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
            hidden=6,
            batch=4,
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
    with pytest.raises(RecurError, match="3 features a step, and this model learned from 2"):
        model.xray(np.zeros((9, 3), np.float32))


def test_an_array_is_nothing_that_a_text_is_read_from(models: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="reads files, got an array"):
        models["classify"].xray(np.zeros((3, 2)))
