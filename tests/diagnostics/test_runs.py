"""Whole runs: a planted fault is named first, and a healthy run has none."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recur
from recur.cli.app import run as command
from recur.diagnostics import Finding, Level, Subject, worst_first, xray
from recur.diagnostics.context import (
    copied,
    known_shares,
    loss_by_context,
    loss_by_position,
    losses,
    ngram_hashes,
    saliency,
    time_as_input,
    window,
)
from recur.diagnostics.diagnosis import diagnose
from recur.diagnostics.figures import figure_of, panels_of
from recur.diagnostics.gates import activations, saturation
from recur.diagnostics.report import coloured
from recur.diagnostics.training import NO_GAP, measure_fit, training
from recur.diagnostics.units import (
    correlations,
    dead_units,
    features,
    similar_spans,
    states,
    unit_features,
    unit_values,
)
from recur.errors import OptionError, ShapeError, TextError
from recur.tasks.language.predictor import Language
from tests.cli.test_cli import json_of
from tests.diagnostics.conftest import SMALL
from tests.support import ALL_CELLS


def named_first(model: Language) -> tuple[str, Finding]:
    """The condition that a report opens with, and the worst finding."""
    report = xray(model, tokens=2000)
    assert report.diagnosis is not None
    assert report.diagnosis.reason in (report.problems[0].verdict, report.diagnosis.reason)
    return report.diagnosis.condition, report.problems[0]


def fit(folder: Path, **options: Any) -> Language:
    return recur.fit("pydoc", task="language", out=folder, **{**SMALL, "hidden_size": 32, **options})


# Planted faults ------------------------------------------------------------------------------------------


def test_a_healthy_network_that_was_stopped_early(healthy: Language) -> None:
    report = xray(healthy)
    assert report.problems[0].probe == "training"
    assert {finding.probe for finding in report.problems} <= {"training", "gradient flow"}
    assert {m.finding.probe for m in report.measurements} == {finding.probe for finding in report.findings}
    assert len(report.findings) == 20
    assert report.diagnosis is not None
    assert report.diagnosis.condition == "under-trained", "300 steps, and no plain model that it beats"
    assert report.diagnosis.tries[0].option == "--steps 600"


def test_a_rate_that_is_too_high_is_named_first(tmp_path: Path) -> None:
    condition, found = named_first(fit(tmp_path / "fast", lr=0.4))
    assert condition == "rate too high"
    assert "the size of --lr 0.4 changes the loss" in found.verdict
    assert found.tries[0].option in ("--lr 0.04", "--lr 0.013", "--lr 0.004")


def test_a_window_of_two_is_named_first(tmp_path: Path) -> None:
    condition, found = named_first(fit(tmp_path / "narrow", window=2, cell="gru", hidden_size=64, steps=2000))
    assert condition == "window too short"
    assert "context beyond the 2 steps of the window lowers the loss" in found.verdict
    assert found.tries[0].option == "--window 32"


def test_a_forget_gate_stuck_at_zero_is_named_first(healthy: Language) -> None:
    model = recur.load(healthy.run.path, task="language")
    with torch.no_grad():
        model.model.recurrent.bias_ih_l0.chunk(4)[1].fill_(-50.0)
    condition, found = named_first(model)
    assert condition == "forget gate closed"
    assert "forget gate f of layer 1 is closed" in found.verdict
    assert found.tries[0].option == "--forget-bias 1"


def test_dead_units_are_named_first(tmp_path: Path) -> None:
    model = fit(tmp_path / "relu", cell="elman-relu", steps=20, lr=0.001)
    with torch.no_grad():
        model.model.recurrent.bias_ih_l0[:20].fill_(-1000.0)
    condition, found = named_first(model)
    assert condition == "dead units"
    assert "of 32 units of layer 1 are dead" in found.verdict
    assert set(range(20)) <= set(dead_units(Subject.of(model)).numbers["layer 1"]["dead"])


def test_causes_come_before_what_they_cause() -> None:
    made = [
        Finding("saturation", Level.FAULT, 0, 0, ""),
        Finding("units", Level.OK, 0, 0, ""),
        Finding("training", Level.FAULT, 0, 0, ""),
        Finding("window", Level.WARNING, 0, 0, ""),
    ]
    assert [f.probe for f in worst_first(made)] == ["training", "saturation", "window", "units"]


# Training ------------------------------------------------------------------------------------------------


CURVES: dict[str, tuple[list[float], list[float]]] = {
    "fine": ([3.0, 2.2, 1.9, 1.87, 1.85, 1.84, 1.83], [3.0, 2.2, 2.0, 1.9, 1.8, 1.7, 1.7]),
    "under-trained": ([3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4], [3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4]),
    "over-fitted": ([3.0, 2.2, 2.0, 2.1, 2.2, 2.4, 2.6], [3.0, 2.0, 1.7, 1.4, 1.1, 0.8, 0.6]),
    "diverging": ([3.0, 2.2, 2.0, 2.4, 2.9, 3.3, 3.6], [3.0, 2.2, 2.1, 2.5, 3.0, 3.4, 3.8]),
    "too small": ([3.0, 2.5, 2.42, 2.41, 2.40, 2.40, 2.40], [3.0, 2.5, 2.45, 2.43, 2.42, 2.41, 2.41]),
}
PLAIN = 6.5
"""The perplexity of a plain model: e^1.87."""


def run_with(
    model: Language, valid: list[float], train: list[float], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The condition of a model whose run had measured this."""
    lines = [
        {
            "step": 20 * (k + 1),
            "valid_loss": v,
            "valid_perplexity": math.exp(v),
            "train_loss": t,
            "grad_norm": 1.0,
            "clipped": 0.5,
        }
        for k, (v, t) in enumerate(zip(valid, train, strict=True))
    ]
    baselines = [{"name": "6-gram", "value": PLAIN, "metrics": {}}] if plain else None
    monkeypatch.setattr(model.run, "metrics", lambda: lines)
    monkeypatch.setattr(model.run, "baselines", lambda: baselines)
    gap = 0.0 if valid[-1] - train[-1] < 0.05 else 0.1
    findings = [training(model, lines).finding, Finding("fit", Level.OK, gap, NO_GAP, "its losses")]
    return diagnose(model, findings, lines).condition


@pytest.mark.parametrize("condition", CURVES)
def test_how_training_went_is_read_from_its_metrics(
    condition: str, healthy: Language, monkeypatch: pytest.MonkeyPatch
) -> None:
    valid, train = CURVES[condition]
    assert run_with(healthy, valid, train, True, monkeypatch) == condition
    few = run_with(healthy, valid[:1], train[:1], False, monkeypatch)
    assert few == "not known", "one measurement"


def test_a_run_that_ended_by_itself_diverged(healthy: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = [{"step": 1, "valid_loss": 2.0, "valid_perplexity": 7.4, "train_loss": 2.0}, {"step": 7, "diverged": "nan"}]
    assert training(healthy, ended).finding.level is Level.FAULT
    assert "diverged at step 7: nan" in training(healthy, ended).finding.verdict
    worse = [{"step": 1, "valid_loss": 25.0, "valid_perplexity": 7e10, "train_loss": 11.0}]
    assert "worse than uniform guessing" in training(healthy, worse).finding.verdict
    assert training(healthy, []).finding.level is Level.UNKNOWN


def test_a_random_step_leaves_no_trace_and_costs_what_it_should(healthy: Language) -> None:
    before = {name: value.clone() for name, value in healthy.model.state_dict().items()}
    fit = measure_fit(healthy, [])
    assert fit is not None
    assert all(torch.equal(value, before[name]) for name, value in healthy.model.state_dict().items())
    costs = [loss - fit.learned for loss in fit.nudged.values()]
    assert costs[0] > 0 > -1e-4 < costs[-1] < costs[0] / 10, "curvature: a tenth of the step costs a hundredth"
    assert fit.learned < healthy.run.metrics()[-1]["train_loss"] + 0.05, "without dropout"


def test_context_beyond_the_window_is_what_counts(healthy: Language) -> None:
    numbers = (measured := window(Subject.of(healthy, tokens=1500))).numbers
    assert (numbers["window"], numbers["lengths"]) == (48, [1, 48, 96, 192])
    alone, within, *_ = numbers["losses"]
    assert numbers["gain"] == pytest.approx(within - min(numbers["losses"][1:]), abs=1e-9)
    assert measured.finding.value == pytest.approx(numbers["gain"] / (alone - within + numbers["gain"]), abs=1e-9)
    short = window(Subject.of(healthy, "The value of an expression is an object.\n"))
    assert short.finding.level is Level.UNKNOWN


# Gates and units -----------------------------------------------------------------------------------------


NO_ACTIVATION = ("lru", "minlstm", "lnlstm", "retnet", "gla", "rwkv6", "mamba2", "lif", "ltc")
"""Cells whose gates the probe does not find: they have none of its activation functions."""


@pytest.mark.parametrize("cell", ALL_CELLS)
def test_gates_are_found_by_watching_the_step(cell: str) -> None:
    net = recur.Recurrent(cell, 3, 5)
    layer = Subject.of(net, torch.randn(1, 7, 3)).layers[0]
    found = activations(layer)
    assert set(found) <= set(net.cell.gates)
    # A linear unit has none; these two normalise all gates together first, so that none is one gate's.
    assert bool(found) == (cell not in NO_ACTIVATION), "every other cell has an activation somewhere"
    for gate in found.values():
        assert gate.values.dim() == 2
        assert len(gate.values) == 6
        if not isinstance(net.cell, recur.cells.HeadedCell):
            assert gate.values.shape == (6, 5)
    if cell in ("lstm", "peephole", "gru", "gru2014"):
        assert set(found) == set(net.cell.gates)
        x, h, _, _ = layer.step_arguments(layer.inputs[0, 1:], [p[0] for p in layer.previous])
        if cell == "lstm":
            assert torch.equal(found["f"].values, torch.sigmoid(x.f + h.f))
            assert found["g"].kind == "tanh"


def test_saturation_counts_both_ends() -> None:
    net = recur.Recurrent("lstm", 3, 8)
    with torch.no_grad():
        net.bias_ih_l0.chunk(4)[0][:4].fill_(-20.0)
        net.bias_ih_l0.chunk(4)[0][4:].fill_(20.0)
    measured = saturation(Subject.of(net, torch.randn(1, 30, 3)))
    assert measured.finding.level is Level.WARNING
    assert "gate i" in measured.finding.verdict
    gate = measured.numbers["layer 1"]["i"]
    assert (gate["low"], gate["high"]) == (0.5, 0.5)
    assert sum(gate["histogram"]) == pytest.approx(1)


def test_a_state_that_keeps_growing_is_named() -> None:
    net = recur.Recurrent("lstm1997", 3, 8)
    with torch.no_grad():
        net.weight_ih_l0.fill_(0.5)
    assert states(Subject.of(net, torch.ones(1, 200, 3))).finding.level is Level.WARNING


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
    best = unit_features(subject, {"mine": planted.tolist()}).numbers["ranked"]["mine"][0]
    assert (best["unit"], best["state"]) == (11, "c")
    assert best["r"] == pytest.approx(1.0)
    series = np.arange(50.0)
    made = torch.stack([torch.arange(50.0), -torch.arange(50.0), torch.ones(50)], 1)
    assert correlations(made, series).tolist() == pytest.approx([1, -1, 0])
    assert torch.equal(unit_values(subject, 0, "c", 11), subject.layers[0].states["c"][0, :, 11])
    with pytest.raises(OptionError, match="unit must lie in 0 … 63"):
        unit_values(subject, 0, "c", 64)


def test_similar_places_are_found_where_the_text_repeats(healthy: Language) -> None:
    phrase = "the value of the expression"
    text = f"{phrase} is a number.\nOther words stand here, and here.\n" * 3
    subject = Subject.of(healthy, text)
    begin = text.index(phrase, 10) + 1
    found = similar_spans(subject, begin, begin + len(phrase))
    best = found[0]
    assert best.similarity > 0.9
    assert text[best.begin - 1 : best.end - 1] == phrase, "tokens are one behind: the first is what stands before"
    assert [span.similarity for span in found] == sorted((span.similarity for span in found), reverse=True)
    with pytest.raises(OptionError, match="a span must lie in"):
        similar_spans(subject, 5, 5)


# Context, copying, time ----------------------------------------------------------------------------------


def test_losses_are_those_of_the_model(healthy: Language) -> None:
    text = "The value of an expression is an object.\n" * 5
    subject = Subject.of(healthy, text)
    assert float(losses(subject).mean().exp()) == pytest.approx(healthy.perplexity(text), rel=1e-5)
    numbers = loss_by_position(subject, 20).numbers
    assert numbers["zero"][0] != numbers["carried"][0]
    whole = loss_by_context(Subject.of(healthy, tokens=1000)).numbers
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
    x = model.embedding.vectors(ids).detach().double()
    double = recur.load(healthy.run.path, task="language").model.double()
    target = int(subject.inputs[20])

    def chance(x: torch.Tensor) -> float:
        out = double.recurrent(x).outputs[:, -1]
        assert double.output is not None
        return float((out @ double.output.t() + double.output_bias()).detach().log_softmax(-1)[0, target])

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
    assert known_shares([np.array([3, 4, 5, 9])], training_ids, (2, 3)) == [2 / 3, 1 / 2]
    assert len(set(ngram_hashes(np.array([1, 2, 1, 2, 2, 1]), 2).tolist())) == 3
    foreign = np.random.default_rng(0).integers(0, 97, 400)
    memorised = copied([training_ids[50:250]], foreign, training_ids)
    assert memorised.finding.level is Level.WARNING
    assert "the model has memorised its training text" in memorised.finding.verdict
    assert copied([foreign], foreign, training_ids).finding.level is Level.OK


def test_time_as_an_input_helps_where_the_law_changes_with_time() -> None:
    generator = np.random.default_rng(0)
    T = 3000
    drifting = torch.from_numpy((generator.random(T) < np.linspace(0.1, 0.9, T)).astype(np.int64))
    steady = torch.from_numpy((generator.random(T) < 0.5).astype(np.int64))
    logits = torch.zeros(T, 2, dtype=torch.float64)
    measured = time_as_input(logits, drifting)
    assert measured.finding.level is Level.WARNING
    # A coin of chance q(t) = 0.1 … 0.9 has mean entropy ∫ H(q) dq / 0.8 = 0.559 nats; one of 0.5 has log 2.
    assert measured.numbers["loss"]["with"] == pytest.approx(0.559, abs=0.03)
    assert measured.numbers["loss"]["without"] == pytest.approx(np.log(2), abs=0.02)
    assert time_as_input(logits, steady).finding.level is Level.OK


# The command and the page --------------------------------------------------------------------------------


def test_the_command_prints_worst_first(healthy: Language, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The value of an expression is an object; see section (Objects).\n" * 20)
    found = json_of(capsys, "xray", str(healthy.run.path), str(text), "--tokens", "600")
    assert found["tokens"] == 600
    levels = [("ok", "warning", "fault").index(f["level"]) for f in found["findings"]]
    assert levels == sorted(levels, reverse=True)
    assert all({"value", "threshold", "verdict", "advice"} <= f.keys() for f in found["findings"])
    assert command(["xray", str(healthy.run.path), str(text), "--tokens", "600"]) == 0
    assert "gradient flow" in capsys.readouterr().out
    assert command(["xray", str(healthy.run.path), str(text), "--tokens", "600", "--language", "zh"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("训练不足")
    assert "梯度流" in printed


def test_the_first_advice_is_tried(healthy: Language, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The value of an expression is an object.\n" * 60)
    model = recur.fit(
        str(text), task="language", out=tmp_path / "run", hidden_size=4, steps=6, threads=1, baseline=False
    )
    found = json_of(capsys, "xray", str(model.run.path), "--tokens", "100", "--try")["tried"]
    assert found["option"] == "--steps 12"
    assert found["run"] == str(tmp_path / "run-try")
    assert found["helped"] == (found["after"] < found["before"])
    assert recur.load(tmp_path / "run-try", task="language").options.steps == 12
    assert recur.load(tmp_path / "run-try", task="language").options.hidden_size == 4


def test_the_report_has_no_external_resource(
    healthy: Language, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "report.html"
    assert command(["xray", str(healthy.run.path), "--html", str(page), "--tokens", "1000", "-q"]) == 0
    content = page.read_text()
    report = xray(healthy, tokens=1000)
    panels = sum(len(panels_of(f.probe, report.numbers(f.probe))) for f in report.findings)
    assert content.count("<svg") == panels > 20
    assert content.count("<main>") == 1
    assert "#2f6fde;" not in content.partition("</style>")[2], "figures have the page's colours"
    flow = figure_of("gradient flow", report.numbers("gradient flow"))
    assert flow is not None
    assert "window 48" in [text.get_text() for text in flow.axes[0].texts]
    assert "<script" not in content
    fetched = re.findall(r"""(?:src|href)=["']([^"'#][^"']*)""", content)
    assert fetched == [], "no external resource"
    assert "@import" not in content
    capsys.readouterr()


def test_a_token_cannot_write_markup() -> None:
    assert "<script>" not in coloured([("<script>", 1.0)])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["xray", "nowhere"], "is not a run"),
        (["xray", "RUN", "missing.txt"], "missing.txt"),
        (["xray", "RUN", "--tokens", "3"], "at least 8"),
    ],
)
def test_mistakes_are_one_line(
    healthy: Language, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command([str(healthy.run.path) if a == "RUN" else a for a in arguments]) == 2
    printed = capsys.readouterr().err
    assert expected in printed
    assert printed.count("\n") == 1


def test_too_short_a_text_is_refused(healthy: Language) -> None:
    with pytest.raises(TextError, match="too short: 3 tokens"):
        recur.xray(healthy, "abc")
