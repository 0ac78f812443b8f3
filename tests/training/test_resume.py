"""A run that was stopped ends as one that was not: bit for bit, wherever it was stopped, and however."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from recur.cells import cell_names
from recur.errors import RunError, TrainingError
from recur.runs import Run
from recur.tasks import make_options, open_predictor, task_of_run
from recur.training import Trainer, train
from tests.small_runs import begin, ignore, reopen, stop_after

TEXT = "the network reads a word and the word is kept\na state is a word that the network keeps\n" * 40
SMALL: dict[str, Any] = {
    "hidden_size": 8,
    "batch_size": 4,
    "window": 10,
    "threads": 1,
    "eval_every": 0.3,
    "baseline": False,
}


@pytest.fixture
def book(tmp_path: Path) -> str:
    (tmp_path / "book.txt").write_text(TEXT)
    return str(tmp_path / "book.txt")


def make(path: Path, book: str, **fields: Any) -> Trainer:
    return begin(path, texts=book, **{**SMALL, **fields})


def assert_same(a: Trainer, b: Trainer) -> None:
    assert a.step == b.step
    for (name, x), y in zip(a.model.state_dict().items(), b.model.state_dict().values(), strict=True):
        assert torch.equal(x, y), name
    assert torch.equal(*(open_predictor([t.run.path], "cpu").model.bias for t in (a, b))), "the best weights too"

    def numbers(t: Trainer) -> list[Any]:
        return [(m["step"], m["valid_loss"]) for m in t.run.metrics()]

    assert numbers(a) == numbers(b)


@pytest.mark.parametrize("cell", cell_names())
def test_every_cell_goes_on_exactly(cell: str, book: str, tmp_path: Path) -> None:
    straight = make(tmp_path / "a", book, cell=cell, steps=24)
    straight.train()
    stopped = make(tmp_path / "b", book, cell=cell, steps=24)
    stop_after(stopped, 11)
    torch.manual_seed(99)  # another process would have other random numbers
    resumed = reopen(tmp_path / "b")
    assert resumed.step == 11
    resumed.train()
    assert_same(straight, resumed)


WILD: list[dict[str, Any]] = [
    {"partition": "random"},
    {"jitter": True, "optimizer": "sgd", "lr": 1.0, "schedule": "plateau:0.5"},
    {"num_layers": 2, "embedding_size": 6, "dropout_embedding": 0.1, "dropout_input": 0.2, "dropout_hidden": 0.2,
     "dropout_weight": 0.2, "dropout_output": 0.2, "alpha": 1.0, "beta": 1.0},
    {"optimizer": "asgd", "lr": 2.0, "schedule": "nonmono:1", "warmup_steps": 0},
    {"average": 0.9, "gradient_accumulation_steps": 2},
    {"gradient_accumulation_steps": 3, "optimizer": "adamw", "weight_decay": 0.1, "schedule": "step:0.5:1"},
    {"precision": "bfloat16", "num_layers": 2},
    {"bptt": "randomized:0.7,clip:1", "initial": "random:0.1", "backend": "loop"},
]  # fmt: skip


@pytest.mark.parametrize("fields", WILD, ids=lambda fields: next(iter(fields)))
@pytest.mark.parametrize("at", [1, 13, 29])
def test_every_way_of_training_goes_on_exactly(fields: dict[str, Any], at: int, book: str, tmp_path: Path) -> None:
    straight = make(tmp_path / "a", book, steps=40, **fields)
    straight.train()
    stopped = make(tmp_path / "b", book, steps=40, **fields)
    stop_after(stopped, at)
    resumed = reopen(tmp_path / "b")
    stop_after(resumed, at + 5)  # and once more
    resumed = reopen(tmp_path / "b")
    resumed.train()
    assert_same(straight, resumed)


def test_two_runs_with_one_seed_are_equal_and_another_seed_is_not(book: str, tmp_path: Path) -> None:
    a, b, c = (make(tmp_path / str(k), book, steps=10, dropout_output=0.2, seed=s) for k, s in enumerate((1, 1, 2)))
    for trainer in (a, b, c):  # each draws from where its own seed left off
        torch.manual_seed(trainer.options.seed)
        trainer.train()
    assert_same(a, b)
    assert not torch.equal(a.model.bias, c.model.bias)


# Damage ---------------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_named_and_the_one_before_serves(book: str, tmp_path: Path) -> None:
    straight = make(tmp_path / "a", book, steps=24)
    straight.train()
    stopped = make(tmp_path / "b", book, steps=24)
    stopped.checkpoint()
    stop_after(stopped, 15)
    newest = stopped.run.manifest.checkpoints[0]
    path = tmp_path / "b" / newest.file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    run = Run.open(tmp_path / "b", writing=True)
    task = task_of_run(run)
    trainer = Trainer(run, task, task.read(run.vocabs), ignore)
    (event,) = trainer.restore()
    complaint = event.content["text"]
    assert newest.file in complaint
    assert "damaged" in complaint
    assert trainer.step < 15
    trainer.train()
    assert_same(straight, trainer)


def test_what_a_run_lacks_is_said(book: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run: it has no manifest.json"):
        Run.open(tmp_path)
    trainer = make(tmp_path / "a", book, steps=4)
    with pytest.raises(RunError, match="is not a run yet: training ended before its first step; train again"):
        open_predictor([tmp_path / "a"])
    with pytest.raises(RunError, match="has no checkpoint to resume from"):
        trainer.restore()
    trainer.checkpoint()
    with pytest.raises(RunError, match="has no model.safetensors yet"):
        open_predictor([tmp_path / "a"])
    trainer.train()
    with pytest.raises(RunError, match="already holds a run"):
        make(tmp_path / "a", book, steps=4)
    (tmp_path / "a" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(RunError, match="model.safetensors does not match its checksum"):
        open_predictor([tmp_path / "a"])


def test_another_vocabulary_is_refused(book: str, tmp_path: Path) -> None:
    trainer = make(tmp_path / "a", book, steps=4)
    trainer.train()
    content = json.loads((tmp_path / "a" / "vocab.json").read_text())
    content["tokens"].append("☃")
    content["counts"].append(1)
    (tmp_path / "a" / "vocab.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match="vocab.json does not match its checksum"):
        open_predictor([tmp_path / "a"])


# What can go wrong while training -------------------------------------------------------------------------


def test_an_exploding_loss_stops_with_advice_and_keeps_the_best(book: str, tmp_path: Path) -> None:
    trainer = make(
        tmp_path / "a", book, cell="elman-relu", steps=300, lr=50.0, grad_clip=0.0, warmup_steps=0, optimizer="sgd"
    )
    with pytest.raises(
        TrainingError, match=r"training diverged at step \d+.*--grad-clip.*--lr.*--on-nan skip"
    ) as error:
        trainer.train()
    kept = (tmp_path / "a" / "model.safetensors").exists()
    assert ("The best weights so far are kept in" in str(error.value)) == kept
    assert ("No weights were saved yet" in str(error.value)) != kept


def test_a_loss_that_explodes_before_the_first_evaluation_leaves_no_weights(book: str, tmp_path: Path) -> None:
    trainer = make(tmp_path / "a", book, steps=300)
    ordinary = trainer.model.loss
    trainer.model.loss = lambda *arguments: ordinary(*arguments) * float("nan")
    with pytest.raises(TrainingError, match="No weights were saved yet; try to"):
        trainer.train()
    assert not (tmp_path / "a" / "model.safetensors").exists()


def test_bad_batches_can_be_passed_over(book: str, tmp_path: Path) -> None:
    trainer = make(tmp_path / "a", book, steps=20, on_nan="skip")
    ordinary, calls = trainer.model.loss, 0

    def sometimes_nan(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return ordinary(*arguments) * (float("nan") if trainer.model.training and calls % 5 == 0 else 1.0)

    trainer.model.loss = sometimes_nan  # type: ignore[method-assign]
    trainer.train()
    assert trainer.skipped > 0
    assert all(torch.isfinite(p).all() for p in trainer.model.parameters())


def test_who_passes_over_bad_batches_is_not_told_to(book: str, tmp_path: Path) -> None:
    trainer = make(tmp_path / "a", book, steps=200, on_nan="skip", grad_clip=0.5, lr=0.01)
    ordinary = trainer.model.loss
    trainer.model.loss = lambda *arguments: ordinary(*arguments) * float("nan")  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match=r"--grad-clip 0\.125\) or lower the learning rate \(--lr 0\.0025\)$"):
        trainer.train()
    assert trainer.skipped == 20


def test_patience_ends_a_run_early(book: str, tmp_path: Path) -> None:
    trainer = make(tmp_path / "a", book, steps=5000, lr=1e-9, warmup_steps=0, patience=2, schedule="constant")
    trainer.train()
    assert trainer.step < 1000


@pytest.mark.parametrize("keep", ["best", "last"])
def test_which_weights_are_kept(keep: str, book: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a validation that finds every model worse than the one before it: the first is the best."""
    trainer = make(tmp_path / "a", book, steps=24, keep=keep, eval_every=0.02)
    ordinary = trainer.task.validate

    def rising(model: Any, data: Any) -> Any:
        return ordinary(model, data)._replace(score=float(trainer.step))

    monkeypatch.setattr(trainer.task, "validate", rising)
    trainer.train()
    measured = trainer.run.metrics()
    assert len(measured) > 2
    kept = open_predictor([trainer.run.path], "cpu").model.state_dict()
    last = all(torch.equal(kept[name], value) for name, value in trainer.model.state_dict().items())
    assert last == (keep == "last")
    assert trainer.best_metrics["valid_loss"] == measured[-1 if keep == "last" else 0]["valid_loss"]
    assert trainer.best == measured[0]["step"]
    assert trainer.since_best == len(measured) - 1


def test_what_is_learned_from_and_measured_on_is_said(book: str, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text(TEXT[:400])
    notes: list[str] = []
    for valid in (book, str(tmp_path / "more.txt")):
        options = make_options("language", {**SMALL, "texts": (book,), "valid": (valid,), "test": (valid,), "steps": 2})
        train(
            options,
            tmp_path / Path(valid).stem,
            lambda event: notes.append(event.content["text"]) if event.kind == "note" else None,
        )
    assert [note for note in notes if "validation" in note] == [
        f"{book}: used for both training and validation; the metrics will be optimistic"
    ]
    assert not [note for note in notes if "held out" in note]


def test_a_test_part_held_out_beside_a_given_validation_text_is_said(book: str, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text(TEXT[:400])
    notes: list[str] = []
    options = make_options("language", {**SMALL, "texts": (book,), "valid": (str(tmp_path / "more.txt"),), "steps": 2})
    train(options, tmp_path / "run", lambda event: notes.append(str(event.content.get("text"))))
    assert [note for note in notes if "held out" in note] == [
        "a test set is held out of the training data for recur eval; give --test FILE to train on all"
    ]
