"""train, resume, sample and eval as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import recur
from recur.cli.app import run
from recur.cli.display import draw
from recur.cli.eval import _refuse_change
from recur.errors import OptionError, TextError
from tests.cli.test_cli import json_of
from tests.support import core, needs_core

BOOK = "the network reads a word and the word is kept\na state is a word that the network keeps\n" * 40
SMALL = ["--hidden-size", "16", "--batch-size", "4", "--window", "20", "--threads", "1", "--lr", "0.02"]


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(BOOK)
    (tmp_path / "test.txt").write_text("the network keeps a word\n")
    return "book.txt"


@pytest.fixture
def trained(book: str, capsys: pytest.CaptureFixture[str]) -> Any:
    return json_of(capsys, "train", book, *SMALL, "--steps", "150", "--out", "runs/book")


def test_train_ends_with_what_it_reached(trained: Any) -> None:
    assert trained["run"] == "runs/book"
    assert trained["steps"] == 150
    assert trained["valid_perplexity"] < 6
    assert trained["baselines"][0]["value"] > 1
    assert trained["backend"] == ("native" if core else "torch")
    assert trained["parameters"] > 1000
    assert trained["predictions_per_second"] > 0
    files = {path.name for path in Path("runs/book").iterdir()}
    assert {"config.toml", "vocab.json", "model.safetensors", "metrics.jsonl", "resume"} <= files
    entries = [json.loads(line) for line in Path("runs/book/metrics.jsonl").read_text().splitlines()]
    assert len(entries) >= 10
    wanted = {
        "step",
        "epoch",
        "train_loss",
        "valid_perplexity",
        "valid_gap",
        "valid_bits_per_character",
        "grad_norm",
        "clipped",
    }
    assert all(wanted <= entry.keys() for entry in entries)


def test_resume_goes_on_and_samples_and_evaluates(trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    more = json_of(capsys, "resume", "runs/book", "--steps", "50")
    assert more["steps"] == 200
    a, b, c = (
        json_of(capsys, "sample", "runs/book", "--prompt", "the ", "--length", "40", "--seed", s)["samples"]
        for s in ("1", "1", "2")
    )
    assert a == b != c
    assert len(a[0]) == 40
    several = json_of(capsys, "sample", "runs/book", "--samples", "3", "--length", "10")["samples"]
    assert len(several) == 3
    best = json_of(capsys, "sample", "runs/book", "--beam", "4", "--length", "10")["samples"]
    assert len(best) == 4
    found = json_of(capsys, "eval", "runs/book", "test.txt")["models"]
    assert [row["tokens"] for row in found] == [25, 25]
    assert "gram" in found[1]["model"]
    assert {"perplexity", "bits_per_character", "oov", "tokens_per_second"} <= found[0].keys()
    own = json_of(capsys, "eval", "runs/book", "--no-ngrams")["models"]
    assert len(own) == 1


@needs_core
def test_weights_in_fewer_bits_are_measured_before_they_are_trusted(
    trained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, fewer = json_of(capsys, "eval", "runs/book", "--weights", "int8", "--no-ngrams")["models"]
    assert fewer["model"] == "runs/book, int8"
    change = 100 * (fewer["perplexity"] / plain["perplexity"] - 1)
    assert fewer["perplexity_change"] == pytest.approx(change)
    assert 0 < abs(change) < 1
    assert run(["eval", "runs/book", "--weights", "int8", "--no-ngrams"]) == 0
    assert f"perplexity of runs/book by {change:+.3f} %" in capsys.readouterr().err
    refused = "runs/book, int8: perplexity rises by .* %, more than the .* % of --max-change"
    with pytest.raises(OptionError, match=refused):
        _refuse_change([{**fewer, "perplexity_change": 0.5}], max_change=0.4)
    text = ["sample", "runs/book", "--prompt", "the ", "--length", "30", "--seed", "1"]
    assert len(json_of(capsys, *text, "--weights", "int8")["samples"][0]) == 30
    assert run(["sample", "runs/book", "--weights", "int4"]) == 2


@needs_core
def test_training_with_bfloat16_products_learns_as_float32_does(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    losses = {}
    for precision in ("float32", "bfloat16"):
        options = ["--steps", "60", "--precision", precision]
        losses[precision] = json_of(capsys, "train", book, *SMALL, "--out", precision, *options)["valid_loss"]
    assert losses["float32"] != losses["bfloat16"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.01)


def test_a_sample_streams_and_stops(trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    whole = ["sample", "runs/book", "--prompt", "the ", "--length", "60", "--seed", "1", "--top-k", "3"]
    assert run(whole) == 0
    text = capsys.readouterr().out
    assert text.startswith("the ")
    assert len(text) == 4 + 60 + 1
    assert run([*whole, "--stop", " "]) == 0
    assert capsys.readouterr().out == "the " + text[4:].partition(" ")[0] + "\n"


def test_prompts_one_after_the_other(
    trained: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = iter(["the ", "☃", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(prompts))
    assert run(["sample", "runs/book", "--interactive", "--length", "5", "--seed", "1"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("the ")
    assert "not in the vocabulary: '☃'" in shown.err, "said, and the next one asked for"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("sample runs/book --beam 3 --samples 2", "--beam is a search: it cannot be combined with --samples"),
        ("sample runs/book --label x", "was not trained with --task conditional"),
        ("eval model.arpa", "an ARPA file has no text of its own"),
        ("eval runs/book --beam 2", "--beam is not for the task language"),
        ("resume runs/book --device tpu", "device must be auto, cpu, cuda or cuda:N"),
    ],
)
def test_what_a_language_model_has_no_use_for(
    arguments: str, says: str, trained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments.split(), "-q"]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert says in printed.err


def test_an_ngram_of_a_file_stands_beside_a_run(trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ngram", "book.txt", "--token", "word", "--order", "3", "--save", "model.arpa", "-q"]) == 0
    capsys.readouterr()
    found = json_of(capsys, "eval", "runs/book", "model.arpa", "test.txt", "--no-ngrams")["models"]
    assert [row["model"] for row in found] == ["runs/book", "model.arpa"]


def test_words_keep_their_spaces_in_samples(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [*SMALL, "--token", "word", "--embedding-size", "8", "--tie-weights", "--no-baseline", "--steps", "60"]
    json_of(capsys, "train", book, *options, "--out", "runs/words")
    (sample,) = json_of(capsys, "sample", "runs/words", "--prompt", "the network", "--length", "5")["samples"]
    assert sample.startswith((" ", "\n"))


def test_a_configuration_file_and_flags_that_override_it(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.toml").write_text(
        'texts = ["book.txt"]\nhidden_size = 12\ncell = "gru"\nsteps = 30\nbatch_size = 4\nwindow = 20\nthreads = 1\n'
        'baseline = false\ntie_weights = false\n\n[about]\nfigure = "none"\n'
    )
    json_of(capsys, "train", "--config", "c.toml", "--out", "runs/c", "--hidden-size", "8")
    config = Path("runs/c/config.toml").read_text()
    assert 'cell = "gru"' in config
    assert "hidden_size = 8" in config
    Path("bad.toml").write_text("hiden = 3\n")
    assert run(["train", "--config", "bad.toml"]) == 2
    assert "bad.toml: unknown option 'hiden'; did you mean 'hidden_size'?" in capsys.readouterr().err


def test_a_folder_with_a_run_is_not_written_over(trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "book.txt", *SMALL, "--steps", "1", "--out", "runs/book", "--quiet"]) == 2
    assert "already holds a run" in capsys.readouterr().err


def test_a_short_text_gets_a_shorter_window_unless_strict(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("short.txt").write_text("ab " * 30)
    options = ["--no-baseline", "--steps", "3", "--threads", "1", "--hidden-size", "4"]
    json_of(capsys, "train", "short.txt", *options, "--out", "runs/s")
    assert run(["train", "short.txt", *options, "--strict", "--out", "runs/t", "--quiet"]) == 2
    assert "need 513; lower --batch-size or --window" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train absent.txt", "no file 'absent.txt'"),
        ("train book.txt --cell grv", "did you mean 'gru'"),
        ("train book.txt --lr -1", "lr must be above 0"),
        ("train book.txt --batch-size 0", "batch_size must be a whole number ≥ 1"),
        ("train book.txt --schedule often", "schedule 'often' is not one of"),
        ("train book.txt --bptt half", "bptt 'half'"),
        ("train book.txt --tie-weights --embedding-size 0", "tied weights need an embedding"),
        ("train book.txt --device tpu", "device must be auto, cpu, cuda or cuda:N"),
        ("train book.txt --jitter --partition random", "jitter is for the sequential partition"),
        ("train --config absent.toml", "cannot be used as a configuration"),
        ("resume book.txt", "is not a run"),
        ("sample .", "is not a run"),
        ("sample runs/book --temperature 0", "temperature must be above 0"),
        ("sample runs/book --temperature -1", "temperature must be above 0"),
        ("sample runs/book --length -1", "--length must not be negative"),
        ("sample runs/book --prompt ☃", "not in the vocabulary: '☃'"),
        ("eval runs/book absent.txt", "no file 'absent.txt'"),
        ("eval book.txt", "no run among book.txt"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: str, says: str, trained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["--out", "runs/new"] if arguments.startswith("train") else []
    assert run([*arguments.split(), *extra, "--quiet"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert says in printed.err


def test_no_space_left_is_one_line(book: str) -> None:
    """A folder of one page: the run cannot be written, and nothing is left half."""
    code = f"""
import resource, sys
from recur.cli.app import run
from recur.cli.eval import _refuse_change
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
options = "--steps 5 --hidden-size 32 --threads 1 --no-baseline --out runs/x -q".split()
sys.exit(run(["train", {book!r}, *options]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "File too large" in done.stderr
    assert not list(Path("runs/x").rglob("*.part"))


def test_interrupted_it_saves_and_says_how_to_go_on(book: str) -> None:
    command = [
        sys.executable,
        "-m",
        "recur",
        "train",
        book,
        *SMALL,
        "--minutes",
        "5",
        "--eval-every",
        "1",  # so that there are weights to keep before half a minute has passed
        "--no-baseline",
        "--out",
        "runs/i",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not Path("runs/i/model.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "recur resume runs/i" in errors
    assert "Traceback" not in errors
    assert list(Path("runs/i/resume").glob("*.safetensors"))


def test_resume_with_json_reports_a_damaged_log(trained: Any, capsys: pytest.CaptureFixture[str]) -> None:
    log = Path("runs/book/metrics.jsonl")
    log.write_bytes(log.read_bytes()[:-10])
    assert run(["resume", "runs/book", "--steps", "1", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["steps"] == 151
    assert "metrics.jsonl is damaged: its earlier entries are lost" in printed.err


def test_tensorboard(book: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [*SMALL, "--steps", "20", "--no-baseline", "--log", "tensorboard", "--out", "runs/tb"]
    json_of(capsys, "train", book, *options)
    assert list(Path("runs/tb/tensorboard").glob("events*"))


def test_from_python(book: str) -> None:
    model = recur.fit(book, cell="gru", hidden_size=12, batch_size=4, window=20, steps=60, threads=1, baseline=False)
    assert model.perplexity("the network keeps a word\n") < 30
    assert len(model.generate("the ", 20, seed=1)[0]) == 20
    assert "".join(model.stream("the ", 20, seed=1)) == model.generate("the ", 20, seed=1)[0]
    p, state = model.step("t")
    assert abs(sum(p.values()) - 1) < 1e-5
    q, _ = model.step("h", state)
    assert p != q
    again = recur.load(model.run.path)
    assert again.generate("the ", 20, seed=1) == model.generate("the ", 20, seed=1)
    with pytest.raises(OptionError, match="unknown option 'hiden'"):
        recur.fit(book, hiden=3)
    with pytest.raises(OptionError, match="not in the vocabulary"):
        model.step("☃")
    with pytest.raises(TextError, match="no token to measure"):
        model.perplexity("")


def test_the_curve_falls_and_meets_the_ngram() -> None:
    drawn = draw([(1.0, 30.0), (2.0, 8.0), (3.0, 3.0)], "valid_perplexity", 4.0, "6-gram")
    rows = [line.find("●") for line in drawn.splitlines()]
    assert [r for r in rows if r >= 0] == sorted(r for r in rows if r >= 0), "later is further right and lower"
    assert "6-gram 4.000" in drawn
    assert drawn.count("●") == 3
