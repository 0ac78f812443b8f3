"""Whole runs: a planted fault is named first, and a healthy run has none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recur
from recur.cli.app import run as command
from recur.errors import OptionError, ShapeError, TextError
from recur.probes import Finding, Level, Subject, worst_first, xray
from recur.probes.context import by_context, by_position, losses, saliency
from recur.probes.copying import copied, hashes, shares
from recur.probes.figures import FIGURES
from recur.probes.gates import activations, dead_units, saturation, states
from recur.probes.page import coloured
from recur.probes.stationary import time_as_input
from recur.probes.training import training
from recur.probes.units import correlations, features, ranked, similar, values
from recur.train.tasks.language import Language
from tests.cli.test_cli import json_of
from tests.probes.conftest import SMALL
from tests.support import ALL_CELLS


def first_of(model: Language) -> Finding:
    return xray(model, tokens=2000).troubles[0]


# Planted faults ------------------------------------------------------------------------------------------


def test_a_healthy_run_has_no_finding(healthy: Language) -> None:
    report = xray(healthy)
    assert report.troubles == []
    assert {seen.finding.probe for seen in report.seen} == {finding.probe for finding in report.findings}
    assert len(report.findings) == 16


def test_a_rate_that_is_too_high_is_named_first(tmp_path: Path) -> None:
    found = first_of(recur.fit("pydoc", tmp_path / "fast", **{**SMALL, "rate": 1.0}))
    assert found.probe == "training"
    assert "rate of 1 is too high" in found.verdict
    assert "--rate 0.1" in found.advice


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_window_of_two_is_named_first(tmp_path: Path, cell: str) -> None:
    found = first_of(recur.fit("pydoc", tmp_path / "narrow", **{**SMALL, "window": 2, "cell": cell}))
    assert found.probe == "window"
    assert found.level is Level.FAULT
    assert "window of 2" in found.verdict
    assert "--window" in found.advice


def test_a_forget_gate_stuck_at_zero_is_named_first(healthy: Language) -> None:
    model = recur.load(healthy.run.path)
    with torch.no_grad():
        model.model.recurrent.bias_ih_l0.chunk(4)[1].fill_(-50.0)
    found = first_of(model)
    assert found.probe == "forgetting"
    assert "gate f of layer 1 is shut" in found.verdict
    assert "--forget-bias" in found.advice


def test_dead_units_are_named_first(tmp_path: Path) -> None:
    model = recur.fit("pydoc", tmp_path / "relu", **{**SMALL, "cell": "elman-relu", "steps": 20, "rate": 0.001})
    with torch.no_grad():
        model.model.recurrent.bias_ih_l0[:40].fill_(-1000.0)
    found = first_of(model)
    assert found.probe == "dead units"
    assert "of 64 units of layer 1 never move" in found.verdict
    assert set(range(40)) <= set(dead_units(Subject.of(model)).numbers["layer 1"]["dead"])


def test_causes_come_before_what_they_cause() -> None:
    made = [
        Finding("saturation", Level.FAULT, 0, 0, ""),
        Finding("units", Level.SOUND, 0, 0, ""),
        Finding("training", Level.FAULT, 0, 0, ""),
        Finding("window", Level.CONCERN, 0, 0, ""),
    ]
    assert [f.probe for f in worst_first(made)] == ["training", "saturation", "window", "units"]


# Training ------------------------------------------------------------------------------------------------


def with_metrics(healthy: Language, entries: list[dict[str, Any]]) -> Finding:
    subject = Subject.of(healthy)
    assert subject.run is not None
    subject.run = type("Kept", (), {"config": subject.run.config, "metrics": lambda self: entries})()
    return training(subject).finding


def test_how_training_went_is_read_from_its_metrics(healthy: Language) -> None:
    fell = [{"step": k, "valid_loss": 3 - 0.2 * k, "train_loss": 3 - 0.2 * k, "clipped": 0.5} for k in range(5)]
    assert with_metrics(healthy, fell).level is Level.SOUND
    assert "50% clipped" in with_metrics(healthy, fell).verdict
    jumped = [*fell, {"step": 9, "valid_loss": 4.0, "train_loss": 4.0}]
    assert "too high" in with_metrics(healthy, jumped).verdict
    by_heart = [*fell, *({"step": k, "valid_loss": 2.1 + 0.15 * (k - 4), "train_loss": 1.0} for k in range(5, 8))]
    assert "by heart" in with_metrics(healthy, by_heart).verdict
    noisy = [*fell, {"step": 9, "valid_loss": 2.1, "train_loss": 2.6}]  # another part of the text, harder to learn
    assert with_metrics(healthy, noisy).level is Level.SOUND
    assert "too few" in with_metrics(healthy, fell[:2]).verdict


# Gates and units -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ALL_CELLS)
def test_gates_are_found_by_watching_the_step(cell: str) -> None:
    net = recur.Recurrent(cell, 3, 5)
    layer = Subject.of(net, torch.randn(1, 7, 3)).layers[0]
    found = activations(layer)
    assert set(found) <= set(net.cell.gates)
    assert found, "every cell has an activation somewhere"
    for gate in found.values():
        assert gate.values.shape == (6, 5)
    if cell in ("lstm", "peephole", "gru", "gru2014"):
        assert set(found) == set(net.cell.gates)
        sums = layer.shares(layer.inputs[0, 1:], [p[0] for p in layer.before])
        if cell == "lstm":
            assert torch.equal(found["f"].values, torch.sigmoid(sums[0].f + sums[1].f))
            assert found["g"].kind == "tanh"


def test_saturation_counts_both_ends() -> None:
    net = recur.Recurrent("lstm", 3, 8)
    with torch.no_grad():
        net.bias_ih_l0.chunk(4)[0][:4].fill_(-20.0)
        net.bias_ih_l0.chunk(4)[0][4:].fill_(20.0)
    seen = saturation(Subject.of(net, torch.randn(1, 30, 3)))
    assert seen.finding.level is Level.CONCERN
    assert "gate i" in seen.finding.verdict
    gate = seen.numbers["layer 1"]["i"]
    assert (gate["low"], gate["high"]) == (0.5, 0.5)
    assert sum(gate["histogram"]) == pytest.approx(1)


def test_a_state_that_keeps_growing_is_seen() -> None:
    net = recur.Recurrent("lstm1997", 3, 8)
    with torch.no_grad():
        net.weight_ih_l0.fill_(0.5)
    assert states(Subject.of(net, torch.ones(1, 200, 3))).finding.level is Level.CONCERN


def test_features_are_read_off_a_text() -> None:
    found = features(list('ab\n("x(y)" z)\n'), {"vowel": [1.0] + [0.0] * 13})
    assert found["column"].tolist() == [1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0]
    assert found["brackets"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 1, 1, 1, 1, 0, 0]
    assert found["quotes"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert found["line length"].tolist() == [2, 2, *[10] * 11, 0]
    assert found["vowel"][0] == 1
    with pytest.raises(ShapeError, match="for each of 2 tokens, got 1"):
        features(["a", "b"], {"label": [1.0]})


def test_a_unit_that_follows_something_is_ranked_first(healthy: Language) -> None:
    subject = Subject.of(healthy, tokens=500)
    planted = subject.layers[0].states["c"][0, :, 11].double()
    seen = ranked(subject, {"mine": planted.tolist()})
    best = seen.numbers["ranked"]["mine"][0]
    assert (best["unit"], best["state"]) == (11, "c")
    assert best["r"] == pytest.approx(1.0)
    series = np.arange(50.0)
    made = torch.stack([torch.arange(50.0), -torch.arange(50.0), torch.ones(50)], 1)
    assert correlations(made, series).tolist() == pytest.approx([1, -1, 0])
    assert torch.equal(values(subject, 0, "c", 11), subject.layers[0].states["c"][0, :, 11])
    with pytest.raises(OptionError, match="unit must lie in 0 … 63"):
        values(subject, 0, "c", 64)


def test_similar_places_are_found_where_the_text_repeats(healthy: Language) -> None:
    phrase = "the value of the expression"
    text = f"{phrase} is a number.\nOther words stand here, and here.\n" * 3
    subject = Subject.of(healthy, text)
    begin = text.index(phrase, 10) + 1
    found = similar(subject, begin, begin + len(phrase))
    best = found[0]
    assert best["likeness"] > 0.9
    assert text[best["begin"] - 1 : best["end"] - 1] == phrase, "tokens are one behind: the first is what stands before"
    assert [f["likeness"] for f in found] == sorted((f["likeness"] for f in found), reverse=True)
    with pytest.raises(OptionError, match="a span lies within"):
        similar(subject, 5, 5)


# Context, copying, time ----------------------------------------------------------------------------------


def test_losses_are_those_of_the_model(healthy: Language) -> None:
    text = "The value of an expression is an object.\n" * 5
    subject = Subject.of(healthy, text)
    assert float(losses(subject).mean().exp()) == pytest.approx(healthy.perplexity(text), rel=1e-5)
    numbers = by_position(subject, 20).numbers
    assert numbers["fresh"][0] != numbers["carried"][0]
    whole = by_context(Subject.of(healthy, tokens=1000)).numbers
    assert whole["losses"][0] > whole["losses"][-1], "one token of context is worse than many"
    assert whole["lengths"] == [1, 2, 4, 8, 16, 32, 64, 128]


def test_saliency_is_the_gradient_of_one_prediction(healthy: Language) -> None:
    """Against the change of log p when an input vector is moved along its gradient's direction."""
    subject = Subject.of(healthy, "def function(argument):\n    return argument\n")
    numbers = saliency(subject, at=20, back=10).numbers
    assert len(numbers["tokens"]) == len(numbers["share"]) == 11
    assert sum(numbers["share"]) == pytest.approx(1)
    assert numbers["tokens"] == list("ion(argumen")
    assert numbers["predicted"] == "t"
    model = healthy.model
    ids = subject.rows(1, len(subject.inputs))[0][:, 10:21]
    assert model.embedding is not None
    x = model.embedding.detach()[ids].double()
    double = recur.load(healthy.run.path).model.double()
    target = int(subject.inputs[20])

    def chance(x: torch.Tensor) -> float:
        out = double.recurrent(x).outputs[:, -1]
        assert double.output is not None
        return float((out @ double.output.t() + double.bias).detach().log_softmax(-1)[0, target])

    eps, slopes = 1e-5, []
    for k in range(x.shape[1]):
        moved = []
        for unit in range(x.shape[2]):
            step = torch.zeros_like(x)
            step[0, k, unit] = eps
            moved.append((chance(x + step) - chance(x - step)) / (2 * eps))
        slopes.append(np.linalg.norm(moved))
    assert numbers["share"] == pytest.approx((np.array(slopes) / sum(slopes)).tolist(), rel=1e-3)


def test_copying_counts_what_stands_in_the_training_text() -> None:
    training_ids = np.arange(1000) % 97
    assert shares([np.array([3, 4, 5, 9])], training_ids, (2, 3)) == [2 / 3, 1 / 2]
    assert len(set(hashes(np.array([1, 2, 1, 2, 2, 1]), 2).tolist())) == 3
    foreign = np.random.default_rng(0).integers(0, 97, 400)
    recites = copied([training_ids[50:250]], foreign, training_ids)
    assert recites.finding.level is Level.CONCERN
    assert "recites" in recites.finding.verdict
    assert copied([foreign], foreign, training_ids).finding.level is Level.SOUND


def test_time_as_an_input_helps_where_the_law_changes_with_time() -> None:
    generator = np.random.default_rng(0)
    T = 3000
    drifting = torch.from_numpy((generator.random(T) < np.linspace(0.1, 0.9, T)).astype(np.int64))
    steady = torch.from_numpy((generator.random(T) < 0.5).astype(np.int64))
    logits = torch.zeros(T, 2, dtype=torch.float64)
    seen = time_as_input(logits, drifting)
    assert seen.finding.level is Level.CONCERN
    # A coin of chance q(t) = 0.1 … 0.9 has mean entropy ∫ H(q) dq / 0.8 = 0.559 nats; one of 0.5 has log 2.
    assert seen.numbers["loss"]["with"] == pytest.approx(0.559, abs=0.03)
    assert seen.numbers["loss"]["without"] == pytest.approx(np.log(2), abs=0.02)
    assert time_as_input(logits, steady).finding.level is Level.SOUND


# The command and the page --------------------------------------------------------------------------------


def test_the_command_tells_worst_first(healthy: Language, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The value of an expression is an object; see section (Objects).\n" * 20)
    found = json_of(capsys, "xray", str(healthy.run.path), str(text), "--tokens", "600")
    assert found["tokens"] == 600
    levels = [("sound", "concern", "fault").index(f["level"]) for f in found["findings"]]
    assert levels == sorted(levels, reverse=True)
    assert all({"value", "threshold", "verdict", "advice"} <= f.keys() for f in found["findings"])
    assert command(["xray", str(healthy.run.path), str(text), "--tokens", "600"]) == 0
    assert "gradient flow" in capsys.readouterr().out


def test_the_report_holds_all_it_shows(healthy: Language, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "report.html"
    assert command(["xray", str(healthy.run.path), "--html", str(page), "--tokens", "1000", "-q"]) == 0
    content = page.read_text()
    assert content.count("<svg") == len(FIGURES)
    assert "<script" not in content
    fetched = re.findall(r"""(?:src|href)=["']([^"'#][^"']*)""", content)
    assert fetched == [], "nothing comes from elsewhere"
    assert "@import" not in content
    capsys.readouterr()


def test_a_token_cannot_write_markup() -> None:
    assert "<script>" not in coloured([("<script>", 1.0)])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["xray", "nowhere"], "is not a run"),
        (["xray", "RUN", "missing.txt"], "missing.txt"),
        (["xray", "RUN", "--tokens", "3"], "at least 8"),
    ],
)
def test_mistakes_are_one_line(
    healthy: Language, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command([str(healthy.run.path) if a == "RUN" else a for a in arguments]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1


def test_too_short_a_text_is_refused(healthy: Language) -> None:
    with pytest.raises(TextError, match="too little to look at: 3 tokens"):
        recur.xray(healthy, "abc")
