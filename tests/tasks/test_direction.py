"""Language models that read from the end: the other factorisation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recur
from recur.baselines import ngram
from recur.baselines.ngram.model import Sequences
from recur.cli.app import run
from recur.data.text import Characters, Vocab, Words
from recur.data.text.tokenizers import without_leading_marks
from recur.diagnostics import Subject
from recur.diagnostics.context import copying
from recur.tasks.conditional.predictor import ConditionalWriter
from recur.tasks.language.predictor import Language
from tests.cli.test_cli import json_of
from tests.small_runs import begin, reopen, stop_after

QUICK: dict[str, Any] = {"hidden_size": 12, "embedding_size": 6, "threads": 1, "baseline": False, "device": "cpu"}
LEARNED: dict[str, Any] = {"hidden_size": 32, "embedding_size": 16, "steps": 200, "lr": 0.01}
LEARNED |= {"dropout_input": 0.0, "dropout_output": 0.0}
"""By heart."""
TEXT = "abba\nbaab\nab\n" * 30


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("book") / "book.txt"
    path.write_text(TEXT)
    return path


def trained(path: Path, text: Path, task: str = "language", **options: Any) -> Any:
    return recur.fit(text, task=task, out=path / "run", **{**QUICK, "steps": 20, **options})


@pytest.mark.parametrize("token", ["char", "word"])
def test_a_backward_model_is_a_forward_one_of_the_text_turned_round(tmp_path: Path, book: Path, token: str) -> None:
    """Same seed, same weights: what one learns from a text, the other learns from its tokens in the other order."""
    back = trained(tmp_path / "a", book, token=token, direction="backward", valid=str(book), test=str(book))
    turned = tmp_path / "turned.txt"
    if token == "char":
        turned.write_text(TEXT[::-1])
    else:  # the same tokens from the last to the first: the text's last line end comes first
        turned.write_text("\n" + "\n".join(" ".join(line.split()[::-1]) for line in TEXT.strip().split("\n")[::-1]))
    there = trained(tmp_path / "b", turned, token=token, valid=str(turned), test=str(turned))
    assert back.run.vocab.tokens == there.run.vocab.tokens
    for name, p in back.model.state_dict().items():
        assert torch.equal(p, there.model.state_dict()[name]), name
    assert back.evaluate(ngrams=False)["perplexity"] == there.evaluate(ngrams=False)["perplexity"]


def test_what_is_sampled_is_turned_round(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("wxyzwxYzwXyzwXYz" * 60)
    model: Language = trained(tmp_path, text, direction="backward", **LEARNED)
    possible = ("wxy", "wxY", "wXy", "wXY")
    (before,) = model.generate("z", 3, top_k=1)
    assert before in possible
    assert model.generate("z", 3, width=2)[0] in possible
    read = Subject.of(model, "wxyzwxYz")
    assert copying(read, samples=2, length=40).numbers["generated"][0] > 0.9, "pairs as the text has them"
    drawn: dict[str, Any] = {"seed": 1, "temperature": 0.5}
    (long,) = model.generate("z", 40, **drawn)
    assert "".join(list(model.stream("z", 40, **drawn))[::-1]) == long
    (cut,) = model.generate("z", 40, stop="w", **drawn)
    assert cut == long[long.rindex("w") + 1 :]
    assert "".join(list(model.stream("z", 40, "w", **drawn))[::-1]) == cut
    (pair,) = model.generate("z", 40, stop="zw", **drawn)
    assert pair == long[long.rindex("zw") + 2 :]
    assert "".join(list(model.stream("z", 40, "zw", **drawn))[::-1]) == pair


def test_words_stand_before_the_prompt(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three four\n" * 60)
    model: Language = trained(tmp_path, text, direction="backward", token="word", **LEARNED)
    assert model.generate("four", 3, top_k=1) == ["one two three "]
    assert "".join(list(model.stream("four", 3, top_k=1))[::-1]) == "one two three "
    assert model.generate("", 4, top_k=1) == ["one two three four"]


def test_no_mark_is_left_without_its_letter(tmp_path: Path) -> None:
    """Hindi: a letter and its vowel sign are two code points, which NFC does not compose."""
    assert without_leading_marks("\u093fक\u093f") == "क\u093f"
    text = tmp_path / "text.txt"
    text.write_text("क\u093f" * 400)
    model: Language = trained(tmp_path, text, direction="backward", **LEARNED)
    assert model.generate("क\u093f", 4, top_k=1) == ["क\u093fक\u093f"]
    for length in (1, 2, 3):
        (written,) = model.generate("क\u093f", length, top_k=1)
        assert written == "क\u093f" * (length // 2), "a sign whose letter has not come yet is left out"
        assert "".join(list(model.stream("क\u093f", length, top_k=1))[::-1]) == written


def test_it_resumes_and_is_looked_into(tmp_path: Path, book: Path) -> None:
    options = {**QUICK, "texts": str(book), "direction": "backward", "steps": 12, "window": 8, "batch_size": 4}
    whole = begin(tmp_path / "whole", **options)
    whole.train()
    stop_after(begin(tmp_path / "cut", **options), 5)
    again = reopen(tmp_path / "cut")
    again.train()
    for name, p in whole.model.state_dict().items():
        assert torch.equal(p, again.model.state_dict()[name]), name
    language = recur.load(tmp_path / "cut", task="language")
    subject = Subject.of(language, "abba\nabab")
    assert [subject.token(k) for k in subject.inputs.tolist()] == list("baba\nabba")
    assert recur.xray(language, TEXT[:200]).findings
    assert "read from the end" in language.task.describe(language.task.read())
    beside = language.evaluate()["beside"][0]
    assert beside["tokens"] == language.evaluate(ngrams=False)["tokens"]


def test_both_is_refused_in_a_line(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", str(book), "--task", "language", "--direction", "both"]) == 2
    assert run(["train", str(book), "--task", "conditional", "--direction", "both"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("has to predict" in line and "backward" in line for line in lines)


def test_a_line_of_a_label_written_from_its_end_is_turned_round(tmp_path: Path) -> None:
    table = tmp_path / "lines.tsv"
    table.write_text("one\twxyz\ntwo\tzyxw\n" * 60)
    options = {**LEARNED, "token": "char", "direction": "backward", "baseline": True}
    model: ConditionalWriter = trained(tmp_path, table, "conditional", **options)
    assert model.generate("one", width=1) == ["wxyz"]
    assert model.generate("two", width=1) == ["zyxw"]
    assert model.logprob("wxyz", "one") > -1 > -5 > model.logprob("zyxw", "one")


# N-grams ----------------------------------------------------------------------------------------------------------


def turned(text: str, by_line: bool) -> str:
    if not by_line:
        return text[::-1]
    return "".join(" ".join(line.split()[::-1]) + "\n" for line in text.split("\n")[-2::-1])


@pytest.mark.parametrize("tokenizer", [Characters(), Words()], ids=["char", "word"])
@pytest.mark.parametrize("smoothing", ["kneser-ney", "laplace", "add-k"])
def test_a_backward_ngram_is_a_forward_one_of_lines_turned_round(tokenizer: Any, smoothing: str) -> None:
    text, held = "a b c\nb c d e\na c\n" * 3, "a c b\nb d\n"
    vocab = Vocab.from_counts(tokenizer.count([text]), tokenizer)
    back = ngram.fit(text, vocab, 3, smoothing, backward=True)
    there = ngram.fit(turned(text, tokenizer.lines), vocab, 3, smoothing)
    assert back.logprob(held) == pytest.approx(there.logprob(turned(held, tokenizer.lines)), rel=1e-12)
    assert back.perplexity(held) == pytest.approx(there.perplexity(turned(held, tokenizer.lines)), rel=1e-12)
    assert back.perplexity(held) != pytest.approx(ngram.fit(text, vocab, 3, smoothing).perplexity(held), rel=1e-3)
    ids = [vocab.encode(model.sample(9, seed=3)).tolist() for model in (back, there)]
    assert ids[0] == ids[1][::-1]


def test_what_is_impossible_is_named_by_its_place_in_the_order_of_reading() -> None:
    vocab = Vocab.from_counts(Words().count(["a b c\n"]), Words())
    model = ngram.fit("a b c\n", vocab, 2, "add-k", k=0.0, backward=True)
    assert model.evaluate("c b b\n").impossible == "'b', token 1 of 4"
    assert model.evaluate("c b c\n").impossible == "'c', token 3 of 4"
    assert model.evaluate("b c\n").impossible == "'<eos>', token 3 of 3"


def test_an_arpa_file_says_which_way_it_reads_and_what_its_tokens_are(tmp_path: Path) -> None:
    text = "The cat sat.\nA cat ran.\n"
    for tokenizer in (Characters(), Words(), Words(punctuation=True, lower=True)):
        vocab = Vocab.from_counts(tokenizer.count([text]), tokenizer)
        for backward in (False, True):
            model = ngram.fit(text, vocab, 3, backward=backward)
            ngram.write_arpa(model, tmp_path / "model.arpa")
            again = ngram.read_arpa(tmp_path / "model.arpa")
            assert (again.backward, again.vocab.tokenizer) == (backward, tokenizer)
            assert again.logprob("A cat sat.\n") == pytest.approx(model.logprob("A cat sat.\n"), rel=1e-5)
    other = (tmp_path / "model.arpa").read_text().replace("kind word", "kind syllable")
    (tmp_path / "model.arpa").write_text(other)
    with pytest.raises(recur.errors.TextError, match="syllable"):
        ngram.read_arpa(tmp_path / "model.arpa")


def test_sequences_of_lines_read_from_the_end() -> None:
    read = Sequences.of(np.array([5, 6, 3, 7, 3]), by_line=True, backward=True)
    assert read.ids.tolist() == [2, 7, 3, 2, 6, 5, 3]
    assert Sequences.of(np.array([5, 6]), by_line=True, backward=True).ids.tolist() == [2, 6, 5, 3]
    assert Sequences.of(np.array([5, 6, 7]), by_line=False, backward=True).ids.tolist() == [7, 6, 5]


# At the command line ------------------------------------------------------------------------------------------------


def test_a_sample_leads_up_to_the_prompt(tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(tmp_path, book, direction="backward")
    where = str(tmp_path / "run")
    assert run(["sample", where, "--prompt", "ba", "--length", "9", "--seed", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("ba\n")
    assert "from the end" in err
    found = json_of(capsys, "sample", where, "--prompt", "ba", "--length", "9", "--seed", "1")
    assert found["samples"][0] + "ba\n" == out
    assert found["direction"] == "backward"


def test_ngrams_from_the_end(tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arpa = str(tmp_path / "model.arpa")
    options = ("--order", "3", "--direction", "backward", "--save", arpa, "--sample", "5", "--prompt", "ba")
    found = json_of(capsys, "ngram", str(book), *options)
    assert found["direction"] == "backward"
    assert found["sample"].endswith("ba")
    assert json_of(capsys, "ngram", "--load", arpa, "--eval", str(book))["direction"] == "backward"
    assert run(["ngram", "--load", arpa, "--direction", "backward"]) == 2
