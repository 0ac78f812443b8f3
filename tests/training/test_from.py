"""A network that begins with a language model's run: what is carried, and what learns when."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import recur
from recur.data.text import BOS, EOS
from recur.errors import OptionError, RecurError, RunError
from recur.models import Classifier, LanguageModel
from recur.runs import Run
from recur.tasks import make_options, task_class, task_of
from recur.tasks.common.pretrained import WarmStart
from recur.tasks.language.data import first_input
from recur.training import Event, Trainer, optim, resume, train
from recur.training.optim import Schedule
from tests.support import TOLERANCE, become_another_user

TEXT = "the network reads a word and the word is kept\na state is a word that the network keeps\n" * 8
LINES = "a\tthe network reads\nb\ta state is novel\n" * 20
SMALL: dict[str, Any] = {"threads": 1, "baseline": False}
"""Of every run here."""
CLOSE = {"atol": TOLERANCE[torch.float32], "rtol": TOLERANCE[torch.float32]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Language models: of words, in both directions, of two layers; of characters; and files of tasks."""
    made = tmp_path_factory.mktemp("from")
    (made / "book.txt").write_text(TEXT)
    (made / "lines.tsv").write_text(LINES)
    (made / "pairs.tsv").write_text("the network reads\tnovel\na state is novel\tword\n" * 20)
    (made / "tags.conll").write_text("the\tD\nnovel\tA\nword\tN\n\na\tD\nstate\tN\n\n" * 20)
    (made / "trees.txt").write_text("(1 (0 the) (1 novel))\n(0 (1 state) (0 word))\n" * 20)
    lms: dict[str, dict[str, Any]] = {
        "words": {"token": "word"},
        "backward": {"token": "word", "direction": "backward", "seed": 1},
        "deep": {"token": "word", "num_layers": 2, "cell": "lstm"},
        "deep-backward": {"token": "word", "num_layers": 2, "cell": "lstm", "direction": "backward", "seed": 1},
        "untied": {"token": "word", "tie_weights": False},
        "chars": {"token": "char"},
    }
    for name, fields in lms.items():
        sizes = {"hidden_size": 6, "embedding_size": 5, "window": 8, "batch_size": 4, "steps": 12}
        train(make_options("language", {"texts": str(made / "book.txt"), **SMALL, **sizes, **fields}), made / name)
    return made


def begun(folder: Path, task: str, text: str, *runs: str, **fields: Any) -> tuple[Any, Any, Any, list[str]]:
    """A task, its data and a network at its first step, and what was said."""
    given = {"texts": str(folder / text), "from_": [str(folder / run) for run in runs], **SMALL, **fields}
    options = make_options(task, given)
    began = WarmStart.of(options)
    made = task_of(task_class(task).settle(began.followed(options)))
    data = began.read(made)
    torch.manual_seed(0)
    model = made.new_model(data.vocabs)
    notes = began.fill(model, made, data.vocabs)
    return made, data, model.eval(), notes


def language(folder: Path, run: str) -> Any:
    return recur.load(folder / run, "cpu", task="language")


def states(model: LanguageModel, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return model.recurrent(model.embedding(ids)).outputs


def read(model: Classifier, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return model.read(ids, torch.tensor([ids.shape[1]] * len(ids)))


IDS = torch.tensor([[4, 7, 5, 6, 4], [8, 9, 4, 5, 10]])


@pytest.mark.parametrize("run", ["words", "deep"])
def test_a_classifier_reads_as_its_language_model_does(run: str, folder: Path) -> None:
    _, data, model, notes = begun(folder, "classify", "lines.tsv", run)
    assert model.options.direction == "forward"
    assert torch.equal(read(model, IDS), states(language(folder, run).model, IDS))
    own = language(folder, run).run.vocab
    vocab = data.vocabs["vocab"]
    assert vocab.tokens == (*own.tokens, "novel"), "new tokens stand behind the old ones"
    assert vocab.counts[vocab.ids["state"]] == own.counts[own.ids["state"]] + vocab.counts[vocab.ids["novel"]]
    assert notes[0].endswith("of 11 of 12 tokens, layer 1 forward" + ", layer 2 forward" * (run == "deep"))


@pytest.mark.parametrize("runs", [("words", "backward"), ("deep", "deep-backward"), ("deep-backward", "deep")])
def test_of_two_language_models_each_half_computes_what_its_own_did(runs: tuple[str, str], folder: Path) -> None:
    _, _, model, notes = begun(folder, "classify", "lines.tsv", *runs)
    assert model.options.direction == "both"
    assert model.options.embedding_size == 10
    forward, backward = sorted(runs, key=lambda run: "backward" in run)
    found = read(model, IDS)
    torch.testing.assert_close(found[..., :6], states(language(folder, forward).model, IDS), **CLOSE)
    turned = states(language(folder, backward).model, IDS.flip(1)).flip(1)
    torch.testing.assert_close(found[..., 6:], turned, **CLOSE)
    assert len(notes) == 2
    assert "layer 1 backward" in notes[runs.index(backward)]


def test_of_one_language_model_the_other_direction_is_drawn(folder: Path) -> None:
    _, _, model, notes = begun(folder, "classify", "lines.tsv", "deep", direction="both")
    torch.testing.assert_close(read(model, IDS)[..., :6], states(language(folder, "deep").model, IDS), **CLOSE)
    assert model.recurrent.weight_hh_l0_reverse.abs().min() > 0
    assert "backward" not in notes[0]


def test_more_layers_than_there_were_are_drawn(folder: Path) -> None:
    _, _, model, notes = begun(folder, "classify", "lines.tsv", "words", num_layers=2)
    assert notes[0].endswith("layer 1 forward")
    assert torch.equal(model.recurrent.weight_ih_l0, language(folder, "words").model.recurrent.weight_ih_l0)


def test_a_language_model_goes_on_with_another_text(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text(TEXT.replace("keeps", "forgets"))
    for run in ("words", "untied", "deep"):
        _, data, model, notes = begun(folder, "language", str(tmp_path / "other.txt"), run)
        source = language(folder, run)
        K = len(source.run.vocab)
        assert data.vocab.tokens[K:] == ("forgets",)
        with torch.no_grad():
            found, before = model(IDS).logits, source.model(IDS).logits
        assert torch.equal(found[..., :K], before) or run == "words"
        torch.testing.assert_close(found[..., :K], before, **CLOSE)
        assert notes[0].endswith("forward, output")


@pytest.mark.parametrize("run", ["words", "untied", "chars"])
def test_lines_of_a_label_begin_and_end_where_lines_of_a_text_did(run: str, folder: Path) -> None:
    _, data, model, _ = begun(folder, "conditional", "lines.tsv", run)
    source = language(folder, run)
    was, vocab = source.model, source.run.vocab
    edge = first_input(vocab)
    decoder = model.decoder
    assert torch.equal(decoder.embedding.weight[BOS], was.embedding.weight[edge])
    V = was.output_matrix()
    assert torch.equal(decoder.symbols.weight[EOS], V[edge])
    for token in ("a", "r") if run == "chars" else ("network", "state"):
        new, old = data.vocabs["vocab"].ids[token], vocab.ids[token]
        assert torch.equal(decoder.symbols.weight[new], V[old])
        assert torch.equal(decoder.symbols.bias[new], was.bias[old])
    assert torch.equal(decoder.network.recurrent.weight_hh_l0, was.recurrent.weight_hh_l0)


def test_an_encoder_reads_as_the_language_model_does(folder: Path) -> None:
    _, data, model, _ = begun(folder, "seq2seq", "pairs.tsv", "backward", source_token="word")
    was = language(folder, "backward").model
    assert torch.equal(model.encoder.weight_hh_l0_reverse, was.recurrent.weight_hh_l0)
    assert torch.equal(model.embedding.weight[: was.K], was.embedding.weight)
    assert data.vocabs["source"].tokens[: was.K] == language(folder, "backward").run.vocab.tokens
    assert "network" not in data.vocabs["source"].tokens[was.K :]


def test_trees_take_the_embedding(folder: Path) -> None:
    _, _, model, notes = begun(folder, "tree", "trees.txt", "words")
    was = language(folder, "words").model
    assert torch.equal(model.embedding[: was.K], was.embedding.weight)
    assert notes[0].endswith("embedding of 11 of 12 tokens")


def test_new_tokens_are_drawn_like_the_old_ones(folder: Path, tmp_path: Path) -> None:
    words = " ".join(f"new{k}" for k in range(4000))
    (tmp_path / "many.tsv").write_text(f"a\t{words} network\nb\tnetwork\n" * 20)
    _, _, model, _ = begun(folder, "classify", str(tmp_path / "many.tsv"), "words")
    source = language(folder, "words")
    old = source.model.embedding.weight[torch.tensor(source.run.vocab.counts) > 0].detach()
    new = model.embedding.weight[source.model.K :].detach()
    error = old.std(0, correction=0) / len(new) ** 0.5
    assert ((new.mean(0) - old.mean(0)).abs() < 4 * error).all()
    assert (new.std(0) / old.std(0, correction=0) - 1).abs().max() < 0.05


@pytest.mark.parametrize(
    ("task", "text", "runs", "fields", "says"),
    [
        (
            "classify",
            "lines.tsv",
            ["words"],
            {"hidden_size": 7},
            "--hidden-size 7 does not fit --from .*words, which has 6",
        ),
        (
            "classify",
            "lines.tsv",
            ["words"],
            {"cell": "lstm"},
            "--cell lstm does not fit --from .*, which has gru",
        ),
        ("classify", "lines.tsv", ["words"], {"token": "char"}, "--token char does not fit --from .*, which has word"),
        ("classify", "lines.tsv", ["words"], {"lower": True}, "--lower True does not fit"),
        ("classify", "lines.tsv", ["backward"], {"direction": "forward"}, "--direction forward does not fit"),
        ("classify", "lines.tsv", ["backward"], {"direction": "both"}, "which reads backward; give a forward one too"),
        ("language", "book.txt", ["backward"], {"direction": "forward"}, "--direction forward does not fit"),
        ("classify", "lines.tsv", ["words", "words"], {}, "both read forward"),
        ("classify", "lines.tsv", ["words", "deep-backward"], {}, "they differ in --cell, gru and lstm"),
        ("classify", "lines.tsv", ["words", "chars"], {}, "both read forward"),
        ("classify", "lines.tsv", ["words"] * 3, {}, "one language model, or two"),
        ("tree", "trees.txt", ["chars"], {}, "a model of chars, and the task tree reads words"),
        ("tag", "tags.conll", ["lines.tsv"], {}, "is not a run"),
        ("classify", "lines.tsv", ["words"], {"vectors": "v.txt"}, "--from and --vectors both bring vectors"),
        ("classify", "lines.tsv", [], {"unfreeze": 0.1}, "--unfreeze is for --from, which is not given"),
        ("classify", "lines.tsv", [], {"layer_lr_decay": 2.6}, "--layer-lr-decay is for --from"),
        ("classify", "lines.tsv", [], {"freeze_vectors": True}, "--freeze-vectors is for --vectors or --from"),
        ("classify", "lines.tsv", [], {"from_": [""]}, "from: a text's name is empty"),
    ],
)
def test_what_does_not_fit_is_said_in_a_line(
    task: str, text: str, runs: list[str], fields: dict[str, Any], says: str, folder: Path
) -> None:
    given = {"from_": [str(folder / run) for run in runs], **fields}
    with pytest.raises(RecurError, match=says) as caught:
        train(make_options(task, {"texts": str(folder / text), **SMALL, **given}), folder / "refused")
    assert "\n" not in str(caught.value)
    assert not (folder / "refused").exists()


def test_a_run_of_another_task_or_without_a_token_in_common_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "greek.tsv").write_text("α\tλόγος\nβ\tνόμος\n" * 20)
    with pytest.raises(OptionError, match="knows none of this text's tokens"):
        begun(folder, "classify", str(tmp_path / "greek.tsv"), "words")
    small = {"texts": str(folder / "lines.tsv"), "steps": 1, "hidden_size": 4, **SMALL}
    train(make_options("classify", small), tmp_path / "other")
    with pytest.raises(OptionError, match="a run of the task classify; what carries over is a language model"):
        begun(folder, "classify", "lines.tsv", str(tmp_path / "other"))


def test_sequences_of_numbers_have_no_tokens(folder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "n.npz", x=np.zeros((40, 3, 2)), y=np.arange(40) % 2)
    (tmp_path / "v.txt").write_text("a 1\n")
    for given in ({"from_": str(folder / "words")}, {"vectors": str(tmp_path / "v.txt")}):
        with pytest.raises(OptionError, match="is for texts, and these are sequences of numbers"):
            train(make_options("classify", {"texts": str(tmp_path / "n.npz"), **given, **SMALL}), tmp_path / "refused")


# The run ----------------------------------------------------------------------------------------------------------


def test_the_run_knows_what_it_began_with_and_needs_it_no_more(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder / "words", tmp_path / "lm")
    monkeypatch.chdir(tmp_path)
    said: list[Event] = []
    options = make_options(
        "classify",
        {"texts": str(folder / "lines.tsv"), "from_": ["lm"], "epochs": 1, **SMALL},
    )
    train(options, "run", said.append)
    assert any(e.kind == "note" and "embedding of 11 of 12 tokens" in str(e.content["text"]) for e in said)
    (known,) = Run.open(tmp_path / "run").manifest.texts["from_"]
    content = (tmp_path / "lm" / "model.safetensors").read_bytes()
    assert (known.name, known.bytes, known.sha256) == ("../lm", len(content), hashlib.sha256(content).hexdigest())
    assert 'from = ["../lm"]' in (tmp_path / "run" / "config.toml").read_text()
    shutil.rmtree(tmp_path / "lm")
    resume(tmp_path / "run", epochs=1)
    assert recur.load(tmp_path / "run", task="classify")("the network reads") == "a"


LEARNING: list[dict[str, Any]] = [
    {"unfreeze": 0.25, "layer_lr_decay": 2.6, "schedule": "slanted:0.3"},
    {"unfreeze": 0.15, "optimizer": "asgd", "schedule": "nonmono:1", "lr": 0.5, "gradient_accumulation_steps": 2},
    {"freeze_vectors": True, "optimizer": "sgd", "momentum": 0.9},
]


@pytest.mark.parametrize("fields", LEARNING, ids=lambda fields: next(iter(fields)))
@pytest.mark.parametrize("at", [0, 3, 7, 11])
def test_it_goes_on_exactly_wherever_it_was_stopped(
    fields: dict[str, Any], at: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"texts": str(folder / "lines.tsv"), "from_": [str(folder / "deep")], "batch_size": 4, "steps": 14, **SMALL}
    straight = train(make_options("classify", {**given, **fields}), tmp_path / "a")
    stop, ordinary = threading.Event(), Trainer.train_on

    def watched(trainer: Trainer, batch: Any) -> None:
        ordinary(trainer, batch)
        if trainer.step >= at:
            stop.set()

    if not at:
        stop.set()
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_on", watched)
        assert train(make_options("classify", {**given, **fields}), tmp_path / "b", stop=stop).stopped
    torch.manual_seed(99)  # another process would have other random numbers
    resumed = resume(tmp_path / "b")
    assert resumed.summary["steps"] == straight.summary["steps"] == 14
    weights = [checkpoint_weights(tmp_path / run) for run in "ab"]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


def checkpoint_weights(path: Path) -> dict[str, Tensor]:
    """Weights, and what the optimiser keeps of them."""
    tensors = Run.open(path).load_checkpoint()[1]
    return {name: value for name, value in tensors.items() if name.startswith(("model/", "optimizer/"))}


def test_layers_learn_in_their_turn_from_the_top(folder: Path) -> None:
    made, data, model, _ = begun(folder, "classify", "lines.tsv", "deep", unfreeze=0.2, layer_lr_decay=2.0)
    optimizer = optim.make_optimizer(made.options, model, made.places)
    assert [group["factor"] for group in optimizer.param_groups] == [1 / 8, 1 / 4, 1 / 2, 1]
    names = {id(p): name for name, p in model.named_parameters()}
    learning = []
    for progress in (0.0, 0.19, 0.2, 0.4, 0.7):
        optim.unfreeze_groups(optimizer, progress)
        learning.append({names[id(p)].split(".")[0] + names[id(p)][-3:] for p in model.parameters() if p.requires_grad})
    head = {"outputght", "outputias"}
    assert learning[0] == learning[1] == head
    assert learning[2] == head | {"recurrent_l1"}
    assert learning[3] == head | {"recurrent_l1", "recurrent_l0"}
    assert learning[4] == head | {"recurrent_l1", "recurrent_l0", "embeddingght"}
    made.training_step(model, next(iter(made.batches(data).batches())), None, None).loss.backward()


def test_what_a_direction_has_not_from_its_language_model_learns_from_the_start(folder: Path) -> None:
    made, _, model, _ = begun(folder, "classify", "lines.tsv", "deep", direction="both", unfreeze=0.2)
    optimizer = optim.make_optimizer(made.options, model, made.places)
    optim.unfreeze_groups(optimizer, 0.0)
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name for name in learning if "recurrent" in name} == {
        name for name, _ in model.named_parameters() if name.endswith("_reverse")
    }


def test_a_task_has_other_defaults_with_it_and_what_is_set_stays(folder: Path) -> None:
    made, _, _, _ = begun(folder, "classify", "lines.tsv", "words")
    o = made.options
    assert (o.unfreeze, o.layer_lr_decay, o.schedule, o.epochs) == (0.3, 2.6, "slanted", 40.0)
    made, _, _, _ = begun(folder, "classify", "lines.tsv", "words", unfreeze=0.0, schedule="cosine", epochs=2.0)
    o = made.options
    assert (o.unfreeze, o.layer_lr_decay, o.schedule, o.epochs) == (0.0, 2.6, "cosine", 2.0)
    made, _, model, _ = begun(folder, "tag", "tags.conll", "words", characters="none", casing=False)
    assert made.options.direction == "both"
    assert torch.equal(model.recurrent.weight_hh_l0, language(folder, "words").model.recurrent.weight_hh_l0)


def test_what_is_frozen_stays_and_what_is_open_moves(folder: Path, tmp_path: Path) -> None:
    given = {"texts": str(folder / "lines.tsv"), "from_": [str(folder / "words")], "steps": 6, "batch_size": 8, **SMALL}
    train(make_options("classify", {**given, "freeze_vectors": True}), tmp_path / "frozen")
    train(make_options("classify", {**given, "freeze_vectors": False}), tmp_path / "open")
    was = language(folder, "words").model
    for run, same in (("frozen", True), ("open", False)):
        weights = checkpoint_weights(tmp_path / run)
        assert torch.equal(weights["model/embedding.weight"][: was.K], was.embedding.weight) == same
        assert not torch.equal(weights["model/recurrent.weight_hh_l0"], was.recurrent.weight_hh_l0)
        assert ("optimizer/embedding.weight/exp_avg" in weights) != same


def test_without_it_a_network_is_one_group(folder: Path) -> None:
    made, _, model, notes = begun(folder, "classify", "lines.tsv")
    optimizer = optim.make_optimizer(made.options, model, made.places)
    (group,) = optimizer.param_groups
    assert [id(p) for p in group["params"]] == [id(p) for p in model.parameters()]
    assert not {"factor", "opens"} & {*group}
    assert notes == []


def test_slanted_rates_rise_and_fall_on_straight_lines() -> None:
    schedule = Schedule("slanted:0.25", warmup=50)
    at = [schedule(0, 0, progress) for progress in (0.0, 0.125, 0.25, 0.625, 1.0, 1.2)]
    assert at == pytest.approx([1 / 32, 16.5 / 32, 1, 16.5 / 32, 1 / 32, 1 / 32], abs=1e-12)
    assert Schedule("slanted", 0)(0, 0, 0.1) == 1
    for wrong in ("slanted:1", "slanted:0", "slanted:0.1:2", "slanted:x"):
        with pytest.raises(OptionError, match=r"slanted\[:cut\]"):
            Schedule(wrong, 0)


CELL = """
from torch import tanh
from recur.cells.cell import Cell, State, Tensors

class Mine(Cell):
    name = "mine"
    gates = ("n",)
    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        return (tanh(x.n + h.n),)
"""


def test_a_strangers_cell_is_executed_only_if_it_is_trusted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(CELL)
    sizes = {
        "texts": str(folder / "book.txt"),
        "token": "word",
        "hidden_size": 6,
        "embedding_size": 5,
        "steps": 2,
        **SMALL,
    }
    recur.fit(**sizes, task="language", cell=f"{tmp_path / 'mine.py'}:Mine", out=tmp_path / "lm")
    given = {"texts": str(folder / "lines.tsv"), "from_": [str(tmp_path / "lm")], "steps": 2, **SMALL}
    become_another_user(monkeypatch, tmp_path / "somebody-else")
    with pytest.raises(RunError, match="a custom cell would be executed"):
        train(make_options("classify", given), tmp_path / "run")
    train(make_options("classify", given), tmp_path / "run", trust=True)
    assert (tmp_path / "run" / "cell.py").read_text() == CELL
    shutil.rmtree(tmp_path / "lm")
    assert recur.load(tmp_path / "run", task="classify").model.recurrent.cell.name == "mine"


def test_pieces_of_words_are_taken_over_whole(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    sizes = {"texts": str(folder / "book.txt"), "hidden_size": 6, "embedding_size": 5, "steps": 2, **SMALL}
    train(make_options("language", {**sizes, "token": "subword", "pieces": 300}), tmp_path / "lm")
    _, data, _, notes = begun(folder, "classify", "lines.tsv", str(tmp_path / "lm"))
    own = recur.load(tmp_path / "lm").run.vocab
    assert data.vocabs["vocab"] == own
    assert f"{len(own) - 4:,} of {len(own) - 4:,} tokens" in notes[0]


# Vectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("classify", "lines.tsv"),
        ("tag", "tags.conll"),
        ("tree", "trees.txt"),
        ("seq2seq", "pairs.tsv"),
        ("language", "book.txt"),
        ("conditional", "lines.tsv"),
    ],
)
def test_vectors_of_a_file_are_where_every_task_begins(task: str, text: str, folder: Path, tmp_path: Path) -> None:
    rows = {"the": [1.0, 2.0, 3.0], "state": [4.0, 5.0, 6.5]}
    (tmp_path / "v.txt").write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows.items()))
    tokens = {"seq2seq": {"source_token": "word"}, "tree": {}}.get(task, {"token": "word"})
    made, data, model, notes = begun(folder, task, text, vectors=str(tmp_path / "v.txt"), **tokens)
    assert made.options.embedding_size == 3
    vocab, table = data.vocabs[made.places.vocab], dict(model.named_parameters())[made.places.embedding]
    for word, row in rows.items():
        assert table[vocab.ids[word]].tolist() == row
    others = [k for k in range(4, len(vocab)) if vocab.tokens[k] not in rows]
    mean, deviation = np.mean([*rows.values()], 0), np.std([*rows.values()], 0)
    assert (np.abs(table[others].detach().numpy() - mean) < 6 * deviation).all()
    assert not torch.equal(table[others[0]], table[others[1]])
    assert (table[0] == 0).all(), "<unk>, which no training text has"
    total = len(vocab) - 4
    assert notes == [f"vectors for 2 of {total:,} tokens, {2 / total:.1%}, from {tmp_path / 'v.txt'}"]


def test_more_tokens_of_a_file_are_known_where_they_are_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("unheard 1 2\nthe 3 4\nof us 5 6\nlater 7 8\nlast 9 10\n")
    fields = {"vectors": str(tmp_path / "v.txt"), "vectors_extra": 4, "token": "word"}
    _, data, model, _ = begun(folder, "classify", "lines.tsv", **fields)
    vocab = data.vocabs["vocab"]
    assert {"unheard", "later"} <= {*vocab.tokens}
    assert not {"last", "of us"} & {*vocab.tokens}
    assert model.embedding.weight[vocab.ids["later"]].tolist() == [7, 8]
    with pytest.raises(OptionError, match="the task language writes tokens"):
        begun(folder, "language", "book.txt", **fields)


def test_vectors_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("unheard 1 2\n")
    with pytest.raises(OptionError, match="--embedding-size 64 does not fit .*v.txt, whose vectors have 2 numbers"):
        begun(folder, "classify", "lines.tsv", vectors=str(tmp_path / "v.txt"), embedding_size=64)
    with pytest.raises(OptionError, match="has none of this text's tokens"):
        begun(folder, "classify", "lines.tsv", vectors=str(tmp_path / "v.txt"))


def test_a_run_with_frozen_vectors_goes_on_without_their_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("the 1 2\nstate 3 4\n")
    given = {"texts": str(folder / "lines.tsv"), "vectors": str(tmp_path / "v.txt"), "token": "word", **SMALL}
    train(make_options("classify", {**given, "freeze_vectors": True, "steps": 3}), tmp_path / "run")
    (known,) = json.loads((tmp_path / "run" / "manifest.json").read_text())["texts"]["vectors"]
    assert known["sha256"] == hashlib.sha256((tmp_path / "v.txt").read_bytes()).hexdigest()
    (tmp_path / "v.txt").unlink()
    resume(tmp_path / "run", steps=3)
    model = recur.load(tmp_path / "run", task="classify")
    assert model.model.embedding.weight[model.run.vocab.ids["state"]].tolist() == [3, 4]
