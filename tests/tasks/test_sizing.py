"""A network sized by rule: what the rule does with text, speed and minutes, what it leaves alone, and that a run keeps
it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from recur.tasks import make_options, task_of
from recur.tasks.language import sizing
from recur.tasks.language.options import LanguageOptions
from recur.tasks.language.sizing import NetworkSize, TextStatistics, applies, size, worth
from recur.training import autoconfig, resume, train
from recur.training.autoconfig import MAX_SAMPLES, measure_throughput, pick_threads_for_task

RECIPES = Path(__file__).parents[2] / "recipes"
LETTERS, WORDS = TextStatistics(2_000_000, 100, False), TextStatistics(200_000, 8000, True)


def asked(**fields: Any) -> LanguageOptions:
    made = make_options("language", {"texts": ("book.txt",), **fields})
    assert isinstance(made, LanguageOptions)
    return made


def slower_with_width(flops: float) -> Callable[[LanguageOptions], float]:
    """A device that does so many operations a second, whatever their form."""
    return lambda o: flops / (6 * (3 * o.hidden_size * (o.hidden_size + o.embedding_size)) * o.num_layers)


def sized(text: TextStatistics, speed: Callable[[LanguageOptions], float], **fields: Any) -> NetworkSize:
    o = asked(**fields)
    return size(o, o.settled("cpu"), text, speed)


def test_what_is_read_again_is_worth_less() -> None:
    assert worth(1000, 700) == 700
    assert worth(1000, 1000) == 1000
    assert worth(1000, 2000) == pytest.approx(1000 + 1000 * sizing.REPEATED * (1 - math.exp(-1 / sizing.REPEATED)))
    assert worth(1000, 1e9) == pytest.approx(1000 * (1 + sizing.REPEATED))


@pytest.mark.parametrize("text", [LETTERS, WORDS])
def test_more_time_or_a_faster_device_is_a_wider_network(text: TextStatistics) -> None:
    found = [sized(text, slower_with_width(3e10), minutes=minutes).options for minutes in (0.5, 2, 8, 30)]
    widths = [o.hidden_size for o in found]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    rates = [o.lr for o in found]
    assert rates == sorted(rates, reverse=True)
    fast = sized(text, slower_with_width(1.2e11), minutes=0.5).options
    assert abs(fast.hidden_size - widths[1]) <= sizing.STEP, "four times as fast is four times as long"


def test_the_width_is_where_speed_and_appetite_meet() -> None:
    speeds = (
        slower_with_width(5e10),
        lambda o: 40_000.0,
        lambda o: 5e9 / o.hidden_size**2,
        lambda o: 1e7 / o.hidden_size,
    )
    for speed in speeds:
        found = sized(LETTERS, speed, minutes=3)
        read = 180 * sizing.TRAINING * speed(found.options)
        assert abs(math.log(sizing.wanted_width(LETTERS, read) / found.options.hidden_size)) < 2 * sizing.NEAR


def test_a_short_text_is_not_read_without_end() -> None:
    short = TextStatistics(20_000, 60, False)
    found = sized(short, lambda o: 1e6, minutes=30).options
    assert found.epochs == sizing.LETTERS.passes
    assert found.dropout_output > sized(LETTERS, lambda o: 1e4, minutes=2).options.dropout_output
    assert found.hidden_size <= sizing.LETTERS.width
    assert sized(LETTERS, lambda o: 1e4, minutes=2).options.epochs is None


def test_what_is_given_stays_and_the_rest_follows() -> None:
    speed = slower_with_width(5e10)
    free, given = (
        sized(LETTERS, speed, minutes=2, **fields) for fields in ({}, {"hidden_size": 64, "dropout_output": 0.45})
    )
    assert (given.options.hidden_size, given.options.dropout_output) == (64, 0.45)
    assert given.options.lr > free.options.lr
    assert given.options.embedding_size < free.options.embedding_size
    said = sizing.describe_size(asked(minutes=2, hidden_size=64), given)
    assert said.startswith("options chosen for 2 minutes on this CPU (")
    assert f"lr {given.options.lr:g}" in said
    assert "hidden-size 64" not in said
    assert sized(LETTERS, speed, minutes=2, embedding_size=0).options.embedding_size == 0


def test_many_types_are_sampled_in_few_passes() -> None:
    assert sized(WORDS, lambda o: 1e4, minutes=0.5, token="word").options.softmax == "sampled"
    assert sized(WORDS, lambda o: 1e6, minutes=5, token="word").options.softmax == "full"
    assert sized(WORDS, lambda o: 1e4, minutes=0.5, token="word", softmax="full").options.softmax == "full"
    assert sized(WORDS._replace(types=900), lambda o: 1e4, minutes=0.5).options.softmax == "full"


def test_when_it_applies() -> None:
    assert applies(asked())
    assert applies(asked(minutes=5, hidden_size=512))
    for fields in ({"epochs": 2}, {"steps": 3}, {"minutes": 0.1}, {"auto_size": False}, {"minutes": 2, "steps": 9}):
        assert not applies(asked(**fields)), fields
    assert not applies(asked(minutes=3, tuned_on=1000))
    assert not applies(asked(minutes=3, recurrence="output"))
    for path in RECIPES.glob("*.toml"):
        recipe = tomllib.loads(path.read_text(encoding="utf-8"))
        if recipe["task"] == "language":
            assert recipe["auto_size"] is False, path


def test_a_run_says_and_keeps_what_it_was_sized_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the state of a network is what it keeps of a text\n" * 40)
    monkeypatch.setattr(sizing, "LEAST", 0.0)
    tried: list[LanguageOptions] = []

    class FakeProbe:
        def __init__(self, *_: object) -> None: ...

        def __call__(self, options: LanguageOptions) -> float:
            tried.append(options)
            return 20_000_000 / options.hidden_size

    monkeypatch.setattr(autoconfig, "ThroughputProbe", FakeProbe)
    notes: list[str] = []
    options = asked(texts=str(book), minutes=0.002, window=20, threads=1, baseline=False, eval_every=1000)
    train(options, tmp_path / "run", lambda event: notes.append(str(event.content.get("text"))))
    (said,) = [note for note in notes if note.startswith("options chosen for 0.002 minutes")]
    assert tried
    kept = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert kept["hidden_size"] == tried[-1].hidden_size
    assert (
        f"hidden-size {kept['hidden_size']}, embedding-size {kept['embedding_size']}, num-layers {kept['num_layers']}, "
        f"batch-size {kept['batch_size']}, lr" in said
    )
    assert kept["window"] == 20
    tried.clear()
    outcome = resume(tmp_path / "run", steps=2)
    assert outcome.task.options.hidden_size == kept["hidden_size"]
    assert not tried


def test_the_speed_is_that_of_training_and_leaves_nothing_behind(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the state of a network is what it keeps of a text\n" * 40)
    task = task_of(asked(texts=str(book), hidden_size=8, batch_size=4, window=16, steps=1, threads=1).settled("cpu"))
    data, now, looks = task.read(), 0.0, 0

    def clock() -> float:
        """The two looks at a piece lie 0.02 s apart, at the fifth of them, which is somebody else's, 0.2."""
        nonlocal now, looks
        looks += 1
        now += 0.0 if looks % 2 else 0.2 if looks == 10 else 0.02
        return now

    threads = torch.get_num_threads()
    try:
        found = measure_throughput(task, data, clock)
    finally:
        torch.set_num_threads(threads)
    assert found == pytest.approx(3 * 4 * 16 / 0.02), "a piece of 0.06 s has three steps of 64 tokens"
    assert looks == 2 * (3 + MAX_SAMPLES), "two to warm up, one to see how long a step takes, and five pieces"
    assert not list(tmp_path.glob("*/manifest.json"))


def test_slow_steps_are_timed_once(tmp_path: Path) -> None:
    """Of 300,000 words a step can take half a minute: neither threads nor the speed are worth many of them."""
    book = tmp_path / "book.txt"
    book.write_text("the state of a network is what it keeps of a text\n" * 200)
    task = task_of(asked(texts=str(book), hidden_size=8, batch_size=32, window=16, steps=1, threads=1).settled("cpu"))
    data, now = task.read(), 0.0
    rows: list[int] = []
    read = task.training_step

    def slow(model: Any, batch: Any, state: Any, moment: Any) -> Any:
        nonlocal now
        done = read(model, batch, state, moment)
        rows.append(done.predictions // 16)
        now += 20 * rows[-1] / 32
        return done

    task.training_step = slow
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        pick_threads_for_task(task, data, lambda: now)
        assert max(rows) == 2, "a sixteenth of the batch"
        assert now < 10
        rows.clear()
        assert measure_throughput(task, data, lambda: now) == pytest.approx(32 * 16 / 20)
        assert rows == [32]
    finally:
        torch.set_num_threads(threads)


def test_slow_measurements_of_the_speed_end() -> None:
    now = 0.0

    def speed(options: Any) -> float:
        nonlocal now
        now += 20.0
        return 100.0

    o = asked(texts="book.txt", token="word", minutes=1).settled("cpu")
    found = size(
        asked(texts="book.txt", token="word", minutes=1), o, TextStatistics(10**6, 300_000, True), speed, lambda: now
    )
    assert now == 20.0
    assert found.options.hidden_size < 256, "the rule's width for this speed, though it was not measured there"
