"""n-gram models against nltk, a dictionary implementation, KenLM's file, and what must hold for any text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.lm import MLE
from nltk.lm.preprocessing import padded_everygram_pipeline

from bench.dictionary_ngram import DictionaryKneserNey
from recur.baselines import ngram
from recur.data.text import BOS, Characters, Corpus, Subwords, Vocab, Words
from recur.errors import OptionError, TextError

HERE = Path(__file__).parent
SMALL = HERE / "small.txt"
HELD = "the network keeps a word\na state reads the old network\nevery zebra carries no past and forgets the line\n"
DATA = Path(__file__).parents[3] / "shared" / "data"


def vocab_of(text: str, kind: Any = Words) -> Vocab:
    tokenizer = kind()
    return Vocab.from_counts(tokenizer.count([text]), tokenizer)


def small(order: int, smoothing: str, **options: Any) -> ngram.NGram:
    text = SMALL.read_text()
    return ngram.fit(text, vocab_of(text), order, smoothing, **options)


def sentences(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# Against others -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_kneser_ney_is_what_dictionaries_give(order: int) -> None:
    model = small(order, "kneser-ney")
    vocabulary = {t for t in model.vocab.tokens if t not in ("<pad>", "<bos>", "<eos>")} | {"</s>"}
    oracle = DictionaryKneserNey(sentences(SMALL.read_text()), order, vocabulary)
    assert math.isclose(model.perplexity(HELD), oracle.perplexity(sentences(HELD)), rel_tol=1e-12)
    names = {"<bos>": "<s>", "<eos>": "</s>"}
    for context in (
        [],
        [BOS],
        [BOS, *model.vocab.encode("the network")],
        list(model.vocab.encode("no word keeps the")),
    ):
        words = tuple(names.get(t, t) for t in (model.vocab.tokens[k] for k in context))[-(order - 1) :]
        p = model.distribution(context)
        for token in ("the", "word", "<unk>", "<eos>"):
            expected = oracle.probability(names.get(token, token), words if order > 1 else ())
            assert math.isclose(p[model.vocab.ids[token]], expected, rel_tol=1e-12)


def test_counts_are_those_of_nltk() -> None:
    text = SMALL.read_text()
    train, words = padded_everygram_pipeline(3, sentences(text))
    theirs = MLE(3)
    theirs.fit(train, words)
    ours = small(3, "add-k", k=0.0)
    for context in (["the"], ["and", "sees"], ["the", "network"], ["a", "memory"]):
        shorter = small(len(context) + 1, "add-k", k=0.0)
        p = shorter.distribution(shorter.vocab.encode(" ".join(context)))
        for token in ours.vocab.tokens[4:]:
            assert math.isclose(p[shorter.vocab.ids[token]], theirs.score(token, context), abs_tol=1e-15)


@pytest.mark.parametrize("k", [1.0, 0.01])
def test_add_k_by_its_formula(k: float) -> None:
    text = SMALL.read_text()
    train, words = padded_everygram_pipeline(3, sentences(text))
    counter = MLE(3)
    counter.fit(train, words)
    model = small(3, "add-k", k=k)
    m = model.vocab.predictable().sum()
    for context in (["<s>", "<s>"], ["<s>", "the"], ["sees", "the"], ["never", "seen"]):
        counts = counter.counts[tuple(context)]
        ids = [BOS if w == "<s>" else model.vocab.ids.get(w, 0) for w in context]
        p = model.distribution(ids[1:] if context[0] == context[1] else ids)
        for token in ("the", "word", "network", "<unk>"):
            expected = (counts[token] + k) / (counts.N() + k * m)
            assert math.isclose(p[model.vocab.ids[token]], expected, rel_tol=1e-12), (context, token)


def test_laplace_by_its_recursion() -> None:
    text = "a b a b a c\n"
    model = ngram.fit(text, vocab_of(text), 2, "laplace", epsilon=[2.0, 3.0])
    # a 3, b 2, c 1, <eos> 1: n = 7; and <unk>, so m = 5.
    ids, m = model.vocab.ids, 5
    P = {t: (n + 2 / m) / (7 + 2) for t, n in {"a": 3, "b": 2, "c": 1, "<eos>": 1, "<unk>": 0}.items()}
    single = model.distribution([])
    after_a = model.distribution([ids["a"]])
    for token, p in P.items():
        assert math.isclose(single[ids[token]], p, rel_tol=1e-12)
        pairs = {"b": 2, "c": 1}.get(token, 0)
        assert math.isclose(after_a[ids[token]], (pairs + 3 * p) / (3 + 3), rel_tol=1e-12)


def test_kenlms_file_gives_kenlms_scores() -> None:
    model = ngram.read_arpa(HERE / "kenlm.arpa")
    # log10 P of every word and of the end, as KenLM's own query program printed them.
    expected = [
        [-0.803264, -1.494546, -1.892001, -1.043524, -1.564171, -0.309027],
        [-0.537644, -1.895834, -1.132383, -0.484018, -1.671168, -1.126792, -0.796093],
        [-0.649812, -2.907119, -1.495605, -0.964958, -1.44808, -1.213758, -1.932356, -0.671593, -0.872471, -0.831139],
    ]
    got = model.logprobs(model.vocab.encode(HELD)) / np.log(10)
    np.testing.assert_allclose(got, np.concatenate(expected), atol=2e-6)


def test_estimates_from_the_same_text_are_kenlms() -> None:
    ours, theirs = small(3, "kneser-ney"), ngram.read_arpa(HERE / "kenlm.arpa")
    assert ours.notes == (), "the discounts come from the text"
    a, b = ours.logprobs(ours.vocab.encode(HELD)), theirs.logprobs(theirs.vocab.encode(HELD))
    np.testing.assert_allclose(a, b, atol=2e-6)


@pytest.mark.skipif(not (DATA / "ptb").is_dir(), reason="Penn Treebank is not here")
@pytest.mark.parametrize(
    ("smoothing", "order", "published"),
    [
        ("kneser-ney", 5, 141.2),
        ("kneser-ney", 3, 148.3),
        ("kneser-ney", 2, 185.7),
        ("add-k", 1, 639.8),
        ("add-k", 2, 824.0),
        ("add-k", 3, 3307.9),
    ],
)
def test_published_figures_of_the_penn_treebank(smoothing: str, order: int, published: float) -> None:
    train = Corpus.of(str(DATA / "ptb" / "train.txt"))
    model = ngram.fit(train, Vocab.fit(train, Words()), order, smoothing)
    found = model.evaluate(Corpus.of(str(DATA / "ptb" / "test.txt")))
    assert found.tokens == 82_430
    assert found.oov == 0
    assert abs(found.perplexity - published) < 0.5


# What must hold -------------------------------------------------------------------------------------------

texts = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=6), min_size=1, max_size=8).map(
    lambda lines: "".join(" ".join(line) + "\n" for line in lines)
)


@given(text=texts, held=texts, order=st.integers(1, 5), smoothing=st.sampled_from(ngram.SMOOTHINGS), kind=st.booleans())
def test_every_context_sums_to_one(text: str, held: str, order: int, smoothing: str, kind: bool) -> None:
    vocab = vocab_of(text, Words if kind else Characters)
    model = ngram.fit(text, vocab, order, smoothing, epsilon=0.7, k=0.3)
    ids = [int(k) for k in vocab.encode(held)]
    for end in range(len(ids)):
        context = [BOS, *ids[:end]] if kind else ids[:end]
        assert math.isclose(model.distribution(context).sum(), 1.0, rel_tol=1e-9)


@given(text=texts, held=texts, order=st.integers(1, 4), smoothing=st.sampled_from(ngram.SMOOTHINGS))
def test_scoring_a_text_is_reading_off_its_distributions(text: str, held: str, order: int, smoothing: str) -> None:
    model = ngram.fit(text, vocab_of(text), order, smoothing, epsilon=0.7, k=0.3)
    ids = [int(k) for k in model.vocab.encode(held)]
    expected, context = [], [BOS]
    for token in ids:
        expected.append(np.log(model.distribution(context)[token]))
        context = [BOS] if token == model.vocab.line_end else [*context, token]
    np.testing.assert_allclose(model.logprobs(np.array(ids)), expected, rtol=1e-9)


def test_the_three_limits_of_perplexity() -> None:
    # Certain: 1. Knowing nothing: the number of tokens. Certain of the wrong thing: infinite, and it says of what.
    sure = ngram.fit("a\n" * 50, vocab_of("a\n" * 50), 2, "add-k", k=0.0)
    assert sure.perplexity("a\n") == 1.0
    blank = ngram.fit("a b c d\n", vocab_of("a b c d\n"), 3, "add-k", k=1e12)
    assert math.isclose(blank.perplexity("d d a\n"), 6, rel_tol=1e-9)  # a, b, c, d, <eos>, <unk>
    found = sure.evaluate("a\na b\n")
    assert found.perplexity == math.inf
    assert found.impossible == "'b', token 4 of 5"
    assert found.oov == 1


def test_unknown_words_are_counted_and_a_written_unk_is_known() -> None:
    text = "a b <unk> a\n" * 3
    model = ngram.fit(text, vocab_of(text), 2, "kneser-ney")
    found = model.evaluate("a zebra <unk>\n")
    assert found.oov == 1
    assert math.isfinite(found.perplexity)


def test_samples_are_seeded_and_follow_the_counts() -> None:
    text = "a b c\n" * 20
    model = ngram.fit(text, vocab_of(text), 3, "add-k", k=0.0)
    assert model.sample(8, seed=1) == "a b c\na b c\n"
    other = small(3, "kneser-ney")
    assert other.sample(30, seed=3) == other.sample(30, seed=3) != other.sample(30, seed=4)
    assert other.sample(5, prompt="the network").startswith("the network")
    letters = ngram.fit("abcabc", vocab_of("abcabc", Characters), 2, "add-k", k=0.0)
    assert letters.sample(4, prompt="c") == "cabca"


def test_a_sample_heeds_temperature_and_line_ends_and_never_writes_unk() -> None:
    model = small(2, "laplace", epsilon=50.0)
    cold, hot = model.sample(400, seed=1, temperature=0.05), model.sample(400, seed=1, temperature=5.0)
    assert len(set(cold.split())) < len(set(hot.split())) / 2
    assert "<unk>" not in hot
    assert model.sample(3, seed=1, temperature=1e-4) == model.sample(3, seed=2, temperature=1e-4)
    text = "a b\nc d\n" * 9
    follows = ngram.fit(text, vocab_of(text), 3, "add-k", k=0.0)
    assert follows.sample(2, prompt="a b\nc") == "a b\nc d\n"
    letters = ngram.fit(text, vocab_of(text, Characters), 4, "add-k", k=0.0)
    assert set(letters.sample(40, seed=3).split()) <= {"a", "b", "c", "d"}, "it starts inside the text"
    for options, says in (({"seed": -1}, "seed"), ({"temperature": math.inf}, "temperature")):
        with pytest.raises(OptionError, match=f"{says} must"):
            model.sample(1, **options)  # type: ignore[arg-type]
    with pytest.raises(TextError, match="the prompt has tokens that are not in the vocabulary: 'zebra'"):
        model.sample(1, prompt="the zebra")


def test_bits_are_perplexity_in_another_unit() -> None:
    found = small(2, "kneser-ney").evaluate(HELD)
    assert found.bits_per_token == pytest.approx(math.log2(found.perplexity))
    assert found.bits_per_character == pytest.approx(found.bits_per_token * found.tokens / len(HELD))


def test_a_text_without_a_line_end_can_be_learned_and_measured() -> None:
    for kind in (Words, Characters):
        model = ngram.fit("a b a b c", vocab_of("a b a b c", kind), 2, "kneser-ney")
        assert math.isfinite(model.perplexity("a b"))


def test_subword_pieces_that_training_never_needed_can_still_come() -> None:
    subwords = Subwords.train(["the cat sat on the mat\n" * 10], 290)
    vocab = Vocab.fit(Corpus.of("pydoc").split()[1], subwords)
    model = ngram.fit("the cat sat\n" * 5, vocab, 2, "kneser-ney")
    assert math.isfinite(model.perplexity("今天\n"))


def test_a_text_that_says_bos_means_none_of_ours() -> None:
    text = "a <bos> b <pad>\n" * 4
    vocab = vocab_of(text)
    assert vocab.counts[:4] == (8, 0, 0, 4)
    model = ngram.fit(text, vocab, 3, "add-k")
    assert model.evaluate(text).tokens == 20
    assert math.isclose(model.distribution([BOS]).sum(), 1.0)


def test_a_long_order_and_a_short_text() -> None:
    model = ngram.fit("a b\n", vocab_of("a b\n"), 9, "kneser-ney")
    assert model.order == 9
    assert math.isfinite(model.perplexity("a b\nb\n"))


@pytest.mark.parametrize(
    ("order", "smoothing", "options", "says"),
    [
        (0, "kneser-ney", {}, "order must be a whole number ≥ 1, got 0"),
        (2.5, "kneser-ney", {}, "order must be a whole number"),
        (2, "good-turing", {}, "unknown smoothing 'good-turing'"),
        (2, "laplace", {"epsilon": [1.0, 2.0, 3.0]}, "epsilon must be one number, or 2 of them"),
        (2, "laplace", {"epsilon": -1.0}, "epsilon must not be negative"),
        (2, "add-k", {"k": -1.0}, "add-k needs k ≥ 0"),
        (2, "add-k", {"k": float("nan")}, "add-k needs k ≥ 0"),
    ],
)
def test_options_out_of_range(order: Any, smoothing: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        small(order, smoothing, **options)


def test_nothing_to_evaluate_or_sample_on() -> None:
    model = small(2, "kneser-ney")
    with pytest.raises(TextError, match="no token to evaluate"):
        model.evaluate("")
    with pytest.raises(OptionError, match="length must not be negative"):
        model.sample(-1)
    with pytest.raises(OptionError, match="temperature must be above 0"):
        model.sample(1, temperature=0)
