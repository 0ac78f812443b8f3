"""log P of a text: against the sum over all texts of a length, against perplexity, and against single steps."""

from __future__ import annotations

import io
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recur.baselines import ngram
from recur.cli.app import run
from recur.data.text import BOS, EOS, SPECIALS, Characters, Corpus, Vocab, Words, fit_vocab
from recur.decoding import likelihoods
from recur.errors import TextError
from recur.models.decoder import BatchDecoder
from recur.tasks.conditional.predictor import ConditionalWriter
from recur.tasks.language.data import first_input
from recur.tasks.language.predictor import Language
from tests.cli.test_cli import json_of
from tests.tasks.test_direction import TEXT, book, trained

assert book  # a fixture


def total(logprobs: np.ndarray) -> float:
    return math.exp(float(logprobs.sum()))


LINES, ONE_LINE = "abba\nbaab\nab\n" * 30, "abbabaabab" * 30
WORDS, ONE_LINE_OF_WORDS = "a b b a\nb a\na b\n" * 30, "a b b a b a a b " * 30
RARE = "a b b a\nb a\na c\na b\n" * 30
LONGEST = 5


@pytest.mark.parametrize(
    ("text", "options", "written"),
    [
        (LINES, {}, ["a", "b", "\n"]),
        (LINES, {"direction": "backward"}, ["a", "b", "\n"]),
        (LINES, {"softmax": "adaptive"}, ["a", "b", "\n"]),
        (LINES, {"softmax": "sampled", "softmax_samples": 4}, ["a", "b", "\n"]),
        (LINES, {"tie_weights": True, "hidden_size": 8}, ["a", "b", "\n"]),
        (LINES, {"recurrence": "output"}, ["a", "b", "\n"]),
        (ONE_LINE, {}, ["a", "b"]),
        (ONE_LINE, {"partition": "random"}, ["a", "b"]),
        (WORDS, {"token": "word"}, ["a", "b", "<eos>"]),
        (WORDS, {"token": "word", "direction": "backward"}, ["a", "b", "<eos>"]),
        (ONE_LINE_OF_WORDS, {"token": "word"}, ["a", "b"]),
        (RARE, {"token": "word", "max_vocab_size": 6}, ["a", "b", "<unk>", "<eos>"]),
        (WORDS, {"token": "subword", "pieces": 264}, None),
    ],
)
def test_the_probabilities_of_all_texts_sum_to_one(
    tmp_path: Path, text: str, options: dict[str, Any], written: list[str] | None
) -> None:
    """Ended strings shorter than 5 and all prefixes of length 5, in float64; and the public functions agree."""
    if options.get("token") == "subword":
        pytest.importorskip("sentencepiece")
    (tmp_path / "text.txt").write_text(text)
    model: Language = trained(tmp_path, tmp_path / "text.txt", steps=2, **options)
    model.model.double()
    ids = np.nonzero(model.vocab.writable())[0]
    if written is not None:
        assert sorted(model.vocab.tokens[k] for k in ids) == sorted(written)
    end = {"char": "\n", "word": "<eos>", "subword": "<eos>"}[model.vocab.tokenizer.kind]
    of_end = [k for k in ids if model.vocab.tokens[k] == end]

    def probabilities(rows: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(np.insert(rows[:, :-1], 0, first_input(model.vocab), axis=1))
        with torch.no_grad():
            found: np.ndarray = (-model.model.losses(model.model(x), torch.from_numpy(rows))).sum(1).exp().numpy()
        return found

    total, longest = 0.0, 2 if options.get("token") == "subword" else LONGEST  # bytes are 256 pieces
    prefixes = np.zeros((1, 0), np.int64)
    for _ in range(longest):
        prefixes = np.array([[*row, k] for row in prefixes.tolist() for k in ids.tolist()])
        if prefixes.shape[1] < longest:
            ended = np.isin(prefixes[:, -1], of_end)
            total += float(probabilities(prefixes[ended]).sum()) if ended.any() else 0.0
            prefixes = prefixes[~ended]
    assert total + float(probabilities(prefixes).sum()) == pytest.approx(1, abs=1e-12)
    some = prefixes[:: -(-len(prefixes) // 3)]
    turn = slice(None, None, -1 if model.backward else 1)
    public = [math.exp(float(model.logprobs(row[turn]).sum())) for row in some]
    assert public == pytest.approx(probabilities(some).tolist(), rel=1e-9)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("conditional", {"stop": "eos"}),
        ("conditional", {"stop": "eos", "direction": "backward"}),
        ("conditional", {"stop": "bernoulli"}),
        ("conditional", {"stop": "length", "max_length": 4}),
        ("conditional", {"stop": "eos", "min_freq": 100}),
        ("seq2seq", {"stop": "eos"}),
        ("seq2seq", {"stop": "eos", "copy": True, "attention": "dot"}),
        ("seq2seq", {"stop": "bernoulli"}),
        ("seq2seq", {"stop": "source"}),
        ("seq2seq", {"stop": "length", "max_length": 4}),
    ],
)
def test_the_probabilities_of_all_targets_sum_to_one(tmp_path: Path, task: str, options: dict[str, Any]) -> None:
    """Ended targets shorter than 5 and the prefixes of length 5; with a limited length, all targets."""
    pairs = [
        ("ab", "ab"),
        ("ba", "bb"),
        ("abb", "bab"),
        ("bb", "ba"),
        ("aa", "abb" if "source" not in str(options) else "ab"),
    ]
    text = "".join(f"{source if task == 'seq2seq' else source[0]}\t{target}\n" for source, target in pairs * 20)
    (tmp_path / "pairs.tsv").write_text(text)
    symbols = {"source_token": "char", "target_token": "char"} if task == "seq2seq" else {"token": "char"}
    model = trained(tmp_path, tmp_path / "pairs.tsv", task=task, steps=2, **symbols, **options)
    model.model.double()
    vocab = model.run.vocabs["vocab" if task == "conditional" else "target"]
    ids = [int(k) for k in np.nonzero(vocab.writable())[0]]
    assert [vocab.tokens[k] for k in ids if k >= len(SPECIALS)] == (["b"] if "min_freq" in options else ["b", "a"])

    def writer(rows: int) -> BatchDecoder:
        if task == "conditional":
            found: BatchDecoder = model.model.writer(torch.full((rows,), len(SPECIALS)))
            return found
        source = torch.tensor([[len(SPECIALS), len(SPECIALS) + 1]]).expand(rows, -1)
        made: BatchDecoder = model.model.writer(source, torch.full((rows,), 2))
        return made

    def probability(targets: np.ndarray, ended: bool) -> float:
        rows, steps = targets.shape
        with torch.no_grad():
            found = likelihoods(writer(rows), torch.from_numpy(targets), torch.full((rows,), steps))
        return float((found if ended else found[:, :-1]).sum(1).exp().sum())

    longest = {"length": 4, "source": 2}.get(options["stop"], LONGEST)
    total = 0.0
    for n in range(longest + 1):
        targets = np.array([*itertools.product(ids, repeat=n)], np.int64).reshape(len(ids) ** n, n)
        last = n == LONGEST
        if n or options["stop"] in ("eos", "bernoulli"):
            total += probability(targets, ended=not last)
    assert total == pytest.approx(1, abs=1e-12)


def test_an_untrained_model_starts_at_the_number_of_distinct_tokens(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(ONE_LINE)
    model: Language = trained(tmp_path, tmp_path / "text.txt", steps=1, lr=1e-12)
    with torch.no_grad():
        model.model.output.zero_()
        model.model.bias.zero_()
    assert model.perplexity("abba") == pytest.approx(2, rel=1e-6)


def test_unseen_symbols_are_counted_and_have_no_infinite_loss(
    tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model: Language = trained(tmp_path, book)
    found = model.token_logprobs("abzéab")
    assert [token for token, _ in found] == list("abzéab")
    assert [logp is None for _, logp in found] == [False, False, True, True, False, False]
    assert model.logprob("abzéab") == pytest.approx(model.logprob("abab"), rel=1e-6)
    assert model.perplexity("abzéab") == pytest.approx(model.perplexity("abab"), rel=1e-6)
    row = json_of(capsys, "logprob", str(tmp_path / "run"), "abzéab")["texts"][0]
    assert (row["unknown"], row["unknown_at"], row["left_out"], row["tokens"]) == (2, [3, 4], 2, 4)
    (tmp_path / "held.txt").write_text("abzéab\n")
    measured = model.measure(Corpus.of(str(tmp_path / "held.txt")))
    assert (measured["unseen"], measured["tokens"]) == (2, 5)
    assert math.isfinite(measured["perplexity"])
    with pytest.raises(TextError, match="no token of the text is in the vocabulary"):
        model.logprob("zé")


def test_unseen_symbols_of_a_validation_text_are_left_out_for_the_network_and_the_n_gram(tmp_path: Path) -> None:
    texts = {"train": LINES, "valid": "abba\nbaab\n", "unseen": "abzba\nbaéab\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    best = []
    for name in ("valid", "unseen"):
        options = {"valid": str(tmp_path / name), "baseline": True, "test": str(tmp_path / "valid")}
        model: Language = trained(tmp_path / f"run-{name}", tmp_path / "train", **options)
        best.append((model.run.metrics()[-1]["valid_loss"], model.run.baselines()[0]["value"]))
    assert best[0] == pytest.approx(best[1])


def test_the_first_symbol_of_a_text_of_one_line_is_trained(tmp_path: Path) -> None:
    """<bos> gets a gradient: all texts begin with a or b as often as training has them."""
    (tmp_path / "text.txt").write_text("aaab" * 400)
    model: Language = trained(tmp_path, tmp_path / "text.txt", steps=60, lr=0.02)
    assert first_input(model.vocab) == BOS
    p = model.probabilities("")
    assert p["a"] + p["b"] == pytest.approx(1, abs=1e-6)
    before = trained(tmp_path / "more", tmp_path / "text.txt", steps=1, lr=0.02)
    apart = (model.model.embedding.weight[BOS] - before.model.embedding.weight[BOS]).detach()
    assert float(apart.abs().max()) > 1e-3


def test_too_short_a_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "five.txt").write_text("abcde")
    with pytest.raises(TextError, match="needs at least 16"):
        trained(tmp_path, tmp_path / "five.txt")


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
        symbols = [k for k in np.nonzero(model.vocab.writable())[0].tolist() if k != EOS]
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
