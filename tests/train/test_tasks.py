"""What every task owes: all options are read by one, none is ignored in silence, and a stopped run goes on exactly."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from recur.errors import OptionError, TextError
from recur.train.config import COMMON, Config
from recur.train.loop import Trainer
from recur.train.run import Run
from recur.train.tasks import TASKS, task_of
from recur.train.tasks.labelled import LabelledTask
from tests.train.test_resume import stop_after

FIELDS = {field.name for field in dataclasses.fields(Config)}
WORDS = [f"{a}{b}{c}" for a in "bdk" for b in "aeiou" for c in ("", "n", "s", "st")]

SMALL: dict[str, Any] = {"hidden": 8, "embedding": 6, "batch": 8, "threads": 1, "measure": 0.4}
CASES: dict[str, dict[str, Any]] = {
    "seq2seq": {"task": "seq2seq", "target_token": "space", "smoothing": 0.1, "dropout_input": 0.2},
    "mixed": {"task": "seq2seq", "teacher": "linear:1:0.2", "stop": "bernoulli", "attention": "dot", "layers": 2},
    "length": {"task": "seq2seq", "teacher": "constant:0.5,sequence", "stop": "length", "condition": "both"},
    "aligned": {"task": "seq2seq", "stop": "source", "condition": "aligned", "attention": "none", "cell": "gru"},
    "labelled": {"task": "language", "context": "label", "condition": "both", "teacher": "sigmoid:5"},
}


def table(folder: Path, case: str) -> str:
    def target(word: str) -> str:
        return " ".join(reversed(word)) if CASES[case].get("target_token") == "space" else word[::-1]

    text = "".join(f"{'ABC'[k % 3] if case == 'labelled' else word}\t{target(word)}\n" for k, word in enumerate(WORDS))
    (folder / "pairs.tsv").write_text(text)
    return str(folder / "pairs.tsv")


def make(path: Path, texts: str, **fields: Any) -> Trainer:
    config = Config.of(texts=texts, **SMALL | fields)
    data = task_of(config).read()
    return Trainer(Run.create(path, config, data.vocabs), data)


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(case: str, tmp_path: Path) -> None:
    texts = table(tmp_path, case)
    straight = make(tmp_path / "a", texts, steps=20, **CASES[case])
    straight.train()
    stop_after(make(tmp_path / "b", texts, steps=20, **CASES[case]), 9)
    torch.manual_seed(99)
    run = Run.open(tmp_path / "b")
    resumed = Trainer(run, run.task.read(run.vocabs))
    resumed.restore()
    resumed.train()
    assert resumed.step == straight.step == 20
    for a, b in zip(straight.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    quiet = {
        "seconds",
        "tokens_per_second",
        "clipped",
        "grad_norm",
        "train_loss",
        "train_perplexity",
        "rate",
        "progress",
    }
    histories = [[{k: v for k, v in m.items() if k not in quiet} for m in t.run.metrics()] for t in (straight, resumed)]
    assert histories[0] == histories[1]
    entry = straight.run.metrics()[-1]
    assert entry["valid_gap"] == pytest.approx(entry["valid_free_loss"] - entry["valid_loss"])
    assert straight.best_metrics == resumed.best_metrics


def test_every_option_is_read_by_some_task_and_every_option_read_is_one() -> None:
    read = set(COMMON)
    for name in TASKS:
        reads = importlib.import_module(f"recur.train.tasks.{name}").TASK.reads
        assert reads <= FIELDS, name
        read |= reads
    assert LabelledTask.reads <= FIELDS
    assert read | LabelledTask.reads == FIELDS


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"task": "langage"}, "unknown task 'langage'; did you mean 'language'?"),
        (
            {"task": "seq2seq", "window": 20},
            "--window is not read by the task seq2seq, whose own options are: attention",
        ),
        ({"stop": "length"}, "--stop is not read by the task language"),
        (
            {"context": "label", "partition": "random"},
            "--partition is not read by the task language with --context label",
        ),
        ({"task": "seq2seq", "context": "label"}, "--context is not read by the task seq2seq"),
        ({"task": "seq2seq", "teacher": "often"}, "teacher 'often' is not one of"),
    ],
)
def test_what_a_task_does_not_read_is_refused_by_name(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        task_of(Config.of(**fields))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"longest": 2}, r"pairs.tsv:2: the target has 3 symbols, and --longest is 2"),
        ({"stop": "source", "source_token": "space"}, r"pairs.tsv:1: 2 symbols from 1; --stop source wants as many"),
    ],
)
def test_pairs_that_do_not_fit_the_options(fields: dict[str, Any], says: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tbc\nab\tabc\n")
    name = str(tmp_path / "pairs.tsv")
    with pytest.raises(TextError, match=says):
        task_of(Config.of(texts=name, valid=name, test=name, task="seq2seq", **fields)).read()


def test_a_label_has_no_length() -> None:
    with pytest.raises(OptionError, match="a label has no length"):
        task_of(Config.of(texts="x.tsv", context="label", stop="source")).read()


def test_a_target_longer_than_what_is_written_can_still_be_measured(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{word}\n" for word in WORDS))
    (tmp_path / "long.tsv").write_text("ba\tbadeki\n")
    name = str(tmp_path / "pairs.tsv")
    trainer = make(tmp_path / "a", name, task="seq2seq", steps=2, longest=5, valid=name, test=name)
    trainer.train()
    found = trainer.task.open(trainer.run).evaluate([str(tmp_path / "long.tsv")])
    assert found["word_error_rate"] == 100
    assert found["perplexity"] > 1
