"""--recurrence output: what a step reads is the output before, and nothing else of the past (Deep Learning, 10.2.1)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import recur
from recur.diagnostics.subject import Subject
from recur.errors import OptionError
from recur.models import LanguageModel, OutputTagger, WordBatch
from recur.nn import Depth, FeedForward, OutputRecurrent
from recur.tasks import make_options, task_class, task_of
from tests.small_runs import begin
from tests.support import close


def tagger(**fields: Any) -> OutputTagger:
    options: Any = make_options("tag", {"recurrence": "output", "direction": "forward", "hidden_size": 6, **fields})
    torch.manual_seed(0)
    return OutputTagger(9, 4, options).eval()


def test_with_a_teacher_a_tag_sees_its_word_and_the_tag_before() -> None:
    model, ids = tagger(embedding_size=5), torch.randint(9, (2, 5))
    words, tags = WordBatch.of_tokens(ids, torch.tensor([5, 3])), torch.randint(4, (2, 5))
    with torch.no_grad():
        found = model(words, tags).flatten(0, 1)
        net, x = model.network, model.embedding(ids).flatten(0, 1)
        for k in range(8):
            before = torch.zeros(4)
            if k % 5:
                before[tags.flatten()[k - 1]] = 1
            h = torch.tanh(net.hidden.weight @ x[k] + net.hidden.bias + net.back.weight @ before)
            close(found[k], net.output.weight @ h + net.output.bias)
        moved = tags.clone()
        moved[0, 2] = (moved[0, 2] + 1) % 4
        changed = (model(words, moved).flatten(0, 1) - found).abs().sum(1) > 0
        assert changed.tolist() == [k == 3 for k in range(10)], "the next tag alone reads it"


@pytest.mark.parametrize("clock", [{}, {"time_input": True, "time_scale": 5.0}])
def test_free_running_is_step_by_step_and_reads_its_own_tags(clock: dict[str, Any]) -> None:
    model, ids = tagger(depth_input=1, depth_output=1, **clock), torch.randint(9, (2, 5))
    words = WordBatch.of_tokens(ids, torch.tensor([5, 5]))
    with torch.no_grad():
        free = model(words)
        state, found = None, []
        for t in range(5):
            logits, state = model.step(ids[:, t], state)
            found.append(logits)
        close(torch.stack(found, 1), free)
        close(model(words, free.argmax(-1)), free)


def test_a_feed_forward_layer_is_its_equation_and_carries_nothing() -> None:
    net = FeedForward(3, 4, depth=Depth(input=1, output=1)).double()
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    out, state, (trace,) = net(x, lengths=[5, 2])
    first, last = net.input_mlp[0], net.output_mlp[0]  # type: ignore[index]
    h = torch.tanh(net.hidden(torch.tanh(first(x))))
    expected = torch.tanh(last(h)).detach()
    expected[1, 2:] = 0
    close(out.detach(), expected)
    assert (state, trace.backend) == ((), "all at once")
    close(net.step(x[:, 1])[0], expected[:, 1])
    for kind in (FeedForward(2, 2), OutputRecurrent(2, 2, 2)):
        with pytest.raises(OptionError, match="depth.transition needs a recurrence"):
            type(kind)(*[2] * (2 if isinstance(kind, FeedForward) else 3), depth=Depth(transition=1))
    with pytest.raises(recur.errors.ShapeError, match="x must be"):
        net(x[0])


def test_a_language_model_sees_the_token_before_and_no_other() -> None:
    options: Any = make_options("language", {"recurrence": "output", "hidden_size": 8, "embedding_size": 4})
    model, ids = LanguageModel(9, options).eval(), torch.randint(9, (1, 6))
    with torch.no_grad():
        found = model(ids).logits
        for t in range(6):
            close(model.step(ids[:, t])[0], found[:, t])
    assert model(ids).state == ()


def test_it_comes_to_the_bigram_and_no_further(tmp_path: Path) -> None:
    """ab ac ab ac: what follows an a is known two tokens back and not from the a. A bigram has ln 2 on every second
    token; a hidden state has nothing left to guess."""
    (tmp_path / "text").write_text("abac" * 400)
    found = {}
    for recurrence in ("output", "hidden"):
        trainer = begin(
            tmp_path / recurrence, texts=str(tmp_path / "text"), hidden_size=16, batch_size=8, window=8,
            steps=300, lr=0.005, threads=1, recurrence=recurrence, baseline=False, dropout_output=0.0,
            dropout_input=0.0, alpha=0.0, beta=0.0, weight_decay=0.0,
        )  # fmt: skip
        trainer.train()
        found[recurrence] = trainer.best_metrics["valid_loss"]
    assert 0.99 < found["output"] / (math.log(2) / 2) < 1.15
    assert found["hidden"] < 0.1
    with pytest.raises(OptionError, match="has no recurrence between hidden states"):
        Subject.of(recur.load(tmp_path / "output"))


def test_when_to_switch_is_told_by_t_alone(tmp_path: Path) -> None:
    """Sentences of one word, tagged A nine times and B from then on: with its own last output and a word that is always
    the same, no step can tell that it is the tenth. With t as an input it can."""
    sentence = "".join(f"w\t{'A' if k < 9 else 'B'}\n" for k in range(18)) + "\n"
    (tmp_path / "text").write_text(sentence * 60)
    accuracy = {}
    for time_input in (False, True):
        fields = {"texts": str(tmp_path / "text"), "recurrence": "output", "time_input": time_input}
        more = {"hidden_size": 8, "steps": 250, "lr": 0.05, "dropout_output": 0.0, "dropout_input": 0.0, "threads": 1}
        begin(tmp_path / str(time_input), "tag", **fields, **more).train()
        accuracy[time_input] = recur.load(tmp_path / str(time_input)).evaluate([str(tmp_path / "text")])["accuracy"]
    assert accuracy[False] == pytest.approx(0.5), "it never switches, or at once"
    assert accuracy[True] == 1.0


def test_copying_needs_a_state() -> None:
    """Behind a long silence nothing in the output before says what the message was."""
    options: Any = make_options("copy", {"recurrence": "output", "length": 4, "hidden_size": 16})
    settled = task_class("copy").settle(options)
    assert settled.forget_bias is None
    task = task_of(settled)
    model, batch = task.new_model({}), task.read().held_out(0)
    with torch.no_grad():
        recalled = task.logits(model, batch, batch.y).view(*batch.y.shape, -1)[:, -10]
    assert float(recalled.std(0).max()) == 0.0, "the same for every message"
    assert cross_entropy(task.logits(model, batch), batch.y.flatten()).isfinite()


@pytest.mark.parametrize(
    ("task", "fields", "says"),
    [
        (
            "language",
            {"cell": "lstm"},
            "--cell is for a recurrence between hidden states; --recurrence output has none",
        ),
        ("language", {"num_layers": 2}, "--num-layers is for a recurrence between hidden states"),
        ("language", {"bptt": "truncated:3"}, "--bptt is for a recurrence between hidden states"),
        ("tag", {"token": "char"}, "an output at every step: take --token word, got char"),
        ("seq2seq", {"num_layers": 2}, "--num-layers is for a recurrence between hidden states"),
        ("forecast", {"lags": 3}, "--recurrence is for a state; --lags 3 has none"),
        ("classify", {}, "--recurrence belongs to conditional, .*; the task here is classify"),
        ("adding", {}, "--recurrence belongs to conditional, .*; the task here is adding"),
    ],
)
def test_what_does_not_fit_is_refused(task: str, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        make_options(task, {"recurrence": "output", **fields})


def test_what_does_not_fit_is_refused_before_a_run_begins(tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("".join(f"ab{k}\tba{k}\n" for k in range(60)))
    (tmp_path / "tags").write_text("a\tX\nb\tY\n\n" * 40)
    with pytest.raises(OptionError, match="has no h₀: take --condition input, got 'both'"):
        recur.fit(tmp_path / "pairs", task="seq2seq", recurrence="output", condition="both", out=tmp_path / "run")
    with pytest.raises(OptionError, match="--recurrence output reads forward, got --direction both"):
        recur.fit(tmp_path / "tags", task="tag", recurrence="output", direction="both", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
