"""Sequences of numbers, classified, labelled step by step and without alignment: learned, resumed, used and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recur
from recur.baselines import ngram
from recur.cli.app import app
from recur.data.text import Corpus, fit_vocab
from recur.errors import OptionError, RecurError, TextError
from recur.models.classifiers import SignalInput
from recur.tasks import make_options, task_class, task_of
from recur.tasks.classify.signals import targets_of
from recur.tasks.common.registry import choose_task
from recur.tasks.common.signals import SignalExample, mean_and_deviation, stacked
from recur.tasks.tag.signals import label_language_model
from tests.small_runs import begin, reopen, stop_after

SMALL: dict[str, Any] = {
    "hidden_size": 12,
    "batch_size": 8,
    "device": "cpu",
    "threads": 1,
    "lr": 0.02,
    "warmup_steps": 1,
}
LABELS = ("a", "b", "c")


def flat(rows: list[Any]) -> dict[str, Any]:
    return {"x": np.concatenate(rows).astype(np.float32), "lengths": [len(row) for row in rows]}


def slopes(draw: np.random.Generator) -> tuple[np.ndarray, str]:
    """A line that rises or falls, beside noise."""
    up, T = bool(draw.integers(2)), int(draw.integers(5, 12))
    line = (1 if up else -1) * np.linspace(0, 1, T) + draw.normal()
    return np.stack([500 + 100 * line, draw.normal(size=T)], axis=1), "up" if up else "down"


def bursts(draw: np.random.Generator) -> tuple[np.ndarray, list[str], list[str]]:
    """Labels of some steps each, silence between: the steps, the labels, and the label of each step."""
    labels = [str(label) for label in draw.choice(LABELS, draw.integers(1, 4))]
    tags = ["-"] * int(draw.integers(0, 3))
    for label in labels:
        tags += [label] * int(draw.integers(2, 4)) + ["-"]
    steps = np.array([[label == tag for label in LABELS] for tag in tags], float)
    return steps + 0.1 * draw.normal(size=steps.shape), labels, tags


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    here, draw = tmp_path_factory.mktemp("signals"), np.random.default_rng(1)
    lines, ways = [slopes(draw) for _ in range(120)], [bursts(draw) for _ in range(120)]
    steps, labels, tags = ([way[k] for way in ways] for k in range(3))
    arrays: dict[str, dict[str, Any]] = {
        "classify": {**flat([x for x, _ in lines]), "y": [y for _, y in lines]},
        "steps": {**flat(steps), "y": [tag for row in tags for tag in row]},
        "ctc": {**flat(steps), "y": [k for row in labels for k in row], "y_lengths": [len(row) for row in labels]},
    }
    for name, held in arrays.items():
        np.savez(here / f"{name}.npz", **held)
    return {name: str(here / f"{name}.npz") for name in arrays}


TASKS = {"classify": "classify", "steps": "tag", "ctc": "tag"}


def fitted(case: str, files: dict[str, str], out: Path, **options: Any) -> Any:
    return recur.fit(files[case], task=TASKS[case], out=out, **(SMALL | {"steps": 80} | options))


@pytest.mark.parametrize("case", TASKS)
def test_it_learns_and_stands_beside_plain_models(case: str, files: dict[str, str], tmp_path: Path) -> None:
    model = fitted(case, files, tmp_path / "run", steps=150, direction="both")
    found = model.evaluate([files[case]])
    assert (found["symbol_error_rate"] if case == "ctc" else 1 - found["accuracy"]) < 0.05
    plain = [row["model"] for row in found["beside"]]
    assert (
        plain
        == {
            "classify": ["always up", "softmax of mean, deviation, ends and length"],
            "steps": ["always -", "softmax of 9 steps"],
            "ctc": ["the most frequent sequence", "the most frequent label, by length"],
        }[case]
    )


@pytest.mark.parametrize("case", TASKS)
def test_a_run_is_resumed_exactly(case: str, files: dict[str, str], tmp_path: Path) -> None:
    options = SMALL | {"texts": files[case], "steps": 8, "noise": 0.1, "dropout_output": 0.3}
    whole = begin(tmp_path / "a", TASKS[case], **options)
    whole.train()
    stop_after(begin(tmp_path / "b", TASKS[case], **options), 5)
    again = reopen(tmp_path / "b")
    again.train()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name


def test_standardised_by_the_training_part_and_kept_with_the_weights(files: dict[str, str], tmp_path: Path) -> None:
    model = fitted("classify", files, tmp_path / "run", steps=2)
    train = model.task.read(model.run.vocabs).train
    steps = np.concatenate([example.values for example in train])
    held = recur.load(tmp_path / "run").model.embedding
    assert isinstance(held, SignalInput)
    np.testing.assert_allclose(held.mean, steps.mean(0), rtol=1e-4)
    np.testing.assert_allclose(held.deviation, steps.std(0), rtol=1e-4)
    assert len(train) == 108  # a twentieth each is held out


def test_moments_of_what_does_not_change() -> None:
    mean, deviation = mean_and_deviation(
        [SignalExample(np.array([[1e6, 2.0], [1e6, 4.0]], np.float32), [0], ("a",), "x")]
    )
    assert mean.tolist() == [1e6, 3.0]
    assert deviation.tolist() == [1.0, 1.0]


def test_neighbours_are_stacked_and_the_last_one_repeated() -> None:
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    assert stacked(x, 2).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 8, 9]]
    assert stacked(x, 1).tolist() == x.tolist()
    assert stacked(x, 7).shape == (1, 14)


@pytest.mark.parametrize("stack", [1, 3])
def test_a_class_as_steps_come_in(stack: int, files: dict[str, str], tmp_path: Path) -> None:
    model = fitted("classify", files, tmp_path / "run", steps=3, direction="forward", pool="mean", stack=stack)
    x = slopes(np.random.default_rng(5))[0]
    *_, last = model.stream(iter(x))
    assert last == pytest.approx(model.predict(x)["probabilities"], rel=1e-4)


def test_labels_as_steps_come_in(files: dict[str, str], tmp_path: Path) -> None:
    x, labels, tags = bursts(np.random.default_rng(8))
    tagger = fitted("steps", files, tmp_path / "tags", direction="forward", steps=200)
    assert list(tagger.stream(iter(x))) == tagger(x) == tags
    writer = fitted("ctc", files, tmp_path / "labels", direction="forward", steps=200)
    assert list(writer.stream(iter(x))) == writer(x) == labels


def test_inputs_of_every_kind(files: dict[str, str], tmp_path: Path) -> None:
    model = fitted("classify", files, tmp_path / "run", steps=60)
    x = slopes(np.random.default_rng(7))[0].astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.csv").write_text("".join(f"{a},{b}\n" for a, b in x.tolist()))
    answers = {model(x), model(str(tmp_path / "x.npy")), model(tmp_path / "x.csv")}
    assert answers == {"up" if x[-1, 0] > x[0, 0] else "down"}
    assert len(model.predict(files["classify"])) == 120
    with pytest.raises(TextError, match="the sequence has 3 features per step, and this model was trained on 2"):
        model(np.zeros((4, 3)))
    with pytest.raises(TextError, match=r"\(steps, features\) or \(steps,\), got \(1, 2, 3\)"):
        model(np.zeros((1, 2, 3)))


def test_a_beam_and_what_it_finds(files: dict[str, str], tmp_path: Path) -> None:
    model = fitted("ctc", files, tmp_path / "run", steps=30)
    x = bursts(np.random.default_rng(9))[0]
    found = model.predict(x, beam=8, nbest=3)
    scores = [one["score"] for one in found["nbest"]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert found["nbest"][0]["output"] == " ".join(model(x, beam=8))
    assert model.evaluate([files["ctc"]], beam=4)["symbol_error_rate"] <= 1
    for options, says in (({"nbest": 2}, "nbest must lie in 1 … 1"), ({"temperature": 1.0}, "is not for the task tag")):
        with pytest.raises(OptionError, match=says):
            model.predict(x, **options)


def test_an_ngram_model_ranks_too(files: dict[str, str], tmp_path: Path) -> None:
    """Labels that no training sequence had in this order are found less often, the more the n-grams count."""
    model = fitted("ctc", files, tmp_path / "run", steps=25)
    (tmp_path / "labels.txt").write_text("a b c\na b c\nb c a\n")
    vocab = fit_vocab(Corpus.of(str(tmp_path / "labels.txt")), token="word")
    counted = ngram.fit(Corpus.of(str(tmp_path / "labels.txt")).text(), vocab, 3)
    language = label_language_model(counted, model.labels)
    prefix = tuple(model.labels.index(label) for label in ("a", "b"))
    assert language(prefix)[model.labels.index("c")] == pytest.approx(counted.token_logprobs("a b c\n")[2][1])
    assert language((*prefix, model.labels.index("c")))[-1] == pytest.approx(counted.token_logprobs("a b c\n")[3][1])
    ngram.write_arpa(counted, tmp_path / "labels.arpa")
    x = bursts(np.random.default_rng(9))[0]
    found = [model.predict(x, beam=16, lm=tmp_path / "labels.arpa", lm_weight=w)["output"] for w in (0.0, 50.0)]
    assert found[0] == model.predict(x, beam=16)["output"]
    assert found[1] in ("a b c", "b c a", "a b c a", "b c")
    for options, says in (
        ({"lm_weight": 1.0}, "--lm-weight is for --lm"),
        ({"lm": tmp_path / "labels.arpa"}, "give a --beam above 1"),
        ({"lm": tmp_path / "none.arpa", "beam": 2}, "none.arpa"),
    ):
        with pytest.raises(RecurError, match=says):
            model.predict(x, **options)
    with pytest.raises(OptionError, match="knows none of the labels x"):
        label_language_model(counted, ("x", "y"))


def test_words_are_counted_where_labels_hold_them(tmp_path: Path) -> None:
    from recur.tasks.tag.signals import sequence_scores

    examples = [
        SignalExample(np.zeros((9, 1), np.float32), [], tuple("ab_a"), ""),
        SignalExample(np.zeros((9, 1), np.float32), [], ("b",), ""),
    ]
    found = sequence_scores(examples, [[0, 1, 2, 1], []], ["a", "b", "_"])
    assert found == {
        "sequence_error_rate": 1.0,
        "symbol_error_rate": pytest.approx(2 / 5),
        "word_error_rate": pytest.approx(2 / 3),
        "empty": 0.5,
    }
    assert "word_error_rate" not in sequence_scores(examples, [[0], [0]], ["a", "b"])


# What is refused, and what is taken by itself -------------------------------------------------------------------


@pytest.mark.parametrize(("case", "task"), TASKS.items())
def test_the_task_is_recognised(case: str, task: str, files: dict[str, str]) -> None:
    assert choose_task([files[case]])[0] == task
    options = task_class(task).settle(make_options(task, {"texts": files[case]}))
    assert (options.input, getattr(options, "loss", None)) == ("numbers", None if case == "classify" else case)


def test_images_or_sequences_is_asked(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((40, 50, 6)), y=[0, 1] * 20)
    with pytest.raises(OptionError, match="--task classify tells the class .*, --task grid takes each for an image"):
        choose_task([str(tmp_path / "a.npz")])
    options = task_class("classify").settle(make_options("classify", {"texts": str(tmp_path / "a.npz")}))
    assert len(task_of(options).read().train[0].values) == 50


@pytest.mark.parametrize(
    ("case", "options", "says"),
    [
        ("classify", {"token": "word"}, "--token is for texts, and these are sequences of numbers"),
        ("steps", {"min_freq": 2}, "--min-freq is for texts"),
        ("ctc", {"recurrence": "output"}, "--recurrence is for texts"),
        ("ctc", {"embedding_init": "normal:1"}, "--embedding-init is for texts"),
        ("ctc", {"class_weights": "balanced"}, "CTC has no loss of a single label"),
        ("steps", {"stack": 2}, "--stack 2 leaves fewer steps than there are labels"),
    ],
)
def test_options_without_a_meaning_are_refused(case: str, options: Any, says: str, files: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=says):
        task_class(TASKS[case]).settle(make_options(TASKS[case], {"texts": files[case], **options}))


def test_options_of_numbers_are_refused_for_texts(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x\ta b c\ny\td e f\n" * 30)
    (tmp_path / "a.conll").write_text("a X\nb Y\n\n" * 30)
    for task, name, options in (("classify", "a.tsv", {"stack": 2}), ("tag", "a.conll", {"loss": "ctc"})):
        with pytest.raises(OptionError, match="is for sequences of numbers, and these are texts"):
            task_class(task).settle(make_options(task, {"texts": str(tmp_path / name), **options}))


def test_texts_and_numbers_are_not_mixed(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x\ta b c\n")
    with pytest.raises(TextError, match="some are texts and some sequences of numbers"):
        task_class("classify").settle(make_options("classify", {"texts": [files["classify"], str(tmp_path / "a.tsv")]}))


def test_labels_that_do_not_fit(files: dict[str, str], tmp_path: Path) -> None:
    def read(case: str, **options: Any) -> Any:
        task = TASKS[case]
        return task_of(task_class(task).settle(make_options(task, {"texts": files[case], **options}))).read()

    with pytest.raises(TextError, match=r"\[\d+\]: its \d labels need \d steps, and it has 1; take a smaller --stack"):
        read("ctc", stack=20)
    with pytest.raises(TextError, match=r"has \d labels for \d+ steps; label sequences .* take --loss ctc"):
        read("ctc", loss="steps")
    np.savez(tmp_path / "v.npz", x=np.zeros((1, 4, 2)), y=["sideways"])
    held = read("classify", valid=str(tmp_path / "v.npz")).valid
    assert targets_of(held, 2) == ([2], 3), "a class that was not learned from is one more, and an error"
    np.savez(tmp_path / "s.npz", x=np.zeros((1, 4, 3)), y=[["a", "strange", "-", "-"]])
    held = read("steps", valid=str(tmp_path / "s.npz")).valid[0]
    assert held.names[1] == "strange"
    assert held.labels[1] == -1


def test_at_the_command_line(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    flags = [
        "--hidden-size",
        "12",
        "--steps",
        "60",
        "--batch-size",
        "8",
        "--lr",
        "0.02",
        "--device",
        "cpu",
        "--threads",
        "1",
    ]
    with pytest.raises(SystemExit) as ended:
        app(["train", files["ctc"], "--out", out, *flags])
    assert ended.value.code in (0, None)
    assert "--task tag" in capsys.readouterr().err
    for line in (["eval", out, files["ctc"], "--beam", "3"], ["predict", out, files["ctc"], "--beam", "3", "--json"]):
        with pytest.raises(SystemExit):
            app(line)
    assert '"labels"' in capsys.readouterr().out
