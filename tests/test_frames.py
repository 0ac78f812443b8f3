"""Data in memory: frames of pandas and polars, lists and arrays, to learn from and to predict for."""

from __future__ import annotations

import datetime
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import recur
from recur.data.frames import columns_of, csv_lines, is_in_memory, write_data
from recur.data.series.reading import parse_panel
from recur.data.text import SPECIALS, read_labelled, read_pairs, read_tagged
from recur.errors import OptionError, RecurError, TextError
from recur.tasks import options_of_run
from recur.training import Event, resume

SMALL: dict[str, Any] = {"hidden_size": 4, "batch_size": 4, "steps": 4, "threads": 1, "baseline": False}
TEXTS = [f"{'good' if k % 2 else 'bad'} book {k}" for k in range(40)]
STARS = [5 if k % 2 else 1 for k in range(40)]
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "mapping": dict}


def test_a_row_of_missing_values_is_a_row() -> None:
    assert list(csv_lines({"a": [1.0, None, 2.0], "b": [3, float("nan"), None]})) == ["a,b", "1.0,3", "NA,", "2.0,"]
    found = parse_panel(csv_lines(columns_of([1.0, float("nan"), 2.0])), "x")
    assert np.array_equal(found.series[0].values[:, 0], [1, np.nan, 2], equal_nan=True)


@pytest.mark.parametrize("library", sorted(FRAMES))
def test_a_frame_is_the_same_as_its_file(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = FRAMES[library]({"stars": STARS, "review": TEXTS, "other": [None] * 40})
    model = recur.fit(frame, task="classify", text="review", label="stars", out="a", **SMALL)
    lines = (f"{s}\t{t}\n" for s, t in zip(STARS, TEXTS, strict=True))
    Path("reviews.tsv").write_text("".join(["label\ttext\n", *lines]))
    same = recur.fit("reviews.tsv", task="classify", out="b", **SMALL)
    assert Path("a/data/train.tsv").read_bytes() == Path("reviews.tsv").read_bytes()
    assert Path("a/model.safetensors").read_bytes() == Path("b/model.safetensors").read_bytes()
    assert model.classes == ("1", "5")
    column = frame["review"]
    assert model(column) == same(TEXTS) == model(np.array(TEXTS)) == model(pd.DataFrame({"x": TEXTS}))


def test_lists_are_the_same_as_pairs(tmp_path: Path) -> None:
    a = recur.fit(TEXTS, STARS, task="classify", **SMALL)
    b = recur.fit(list(zip(TEXTS, STARS, strict=True)), task="classify", **SMALL)
    c = recur.fit(pd.Series(TEXTS), np.array(STARS), task="classify", **SMALL)
    files = [(model.run.path / "data/train.tsv").read_text() for model in (a, b, c)]
    assert files[0] == files[1] == files[2]
    assert files[0].startswith("label\ttext\n1\tbad book 0\n5\tgood book 1\n")


def test_a_run_of_data_in_memory_is_resumed_and_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    held = (TEXTS[:6], STARS[:6])
    recur.fit(TEXTS, STARS, task="classify", out=tmp_path / "a", valid=held, test=held, **SMALL)
    assert sorted(path.name for path in Path("a/data").iterdir()) == ["test.tsv", "train.tsv", "valid.tsv"]
    assert 'texts = ["data/train.tsv"]' in Path("a/config.toml").read_text()
    shutil.move("a", "elsewhere")
    assert resume("elsewhere", steps=2).summary["steps"] == 6
    model = recur.load("elsewhere")
    assert model.evaluate()["texts"] == 6
    assert options_of_run(model.run).valid == (str(Path("elsewhere/data/valid.tsv")),)
    Path("elsewhere/data/train.tsv").write_text("1\tother\n")
    with pytest.raises(RecurError, match="is not the text that elsewhere was trained on"):
        resume("elsewhere", steps=2)


def test_what_is_wrong_with_data_leaves_nothing_behind(tmp_path: Path) -> None:
    for given, labels, says in (
        (TEXTS, STARS[:-1], "40 of text and 39 of label"),
        ([*TEXTS[:-1], "  "], STARS, "row 40: the text is empty"),
        (TEXTS, [*STARS[:-1], None], "row 40: the label is empty"),
        (TEXTS, [*STARS[:-1], float("nan")], "row 40: the label is empty"),
        ([("a", "b", "c")], None, "row 1: text and label are expected, got"),
        (pd.DataFrame({"a": [1], "b": [2]}), None, "no column 'text'; name it: text=…, one of a, b"),
        (TEXTS, "ab", "a column is a list"),
    ):
        with pytest.raises(TextError, match=says):
            recur.fit(given, labels, task="classify", out=tmp_path / "x", **SMALL)
        assert not (tmp_path / "x").exists()
    with pytest.raises(OptionError, match="name the task of this data: task='classify'"):
        recur.fit(TEXTS, STARS)
    with pytest.raises(OptionError, match="hidden_size must be"):
        recur.fit(TEXTS, STARS, task="classify", out=tmp_path / "x", hidden_size=0)
    with pytest.raises(OptionError, match="the task adding generates its data"):
        recur.fit(TEXTS, STARS, task="adding", out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_tabs_and_line_ends_are_spaces_and_said(tmp_path: Path) -> None:
    events: list[Event] = []
    texts = ["two\nlines", "a\ttab", *TEXTS]
    model = recur.fit(texts, ["a", "b", *STARS], task="classify", callback=events.append, **SMALL)
    assert (model.run.path / "data/train.tsv").read_text().startswith("label\ttext\na\ttwo lines\nb\ta tab\n")
    assert "2 rows had tabs or line ends inside; a space stands for each" in [
        event.content["text"] for event in events if event.kind == "note"
    ]


def written(kind: str, given: Any, folder: Path, **columns: str) -> str:
    return write_data(kind, given, folder, "x", columns)[0].read_text()


def test_pairs_and_tags(tmp_path: Path) -> None:
    sources, targets = ["a b", "c"], ["A", "C C"]
    expected = "a b\tA\nc\tC C\n"
    assert written("pairs", (sources, targets), tmp_path) == expected
    assert (
        written("pairs", pl.DataFrame({"de": sources, "en": targets}), tmp_path, source="de", target="en") == expected
    )
    assert [pair[:2] for pair in read_pairs([str(tmp_path / "x.tsv")])] == [("a b", "A"), ("c", "C C")]

    words, tags = [["the", "cat"], ["it"]], [["DT", "NN"], ["PR"]]
    expected = "the\tDT\ncat\tNN\n\nit\tPR\n\n"
    assert written("tagged", (words, tags), tmp_path) == expected
    assert written("tagged", list(zip(words, tags, strict=True)), tmp_path) == expected
    assert written("tagged", [("the cat", "DT NN"), ("it", ["PR"])], tmp_path) == expected
    assert written("tagged", pl.DataFrame({"words": words, "tags": tags}), tmp_path) == expected
    long = pd.DataFrame({"s": [1, 1, 2], "w": ["the", "cat", "it"], "t": ["DT", "NN", "PR"]})
    assert written("tagged", long, tmp_path, words="w", tags="t", sentence="s") == expected.removesuffix("\n")
    first_only = long.assign(s=["one", None, "two"])
    assert written("tagged", first_only, tmp_path, words="w", tags="t", sentence="s") == expected.removesuffix("\n")
    assert [sentence.words for sentence in read_tagged([str(tmp_path / "x.conll")])] == [("the", "cat"), ("it",)]
    with pytest.raises(TextError, match="sentence 2 has 1 words and 2 tags"):
        written("tagged", (words, [["DT", "NN"], ["PR", "X"]]), tmp_path)
    with pytest.raises(TextError, match="sentence 1: a word or its tag is empty"):
        written("tagged", [(["a", " "], ["X", "Y"])], tmp_path)


def test_tables(tmp_path: Path) -> None:
    days = pd.date_range("2020-01-30", periods=3)
    dated = "date,y\n2020-01-30,1.0\n2020-01-31,2.5\n2020-02-01,\n"
    values = [1.0, 2.5, None]
    assert written("table", pd.DataFrame({"y": values}, index=days), tmp_path) == dated
    assert written("table", pd.Series(values, index=days, name="y"), tmp_path) == dated
    assert written("table", pl.DataFrame({"date": list(days.date), "y": values}), tmp_path) == dated
    months = pd.period_range("2020-01", periods=3, freq="M")
    assert (
        written("table", pd.Series([1, 2, 3], index=months), tmp_path)
        == "date,value\n2020-01,1\n2020-02,2\n2020-03,3\n"
    )
    hours = pd.DataFrame({"t": pd.date_range("2020-01-01", periods=2, freq="h"), "y": [1, pd.NA]})
    assert written("table", hours, tmp_path) == "t,y\n2020-01-01T00:00:00,1\n2020-01-01T01:00:00,\n"
    assert written("table", np.array([[1.5, 2], [3, 4]]), tmp_path) == "x1,x2\n1.5,2.0\n3.0,4.0\n"
    assert written("table", [1, 2], tmp_path) == "value\n1\n2\n"
    assert (
        written("table", ({"a": [1, 2], "w": ["x,y", "a\nb"]}, [3, 4]), tmp_path) == 'a,w,target\n1,"x,y",3\n2,a b,4\n'
    )
    assert written("table", [{"a": 1}, {"a": 2, "b": "x"}], tmp_path) == "a,b\n1,\n2,x\n"
    with pytest.raises(TextError, match="must have equal length, got a: 1, b: 2"):
        written("table", {"a": [1], "b": [1, 2]}, tmp_path)
    for nothing in (5, "text", None, b"x"):
        with pytest.raises(TextError, match="a table is a frame"):
            columns_of(nothing)
    with pytest.raises(TextError, match="two columns of the frame have the same name: a, a"):
        columns_of(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    stamp = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
    assert list(csv_lines({"t": [stamp, pd.NaT, np.datetime64("2020-01-02")]})) == [
        "t", "2020-01-01T12:00:00+00:00", "NA", "2020-01-02",
    ]  # fmt: skip


@pytest.mark.parametrize("library", ["pandas", "polars", "series", "array"])
def test_a_forecast_of_a_frame(library: str) -> None:
    days = pd.date_range("2020-01-01", periods=200)
    values = np.sin(np.arange(200) / 3)
    given: Any = {
        "pandas": pd.DataFrame({"y": values}, index=days),
        "polars": pl.DataFrame({"date": list(days.date), "y": values}),
        "series": pd.Series(values, index=days, name="y"),
        "array": values,
    }[library]
    model = recur.fit(given, task="forecast", horizon=5, **SMALL)
    assert len(model.predict(given)) == 5
    assert model(given).shape == (5,)
    assert "expected" in model.predict(given, anomalies=True)[0]
    with pytest.raises(OptionError, match="ask with predict"):
        model(given, anomalies=True)


def test_images_and_trees_and_texts(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((40, 8, 8))
    labels = ["rows", "columns"] * 20
    model = recur.fit(images, labels, task="grid", **SMALL)
    assert model.classes == ("columns", "rows")
    assert model(images[0]) in labels
    for given, says in (
        (images, "come with their labels"),
        ((images, labels[:-1]), "40 images and 39 labels"),
        (([np.zeros((2, 2)), np.zeros((3, 3))], [0, 1]), "several sizes"),
    ):
        with pytest.raises(TextError, match=says):
            write_data("images", given, tmp_path, "x")
    trees = [f"({k % 2} (0 a)\n (1 {'xy'[k % 2]}))" for k in range(40)]
    assert recur.fit(trees, task="tree", **SMALL).classes == ("0", "1")
    lines = pd.Series(["the network reads a word"] * 200)
    assert recur.fit(lines, task="language", window=8, **SMALL).perplexity("the word\n") > 1
    with pytest.raises(TextError, match="row 2: a text is expected, got 5"):
        write_data("text", ["a", 5], tmp_path, "x")


def test_names_are_no_data() -> None:
    for names in (None, "a.txt", Path("a.txt"), ["a.txt", Path("b")], ("a.txt",), []):
        assert not is_in_memory(names)
    for data in (pd.DataFrame(), [1.0], [("a", "b")], np.zeros(3), {"a": [1]}, pl.Series([1])):
        assert is_in_memory(data)


def test_measured_on_data_in_memory() -> None:
    model = recur.fit(TEXTS, STARS, task="classify", **SMALL)
    file = str(model.run.path / "data/train.tsv")
    expected = model.evaluate([file])["accuracy"]
    assert model.evaluate((TEXTS, STARS))["accuracy"] == expected
    frame = pd.DataFrame({"review": TEXTS, "stars": STARS})
    assert model.evaluate(frame, text="review", label="stars")["accuracy"] == expected
    with pytest.raises(TextError, match="no column 'text'; name it"):
        model.evaluate(frame)


def test_which_column_is_meant() -> None:
    model = recur.fit(TEXTS, STARS, task="classify", **SMALL)
    with pytest.raises(TextError, match=r"which column is the input\? Give frame\[name\]; the frame has a, b"):
        model.predict(pd.DataFrame({"a": TEXTS, "b": TEXTS}))


def test_none_of_these_packages_is_imported_by_us() -> None:
    code = (
        "import sys, recur; recur.fit, recur.load; "
        "sys.exit(bool({'pandas', 'polars', 'sklearn', 'optuna'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_labels_of_every_kind_are_read_back(tmp_path: Path) -> None:
    labels = [True, np.int64(3), "two words", 1.5]
    write_data("labelled", (["one text", "another text", "a third", "the last"], labels), tmp_path, "x")
    assert [one.label for one in read_labelled([str(tmp_path / "x.tsv")])] == ["True", "3", "two words", "1.5"]


def test_the_names_of_columns_are_no_label(tmp_path: Path) -> None:
    """Lists go into a file with a header, which both tasks that have labels leave out."""
    lines, labels = ["gamma", "delta"] * 20, ["a", "b"] * 20
    for task in ("conditional", "classify"):
        model = recur.fit((lines, labels), task=task, out=tmp_path / task, hidden_size=4, steps=1, baseline=False)
        assert {*model.run.vocabs["labels"].tokens} - {*SPECIALS} == {"a", "b"}, task


def test_sequences_of_numbers(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rise = [np.linspace(0, 1 if k % 2 else -1, 6 + k % 5)[:, None] + 0.1 * draw.standard_normal((6 + k % 5, 2))
            for k in range(40)]  # fmt: skip
    model = recur.fit(rise, ["down", "up"] * 20, task="classify", **SMALL)
    assert model.classes == ("down", "up")
    assert model(rise[0]) in model.classes
    assert len(model(rise)) == 40
    assert set(model.probabilities(rise[3])) == {"down", "up"}
    tags = [["low" if step[0] < 0 else "high" for step in one] for one in rise]
    tagger = recur.fit(rise, tags, task="tag", **SMALL)
    assert [len(found) for found in tagger(rise[:3])] == [6, 7, 8]
    with pytest.raises(TextError, match="with the same D"):
        write_data("labelled", ([np.zeros((3, 1)), np.zeros((3, 2))], [0, 1]), tmp_path, "x")
    spoken = write_data("tagged", (rise[:2], ["a b", "c"]), tmp_path, "x")[0]
    assert np.load(spoken)["y_lengths"].tolist() == [2, 1]
