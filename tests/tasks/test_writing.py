"""Tasks that write: a stopped run goes on exactly, and pairs that do not fit are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from recur.errors import OptionError, TextError
from recur.tasks import make_options, open_predictor, task_of
from recur.training import Trainer
from tests.small_runs import begin, reopen, stop_after

WORDS = [f"{a}{b}{c}" for a in "bdk" for b in "aeiou" for c in ("", "n", "s", "st")]

SMALL: dict[str, Any] = {"hidden_size": 8, "embedding_size": 6, "batch_size": 8, "threads": 1, "eval_every": 0.4}
CASES: dict[str, dict[str, Any]] = {
    "seq2seq": {"task": "seq2seq", "target_token": "space", "label_smoothing": 0.1, "dropout_input": 0.2},
    "mixed": {
        "task": "seq2seq",
        "teacher_forcing": "linear:1:0.2",
        "stop": "bernoulli",
        "attention": "dot",
        "num_layers": 2,
    },
    "fed": {"task": "seq2seq", "input_feeding": True, "copy": True, "attention": "dot", "dropout_output": 0.3},
    "length": {"task": "seq2seq", "teacher_forcing": "constant:0.5,sequence", "stop": "length", "condition": "both"},
    "aligned": {"task": "seq2seq", "stop": "source", "condition": "aligned", "attention": "none", "cell": "gru"},
    "conditional": {"task": "conditional", "condition": "both", "teacher_forcing": "sigmoid:5"},
}


def table(folder: Path, case: str) -> str:
    def target(word: str) -> str:
        return " ".join(reversed(word)) if CASES[case].get("target_token") == "space" else word[::-1]

    text = "".join(
        f"{'ABC'[k % 3] if case == 'conditional' else word}\t{target(word)}\n" for k, word in enumerate(WORDS)
    )
    (folder / "pairs.tsv").write_text(text)
    return str(folder / "pairs.tsv")


def make(path: Path, texts: str, **fields: Any) -> Trainer:
    return begin(path, texts=texts, **SMALL | fields)


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(case: str, tmp_path: Path) -> None:
    texts = table(tmp_path, case)
    straight = make(tmp_path / "a", texts, steps=20, **CASES[case])
    straight.train()
    stop_after(make(tmp_path / "b", texts, steps=20, **CASES[case]), 9)
    torch.manual_seed(99)
    resumed = reopen(tmp_path / "b")
    resumed.train()
    assert resumed.step == straight.step == 20
    for a, b in zip(straight.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    quiet = {
        "seconds",
        "predictions_per_second",
        "clipped",
        "grad_norm",
        "train_loss",
        "train_perplexity",
        "lr",
        "progress",
    }
    histories = [[{k: v for k, v in m.items() if k not in quiet} for m in t.run.metrics()] for t in (straight, resumed)]
    assert histories[0] == histories[1]
    entry = straight.run.metrics()[-1]
    assert entry["valid_gap"] == pytest.approx(entry["valid_free_loss"] - entry["valid_loss"])
    assert straight.best_metrics == resumed.best_metrics


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"max_length": 2}, r"pairs.tsv:2: the target has 3 symbols, and --max-length is 2"),
        ({"stop": "source", "source_token": "space"}, r"pairs.tsv:1: 2 symbols from 1; --stop source wants as many"),
    ],
)
def test_pairs_that_do_not_fit_the_options(fields: dict[str, Any], says: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tbc\nab\tabc\n")
    name = str(tmp_path / "pairs.tsv")
    with pytest.raises(TextError, match=says):
        task_of(make_options("seq2seq", {"texts": name, "valid": name, "test": name, **fields})).read()


def test_a_label_has_no_length() -> None:
    with pytest.raises(OptionError, match="a label has no length"):
        make_options("conditional", {"texts": "x.tsv", "stop": "source"})


def test_a_target_longer_than_what_is_written_can_still_be_measured(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{word}\n" for word in WORDS))
    (tmp_path / "long.tsv").write_text("ba\tbadeki\n")
    name = str(tmp_path / "pairs.tsv")
    trainer = make(tmp_path / "a", name, task="seq2seq", steps=2, max_length=5, valid=name, test=name)
    trainer.train()
    found = open_predictor([trainer.run.path]).evaluate([str(tmp_path / "long.tsv")])
    assert found["sequence_error_rate"] == 1
    assert found["perplexity"] > 1


def test_few_long_targets_are_left_out_and_many_are_refused(tmp_path: Path) -> None:
    lines = [f"{word}\t{word}\n" for word in WORDS[:18]] + ["ba\tbadekibadeki\n"]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    name = str(tmp_path / "pairs.tsv")
    options = make_options("seq2seq", {"texts": name, "valid": name, "test": name, "max_length": 6})
    task: Any = task_of(task_of(options).settle(options))
    data = task.read()
    assert (len(data.train), len(data.train_pairs), len(data.valid)) == (18, 18, 19)
    assert "; 1 with more than 6 target symbols (--max-length) left out" in task.describe(data)
    (tmp_path / "pairs.tsv").write_text("".join([*lines[:6], *lines[-2:]]))
    with pytest.raises(TextError, match=r"the target has 12 symbols, and --max-length is 6"):
        task.read()
