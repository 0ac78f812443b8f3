"""The time as an input: how t is scaled, where it comes from, and that it tells what nothing else can."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recur
from recur.data.series import TimeFeature, parse_panel
from recur.data.text import BOS, Stream
from recur.diagnostics.context import time_as_input
from recur.diagnostics.subject import Subject
from recur.errors import OptionError
from recur.models import LanguageModel
from recur.models.layers import scale_time, time_positions
from recur.tasks import make_options, task_class
from tests.small_runs import begin
from tests.support import close


def test_t_rises_from_minus_one_to_one_and_beyond_it_slowly() -> None:
    t = torch.tensor([0.0, 25.0, 50.0, 100.0, 100 * math.e, 100 * math.e**3])
    close(scale_time(t, 100.0), torch.tensor([-1.0, -0.5, 0.0, 1.0, 3.0, 7.0]))
    near = scale_time(torch.tensor([99.0, 100.0, 101.0]), 100.0).double()
    assert float(near[1] - near[0]) == pytest.approx(float(near[2] - near[1]), rel=0.02), "no jump of the slope"
    found = TimeFeature(7, 100.0).read(7, 400)
    close(torch.from_numpy(found).float(), scale_time(torch.arange(400), 100.0))


def test_t_goes_on_from_where_rows_begin_and_is_0_again_behind_a_reset() -> None:
    start = torch.tensor([5, 0])
    assert time_positions(start, 4).tolist() == [[5, 6, 7, 8], [0, 1, 2, 3]]
    reset = torch.tensor([[False, False, True, False], [True, False, False, True]])
    assert time_positions(start, 4, reset).tolist() == [[5, 6, 0, 1], [0, 1, 2, 0]]


def language_model(**fields: Any) -> LanguageModel:
    options: Any = make_options("language", {"hidden_size": 8, "embedding_size": 4, **fields})
    torch.manual_seed(0)
    return LanguageModel(9, options).eval()


def test_a_model_reads_the_t_it_is_given() -> None:
    model, ids = language_model(time_input=True, time_scale=20.0), torch.randint(9, (2, 6))
    with torch.no_grad():
        at_0, later = model(ids), model(ids, start=torch.tensor([0, 40]))
        close(later.logits[0], at_0.logits[0])
        assert not torch.allclose(later.logits[1], at_0.logits[1])
        assert later.state[-1][0].tolist() == [6, 46]
        lead = model(torch.randint(9, (1, 40)))
        inner = tuple(type(layer)._make(torch.zeros_like(p) for p in layer) for layer in lead.state[:-1])  # type: ignore[attr-defined]
        carried = model(ids[1:], (*inner, lead.state[-1]))
        close(carried.logits[0], later.logits[1])
        reset = torch.zeros(1, 6, dtype=torch.bool)
        reset[0, 2] = True
        again = model(ids[:1], start=torch.tensor([30]), reset=reset)
        close(again.logits[:, 2:], model(ids[:1, 2:]).logits)


def test_windows_know_where_in_the_text_they_begin() -> None:
    ids = np.arange(101)
    for partition in ("sequential", "random"):
        for batch in Stream(ids, 4, 5, partition).batches():
            assert (batch.at == batch.x[:, 0]).all()


def test_what_depends_on_t_alone_is_learned_with_it_and_cannot_be_without(tmp_path: Path) -> None:
    """Behind every x stands an a in the first half of the text and a b in the second. A window shows <bos> and x, and
    nothing else: without t nothing is better than an even chance."""
    (tmp_path / "text").write_text("xa" * 1000 + "xb" * 1000)
    found = {}
    for time_input in (False, True):
        trainer = begin(
            tmp_path / str(time_input), texts=str(tmp_path / "text"), valid=str(tmp_path / "text"),
            test=str(tmp_path / "text"), partition="random", window=2, batch_size=64, hidden_size=8,
            embedding_size=4, cell="elman", dropout_input=0.0, dropout_output=0.0, alpha=0.0, beta=0.0,
            weight_decay=0.0, steps=300, lr=0.05, threads=1, time_input=time_input, baseline=False,
        )  # fmt: skip
        trainer.train()
        ids = torch.from_numpy(trainer.data.train.astype(np.int64))
        x, y, at = ids[0:-1:2], ids[1::2], torch.arange(0, len(ids) - 1, 2)
        with torch.no_grad():
            logits = trainer.model.eval()(torch.stack([torch.full_like(x, BOS), x], 1), start=at).logits[:, 1]
        found[time_input] = float(torch.nn.functional.cross_entropy(logits, y))
    assert found[False] > 0.99 * math.log(2)
    assert found[True] < 0.1


def test_a_held_out_part_begins_where_it_stands_in_its_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the network reads a word and the word is kept\n" * 60)
    begin(tmp_path / "run", texts=str(tmp_path / "text"), hidden_size=4, steps=3, threads=1, time_input=True).train()
    model: Any = recur.load(tmp_path / "run")
    assert model.options.time_scale == len(model.task.read().train)
    subject = Subject.of(model)
    assert subject.start == len(model.task.read().train)
    assert Subject.of(model, "the word is kept\n" * 4).start == 0
    loss = model.evaluate(ngrams=False)["perplexity"]
    model.model.clock = 1e9  # no t tells anything now, and all that is measured moves
    assert model.evaluate(ngrams=False)["perplexity"] != loss


def test_the_probe_sees_what_depends_on_t() -> None:
    logits = torch.zeros(400, 2, dtype=torch.float64)
    by_place, by_turns = (time_as_input(logits, y).finding for y in (torch.arange(400) // 200, torch.arange(400) % 2))
    assert "knowing the position t in the text gains 0.532" in by_place.verdict
    assert by_place.level > by_turns.level


def test_the_end_of_a_dated_file_knows_its_t() -> None:
    lines = ["month,y", *(f"{2000 + k // 12}-{k % 12 + 1:02},{k}" for k in range(60))]
    whole, end = (parse_panel(part, "x.csv").series[0] for part in (lines, [lines[0], *lines[41:]]))
    clock = TimeFeature(whole.start, 36.0)
    np.testing.assert_allclose(clock.read(end.start, 23), clock.read(whole.start, 63)[40:], atol=1e-12)


@pytest.mark.parametrize("strategy", ["direct", "iterated"])
def test_a_forecaster_reads_t(strategy: str, tmp_path: Path) -> None:
    rows = [f"{1990 + k // 12}-{k % 12 + 1:02},{k + (k % 12)}\n" for k in range(120)]
    (tmp_path / "a.csv").write_text("month,y\n" + "".join(rows))
    options = {"texts": str(tmp_path / "a.csv"), "time_input": True, "strategy": strategy, "horizon": 6}
    begin(tmp_path / "run", "forecast", hidden_size=8, steps=3, threads=1, **options).train()
    model = recur.load(tmp_path / "run", task="forecast")
    assert (model.task.options.time_origin, model.task.options.time_scale) == (
        12 * (1990 - 1970),
        120.0 - 24,
    )  # months since 1970
    assert len(list(model.predictions(["month,y\n", *rows[60:]]))) == 6
    settled = task_class("forecast").settle(make_options("forecast", {**options, "lags": 12}))
    assert settled.time_scale == 96.0


@pytest.mark.parametrize(
    ("task", "fields", "says"),
    [
        ("language", {"time_scale": 3.0}, "--time-scale is for --time-input, which is not given"),
        ("forecast", {"time_origin": 3}, "--time-origin is for --time-input, which is not given"),
        ("tree", {"time_input": True}, "--time-input belongs to adding, .*; the task here is tree"),
    ],
)
def test_what_has_no_clock_says_so(task: str, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        make_options(task, fields)
    with pytest.raises(OptionError, match="time_input needs a time_scale"):
        language_model(time_input=True)
