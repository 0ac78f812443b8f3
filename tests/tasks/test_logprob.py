"""log P of a text: against the sum over all texts of a length, against perplexity, and against single steps."""

from __future__ import annotations

import io
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from recur.baselines import ngram
from recur.cli.app import run
from recur.data.text import EOS, Characters, Corpus, Vocab, Words, fit_vocab
from recur.tasks.conditional.predictor import ConditionalWriter
from recur.tasks.language.predictor import Language
from tests.cli.test_cli import json_of
from tests.tasks.test_direction import TEXT, book, trained

assert book  # a fixture


def total(logprobs: np.ndarray) -> float:
    return math.exp(float(logprobs.sum()))


@pytest.mark.parametrize("token", ["char", "word"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_probabilities_of_all_texts_of_a_length_sum_to_one(
    tmp_path: Path, book: Path, direction: str, token: str
) -> None:
    model: Language = trained(tmp_path, book, direction=direction, token=token)
    for n in (1, 2, 3):
        texts = itertools.product(range(len(model.vocab)), repeat=n)
        assert sum(total(model.logprobs(np.array(ids))) for ids in texts) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_it_is_what_perplexity_and_single_steps_say(tmp_path: Path, book: Path, direction: str) -> None:
    model: Language = trained(tmp_path, book, direction=direction)
    text = "abba\nab\n"
    logp = model.logprob(text)
    assert logp == pytest.approx(-len(text) * math.log(model.perplexity(text)), rel=1e-6)
    (tmp_path / "held.txt").write_text(text)
    measured = model.measure(Corpus.of(str(tmp_path / "held.txt")))
    assert logp == pytest.approx(-len(text) * math.log(measured["perplexity"]), rel=1e-5)
    assert [token for token, _ in model.token_logprobs("ab\n")] == list("ab\n" if direction == "forward" else "\nba")
    state, stepwise, last = None, 0.0, "\n"
    for c in text if direction == "forward" else text[::-1]:
        p, state = model.step(last, state)
        stepwise, last = stepwise + math.log(p[c]), c
    assert logp == pytest.approx(stepwise, rel=1e-5)
    assert model.logprob("ab\r\n") == model.logprob("ab\n"), "read as a file is"


@pytest.mark.parametrize("backward", [False, True])
def test_ngrams_of_words_measure_lines_with_their_ends(backward: bool) -> None:
    """A line ends within three words, or it has begun with three that are not all of it."""
    text = "a b b\nb a\na\n"
    vocab = Vocab.from_counts(Words().count([text]), Words())
    model = ngram.fit(text, vocab, 3, backward=backward)
    words = [k for k in np.nonzero(vocab.predictable())[0].tolist() if k != EOS]
    ended = total(model.logprobs(np.array([EOS])))
    for n in (1, 2):
        ended += sum(total(model.logprobs(np.array(ids))) for ids in itertools.product(words, repeat=n))
    begun = sum(total(model.logprobs(np.array(ids))[:-1]) for ids in itertools.product(words, repeat=3))
    assert ended + begun == pytest.approx(1, rel=1e-9)
    found = model.token_logprobs("a b")
    assert [token for token, _ in found] == [*("ba" if backward else "ab"), "<eos>"]
    assert sum(logp for _, logp in found) == pytest.approx(-3 * math.log(model.perplexity("a b\n")), rel=1e-9)


@pytest.mark.parametrize("backward", [False, True])
def test_ngrams_of_characters(backward: bool) -> None:
    text = "a b b\nb a\na\n"
    vocab = Vocab.from_counts(Characters().count([text]), Characters())
    model = ngram.fit(text, vocab, 2, backward=backward)
    can = np.nonzero(vocab.predictable())[0].tolist()
    for n in (1, 2, 3):
        every = itertools.product(can, repeat=n)
        assert sum(total(model.logprobs(np.array(ids))) for ids in every) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("stop", ["eos", "bernoulli", "length"])
def test_lines_of_a_label(tmp_path: Path, direction: str, stop: str) -> None:
    table = tmp_path / "lines.tsv"
    table.write_text("".join(f"one\tab{'b' * (k % 3)}\ntwo\tba{'a' * (k % 2)}\n" for k in range(60)))
    options = {"token": "char", "stop": stop, "max_length": 6, "direction": direction}
    model: ConditionalWriter = trained(tmp_path, table, "conditional", **options)
    found = model.token_logprobs("abb", "one")
    assert [token for token, _ in found] == [*("abb" if direction == "forward" else "bba"), "<eos>"]
    (tmp_path / "held.tsv").write_text("one\tabb\n")
    loss = model.evaluate([str(tmp_path / "held.tsv")])["loss"]
    assert model.logprob("abb", "one") == pytest.approx(-4 * loss, rel=1e-5)
    assert model.logprob("abb", "one") != pytest.approx(model.logprob("abb", "two"), rel=1e-4)
    assert model.generate("one", seed=1)[0].strip("ab") == ""
    if stop == "eos":  # a line ends within one symbol, or it has begun with two
        symbols = [k for k in range(len(model.vocab)) if k != EOS]
        ended = total(model.logprobs(np.array([], np.int64), "one"))
        ended += sum(total(model.logprobs(np.array([k]), "one")) for k in symbols)
        begun = sum(total(model.logprobs(np.array(ids), "one")[:2]) for ids in itertools.product(symbols, repeat=2))
        assert ended + begun == pytest.approx(1, abs=1e-5)


def test_at_the_command_line(
    tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Language = trained(tmp_path, book, direction="backward")
    where = str(tmp_path / "run")
    found = json_of(capsys, "logprob", where, "abba", "ab")
    assert found["direction"] == "backward"
    for row in found["texts"]:
        assert row["logprob"] == pytest.approx(model.logprob(row["text"]), rel=1e-6)
        assert row["bits"] == pytest.approx(-row["logprob"] / math.log(2))
        assert row["tokens"] == len(row["text"]) == len(row["each"])
        assert row["perplexity"] == pytest.approx(model.perplexity(row["text"]), rel=1e-6)
    assert [entry["token"] for entry in found["texts"][1]["each"]] == ["b", "a"]
    assert run(["logprob", where, "ab"]) == 0
    assert "log P = " in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ab\n\nba\n")))
    rows = json_of(capsys, "logprob", where)["texts"]
    assert [(row["text"], row["tokens"], row["perplexity"] is None) for row in rows] == [
        ("ab", 2, False),
        ("", 0, True),
        ("ba", 2, False),
    ]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    for arguments in (["--label", "x", "ab"], [""], []):
        assert run(["logprob", where, *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_of_an_ngram_at_the_command_line(tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted = ngram.fit(TEXT, fit_vocab(Corpus.of(str(book))), 3)
    ngram.write_arpa(fitted, tmp_path / "model.arpa")
    found = json_of(capsys, "logprob", str(tmp_path / "model.arpa"), "abba", "--no-tokens")
    assert found["texts"][0]["logprob"] == pytest.approx(fitted.logprob("abba"), rel=1e-5)
    assert "each" not in found["texts"][0]
    assert run(["logprob", str(tmp_path / "model.arpa"), "ab", "--label", "x"]) == 2


def test_labels_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.tsv").write_text("one\tab\ntwo\tba\n" * 40)
    model: ConditionalWriter = trained(tmp_path, tmp_path / "lines.tsv", "conditional", token="char")
    where = str(tmp_path / "run")
    found = json_of(capsys, "logprob", where, "ab", "--label", "two")
    assert found["label"] == "two"
    assert found["texts"][0]["logprob"] == pytest.approx(model.logprob("ab", "two"), rel=1e-6)
    for arguments in (["ab"], ["ab", "--label", "three"], ["a\nb", "--label", "one"]):
        assert run(["logprob", where, *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1
