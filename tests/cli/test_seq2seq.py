"""Pairs and labelled lines at the command line, and what a person can get wrong with them."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import recur
from recur.cli.app import run
from recur.errors import OptionError, TextError
from recur.runs import Run
from tests.cli.test_cli import json_of
from tests.support import close

WORDS = [a + b for a in ("ba", "de", "ki", "lo", "mu", "ne", "po") for b in ("", "n", "st", "ra", "lo", "ki")]
SMALL = [
    *("--cell", "lstm", "--grad-clip", "1"),
    *("--hidden-size", "32", "--embedding-size", "16", "--batch-size", "8", "--threads", "1"),
    *("--lr", "0.02", "--dropout-output", "0", "--steps", "150"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words and the same backwards, as symbols; a run trained on them, and another seed's."""
    here = tmp_path_factory.mktemp("pairs")
    (here / "pairs.tsv").write_text("".join(f"{word}\t{' '.join(reversed(word))}\n" for word in WORDS))
    (here / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    (here / "backwards.txt").write_text("".join(f"{word[::-1]}\n" for word in WORDS))
    (here / "names.tsv").write_text("".join(f"{'Vowel' if w[-1] in 'aeiou' else 'Other'}\t{w}\n" for w in WORDS))
    table = ["--valid", str(here / "pairs.tsv"), "--test", str(here / "pairs.tsv")]
    for seed in ("0", "1"):
        options = [*SMALL, *table, "--target-token", "space", "--seed", seed, "--max-length", "12"]
        assert (
            run(
                ["train", str(here / "pairs.tsv"), "--task", "seq2seq", *options, "-q", "--out", str(here / f"r{seed}")]
            )
            == 0
        )
    return here


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def test_it_learns_and_eval_says_how_well(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json_of(capsys, "eval", "r0", "pairs.tsv")
    assert found["sequences"] == 42
    assert found["sequence_error_rate"] < 0.2
    assert found["symbol_error_rate"] <= found["sequence_error_rate"]
    assert [row["model"] for row in found["beside"]] == ["copy", "look-up", "dictionary"]
    assert found["beside"][1]["sequence_error_rate"] == 0, "it is measured on what was learned"
    assert 1 < found["perplexity"] < 1.5
    assert found["gap"] == pytest.approx(found["free_loss"] - found["loss"])
    assert found["models"][0]["sequence_error_rate"] == found["sequence_error_rate"]
    own = json_of(capsys, "eval", "r0")
    assert own["perplexity"] == pytest.approx(found["perplexity"])
    both = json_of(capsys, "eval", "r0", "r1", "pairs.tsv", "--ensemble", "--beam", "4")
    assert both["sequence_error_rate"] <= 0.2
    apart = json_of(capsys, "eval", "r0", "r1", "pairs.tsv")
    assert len(apart["models"]) == 2
    metrics = [json.loads(line) for line in Path("r0/metrics.jsonl").read_text().splitlines()]
    wanted = {
        "valid_sequence_error_rate",
        "valid_symbol_error_rate",
        "valid_loss",
        "valid_free_loss",
        "valid_gap",
        "valid_cut",
    }
    assert all(wanted <= entry.keys() for entry in metrics)


def test_predict_from_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "r0", "words.txt", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == WORDS
    right = sum(line.split("\t")[1].split() == list(reversed(word)) for line, word in zip(lines, WORDS, strict=True))
    assert right > 33
    assert run(["predict", "r0", "words.txt", "--beam", "5", "--nbest", "3", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 * len(WORDS)
    scores = [float(line.split("\t")[2]) for line in lines]
    assert all(a >= b >= c for a, b, c in zip(scores[::3], scores[1::3], scores[2::3], strict=True))
    found = json_of(capsys, "predict", "r0", "r1", "words.txt", "--samples", "2", "--seed", "3", "--temperature", "0.5")
    assert len(found["predictions"]) == 42
    assert all(len(row["nbest"]) == 2 for row in found["predictions"])
    again = json_of(capsys, "predict", "r0", "r1", "words.txt", "--samples", "2", "--seed", "3", "--temperature", "0.5")
    assert again == found
    wide = json_of(capsys, "predict", "r0", "words.txt", "--beam", "60")
    assert len(wide["predictions"]) == 42, "a beam wider than the vocabulary is only wide"


def test_where_it_looked(here: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figure = tmp_path / "attention.png"
    found = json_of(capsys, "predict", "r0", "words.txt", "--attention", "--figure", str(figure))
    assert figure.read_bytes()[:4] == b"\x89PNG"
    model: Any = recur.load("r0")
    for row in found["predictions"]:
        looked = row["attention"]
        assert (looked["source"], looked["target"]) == (list(row["input"]), [*row["output"].split(), "<eos>"])
        assert [sum(weights) for weights in looked["weights"]] == pytest.approx([1] * len(looked["target"]))
        x, y = (model.run.vocabs[side].encode(row[key]) for side, key in (("source", "input"), ("target", "output")))
        x, y = (torch.from_numpy(ids).long()[None] for ids in (x, y))
        alone = model.model(x, torch.tensor([x.shape[1]]), y, torch.tensor([y.shape[1]])).weights[0]
        close(torch.tensor(looked["weights"]), alone.detach())
    both = json_of(capsys, "predict", "r0", "r1", "words.txt", "--attention", "--beam", "2")
    assert both["predictions"][0]["attention"]["weights"] != found["predictions"][0]["attention"]["weights"]
    assert run(["predict", "r0", "words.txt", "--attention", "-q"]) == 0
    assert "  <eos> ← " in capsys.readouterr().out
    assert "attention" not in json_of(capsys, "predict", "r0", "words.txt")["predictions"][0]


def test_predict_as_lines_come_in(here: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "recur", "predict", "r0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for word in ("ba", "kist"):
        process.stdin.write(word + "\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith(word + "\t"), "before standard input ends"
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    process.stdout.close()


def test_resume_goes_on(here: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = [*SMALL[:-2], "--task", "seq2seq", "--steps", "20", "--valid", "pairs.tsv", "--test", "pairs.tsv"]
    json_of(capsys, "train", "pairs.tsv", *options, "--out", str(tmp_path / "r"))
    assert json_of(capsys, "resume", str(tmp_path / "r"), "--steps", "15")["steps"] == 35


def test_two_files_words_and_bleu(here: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    both = ["words.txt", "backwards.txt"]
    parts = [word for flag in ("--valid", "--test") for name in both for word in (flag, name)]
    found = json_of(
        capsys, "train", *both, "--task", "seq2seq", *parts,
        "--source-token", "char", "--target-token", "word", "--min-freq", "1", *SMALL, "--out", str(tmp_path / "w"),
    )  # fmt: skip
    assert found["valid_sequence_error_rate"] < 0.5
    measured = json_of(capsys, "eval", str(tmp_path / "w"), *both)
    assert {"bleu", "chrf", "word_error_rate"} <= measured.keys()
    assert measured["sequences"] == 42


def test_subwords_on_both_sides(here: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tokens = ["--source-token", "subword", "--target-token", "subword", "--pieces", "300"]
    options = [*SMALL[:-2], "--steps", "10", "--valid", "pairs.tsv", "--test", "pairs.tsv", *tokens]
    json_of(capsys, "train", "pairs.tsv", "--task", "seq2seq", *options, "--out", str(tmp_path / "s"))
    assert json_of(capsys, "eval", str(tmp_path / "s"))["sequences"] == 42


def test_lines_of_a_label(here: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = [*SMALL, "--condition", "both", "--valid", "names.tsv", "--test", "names.tsv"]
    out = str(tmp_path / "n")
    json_of(capsys, "train", "names.tsv", "--task", "conditional", *options, "--out", out)
    for label, ends in (("Vowel", True), ("Other", False)):
        drawn = json_of(capsys, "sample", out, "--label", label, "--samples", "60", "--seed", "1")["samples"]
        assert len(drawn) == 60
        share = sum((name[-1:] in "aeiou") == ends for name in drawn if name) / 60
        assert share > 0.75, (label, drawn[:5])
    assert len(json_of(capsys, "sample", out, "--label", "Vowel", "--beam", "3")["samples"]) == 3
    found = json_of(capsys, "eval", out, "names.tsv")
    assert found["sequences"] == 42
    assert found["perplexity"] < 6
    for arguments, says in (
        (["sample", out], "which label? --label, one of: Other, Vowel"),
        (["sample", out, "--label", "Vowels"], "did you mean 'Vowel'"),
        (["sample", out, "--label", "Vowel", "--prompt", "a"], "a conditional model generates whole lines"),
        (["eval", out, "--beam", "3"], "--beam is not for the task conditional"),
        (["predict", out, "words.txt"], "unknown label 'ba'; known: Other, Vowel"),
    ):
        assert run([*arguments, "-q"]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train bad.tsv --task seq2seq", "bad.tsv:2: a pair is source TAB target, 2 columns; this line has 1"),
        ("train empty-source.tsv --task seq2seq", "empty-source.tsv:1: the source is empty"),
        ("train empty-target.tsv --task seq2seq", "empty-target.tsv:2: the target is empty"),
        ("train pairs.tsv --task seq2sec", "unknown task 'seq2sec'; did you mean 'seq2seq'?"),
        (
            "train pairs.tsv --task seq2seq --window 3",
            "--window belongs to forecast and language",
        ),
        ("train pairs.tsv --task seq2seq --teacher-forcing half", "teacher 'half' is not one of"),
        ("train pairs.tsv --task seq2seq --condition aligned", "take --stop source"),
        ("train pairs.tsv --task seq2seq --max-length 3", "symbols, and --max-length is 3"),
        ("train pairs.tsv --task seq2seq --label-smoothing 1", "smoothing must lie in 0 … 1"),
        ("train pairs.tsv words.txt backwards.txt --task seq2seq", "or as two files"),
        ("predict r0 absent.txt", "no file 'absent.txt'"),
        ("predict words.txt", "no run among words.txt"),
        ("predict r0 words.txt --beam 0", "beam must be a whole number ≥ 1"),
        ("predict r0 words.txt --beam 2 --nbest 3", "nbest must lie in 1 … 2"),
        ("predict r0 words.txt --temperature 0.5", "for drawn sequences only"),
        ("predict r0 words.txt --samples 2 --beam 3", "either drawn or searched for"),
        ("predict r0 words.txt --length-penalty 1", "give a beam above 1"),
        ("predict r0 words.txt --coverage 0.2", "give a beam above 1"),
        ("eval r0 pairs.tsv --beam 2 --coverage -1", "coverage must not be negative"),
        ("predict r0 empty.txt --on-bad-rows error", "empty.txt:2: the source is empty"),
        ("eval r0 bad.tsv", "bad.tsv:2: a pair is"),
        ("eval r0 pairs.tsv --beam -1", "beam must be a whole number ≥ 1"),
        ("sample r0", "is no language model: try recur predict r0"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: str, says: str, here: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Path("bad.tsv").write_text("a\tb\nonly\n")
    Path("empty-source.tsv").write_text("\tb\n")
    Path("empty-target.tsv").write_text("a\tb\na\t\n")
    Path("empty.txt").write_text("ba\n\nde\n")
    extra = ["--out", str(tmp_path / "new")] if arguments.startswith("train") else []
    assert run([*arguments.split(), *extra, "--quiet"]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert says in printed.err


def test_what_was_never_seen_and_what_never_stops_are_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.txt").write_text("baß\n")
    assert run(["predict", "r0", "odd.txt"]) == 0
    assert "never seen in training, and in how many inputs: 'ß' (1)" in capsys.readouterr().err
    (row,) = json_of(capsys, "predict", "r0", "odd.txt")["predictions"]
    assert row["unknown"] == ["ß"]
    shutil.copytree("r0", "short")
    short = Run.open("short", writing=True)
    short.write_config(short.config_text().replace("max_length = 12", "max_length = 1"))
    (made,) = json_of(capsys, "predict", "short", "odd.txt")["predictions"]
    assert made["cut"]
    assert len(made["output"].split()) == 1
    assert run(["predict", "short", "odd.txt"]) == 0
    assert "1 did not end by themselves and were cut" in capsys.readouterr().err


def test_standard_input_that_cannot_be_read(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for content, says in ((b"\xff\n", "standard input:1 is not UTF-8"), (b"ba\n\n", "standard input:2: the source is")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
        assert run(["predict", "r0", "-q", "--on-bad-rows", "error"]) == 2
        assert says in capsys.readouterr().err


def test_from_python(here: Path) -> None:
    model: Any = recur.load("r0")
    assert model("ba").split() == ["a", "b"]
    assert [row["output"] for row in model.predict(["ba", "de"], beam=3)] == [model("ba", beam=3), model("de", beam=3)]
    with pytest.raises(TextError, match="is empty"):
        model("")
    with pytest.raises(OptionError, match="for drawn sequences only"):
        model("ba", top_k=3)
    fresh = recur.fit(
        "pairs.tsv", task="seq2seq", valid="pairs.tsv", test="pairs.tsv", steps=3, hidden_size=8, threads=1
    )
    assert isinstance(fresh("ba"), str)
