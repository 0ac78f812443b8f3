"""Precision: what each device has, what is picked, and that training in each goes on exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from recur.errors import OptionError
from recur.runs import autocast_in, check_precision, pick_precision, weights
from recur.tasks import make_options, open_predictor, task_class, task_of
from recur.tasks.adding.options import AddingOptions
from recur.training import Trainer, resume, train
from recur.training.graphs import batch_signature, cuda_graph_blocker
from tests.small_runs import begin, reopen, stop_after

CPU = torch.device("cpu")
TEXT = "the network reads a word and the word is kept\na state is a word that the network keeps\n" * 30
SMALL: dict[str, Any] = {
    "hidden_size": 8,
    "batch_size": 4,
    "window": 10,
    "threads": 1,
    "eval_every": 1,
    "baseline": False,
}


@pytest.fixture
def book(tmp_path: Path) -> str:
    (tmp_path / "book.txt").write_text(TEXT)
    return str(tmp_path / "book.txt")


def test_a_device_refuses_what_it_has_not(book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="tf32 is a format of NVIDIA GPUs"):
        train(make_options("language", {**SMALL, "texts": book, "precision": "tf32", "device": "cpu"}))
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "an old one")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    for name in ("tf32", "bfloat16"):
        with pytest.raises(OptionError, match=rf"{name} needs compute capability 8.0, and an old one has less"):
            check_precision(name, gpu)  # type: ignore[arg-type]
    check_precision("float16", gpu)
    assert pick_precision(gpu, in_16_bits=True) == "float32"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert pick_precision(gpu, in_16_bits=True) == "bfloat16"
    assert pick_precision(gpu, in_16_bits=False) == "tf32"


@pytest.mark.parametrize("has", [True, False])
def test_what_is_picked_on_a_cpu(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "has_bfloat16_instructions", lambda: has)
    settled = task_class("language").settle(make_options("language", {"steps": 1, "device": "cpu"}))
    assert settled.precision == ("bfloat16" if has else "float32")
    assert task_class("adding").settle(AddingOptions(steps=1, device="cpu")).precision == "float32"


def test_products_are_of_the_precision() -> None:
    x = torch.randn(3, 3)
    found = {}
    for name in ("float32", "bfloat16", "float16"):
        with autocast_in(name, CPU):  # type: ignore[arg-type]
            found[name] = (x @ x).dtype
    assert list(found.values()) == [torch.float32, torch.bfloat16, torch.float16]


def scaled(trainer: Trainer) -> float:
    return float(trainer.stepper.scaler.get_scale())


def test_float16_scales_its_loss_and_goes_on_exactly(book: str, tmp_path: Path) -> None:
    """The scale falls where gradients overflow, and is where it was after a stop."""

    def make(name: str) -> Trainer:
        made = begin(tmp_path / name, texts=book, **SMALL, precision="float16", steps=20, lr=0.01)
        made.stepper.scaler.load_state_dict({**made.stepper.scaler.state_dict(), "scale": 2.0**40})
        return made

    straight = make("a")
    straight.train()
    assert scaled(straight) < 2.0**30, "the first steps overflowed, and were not taken"
    assert straight.best < 3.5
    stop_after(make("b"), 7)
    resumed = reopen(tmp_path / "b")
    assert scaled(resumed) != 2.0**16
    resumed.train()
    assert scaled(resumed) == scaled(straight)
    for a, b in zip(straight.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_run_of_another_device_takes_its_own(book: str, tmp_path: Path) -> None:
    train(make_options("language", {**SMALL, "texts": book, "steps": 2, "precision": "float32"}), tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    assert 'precision = "float32"' in config.read_text()
    made = open_predictor([tmp_path / "run"], "cpu")
    exact = made.evaluate(ngrams=False)["perplexity"]
    made.use_precision("bfloat16")
    assert made.evaluate(ngrams=False)["perplexity"] == pytest.approx(exact, rel=0.01)
    assert made.evaluate(ngrams=False)["perplexity"] != exact
    assert resume(tmp_path / "run", steps=1, device="cpu").summary["precision"] == "float32"


def test_graphs_are_refused_with_the_reason(book: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--graph on: CUDA graphs need a GPU, and the device is cpu"):
        begin(tmp_path / "a", texts=book, **SMALL, graph="on", steps=1)
    made = begin(tmp_path / "b", texts=book, **SMALL, steps=1)
    made.stepper.device = torch.device("cuda")
    reasons = [
        ({"gradient_accumulation_steps": 2}, "several batches"),
        ({"on_nan": "skip"}, "checked before its update"),
        ({"optimizer": "asgd"}, "ASGD"),
        ({"bptt": "randomized:0.5"}, "draws on the CPU"),
        ({"softmax": "adaptive", "tie_weights": False}, "asks which tokens"),
        ({}, ""),
    ]
    for fields, words in reasons:
        options = made.options.changed(**fields)
        made.stepper.task = task_of(options)
        assert words in cuda_graph_blocker(made.stepper, options, made.data)
        assert bool(words) == bool(cuda_graph_blocker(made.stepper, options, made.data))
    assert batch_signature([1]) is None
    assert batch_signature(next(made.stream.batches())) is None, "arrays are of no form"
