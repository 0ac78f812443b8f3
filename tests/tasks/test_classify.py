"""Classifying: the plain model against scikit-learn, and what a run keeps of it and says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.naive_bayes import MultinomialNB

import recur
from recur.baselines import classifiers
from recur.baselines.classifiers import (
    LinearTextClassifier,
    count_ngrams,
    fit_best_linear,
    fit_logistic_regression,
    fit_naive_bayes,
    ngrams_of,
)
from recur.data.text import SPECIALS, UNK
from recur.tasks import make_options, task_of
from recur.tasks.classify.data import TextExample
from tests.small_runs import begin

STEMS = {"good": ["great", "fine", "love it"], "bad": ["poor", "broken , sad", "no use"], "so": ["it is", "as one"]}
ENDS = ["phone", "this camera !", "battery it 's", "so it goes", "player .", "Zoom", "and again and again"]
TEXTS = [(f"{word} {end}", label) for label, words in STEMS.items() for word in words for end in ENDS]
LABELS = list(STEMS)


def labelled() -> list[tuple[str, int]]:
    rng = np.random.default_rng(0)
    noisy = [(text, LABELS.index(label)) for text, label in TEXTS]
    return [(text, int(rng.integers(3)) if rng.random() < 0.2 else k) for text, k in noisy]


def fitted(unit: str, strength: float, balanced: bool = False, classes: int = 3) -> tuple[LinearTextClassifier, Any]:
    texts = [text for text, k in labelled() if k < classes]
    y = torch.tensor([k for _, k in labelled() if k < classes])
    model = LinearTextClassifier(count_ngrams(texts, unit), classes).double()
    seen = np.array(model.vocab.counts[len(SPECIALS) :])
    model.idf.copy_(torch.from_numpy(np.log((1 + len(texts)) / (1 + seen)) + 1))
    weights = len(y) / (classes * torch.bincount(y)).double() if balanced else None
    for _ in range(10):
        fit_logistic_regression(model, model.rows(texts), y, strength, weights, tolerance=1e-10)
    return model, (texts, y)


@pytest.mark.parametrize(
    ("unit", "options"),
    [
        ("word", {"ngram_range": (1, 2), "token_pattern": r"\w+|[^\w\s]"}),
        ("char", {"ngram_range": (1, 5), "analyzer": "char"}),
    ],
)
def test_texts_are_what_scikit_learn_makes_of_them(unit: str, options: dict[str, Any]) -> None:
    model, (texts, _) = fitted(unit, 1.0)
    pad = (lambda text: f" {text} ") if unit == "char" else str
    theirs = TfidfVectorizer(**options).fit([pad(text) for text in texts])
    assert set(theirs.vocabulary_) == set(model.vocab.tokens[4:])
    new = [*texts, "a GREAT new phone", "?"]
    expected = theirs.transform([pad(text) for text in new]).toarray()
    order = [model.vocab.ids[gram] - 4 for gram in theirs.get_feature_names_out()]
    found = model.rows(new).times(torch.eye(len(order), dtype=torch.double)).numpy()
    assert found[:, order] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize(("strength", "classes"), [(0.5, 3), (20.0, 3), (3.0, 2)])
def test_the_regression_is_scikit_learns(strength: float, classes: int, balanced: bool) -> None:
    model, (texts, y) = fitted("word", strength, balanced, classes)
    theirs = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]")
    x = theirs.fit_transform(texts)
    same = 2 * strength if classes == 2 else strength  # a sigmoid of one vector, where a softmax has two
    regression = LogisticRegression(C=same, tol=1e-9, max_iter=5000, class_weight="balanced" if balanced else None).fit(
        x, y
    )
    new = [*texts, "a great new phone", "?"]
    expected = regression.predict_proba(theirs.transform(new))
    assert model(new)[1].exp().numpy() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("balanced", [False, True])
def test_naive_bayes_is_scikit_learns(balanced: bool) -> None:
    model, (texts, y) = fitted("word", 1.0)
    weights = len(y) / (3 * torch.bincount(y)).double() if balanced else None
    fit_naive_bayes(model, model.rows(texts), y, 0.3, weights)
    counts = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", binary=True)
    theirs = MultinomialNB(alpha=0.3, fit_prior=not balanced).fit(counts.fit_transform(texts), y)
    new = [*texts, "a great new phone phone", "?"]
    assert model(new)[0].numpy() == pytest.approx(theirs.predict_log_proba(counts.transform(new)), abs=1e-12)


def test_the_strength_is_the_one_that_the_validation_texts_are_likeliest_with() -> None:
    train, valid = labelled()[::2], labelled()[1::2]
    vocab = count_ngrams([text for text, _ in train], "word")
    model, bayes, name = fit_best_linear(train, [*valid, ("never learned", 3)], vocab, 3)
    targets = [k for _, k in valid]
    theirs = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]")
    x, y = theirs.fit_transform([text for text, _ in train]), [k for _, k in train]
    held = theirs.transform([text for text, _ in valid])
    every = {c: LogisticRegression(C=c, max_iter=1000).fit(x, y).predict_proba(held) for c in classifiers.STRENGTHS}
    losses = {c: log_loss(targets, p) for c, p in every.items()}
    assert name == f"TF-IDF logistic regression, C = {min(losses, key=losses.__getitem__):g}"
    found = log_loss(targets, model([text for text, _ in valid])[1].double().softmax(-1).numpy())
    assert found == pytest.approx(min(losses.values()), abs=1e-3)
    assert float(bayes.removeprefix("naive Bayes, α = ")) in classifiers.ALPHAS


def test_of_many_texts_a_sample_is_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifiers, "COUNTED", 200)
    vocab = count_ngrams([text for text, _ in labelled()], "word")
    model, _, name = fit_best_linear(labelled(), labelled(), vocab, 3)
    n = int(name.split(" of ")[1].split()[0])
    assert 10 < n < len(TEXTS)
    assert max(vocab.counts) <= n
    assert model.fitted


def test_special_tokens_are_no_ngrams() -> None:
    assert "<unk>" in ngrams_of("a<unk>", "char")
    assert count_ngrams(["a<unk>", "<pad>"], "char").tokens.count("<unk>") == 1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("classify")
    (here / "reviews.tsv").write_text("".join(f"{label}\t{text}\n" for text, label in TEXTS * 2))
    options = {"hidden_size": 8, "embedding_size": 8, "batch_size": 16, "threads": 1, "steps": 30, "lr": 0.01}
    begin(here / "run", "classify", texts=[str(here / "reviews.tsv")], **options).train()
    return here / "run"


def test_a_run_keeps_both_parts_of_a_mixture(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = recur.load(run)
    monkeypatch.setattr(model, "has_training_texts", lambda: False)  # as on another machine
    assert model.model.linear.fitted
    assert model.model.blend.shares.min() >= 0
    rows = list(model.predict(["great phone", "poor Zoom"]))
    ids = [model.run.vocab.encode(row["input"]).astype(np.int64) for row in rows]
    parts = model.model.parts([TextExample(k, 0, row["input"]) for k, row in zip(ids, rows, strict=True)])
    shares = model.model.blend.shares.tolist()
    expected = sum(a * log_p for a, log_p in zip(shares, parts, strict=True)).softmax(-1)
    for row, p in zip(rows, expected, strict=True):
        assert list(row["probabilities"].values()) == pytest.approx(p.tolist(), abs=1e-6)
    (tmp_path / "test.tsv").write_text("good\tgreat phone\nbad\tpoor Zoom\n")
    found = model.evaluate([str(tmp_path / "test.tsv")])
    assert [row["model"] for row in found["beside"]] == ["naive Bayes", "TF-IDF logistic regression"]
    assert 0 <= found["ece"] <= 1
    assert found["network_accuracy"] in (0, 0.5, 1)


def test_a_label_that_training_did_not_have_is_an_error_and_said(run: Path, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("good\tgreat phone\nodd\tpoor Zoom\nnew\tlove it player .\n")
    found = recur.load(run).evaluate([str(tmp_path / "test.tsv")])
    assert found["unseen_labels"] == ["new", "odd"]
    assert found["classes"] == ["bad", "good", "so", "new", "odd"]
    assert sum(found["confusion"][3]) == sum(found["confusion"][4]) == 1
    assert found["accuracy"] <= 1 / 3
    assert np.isfinite(found["loss"])
    task = task_of(
        make_options("classify", {"texts": [str(run.parent / "reviews.tsv")], "valid": [str(tmp_path / "test.tsv")]})
    )
    data = task.read()
    said = "2 validation texts with labels that are not in the training set (odd, new) count as errors"
    assert task.describe(data).endswith(said)
    assert all(baseline.value >= 2 / 3 for baseline in task.baselines(data))


def test_beside_it_stand_the_plain_models(run: Path) -> None:
    found = recur.load(run).evaluate()
    names = [row["model"].split(" ", 1)[-1] for row in found["beside"]]
    assert names[-1] == "logistic regression"
    for row in found["beside"]:
        assert {"accuracy", "macro_f1", "loss", "ece"} <= row.keys()


def test_dropped_words_are_unknown_ones_while_training_only(run: Path) -> None:
    from recur.models import Classifier
    from recur.tasks import make_options

    options: Any = make_options("classify", {"dropout_words": 0.3, "embedding_size": 4, "hidden_size": 4})
    model = Classifier(50, 2, options)
    seen: list[torch.Tensor] = []
    model.embedding.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    ids, lengths = torch.full((40, 50), 7), torch.full((40,), 50)
    model(ids, lengths)
    model.eval()
    model(ids, lengths)
    assert float((seen[0] == UNK).float().mean()) == pytest.approx(0.3, abs=0.04)
    assert bool(((seen[0] == UNK) | (seen[0] == 7)).all())
    assert torch.equal(seen[1], ids)
