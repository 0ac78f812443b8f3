"""Tasks that label and remember: stopped runs go on exactly, what can be learned is, mistakes are refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recur
from recur.baselines.classifiers import ClassNGrams, fit_best_ngrams
from recur.data.batching import Shuffled, in_order
from recur.data.text import parse_tree
from recur.errors import OptionError, TextError
from recur.runs import Run
from recur.tasks import make_options, open_predictor, task_of
from recur.tasks.adding.task import AddingTask
from recur.tasks.common.classification import class_scores, class_weights, confusion, label_vocab
from recur.tasks.copy.task import BLANK, GO, CopyTask
from recur.tasks.tag.data import spell
from recur.training import Trainer
from tests.small_runs import begin, reopen, stop_after

WORDS = [f"{a}{b}{c}" for a in "bdkst" for b in "aeiou" for c in ("", "n", "s", "st")]
SMALL: dict[str, Any] = {
    "hidden_size": 12,
    "batch_size": 16,
    "threads": 1,
    "eval_every": 0.5,
    "lr": 0.02,
    "warmup_steps": 5,
    "dropout_output": 0.1,
}

CASES: dict[str, dict[str, Any]] = {
    "classify": {
        "task": "classify",
        "direction": "both",
        "pool": "attention",
        "class_weights": "balanced",
        "embedding_size": 6,
    },
    "tag": {"task": "tag", "embedding_size": 6, "direction": "both", "dropout_embedding": 0.1},
    "tree": {"task": "tree", "embedding_size": 6, "compose": "child-sum", "dropout_input": 0.1},
    "adding": {"task": "adding", "length": 6},
    "copy": {"task": "copy", "length": 3, "embedding_size": 0, "cell": "gru"},
}


def tree_of(word: str) -> str:
    """A tree over letters whose nodes say whether they hold an a; right-branching."""
    if len(word) == 1:
        return f"({int('a' in word)} {word})"
    return f"({int('a' in word)} {tree_of(word[0])} {tree_of(word[1:])})"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("files")
    (here / "classify").write_text("".join(f"{'vowel' if w[-1] in 'aeiou' else 'other'}\t{w}\n" for w in WORDS))
    tags = {True: "V", False: "C"}
    sentences = ["".join(f"{c}\t{tags[c in 'aeiou']}\n" for c in w) + "\n" for w in WORDS]
    (here / "tag").write_text("".join(sentences))
    (here / "tree").write_text("".join(tree_of(w) + "\n" for w in WORDS))
    return here


def make(path: Path, files: Path, case: str, **more: Any) -> Trainer:
    fields = SMALL | CASES[case] | more
    if fields["task"] in ("adding", "copy"):
        fields.pop("dropout_output")
    if fields["task"] not in ("adding", "copy"):
        fields["texts"] = str(files / fields["task"])
    return begin(path, **fields)


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(case: str, files: Path, tmp_path: Path) -> None:
    straight = make(tmp_path / "a", files, case, steps=12)
    straight.train()
    stop_after(make(tmp_path / "b", files, case, steps=12), 5)
    torch.manual_seed(99)
    resumed = reopen(tmp_path / "b")
    resumed.train()
    assert resumed.step == straight.step == 12
    for a, b in zip(straight.model.state_dict().values(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert straight.best_metrics == resumed.best_metrics


@pytest.mark.parametrize(("case", "steps"), [("classify", 80), ("tag", 80), ("tree", 150)])
def test_what_can_be_learned_is(case: str, steps: int, files: Path, tmp_path: Path) -> None:
    make(tmp_path / "run", files, case, steps=steps).train()
    opened = recur.load(tmp_path / "run")
    found = opened.evaluate([str(files / case)])
    assert found["accuracy"] > 0.97
    assert sum(map(sum, found["confusion"])) == found.get("words", found.get("texts", found.get("trees")))
    lines = {"classify": ["pe", "bast"], "tag": ["b a n"], "tree": ["(x (x b) (x a))"]}[case]
    outputs = [row["output"] for row in opened.predictions(lines)]
    assert outputs == {"classify": ["vowel", "other"], "tag": ["C V C"], "tree": ["1"]}[case]
    if case == "tree":
        assert next(iter(opened.predictions(lines)))["tree"] == "(1 (0 b) (1 a))"
        assert found["node_accuracy"] > 0.97
    else:
        others = {row["model"]: row["accuracy"] for row in found["beside"]}
        assert (
            others
            == {
                "classify": {
                    "always other": pytest.approx(0.75),
                    "2-grams by class": pytest.approx(1.0),
                    "naive Bayes": pytest.approx(1.0),
                    "TF-IDF logistic regression": pytest.approx(1.0),
                },
                "tag": {"each word's most frequent tag": pytest.approx(1.0), "CRF on words": pytest.approx(1.0)},
            }[case]
        )


@pytest.mark.parametrize("token", ["char", "word"])
def test_one_direction_streams_what_the_whole_gives(token: str, files: Path, tmp_path: Path) -> None:
    make(
        tmp_path / "c", files, "classify", steps=2, direction="forward", pool="mean", token="char", blend=False
    ).train()
    opened = recur.load(tmp_path / "c")
    last = list(opened.stream("bast"))[-1]
    assert last == pytest.approx(next(opened.predictions(["bast"]))["probabilities"], abs=1e-6)
    make(tmp_path / "t", files, "tag", steps=2, direction="forward", token=token).train()
    opened = recur.load(tmp_path / "t")
    assert [tag for _, tag in opened.stream(["b", "a", "st"])] == next(opened.predictions(["b a st"]))["tags"]


def test_a_words_tag_is_read_at_its_last_token() -> None:
    from recur.data.text import fit_lines

    vocab = fit_lines(["ab c abc"], "char")
    ids, ends = spell(["ab", "c", "abc"], vocab)
    assert vocab.decode(ids) == "ab c abc"
    assert ends == [1, 3, 7]


def test_labels_of_all_nodes_or_of_the_root(files: Path) -> None:
    for labels, expected in (("all", [0, 1, 0, 1, 1]), ("root", [-1, -1, -1, -1, 1])):
        task = task_of(make_options("tree", {"texts": str(files / "tree"), "labels": labels}))
        data = task.read()
        (tree,) = task.encode([parse_tree("(1 (0 b) (1 (1 a) (0 n)))")], data.vocabs)  # type: ignore[attr-defined]
        assert tree.children == ((), (), (), (1, 2), (0, 3))
        assert tree.classes == expected


def test_several_classifiers_as_one_give_the_mean_of_their_probabilities(files: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        make(tmp_path / f"r{seed}", files, "classify", steps=3, seed=seed).train()
    runs = [tmp_path / f"r{seed}" for seed in (0, 1)]
    each = [next(open_predictor([run]).predictions(["ba"]))["probabilities"] for run in runs]
    both = next(open_predictor(runs).predictions(["ba"]))["probabilities"]
    assert both == pytest.approx({name: (each[0][name] + each[1][name]) / 2 for name in both})


def test_what_the_synthetic_tasks_ask() -> None:
    rng = np.random.default_rng(0)
    adding = task_of(make_options("adding", {"length": 20}))
    assert isinstance(adding, AddingTask)
    x, y = adding.draw(rng, 500)
    assert x.shape == (500, 20, 2)
    assert bool((x[:, :10, 1].sum(1) == 1).all())
    assert bool((x[:, 10:, 1].sum(1) == 1).all())
    assert torch.allclose((x[..., 0] * x[..., 1]).sum(1), y)
    assert float((y - 1).square().mean()) == pytest.approx(1 / 6, abs=0.02)
    copy = task_of(make_options("copy", {"length": 5}))
    assert isinstance(copy, CopyTask)
    x, y = copy.draw(rng, 3)
    assert x.shape == y.shape == (3, 25)
    assert torch.equal(x[:, :10], y[:, -10:])
    assert bool((x[:, 14] == GO).all())
    assert int((x == BLANK).sum()) == 3 * 14
    assert bool((y[:, :15] == BLANK).all())


def test_a_synthetic_task_says_after_how_many_steps_it_was_solved(files: Path, tmp_path: Path) -> None:
    make(tmp_path / "run", files, "adding", steps=400, length=4, eval_every=0.5).train()
    found = recur.load(tmp_path / "run").evaluate()
    assert found["solved"]
    solved = [m["step"] for m in Run.open(tmp_path / "run").metrics() if m["valid_mse"] < 0.01]
    assert found["solved_after_steps"] == solved[0] <= 400


def test_scores_of_classes_by_hand() -> None:
    table = confusion([0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 2], 4)
    assert table.tolist() == [[2, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    found = class_scores(table)
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["macro_f1"] == pytest.approx((4 / 5 + 2 / 4 + 2 / 3) / 3)  # the fourth class does not occur


def test_labels_in_order_and_their_weights() -> None:
    vocab = label_vocab(["10", "9", "9", "2", "10", "10"])
    assert vocab.tokens[4:] == ("2", "9", "10")
    assert class_weights(vocab).tolist() == pytest.approx([6 / 3, 6 / 6, 6 / 9])
    assert label_vocab(["b", "a"]).tokens[4:] == ("a", "b")


def test_an_epoch_holds_every_example_once_and_is_drawn_from_its_seed() -> None:
    items = list(range(103))
    batches = Shuffled(items, 10, 3, list, lambda item: item % 7)
    first = list(batches.batches(0))
    assert sorted(itertools.chain(*first)) == items
    assert len(first) == len(batches) == 11
    assert list(batches.batches(0, skip=4)) == first[4:]
    assert list(batches.batches(1)) != first
    assert list(itertools.chain(*in_order(items, 10, list))) == items


def test_n_grams_by_class_are_bayes() -> None:
    from recur.data.text import Characters

    train = [("aab", 0), ("aaa", 0), ("abb", 1), ("bbb", 1), ("bab", 1)]
    model = ClassNGrams(train, Characters(), 2)
    for text in ("ab", "ba", "a b"):
        scores = [model.prior[k] + model.models[k].logprob(" ".join(text).replace("   ", " _ ")) for k in (0, 1)]
        assert model.classify([text]) == [int(scores[1] > scores[0])]
    assert np.exp([model.prior[0], model.prior[1]]) == pytest.approx([0.4, 0.6])
    assert fit_best_ngrams(train, [("aaa", 0), ("bbb", 1)], Characters()).order == 1


def test_what_is_wrong_is_refused_in_words(files: Path, tmp_path: Path) -> None:
    def read(task: str, **fields: Any) -> None:
        task_of(make_options(task, fields)).read()

    tree = str(files / "tree")
    (tmp_path / "odd.txt").write_text("(1 (7 a) (0 b))\n")
    with pytest.raises(TextError, match=r"odd.txt:1:5: label '7' is not in the training set; its labels are 0 … 1"):
        read(task="tree", texts=tree, valid=str(tmp_path / "odd.txt"))
    (tmp_path / "wide.txt").write_text("(1 (1 a) (0 b) (0 b))\n" * 40)
    with pytest.raises(TextError, match=r"wide.txt:\d+: tree-lstm joins two children"):
        read(task="tree", texts=str(tmp_path / "wide.txt"))
    read(task="tree", texts=str(tmp_path / "wide.txt"), structure="balanced")
    read(task="tree", texts=str(tmp_path / "wide.txt"), compose="child-sum")
    with pytest.raises(OptionError, match="--cell belongs to adding, .* and tag; the task here is tree"):
        read(task="tree", texts=tree, cell="lstm")
    with pytest.raises(OptionError, match="generates its data; leave"):
        read(task="adding", texts=tree)
    with pytest.raises(TextError, match="too few to hold some out"):
        read(task="tree", texts=str(tmp_path / "odd.txt"))


def test_one_label_is_refused(tmp_path: Path) -> None:
    """There is nothing to tell apart."""
    (tmp_path / "one.tsv").write_text("".join(f"pos\tgood film {k}\n" for k in range(30)))
    with pytest.raises(TextError, match="training examples have the label 'pos': a classifier needs at least two"):
        recur.fit(tmp_path / "one.tsv", task="classify", steps=2, threads=1)
