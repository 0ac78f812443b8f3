"""The task tag: spans and plain tags, tags that training did not have, rules of spans, n best, files of columns."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression

import recur
from recur.baselines.transducers import (
    FEATURES,
    FeatureCRF,
    _rows,
    most_frequent_tags,
    tagging_baselines,
    word_features,
)
from recur.cli.app import run
from recur.data.text import Sentence, read_tagged
from recur.data.text.tokenizers import CASINGS, casing_of
from recur.errors import OptionError, TextError
from recur.nn.crf import FixedCRF, marginals
from recur.tasks import make_options, open_predictor, task_of
from recur.tasks.tag.data import Collate, allowed_moves, compare, encode, fit_vocabs, legal_moves, span_scores
from recur.tasks.tag.task import TagTask
from tests.small_runs import begin

SMALL: dict[str, Any] = {
    "hidden_size": 8,
    "embedding_size": 6,
    "character_width": 6,
    "threads": 1,
    "warmup_steps": 5,
    "lr": 0.02,
}


def sentence(words: str, tags: str) -> Sentence:
    return Sentence(tuple(words.split()), tuple(tags.split()), "here")


def spans_file(path: Path, count: int = 60, more: str = "") -> str:
    """Names of one or two words, which a capital tells, among others."""
    draw = random.Random(0)
    lines = []
    for _ in range(count):
        for _ in range(draw.randint(1, 3)):
            lines.append(f"{draw.choice(['sees', 'and', 'the'])}\tO")
            lines.append(f"{draw.choice(['Ada', 'Bo', 'Cy'])}\tB-PER")
            lines += [f"{draw.choice(['Lu', 'Mo'])}\tI-PER"] * draw.randint(0, 1)
        lines.append("")
    path.write_text("\n".join(lines) + more)
    return str(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    here = tmp_path_factory.mktemp("spans")
    begin(here / "run", task="tag", texts=spans_file(here / "a.conll"), steps=60, eval_every=5, **SMALL).train()
    return recur.load(here / "run")


def test_spans_are_what_is_measured(trained: Any) -> None:
    assert (trained.task.options.spans, trained.task.curve) == (True, "valid_f1")
    measured = [entry for entry in trained.run.metrics() if "valid_f1" in entry]
    assert {"valid_precision", "valid_recall", "valid_error", "valid_accuracy", "valid_loss"} <= set(measured[-1])
    found = trained.evaluate()
    assert found["f1"] > 0.9
    assert [row["model"] for row in found["beside"]] == ["each word's most frequent tag", "CRF on words"]
    assert found["types"]["PER"]["spans"] > 0
    assert found["types"]["PER"]["f1"] == found["f1"], "there is one type"


def test_the_kept_weights_are_those_of_the_best_f1(tmp_path: Path) -> None:
    task = TagTask(make_options("tag", {"spans": True}))  # type: ignore[arg-type]
    gold = [sentence("a b", "B-X I-X"), sentence("c", "O")]
    assert task.measure([s.tags for s in gold], [["B-X", "O"], ["O"]], ["B-X", "I-X", "O"])["f1"] == 0.0
    data = type("Data", (), {"valid_sentences": gold, "valid": gold, "vocabs": fit_vocabs(gold, task.options)})
    import recur.tasks.tag.task as room

    scores = {}
    for name, tags in {"right": [["B-X", "I-X"], ["O"]], "wrong": [["B-X", "O"], ["O"]]}.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(room, "tag", lambda *_, tags=tags: room.TagPredictions(tags, 0.5))
            scores[name] = task.validate(None, data)  # type: ignore[arg-type]
    assert scores["right"].score < scores["wrong"].score
    assert scores["right"].metrics["valid_f1"] == 1.0
    assert scores["wrong"].metrics["valid_error"] == pytest.approx(1 / 3)


def test_tags_that_training_did_not_have_are_errors_and_are_said(tmp_path: Path) -> None:
    train = spans_file(tmp_path / "train")
    valid = spans_file(tmp_path / "valid", 10, "\nthe\tO\nRiver\tB-LOC\n")
    trainer = begin(tmp_path / "run", task="tag", texts=train, valid=valid, test=valid, steps=6, **SMALL)
    said = trainer.task.describe(trainer.data)
    unseen = "with tags that are not in the training set (B-LOC) count as errors"
    assert said.endswith(f"1 word of the validation part {unseen}")
    trainer.train()
    assert np.isfinite(trainer.best_metrics["valid_loss"])
    found = recur.load(tmp_path / "run").evaluate()
    assert found["unseen_tags"] == {"B-LOC": 1}
    assert found["types"]["LOC"] == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "spans": 1}
    assert found["classes"][-1] == "B-LOC"
    assert sum(map(sum, found["confusion"])) == found["words"]
    assert found["confusion"][-1][-1] == 0


def test_no_move_breaks_the_rules_but_those_learned_from(tmp_path: Path) -> None:
    options: Any = make_options("tag", {"texts": "a"})
    gold = [sentence("a b c", "B-X I-X O"), sentence("d e", "O I-Y"), sentence("f", "B-Y")]
    vocabs = fit_vocabs(gold, options)
    assert [move for move in vocabs["moves"].tokens if "\t" in move] == ["O\tI-Y"], "as IOB1 writes it"
    classes = vocabs["labels"].tokens[4:]
    allowed, legal = allowed_moves(vocabs), legal_moves(classes)
    assert allowed is not None
    extra = allowed.between.numpy() & ~legal.between
    assert [(classes[i], classes[j]) for i, j in zip(*np.nonzero(extra), strict=True)] == [("O", "I-Y")]
    assert "moves" not in fit_vocabs(gold[:1], options)
    assert allowed_moves(fit_vocabs([sentence("a b", "DT NN")], options)) is None, "tags that mark no spans"
    model = task_of(options).new_model(vocabs).eval()
    batch = Collate(vocabs)(encode([sentence("a b c d e f a b", "O O O O O O O O")] * 50, vocabs))
    torch.manual_seed(0)
    best = model.tags.nbest(3 * torch.randn(50, 8, len(classes)), batch.words.counts).tags[:, 0].tolist()
    for row in best:
        tags = [classes[k] for k in row]
        assert all(
            (a, b) in {("O", "I-Y")} or legal.between[classes.index(a), classes.index(b)]
            for a, b in itertools.pairwise(tags)
        )
        assert legal.start[classes.index(tags[0])]


def test_predictions_have_probabilities_and_others_behind_them(trained: Any) -> None:
    found = trained.predict("the Ada Mo sees Bo", nbest=4)
    assert found["tags"] == trained("the Ada Mo sees Bo") == ["O", "B-PER", "I-PER", "O", "B-PER"]
    assert [len(one["tags"]) for one in found["nbest"]] == [5] * 4
    scores = [one["score"] for one in found["nbest"]]
    assert scores == sorted(scores, reverse=True)
    assert np.exp(scores).sum() <= 1
    every = trained.probabilities("the Ada Mo sees Bo")
    assert [sum(word.values()) for word in every] == pytest.approx([1] * 5)
    chosen = [word[tag] for word, tag in zip(every, found["tags"], strict=True)]
    assert chosen == found["probability"]
    assert len(trained.predict("Ada", nbest=9)["nbest"]) == 2, "O and B-PER; I-PER cannot begin"
    listed = trained.predict([["the", "Ada"], ("Bo",)])
    assert [one["tags"] for one in listed] == [["O", "B-PER"], ["B-PER"]]
    assert [one["tags"] for one in trained.predict(["the Ada", "Bo"])] == [["O", "B-PER"], ["B-PER"]]
    for bad in ([[]], [["a", 3]], ["  "], [3]):
        with pytest.raises(TextError):
            trained.predict(bad)
    with pytest.raises(OptionError, match="nbest must be a whole number in 1 … 1000, got 0"):
        trained.predict("Ada", nbest=0)


def test_sentences_of_a_batch_do_not_touch_each_other(trained: Any) -> None:
    lines = ["the Ada Mo sees Bo", "Bo", "and Cy and Ada Lu and Bo Mo"]
    together = trained.predict(lines)
    for line, found in zip(lines, together, strict=True):
        assert found["probability"] == pytest.approx(trained.predict(line)["probability"], abs=1e-6)


def test_only_what_can_be_streamed_is(trained: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="tags a sentence as a whole; stream a run trained with --no-crf"):
        next(trained.stream(["a"]))
    texts = spans_file(tmp_path / "a.conll")
    options: Any = TagTask.settle(make_options("tag", {"texts": texts, "direction": "forward"}))  # type: ignore[arg-type]
    assert (options.crf, options.characters) == (False, "lstm")
    begin(tmp_path / "run", task="tag", texts=texts, direction="forward", steps=5, **SMALL).train()
    model = recur.load(tmp_path / "run")
    words = ["the", "Ada", "Mo", "sees", "Bo"]
    assert [tag for _, tag in model.stream(words)] == model(" ".join(words))
    twice = open_predictor([tmp_path / "run", tmp_path / "run"], "cpu")
    assert twice(" ".join(words)) == model(" ".join(words))
    with pytest.raises(OptionError, match="by one run, not by several as one"):
        next(twice.stream(words))


def test_several_runs_serve_as_one(trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = str(trained.task.options.texts[0])
    begin(tmp_path / "run", task="tag", texts=texts, steps=30, eval_every=5, seed=1, **SMALL).train()
    paths = [trained.run.path, tmp_path / "run"]
    both, line = open_predictor(paths, "cpu"), "the Ada Mo sees Bo"
    each = [open_predictor([path], "cpu") for path in paths]
    logs = [{tuple(one["tags"]): one["score"] for one in model.predict(line, nbest=20)["nbest"]} for model in each]
    mean = {tags: (logs[0][tags] + logs[1][tags]) / 2 for tags in logs[0].keys() & logs[1].keys()}
    found = both.predict(line, nbest=2)["nbest"]
    assert [tuple(one["tags"]) for one in found] == sorted(mean, key=lambda tags: -mean[tags])[:2]
    gap = found[0]["score"] - found[1]["score"]
    assert gap == pytest.approx(mean[tuple(found[0]["tags"])] - mean[tuple(found[1]["tags"])], abs=1e-4)
    assert run(["eval", *map(str, paths), "--ensemble", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == " + ".join(map(str, paths))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"class_weights": "balanced", "crf": True}, "balanced is for --no-crf"),
        ({"recurrence": "output", "characters": "cnn"}, "--characters is for a recurrence between hidden states"),
        ({"recurrence": "output", "crf": True}, "--crf is for a recurrence between hidden states"),
        ({"crf": False, "constrained": True}, "--constrained is for --crf"),
        ({"characters": "none", "character_width": 9}, "--character-width is for --characters lstm or cnn"),
    ],
)
def test_options_that_do_not_go_together(fields: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=says):
        TagTask.settle(make_options("tag", {"texts": spans_file(tmp_path / "a"), **fields}))  # type: ignore[arg-type]


def test_balanced_weights_are_for_a_softmax_by_default(tmp_path: Path) -> None:
    given = make_options("tag", {"texts": spans_file(tmp_path / "a"), "class_weights": "balanced"})
    assert TagTask.settle(given).crf is False  # type: ignore[arg-type]


def test_a_batch_holds_each_word_once() -> None:
    options: Any = make_options("tag", {})
    gold = [sentence("the dog the", "A B A"), sentence(f"dog {'x' * 50}yz", "B A")]
    vocabs = fit_vocabs(gold, options)
    forms = Collate(vocabs)(encode(gold, vocabs)).words.forms
    assert forms is not None
    spelled = [
        "".join(vocabs["characters"].tokens[k] for k in row[:n])
        for row, n in zip(forms.characters, forms.lengths, strict=True)
    ]
    assert spelled == ["x" * 16 + "x" * 14 + "yz", "dog", "the"], "of a long word its beginning and its end"
    assert forms.which.tolist() == [[2, 1, 2], [1, 0, 0]]


@pytest.mark.parametrize(
    ("word", "casing"),
    [
        *(
            ("word", "lower"),
            ("Word", "title"),
            ("NATO", "upper"),
            ("I", "title"),
            ("McKay", "mixed"),
            ("iPad", "mixed"),
        ),
        *(("42", "digits"), ("1,000.5", "number"), ("B2B", "digit inside"), ("--", "sign"), ("漢字", "other")),
        *(("'s", "lower"), ("Élan", "title"), ("U.S.", "upper"), ("", "sign")),
    ],
)
def test_casing(word: str, casing: str) -> None:
    assert CASINGS[casing_of(word)] == casing


# Plain models ---------------------------------------------------------------------------------------------------


def test_the_most_frequent_tag_of_a_word() -> None:
    train = [sentence("a a a b", "X X Y Z")]
    assert most_frequent_tags(train, [sentence("b a new", "")]) == [["Z", "X", "X"]]


def test_a_crf_of_sentences_of_one_word_is_logistic_regression() -> None:
    words = ["red", "Green", "blue", "7"]
    tags = {"red": "AAAB", "Green": "ABCC", "blue": "BBCA", "7": "CCAC"}
    gold = [sentence(word, tag) for word in words for tag in tags[word]]  # one batch: every pass is a step downhill
    crf = FeatureCRF.fit(gold, passes=300)
    vectors = DictVectorizer()
    x = vectors.fit_transform([dict.fromkeys(next(word_features(s.words)), 1) for s in gold])
    theirs = LogisticRegression(C=1e6, max_iter=5000, tol=1e-10).fit(x, [s.tags[0] for s in gold])
    one = [sentence(word, "A") for word in words]
    expected = theirs.predict_proba(vectors.transform([dict.fromkeys(next(word_features(s.words)), 1) for s in one]))
    rows, lengths = _rows([(crf.encode(s.words), [0]) for s in one])
    found = marginals(crf(rows), lengths, crf.moves)[:, 0]
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert len(next(word_features(("a",)))) == FEATURES


def test_plain_models_leave_random_numbers_alone_and_repeat(tmp_path: Path) -> None:
    gold = read_tagged([spans_file(tmp_path / "a")])
    before = torch.get_rng_state()
    first, second = (dict(tagging_baselines(gold[:50], gold[50:])) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert first == second
    found = compare([s.tags for s in gold[50:]], first["CRF on words"])
    assert span_scores(found)["f1"] > 0.99


# At the command line ----------------------------------------------------------------------------------------------


def test_predict_writes_tags_beside_the_words_of_a_file(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(trained.run.path)
    (tmp_path / "gold.conll").write_text("the\tO\nAda\tO\n\nBo\tO\n")
    (tmp_path / "bare.conll").write_text("the\nAda\n\nBo\n")
    (tmp_path / "lines.txt").write_text("the Ada\nBo\n")
    for name in ("gold.conll", "bare.conll"):
        assert run(["predict", path, str(tmp_path / name)]) == 0
        assert capsys.readouterr().out == "the\tO\nAda\tB-PER\n\nBo\tB-PER\n\n"
    assert run(["predict", path, str(tmp_path / "lines.txt")]) == 0
    assert capsys.readouterr().out == "the Ada\tO B-PER\nBo\tB-PER\n"
    assert run(["predict", path, str(tmp_path / "bare.conll"), "--nbest", "2"]) == 0
    first, second, *_ = capsys.readouterr().out.split("\n\n")
    assert first.splitlines()[1:] == ["the\tO", "Ada\tB-PER"]
    scores = [float(found.splitlines()[0].removeprefix("# ")) for found in (first, second)]
    assert 0 >= scores[0] > scores[1]


def test_eval_shows_every_type_and_what_was_never_seen(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = spans_file(tmp_path / "a.conll", 10, "\nthe\tO\nRiver\tB-LOC\n")
    assert run(["eval", str(trained.run.path), text]) == 0
    shown = capsys.readouterr().out
    assert "LOC" in shown
    assert "unseen tags" in shown
    assert "of the words have tags that are not in the training set; each counts as an error" in shown


# The better model wins -------------------------------------------------------------------------------------------


def unlearnable(path: Path) -> str:
    """Names that only their last letters tell, each seen once: features of words know them, so few steps do not."""
    draw = random.Random(1)
    lines = []
    for _ in range(120):
        for _ in range(3):
            stem = "".join(draw.choices("abdefghiklmnoprtu", k=4))
            name = draw.random() < 0.5
            lines.append(f"{stem}{'ski' if name else 'ing'}\t{'B-PER' if name else 'O'}")
        lines.append("")
    path.write_text("\n".join(lines))
    return str(path)


def test_the_better_model_is_kept_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A network that has hardly begun is blended with the CRF on words; eval, predict and a reopened run use it."""
    file, folder = unlearnable(tmp_path / "names.conll"), tmp_path / "run"
    options = {**SMALL, "lr": 1e-6, "steps": 4, "baseline": True}
    model = recur.fit(file, task="tag", out=folder, **options)
    metrics, baseline = model.run.metrics()[-1], model.run.baselines()[-1]
    assert baseline["name"] == "CRF on words"
    assert baseline["value"] > 0.95
    assert metrics["valid_f1"] >= baseline["value"], "level with the best baseline, or better"
    assert metrics["valid_network_share"] < 0.5
    alone = recur.fit(file, task="tag", blend=False, **options)
    assert alone.run.metrics()[-1]["valid_f1"] < 0.8
    assert "features" not in alone.run.vocabs

    again = open_predictor([folder], "cpu")
    assert again("zzzzski zzzzing") == ["B-PER", "O"]
    assert again.evaluate()["f1"] > 0.9
    both = open_predictor([folder, folder], "cpu")
    assert both("zzzzski zzzzing") == ["B-PER", "O"]
    assert run(["train", "--config", str(folder / "config.toml"), "-o", str(tmp_path / "more")]) == 0
    out = capsys.readouterr().out
    assert "CRF on words" in out
    assert "blend" in out or "instead of the network" in out
    assert run(["export", str(folder), str(tmp_path / "x.onnx")]) == 2
    assert "--no-plain" in capsys.readouterr().err


def test_a_blend_of_crfs_is_their_product(tmp_path: Path) -> None:
    """log P_blend(y | x) + const = a log P_network + b log P_features, over all taggings of a sentence."""
    model = recur.fit(spans_file(tmp_path / "a"), task="tag", **SMALL, steps=4, spans=False)
    tagger = model.model
    tagger.double().linear.double()
    tagger.shares.copy_(torch.tensor([0.5, 0.75]))
    vocabs, words = model.run.vocabs, Sentence(("the", "Ada", "Mo"), (), "")
    batch = Collate(vocabs, tagger.linear)(encode([words], vocabs)).words
    mine, other = tagger.parts(batch)
    K, counts = mine.shape[2], batch.counts
    every = torch.tensor([*itertools.product(range(K), repeat=3)])
    rows = [part.expand(len(every), -1, -1) for part in (mine, other, tagger.scores(batch))]
    lengths = counts.expand(len(every))
    network, blend = tagger.tags, tagger.decoder
    linear = FixedCRF(tagger.linear.moves)
    a, b, both = (
        field.log_likelihood(x, lengths, every) for field, x in zip((network, linear, blend), rows, strict=True)
    )
    torch.testing.assert_close((0.5 * a + 0.75 * b).log_softmax(0), both, atol=1e-9, rtol=0)
    assert float(both.detach().exp().sum()) == pytest.approx(1, abs=1e-9)
