"""Train on files as people have them, and predict and evaluate by the same reader."""

from __future__ import annotations

import datetime
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recur
from recur.cli.app import run as command
from recur.models.multilabel import best_thresholds
from recur.tasks.classify.multilabel import label_scores
from tests.workbooks import write_workbook

GOOD, BAD = ("great", "fine", "lovely"), ("awful", "poor", "broken")


def texts(n: int = 80) -> list[tuple[str, str]]:
    draw = random.Random(0)
    rows = []
    for k in range(n):
        words = [draw.choice((GOOD, BAD)[k % 2]) for _ in range(3)] + [f"item{k}", "grüße"]
        rows.append((" ".join(words), ("up", "down")[k % 2]))
    return rows


SMALL = ["--steps", "20", "--hidden-size", "8", "--no-baseline", "--quiet"]


def run(*arguments: str) -> None:
    assert command(list(arguments)) == 0


def test_predict_reads_what_train_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A CSV from Excel: semicolons, Windows-1252, cells over several lines, more columns; labels are never read."""
    rows = texts()
    lines = ["Nr;Betreff;Körper;Prio"] + [f'{k};x;"{text};\nEnde";{label}' for k, (text, label) in enumerate(rows)]
    train = tmp_path / "train.csv"
    train.write_bytes("\r\n".join(lines).encode("cp1252"))
    folder = str(tmp_path / "run")
    columns = ["--text", "Körper", "--label", "Prio", "--id", "Nr"]
    run("train", str(train), "--task", "classify", *columns, "--out", folder, *SMALL)
    config = (tmp_path / "run" / "config.toml").read_text()
    for line in ('encoding = "cp1252"', 'delimiter = ";"', 'header = "yes"', 'text = "Körper"', 'label = "Prio"'):
        assert line in config
    capsys.readouterr()
    run("predict", folder, str(train), "--json")
    made = json.loads(capsys.readouterr().out)
    assert len(made["predictions"]) == 80, "no header and no label is a text"
    first = made["predictions"][0]
    assert (first["id"], first["label"]) == ("0", "up")
    assert first["input"] == f"{rows[0][0]}; Ende"
    assert made["labels"] == 80
    assert made["scores"]["accuracy"] > 0.9
    # the labels changed: the same predictions, other scores
    other = tmp_path / "other.csv"
    swapped = {"up": "down", "down": "up"}
    other.write_text("\n".join(["Körper,Prio", *(f'"{text}; Ende",{swapped[label]}' for text, label in rows)]))
    run("predict", folder, str(other), "--json")
    changed = json.loads(capsys.readouterr().out)
    assert [row["output"] for row in changed["predictions"]] == [row["output"] for row in made["predictions"]]
    assert changed["scores"]["accuracy"] == pytest.approx(1 - made["scores"]["accuracy"])
    # without labels, in other files: JSON lines, a workbook, lines
    (tmp_path / "plain.jsonl").write_text("".join(json.dumps({"Körper": text}) + "\n" for text, _ in rows[:3]))
    write_workbook(tmp_path / "plain.xlsx", [["Nr", "Körper"], *([float(k), rows[k][0]] for k in range(3))])
    (tmp_path / "plain.txt").write_text("".join(f"{text}\n" for text, _ in rows[:3]))
    outputs = []
    for name in ("plain.jsonl", "plain.xlsx", "plain.txt"):
        run("predict", folder, str(tmp_path / name), "--quiet")
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] == outputs[2]
    assert outputs[0].startswith(f"{rows[0][0]}\tup\n")
    run("eval", folder, str(train), "--json")
    assert json.loads(capsys.readouterr().out)["texts"] == 80
    assert command(["predict", folder, str(write_workbook(tmp_path / "no.xlsx", [["a", "b"], [1.0, "c"]]))]) == 2
    assert "The training files call it 'Körper'" in capsys.readouterr().err


def test_an_empty_line_does_not_stop_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{label}\t{text}\n" for text, label in texts()))
    folder = str(tmp_path / "run")
    run("train", str(tmp_path / "a.tsv"), "--task", "classify", "--out", folder, *SMALL)
    (tmp_path / "b.txt").write_text("great fine\n\npoor awful\n")
    capsys.readouterr()
    run("predict", folder, str(tmp_path / "b.txt"))
    out, err = capsys.readouterr()
    assert out.split("\n")[:3] == ["great fine\tup", "\t", "poor awful\tdown"], "lines correspond"
    assert "1 row was left out: input 2: the input is empty" in err
    run("predict", folder, str(tmp_path / "b.txt"), "--on-bad-rows", "skip", "--json")
    assert [row["output"] for row in json.loads(capsys.readouterr().out)["predictions"]] == ["up", "down"]
    assert command(["predict", folder, str(tmp_path / "b.txt"), "--on-bad-rows", "error"]) == 2
    assert "b.txt:2: the source is empty" in capsys.readouterr().err
    model = recur.load(folder)
    with pytest.raises(recur.RecurError):
        model(["great", " "])
    found = model.predict(["great", " ", "poor"], on_bad_rows="warn")
    assert [(row["output"], "error" in row) for row in found] == [("up", False), (None, True), ("down", False)]


def test_jsonl_is_never_trained_on_as_braces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"inhalt": t, "thema": label}) + "\n" for t, label in texts()))
    name = str(tmp_path / "a.jsonl")
    assert command(["train", name, "--task", "language", *SMALL, "--out", str(tmp_path / "l")]) == 2
    assert "is a table, not text; name the column of texts: --text" in capsys.readouterr().err
    run("train", name, "--task", "language", "--text", "thema", *SMALL, "--out", str(tmp_path / "run"))
    vocab = recur.load(tmp_path / "run").run.vocab
    assert {*vocab.tokens} & {"{", '"'} == set()
    run("train", name, "--task", "classify", *SMALL, "--out", str(tmp_path / "classes"))
    assert recur.load(tmp_path / "classes").classes == ("down", "up")  # type: ignore[attr-defined]


def test_a_panel_from_excel_is_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = datetime.date(2024, 1, 1)
    table: list[list[Any]] = [["Tag", "Filiale", "Umsatz"]]
    for store in ("Nord", "Süd", "neu"):
        for k in range(90 if store != "neu" else 5):
            if k != 40:
                table.append([first + datetime.timedelta(k), store, 10.0 + 5 * (k % 7 == 5) + k % 3])
    name = write_workbook(tmp_path / "panel.xlsx", table)
    run("train", name, "--horizon", "7", *SMALL, "--out", str(tmp_path / "run"))
    capsys.readouterr()
    run("predict", str(tmp_path / "run"), name)
    out, err = capsys.readouterr()
    assert [line.split(",")[:2] for line in out.splitlines()[1:]] == [
        [store, f"{first + datetime.timedelta(90 + k)}"] for store in ("Nord", "Süd") for k in range(7)
    ]
    assert "neu: 5 values are too few to forecast from" in err


def test_several_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw, words = random.Random(0), {"a": ["apple", "ant"], "b": ["bee", "bus"], "c": ["cat", "cup"]}
    rows = []
    for k in range(160):
        labels = draw.choice([("a",), ("b",), ("a", "b"), ("c",), ("a", "c")])
        drawn = [draw.choice(words[label]) for label in 3 * labels]
        rows.append((" ".join([*drawn, f"n{k}"]), "|".join(labels)))
    (tmp_path / "a.csv").write_text("text,labels\n" + "".join(f"{text},{labels}\n" for text, labels in rows))
    folder = str(tmp_path / "run")
    fields = ["--steps", "80", "--hidden-size", "16", "--quiet"]
    run("train", str(tmp_path / "a.csv"), "--task", "classify", "--out", folder, *fields)
    assert "multi_label = true" in (tmp_path / "run" / "config.toml").read_text()
    capsys.readouterr()
    run("predict", folder, str(tmp_path / "a.csv"), "--json")
    made = json.loads(capsys.readouterr().out)
    assert made["scores"]["micro_f1"] > 0.95
    assert {*made["predictions"][0]["probabilities"]} == {"a", "b", "c"}
    run("eval", folder, "--json")
    row = json.loads(capsys.readouterr().out)
    assert [one["model"].split(",")[0] for one in row["beside"]] == ["label frequencies", "TF-IDF logistic regressions"]
    assert row["micro_f1"] > row["beside"][0]["micro_f1"]
    model: Any = recur.load(folder)
    assert model("apple bee apple bee") == ["a", "b"]
    lists = [text for text, _ in rows], [labels.split("|") for _, labels in rows]
    again: Any = recur.fit(*lists, task="classify", steps=80, hidden_size=16)
    assert again("cat cup cat apple ant") == ["a", "c"]
    with pytest.raises(recur.RecurError, match="is for texts with one label"):
        recur.fit(*lists, task="classify", blend=True, multi_label=True)


def test_thresholds_and_scores_of_labels_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random_ = np.random.default_rng(0)
    p, there = torch.from_numpy(random_.random((60, 4))), torch.from_numpy(random_.random((60, 4)) < 0.3)
    cuts = best_thresholds(p, there)
    for k in range(4):
        f1 = [metrics.f1_score(there[:, k], p[:, k] >= cut) for cut in np.linspace(0, 1, 2001)]
        assert metrics.f1_score(there[:, k], p[:, k] >= cuts[k]) >= max(f1) - 1e-12
    scores = label_scores(p >= cuts, there)
    for name in ("micro", "macro"):
        assert scores[f"{name}_f1"] == pytest.approx(metrics.f1_score(there, p >= cuts, average=name))
    assert scores["exact"] == pytest.approx(metrics.accuracy_score(there, p >= cuts))
    assert label_scores(p >= cuts, there, unseen=10)["micro_f1"] < scores["micro_f1"]


def test_a_classifier_of_several_labels_in_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    from recur.sklearn import RecurClassifier

    inputs = ["apple ant", "bee bus", "cat cup", "apple bee"] * 20
    matrix = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]] * 20)
    model = RecurClassifier(hidden_size=16, steps=60, random_state=1).fit(inputs, matrix)
    assert model.predict(inputs[:4]).tolist() == matrix[:4].tolist()
    assert model.predict_proba(inputs[:4]).shape == (4, 3)
    assert model.score(inputs, matrix) == 1
    lists = [["a"], ["b"], ["c"], ["a", "b"]]
    assert (
        RecurClassifier(hidden_size=16, steps=60, random_state=1).fit(inputs, lists * 20).predict(inputs[:4]) == lists
    )
