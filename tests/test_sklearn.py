"""The scikit-learn estimators: what that library's own tools need of them, with real texts."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import pickletools
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from recur.errors import OptionError, RecurError
from recur.sklearn import RecurClassifier, RecurForecaster, RecurTagger
from recur.sklearn.estimators import _continued

SMALL: dict[str, Any] = {"hidden_size": 8, "batch_size": 8, "steps": 30, "threads": 1, "baseline": False}
NAMES = Path(os.environ.get("RECUR_DATA", "../shared/data")) / "names"

ENDINGS = {"Russian": "ov", "Italian": "ini", "Greek": "opoulos"}


def names(n: int = 90) -> tuple[list[str], list[str]]:
    """Names that end as those of a language do."""
    draw = np.random.default_rng(0)
    labels = [list(ENDINGS)[k % 3] for k in range(n)]
    stems = ["".join(draw.choice(list("abdeglmnrst"), 5)) for _ in range(n)]
    return [stem + ENDINGS[label] for stem, label in zip(stems, labels, strict=True)], labels


@pytest.fixture(scope="module")
def fitted() -> RecurClassifier:
    return RecurClassifier(**{**SMALL, "steps": 120}, lr=0.01, random_state=1).fit(*names())


def test_texts_are_classified(fitted: RecurClassifier) -> None:
    texts, labels = names()
    assert fitted.classes_.tolist() == ["Greek", "Italian", "Russian"]
    found = fitted.predict(texts)
    assert isinstance(found, np.ndarray)
    assert fitted.score(texts, labels) == accuracy_score(labels, found) > 0.9
    chances = fitted.predict_proba(texts)
    assert chances.shape == (90, 3)
    assert np.allclose(chances.sum(1), 1, atol=1e-5)
    assert (fitted.classes_[chances.argmax(1)] == found).all()
    assert fitted.predict_proba(["Ivanov"])[0] == pytest.approx(
        [fitted.model_.probabilities("Ivanov")[name] for name in fitted.classes_], abs=1e-6
    )
    for given in (np.array(texts), pd.Series(texts), pl.Series(texts), pd.DataFrame({"n": texts}), np.array([texts]).T):
        assert (fitted.predict(given) == found).all()


@pytest.mark.parametrize("labels", [[1, 2, 10], [True, False, True], [0.5, 1.5, 2.5], np.array([3, 1, 2])])
def test_classes_keep_their_type(labels: Any) -> None:
    texts, _ = names(60)
    y = np.array([labels[k % 3] for k in range(60)])
    model = RecurClassifier(**{**SMALL, "steps": 2}).fit(texts, y)
    assert (model.classes_ == np.unique(y)).all()
    assert model.classes_.dtype == model.predict(texts).dtype == y.dtype
    assert set(model.predict(texts)) <= set(y)


def test_parameters_are_the_options_of_the_task() -> None:
    model = RecurClassifier(hidden_size=8, random_state=3)
    assert model.get_params()["hidden_size"] == 8
    assert model.get_params()["pool"] is None, "the task's own default"
    assert "texts" not in model.get_params()
    assert repr(model) == "RecurClassifier(hidden_size=8, random_state=3)"
    same = clone(model)
    assert same is not model
    assert same.get_params() == model.get_params()
    assert same.set_params(pool="mean", hidden_size=4).get_params()["pool"] == "mean"
    assert model.hidden_size == 8
    with pytest.raises(ValueError, match="Invalid parameter 'hiden'"):
        model.set_params(hiden=3)
    with pytest.raises(TypeError, match="RecurClassifier has no parameter 'hiden'"):
        RecurClassifier(hiden=3)
    with pytest.raises(OptionError, match="hidden_size must be"):
        RecurClassifier(hidden_size=0).fit(*names())
    with pytest.raises(OptionError, match="validation_fraction must lie inside"):
        RecurClassifier(validation_fraction=2, **SMALL).fit(*names())


def test_the_same_state_gives_the_same_model() -> None:
    texts, labels = names(60)
    models = [RecurClassifier(**SMALL, random_state=seed).fit(texts, labels) for seed in (1, 1, 2)]
    chances = [model.predict_proba(texts[:5]) for model in models]
    assert (chances[0] == chances[1]).all()
    assert not np.allclose(chances[0], chances[2])
    RecurClassifier(**SMALL, random_state=np.random.RandomState(0)).fit(texts, labels)


def test_pickling(fitted: RecurClassifier) -> None:
    texts, _ = names()
    content = pickle.dumps(fitted)
    imported = {
        str(arg) for op, arg, _ in pickletools.genops(content) if op.name == "SHORT_BINUNICODE" and "." in str(arg)
    }
    modules = {name for name in imported if name.split(".")[0] in sys.modules and "/" not in name}
    assert {name.split(".")[0] for name in modules} <= {"recur", "numpy"}, "no object of torch"
    other = pickle.loads(content)
    folder = other.model_.run.path
    assert folder != fitted.model_.run.path
    assert (other.predict_proba(texts) == fitted.predict_proba(texts)).all()
    again = pickle.loads(pickle.dumps(other))
    assert (again.predict(texts) == fitted.predict(texts)).all()
    del other
    gc.collect()
    assert not folder.exists()
    state = fitted.__getstate__()
    assert all(isinstance(content, bytes) for content in state["_files"].values())
    assert {"manifest.json", "config.toml", "model.safetensors", "vocab.json", "labels.json"} <= set(state["_files"])
    state["_files"] = {"../evil": b""}
    with pytest.raises(RecurError, match="this is no file of a run"):
        RecurClassifier().__setstate__(state)
    assert pickle.loads(pickle.dumps(RecurClassifier(hidden_size=3))).hidden_size == 3


def test_search_pipeline_and_cross_validation() -> None:
    texts, labels = names(60)
    lower = FunctionTransformer(lambda rows: [text.lower() for text in rows])
    pipe = Pipeline([("lower", lower), ("model", RecurClassifier(**SMALL))])
    search = GridSearchCV(pipe, {"model__hidden_size": [2, 8], "model__pool": ["max"]}, cv=2, error_score="raise")
    search.fit(texts, labels)
    assert search.best_params_["model__hidden_size"] in (2, 8)
    assert len(search.predict(texts)) == 60
    scores = cross_val_score(RecurClassifier(**SMALL), texts, labels, cv=2, error_score="raise")
    assert scores.shape == (2,)
    assert (scores >= 0).all()


def test_real_names() -> None:
    file = NAMES / "valid.tsv"
    if not file.is_file():
        pytest.skip("no data set names")
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    chosen = [row for row in rows if row[0] in ("Russian", "Japanese", "Italian")][::2]
    labels, texts = [row[0] for row in chosen], [row[1] for row in chosen]
    model = RecurClassifier(
        hidden_size=32, embedding_size=16, epochs=8, batch_size=16, threads=1, lr=0.01, baseline=False
    )
    most = max(labels.count(label) for label in set(labels)) / len(labels)
    assert cross_val_score(model, texts, labels, cv=2, error_score="raise").mean() > most


def test_without_scikit_learn_it_says_so() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import recur.sklearn"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stderr.endswith("scikit-learn is not installed: pip install 'recur[sklearn]'\n")


def test_before_it_is_fitted() -> None:
    for model in (RecurClassifier(), RecurTagger(), RecurForecaster()):
        with pytest.raises(NotFittedError):
            model.predict(["a"])
    assert is_classifier(RecurClassifier())
    assert is_regressor(RecurForecaster())


@pytest.mark.parametrize(("texts", "labels", "says"), [
    (["a", "b"], ["x"], "2 inputs and 1 targets"), ([], [], "0 sample"), (["a", "b"], ["x", "x"], "1 class"),
    (np.zeros((2, 3)), [0, 1], "Reshape your data"), ("text", [0], "a column is a list"),
    (pd.DataFrame({"a": ["x"], "b": ["y"]}), [0], "one column of texts"),
])  # fmt: skip
def test_what_is_no_data(texts: Any, labels: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RecurClassifier(**SMALL).fit(texts, labels)


def test_sequences_of_numbers() -> None:
    X = np.random.default_rng(0).standard_normal((40, 6, 2)) + np.array([-2, 2] * 20)[:, None, None]
    y = np.array([0, 1] * 20)
    model = RecurClassifier(hidden_size=16, batch_size=8, steps=150, lr=0.01, threads=1, baseline=False).fit(X, y)
    assert model.score(X, y) > 0.9
    assert (pickle.loads(pickle.dumps(model)).predict(list(X)) == model.predict(X)).all()


def test_few_examples_are_enough() -> None:
    model = RecurClassifier(**{**SMALL, "steps": 2}).fit(["aa", "bb", "aaa"], ["a", "b", "a"])
    assert model.predict(["aa"])[0] in ("a", "b")


def test_tagging() -> None:
    draw = np.random.default_rng(0)
    X = [[str(draw.choice(["the", "a"])), f"w{k}", str(draw.choice(["runs", "sits"]))] for k in range(60)]
    y = [["DT", "NN", "VB"]] * 60
    model = RecurTagger(hidden_size=8, steps=80, threads=1, baseline=False, lr=0.02).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.classes_.tolist() == ["DT", "NN", "VB"]
    assert model.predict(["the w1 runs", ["a", "w2"]]) == model.predict([["the", "w1", "runs"], ["a", "w2"]])
    assert [len(tags) for tags in model.predict(X)] == [3] * 60
    assert (model.model_.tags) == tuple(model.classes_)
    chances = model.predict_proba(X)
    assert chances[0].shape == (3, 3)
    assert np.allclose(chances[0].sum(1), 1, atol=1e-4)
    assert [model.classes_[k] for k in chances[0].argmax(1)] == model.predict(X)[0]
    same = pickle.loads(pickle.dumps(model))
    assert same.predict(X) == model.predict(X)
    assert cross_val_score(clone(model).set_params(steps=4), X, y, cv=2, error_score="raise").shape == (2,)
    search = GridSearchCV(clone(model).set_params(steps=4), {"hidden_size": [4, 6]}, cv=2, error_score="raise").fit(
        X, y
    )
    assert search.best_params_["hidden_size"] in (4, 6)


def series(n: int = 160) -> np.ndarray[Any, Any]:
    t = np.arange(n)
    return 10 + 3 * np.sin(2 * np.pi * t / 12) + 0.02 * t


def test_forecasting() -> None:
    y = series()
    model = RecurForecaster(horizon=6, hidden_size=8, steps=60, threads=1, baseline=False, random_state=1).fit(None, y)
    ahead = model.predict()
    assert ahead.shape == (6,)
    assert ahead == pytest.approx(model.model_({"y": y}))
    bands = model.predict_quantiles()
    assert bands.shape == (6, 3)
    assert (bands[:, 1] == ahead).all()
    steps = np.arange(160, 175)[:, None]
    longer = model.predict(steps)
    assert longer.shape == (15,)
    assert longer[:6] == pytest.approx(ahead)
    assert longer[6:12] == pytest.approx(model.model_({"y": [*y, *longer[:6]]})), "on from its own forecasts"
    same = pickle.loads(pickle.dumps(model))
    assert (same.predict(steps) == longer).all()
    cv = TimeSeriesSplit(2, test_size=6)
    found = cross_val_score(clone(model).set_params(steps=4), np.arange(160)[:, None], y, cv=cv, error_score="raise")
    assert np.isfinite(found).all()
    search = GridSearchCV(clone(model).set_params(steps=4), {"hidden_size": [4, 6]}, cv=cv, error_score="raise")
    assert search.fit(np.arange(160)[:, None], y).predict(steps).shape == (15,)


def test_forecasting_with_what_is_known_ahead() -> None:
    y, days = series(), pd.date_range("2020-01-01", periods=180)
    known = pd.DataFrame({"load": np.arange(180) % 5.0}, index=days)
    model = RecurForecaster(horizon=6, hidden_size=4, steps=4, threads=1, baseline=False).fit(known[:160], y)
    assert model.predict(known[160:]).shape == (20,)
    assert model.predict(known[160:166]) == pytest.approx(model.predict(known[160:])[:6])
    with pytest.raises(ValueError, match="fit had the columns date, load, and here are"):
        model.predict()
    with pytest.raises(ValueError, match="159 inputs and 160 targets"):
        RecurForecaster().fit(known[:159], y)


@pytest.mark.parametrize("frequency", ["MS", "ME", "QE", "B", "D", "h"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_dates_go_on_in_their_own_steps(frequency: str, zone: str | None) -> None:
    dates = pd.date_range("2020-01-31 00:00", periods=40, freq=frequency, tz=zone)
    assert _continued([], dates[:30].to_list(), 10) == dates[30:].to_list()
    assert _continued(dates[30:34].to_list(), dates[:30].to_list(), 10) == dates[30:].to_list()
    days = [when.date() for when in dates]
    if frequency != "h":
        assert _continued([], days[:30], 10) == days[30:]


def test_monthly_steps_known_ahead_are_any_number() -> None:
    months = pd.date_range("2000-01-01", periods=168, freq="MS")
    known = pd.DataFrame({"load": np.arange(168) % 5.0}, index=months)
    model = RecurForecaster(horizon=6, hidden_size=4, steps=4, threads=1, baseline=False).fit(known[:160], series())
    assert model.predict(known[160:])[:6] == pytest.approx(model.predict(known[160:166]))
    assert model.predict(known[160:]).shape == (8,)


CHECKS = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
]
"""Those that do not hand over a matrix of numbers, where texts are read."""


@pytest.mark.parametrize("model", [RecurClassifier, RecurTagger, RecurForecaster])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_checks_of_scikit_learn(model: Any, check: Any) -> None:
    check(model.__name__, model())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it cannot hand over texts
        for _, offered in estimator_checks.estimator_checks_generator(model()):
            offered(model())


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for name in [name for name in sys.modules if name.startswith("recur.sklearn")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(RecurError, match=r"pip install 'recur\[sklearn\]'"):
        importlib.import_module("recur.sklearn")
