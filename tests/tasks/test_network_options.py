"""What every task with a recurrent network has: deeper input, transition and output (Deep Learning, section 10.5), and
the time as an input; and what those with an output at every step have, recurrence of the output. They train, go on
exactly where they stopped, and give step by step what they give at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import recur
from recur.cells import DeepTransition
from recur.decoding import likelihood
from recur.errors import OptionError
from recur.nn import Recurrent
from recur.tasks import make_options, options_class, task_names
from recur.training import Trainer
from tests.small_runs import begin, reopen, stop_after
from tests.support import close

DEEP: dict[str, Any] = {"depth_input": 2, "depth_transition": 1, "depth_output": 1}
MORE: dict[str, dict[str, Any]] = {
    "deep": DEEP,
    "time": {"time_input": True},
    "output": {"recurrence": "output", "time_input": True, "depth_input": 1, "depth_output": 1},
}
SMALL: dict[str, Any] = {"hidden_size": 6, "batch_size": 8, "threads": 1, "eval_every": 0.5, "steps": 8}


def tasks_with(option: str) -> list[str]:
    return [name for name in task_names() if option in options_class(name).names()]


TASKS = tasks_with("depth_input")
CASES = [(task, more) for task in TASKS for more in MORE if more != "output" or task in tasks_with("recurrence")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("files")
    pairs = "".join(f"{'ab'[k % 2]}\t{'xyz'[k % 3]}{'uv'[k % 2]}w\n" for k in range(60))
    for task in ("classify", "conditional", "seq2seq"):
        (here / task).write_text(pairs)
    (here / "tag").write_text("".join(f"the\tDT\n{'wvu'[k % 3]}\tNN\n\n" for k in range(60)))
    (here / "language").write_text("the network reads a word and the word is kept\n" * 40)
    (here / "forecast").write_text("t,y\n" + "".join(f"{t},{t % 4 + 0.1 * t}\n" for t in range(60)))
    return here


def make(path: Path, files: Path, task: str, **more: Any) -> Trainer:
    own: dict[str, dict[str, Any]] = {
        "adding": {"length": 6},
        "copy": {"length": 3},
        "forecast": {"horizon": 2, "season": 4, "lags": 0},
    }
    if more.get("recurrence") != "output":
        own["tag"] = {"characters": "none"}
    texts = {"texts": str(files / task)} if "texts" in options_class(task).names() else {}
    return begin(path, task, **{**SMALL, **own.get(task, {}), **texts, **more})


def test_every_task_with_a_recurrent_network_has_them() -> None:
    for option in ("cell", "time_input"):
        assert tasks_with(option) == TASKS
    assert tasks_with("recurrence") == ["conditional", "copy", "forecast", "language", "seq2seq", "tag"]
    assert {"language", "tag", "classify", "conditional", "seq2seq", "forecast", "adding", "copy"} <= set(TASKS)


@pytest.mark.parametrize(("task", "more"), CASES)
def test_a_run_goes_on_exactly(task: str, more: str, files: Path, tmp_path: Path) -> None:
    plain = make(tmp_path / "plain", files, task).model
    straight = make(tmp_path / "a", files, task, **MORE[more])
    for net, bare in zip(_nets(straight.model), _nets(plain), strict=more != "output"):
        if more == "deep":
            assert isinstance(net.cell, DeepTransition)
            assert (len(net.input_mlp or ()), len(net.output_mlp or ())) == (4, 2), "a product and a tanh each"
        else:
            assert net.input_size == bare.input_size + 1
    straight.train()
    stop_after(make(tmp_path / "b", files, task, **MORE[more]), 3)
    torch.manual_seed(99)
    resumed = reopen(tmp_path / "b")
    resumed.train()
    assert resumed.step == 8
    for a, b in zip(straight.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert recur.load(tmp_path / "b").evaluate()


def _nets(model: torch.nn.Module) -> list[Recurrent]:
    return [module for module in model.modules() if isinstance(module, Recurrent)]


@pytest.mark.parametrize("task", tasks_with("bptt"))
def test_sliding_truncation_trains_every_task(task: str, files: Path, tmp_path: Path) -> None:
    """Over more steps than there are it is full backpropagation, and over fewer it is not."""
    found = {}
    for bptt in ("full", "sliding:1", "sliding:500"):
        trainer = make(tmp_path / bptt, files, task, bptt=bptt, steps=2)
        assert {str(net.bptt) for net in _nets(trainer.model)} <= {bptt, "full"}
        assert str(_nets(trainer.model)[0].bptt) == bptt
        trainer.train()
        found[bptt] = torch.cat([p.detach().flatten() for p in _nets(trainer.model)[0].parameters()])
    assert torch.equal(found["sliding:500"], found["full"])
    assert found["sliding:1"].isfinite().all()
    assert not torch.equal(found["sliding:1"], found["full"])


@pytest.mark.parametrize("more", MORE)
def test_a_language_model_writes_step_by_step_what_it_reads_at_once(more: str, files: Path, tmp_path: Path) -> None:
    make(tmp_path / "run", files, "language", **MORE[more]).train()
    language = recur.load(tmp_path / "run", task="language")
    ids = torch.randint(4, len(language.vocab), (2, 7))
    state, found = None, []
    for k in range(7):
        logits, state = language.model.step(ids[:, k], state)
        found.append(logits)
    with torch.no_grad():
        close(torch.stack(found, 1), language.model(ids).logits)
        first = language.model(ids[:, :3])
        second = language.model(ids[:, 3:], first.state)
        close(torch.cat([first.logits, second.logits], 1), language.model(ids).logits)
    assert len(language.generate("the ", length=20, seed=1)[0]) > 0
    assert len(language.generate("the ", length=5, width=3)) == 3


@pytest.mark.parametrize("more", ["deep", "time"])
def test_a_forward_classifier_streams_what_it_classifies(more: str, files: Path, tmp_path: Path) -> None:
    make(tmp_path / "run", files, "classify", direction="forward", token="char", blend=False, **MORE[more]).train()
    model = recur.load(tmp_path / "run", task="classify")
    *_, last = model.stream("xuw")
    (whole,) = model.predictions(["xuw"])
    assert last == pytest.approx(whole["probabilities"], abs=1e-6)


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("stop", ["eos", "length"])
def test_what_a_decoder_writes_has_the_likelihood_of_training(
    stop: str, more: str, files: Path, tmp_path: Path
) -> None:
    trainer = make(tmp_path / "run", files, "seq2seq", stop=stop, max_length=6, **MORE[more])
    batch = next(iter(trainer.stream.batches()))
    model = trainer.model.eval()
    with torch.no_grad():
        loss = model.decoder.loss(model(*batch), batch.target, batch.lengths)
        written = likelihood(model.writer(batch.source, batch.source_lengths), batch.target, batch.lengths)
        close(written.float(), -loss)
        never = torch.ones(len(batch.target), batch.target.shape[1] + 1, dtype=torch.bool)
        never[0, -1] = False
        steps = model(*batch, never).symbols
        close(steps[1:], model(*batch).symbols[1:])


def test_what_has_no_recurrence_to_deepen_says_so() -> None:
    with pytest.raises(OptionError, match="--depth-transition is for a state; --lags 3 has none"):
        make_options("forecast", {"lags": 3, "depth_transition": 1})
    with pytest.raises(OptionError, match="--depth-input belongs to adding, .*; the task here is tree"):
        make_options("tree", {"depth_input": 1})
