"""Held-out sets: stratified by class, grouped, without equal inputs on two sides."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from recur.data.reading import Reading
from recur.data.text import LabelledText, read_labelled
from recur.errors import OptionError, TextError
from recur.tasks import make_options, task_of
from recur.tasks.common.splits import hold_out, split


def examples(labels: list[str], groups: list[str] | None = None, texts: list[str] | None = None) -> list[LabelledText]:
    return [
        LabelledText(texts[k] if texts else f"text {k}", label, "", "", groups[k] if groups else "")
        for k, label in enumerate(labels)
    ]


def test_every_class_has_its_share() -> None:
    labels = ["a"] * 160 + ["b"] * 30 + ["c"] * 10
    items = examples(labels)
    valid, test = hold_out(items, [0.1, 0.2], Reading())
    assert not {*valid} & {*test}
    assert Counter(labels[k] for k in valid) == {"a": 16, "b": 3, "c": 1}
    assert Counter(labels[k] for k in test) == {"a": 32, "b": 6, "c": 2}
    assert valid != sorted(valid), "any part of a set is a sample of it"
    assert hold_out(items, [0.1, 0.2], Reading()) == [valid, test], "the same each time"


def test_a_class_of_one_example_is_learned_from() -> None:
    reading = Reading()
    labels = ["a"] * 50 + ["rare"] + ["b"] * 49
    (valid,) = hold_out(examples(labels), [0.2], reading)
    assert 50 not in valid
    assert "1 classes with one example are in the training set alone: 'rare'" in reading.note()
    few = [label for k in range(30) for label in (f"class {k}",) * 2]  # two of each: one at most is held out
    held = hold_out(examples(few), [0.2, 0.2], Reading())
    assert {*range(60)} - {k for part in held for k in part} >= set()
    assert {few[k] for k in range(60) if k not in held[0] + held[1]} == set(few)


def test_groups_and_equal_texts_stay_on_one_side() -> None:
    groups = [f"author {k % 20}" for k in range(200)]
    valid, test = hold_out(examples(["a", "b"] * 100, groups), [0.1, 0.1], Reading())
    parts = [{groups[k] for k in part} for part in (valid, test)]
    assert not parts[0] & parts[1]
    train = {groups[k] for k in range(200) if k not in valid + test}
    assert not train & (parts[0] | parts[1])
    assert len(valid) == len(test) == 20
    reading = Reading()
    texts = [f"text {k % 80}" for k in range(100)]  # 20 texts twice
    (held,) = hold_out(examples(["a", "b"] * 50, texts=texts), [0.2], reading)
    assert not {texts[k] for k in held} & {texts[k] for k in range(100) if k not in held}
    assert "20 of 100 examples repeat others; equal ones are kept in one set" in reading.note()
    reading = Reading()
    hold_out(examples(["a", "b"] * 50, texts=["yes", "no"] * 50), [0.2], reading)
    assert "equal examples are in several sets" in reading.note()


def written(folder: Path, rows: list[str], name: str = "a.csv") -> str:
    (folder / name).write_text("\n".join(rows) + "\n")
    return str(folder / name)


def test_fractions_folds_and_files(tmp_path: Path) -> None:
    rows = ["text,label,author", *(f"text {k},{'ab'[k % 2]},w{k % 10}" for k in range(100))]
    name = written(tmp_path, rows)
    fields = {"texts": [name], "group": "author", "label": "label", "text": "text"}
    options = make_options("classify", {**fields, "valid_fraction": 0.2, "test_fraction": 0.1})
    train, valid, test = split(options, read_labelled)  # type: ignore[arg-type]
    assert (len(train), len(valid), len(test)) == (70, 20, 10)
    sides = [{one.group for one in part} for part in (train, valid, test)]
    assert not sides[0] & sides[1]
    assert not sides[0] & sides[2]
    assert not sides[1] & sides[2]
    tested: list[str] = []
    for k in range(1, 6):
        fold = make_options("classify", {**fields, "fold": f"{k}/5"})
        train, valid, test = split(fold, read_labelled)  # type: ignore[arg-type]
        assert not {one.group for one in train} & {one.group for one in (*valid, *test)}
        tested += [one.text for one in test]
    assert sorted(tested) == sorted(f"text {k}" for k in range(100))
    other = written(tmp_path, ["text,label", "text 1,a", "new,b"], "b.csv")
    reading = Reading()
    split(make_options("classify", {"texts": [name], "valid": [other]}), read_labelled, reading)  # type: ignore[arg-type]
    assert "1 of 2 validation examples are training examples too" in reading.note()
    for fields in ({"valid_fraction": 0.0}, {"valid_fraction": 0.6, "test_fraction": 0.5}):
        with pytest.raises(OptionError, match="--valid-fraction"):
            make_options("classify", {"texts": [name], **fields})
    with pytest.raises(OptionError, match="is for files without --valid"):
        make_options("classify", {"texts": [name], "valid": [other], "valid_fraction": 0.1})


def test_one_class_is_refused(tmp_path: Path) -> None:
    name = written(tmp_path, ["text,label", *(f"text {k},only" for k in range(60))])
    with pytest.raises(TextError, match="all 54 training examples have the label 'only'"):
        task_of(make_options("classify", {"texts": [name], "token": "word"})).read()
