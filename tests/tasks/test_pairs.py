"""Pairs: read, refused, split and batched; and how predictions ones are judged."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from recur.baselines.transducers import ROUNDS, fit_ibm_model1, translation_baselines
from recur.data.batching import Shuffled, ShuffledBySize
from recur.data.text import Pair, Words, read_pairs
from recur.data.text.tokenizers import Characters, Spaced
from recur.errors import TextError
from recur.tasks import make_options, task_of
from recur.tasks.common.batching import pair_batch, pair_size
from recur.tasks.common.metrics import bleu, chrf, edit_distance, error_rates, mteval_words
from recur.tasks.common.options import SplitOptions
from recur.tasks.common.splits import split
from recur.tasks.seq2seq.task import Seq2SeqTask, judge


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_table_or_two_files(tmp_path: Path) -> None:
    table = write(tmp_path, "a.tsv", "\ufeffab\tx y\r\nc\tz\r\n")
    assert [pair[:2] for pair in read_pairs([table])] == [("ab", "x y"), ("c", "z")]
    more = write(tmp_path, "b.tsv", "d\tw")
    assert len(read_pairs([table, more])) == 3
    sources, targets = write(tmp_path, "s.txt", "ab\nc\n"), write(tmp_path, "t.txt", "x y\nz\n")
    assert [pair[:2] for pair in read_pairs([sources, targets])] == [("ab", "x y"), ("c", "z")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\tb\nab\n", r"p.tsv:2: a pair is source TAB target, 2 columns; this line has 1"),
        ("a\tb\tc\n", r"p.tsv:1: a pair is source TAB target, 2 columns; this line has 3"),
        ("a\tb\n\n\tb\n", r"p.tsv:3: the source is empty"),
        ("a\tb\na\t \n", r"p.tsv:2: the target is empty"),
        ("\n", r"p.tsv holds no pair"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_line(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=says):
        read_pairs([write(tmp_path, "p.tsv", text)])


def test_two_files_of_different_length(tmp_path: Path) -> None:
    a, b = write(tmp_path, "a.txt", "a\nb\n"), write(tmp_path, "b.txt", "a\n")
    with pytest.raises(TextError, match="a.txt has 2 lines and .*b.txt 1"):
        read_pairs([a, b])
    with pytest.raises(TextError, match="b.txt:1: the target is empty"):
        read_pairs([write(tmp_path, "c.txt", "a\n"), write(tmp_path, "b.txt", "\n")])
    with pytest.raises(TextError, match="tables .* or as two files"):
        read_pairs([a, b, b])


def test_sets_are_held_out_at_random_and_disjoint(tmp_path: Path) -> None:
    table = write(tmp_path, "a.tsv", "".join(f"{k:03}\tx\n" for k in range(200)))
    parts = split(SplitOptions(texts=(table,)), read_pairs)
    assert [len(part) for part in parts] == [180, 10, 10]
    assert len({pair.source for part in parts for pair in part}) == 200
    assert parts == split(SplitOptions(texts=(table,)), read_pairs), "the same each time"
    assert [pair.source for pair in parts[1]] != sorted(pair.source for pair in parts[1])
    other = write(tmp_path, "b.tsv", "v\tx\n")
    train, valid, test = split(SplitOptions(texts=(table,), valid=(other,)), read_pairs)
    assert (len(train), [pair.source for pair in valid], len(test)) == (190, ["v"], 10)
    with pytest.raises(TextError, match="1 examples are too few .* give --valid and --test"):
        split(SplitOptions(texts=(other,)), read_pairs)


def test_an_epoch_has_every_pair_once_and_is_the_same_again() -> None:
    draw = np.random.default_rng(0)
    pairs = [(np.full(draw.integers(1, 9), k + 4), np.full(draw.integers(1, 9), k + 4)) for k in range(103)]
    stream = Shuffled(pairs, 8, 2, pair_batch, pair_size)
    first, again, other = (list(stream.batches(epoch)) for epoch in (0, 0, 1))
    assert len(first) == len(stream) == 13
    assert sorted(int(k) - 4 for batch in first for k in batch.source[:, 0]) == list(range(103))
    assert all(a.target.equal(b.target) for a, b in zip(first, again, strict=True))
    assert not all(
        a.target.equal(b.target) for a, b in zip(first, other, strict=True) if a.target.shape == b.target.shape
    )
    assert all(a.source.equal(b.source) for a, b in zip(stream.batches(0, skip=5), first[5:], strict=True))
    batch = pair_batch(pairs[:3])
    assert [int((row != 1).sum()) for row in batch.target] == batch.lengths.tolist()


def test_batches_of_like_size() -> None:
    draw = np.random.default_rng(0)
    pairs = [(np.full(draw.integers(1, 9), k + 4), np.full(draw.integers(1, 9), k + 4)) for k in range(400)]
    pairs.append((np.full(60, 404), np.full(60, 404)))  # too long for any batch
    stream = ShuffledBySize(pairs, 50, 3, pair_batch, pair_size)
    first, again = list(stream.batches(1)), list(stream.batches(1))
    assert sorted(int(k) - 4 for batch in first for k in batch.source[:, 0]) == list(range(401))
    sizes = [len(b.source) * max(map(int, b.source_lengths + b.lengths)) for b in first]
    assert sorted(sizes)[-1] == 120
    assert sorted(sizes)[-2] <= 50
    assert np.median(sizes) > 40, "no batch is left half empty without need"
    assert len(stream) == len(list(stream.batches(0)))
    assert all(a.target.equal(b.target) for a, b in zip(first, again, strict=True))
    assert all(a.target.equal(b.target) for a, b in zip(stream.batches(1, skip=7), first[7:], strict=True))


# Judging ----------------------------------------------------------------------------------------------------


def slow_distance(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    if a[0] == b[0]:
        return slow_distance(a[1:], b[1:])
    return 1 + min(slow_distance(a[1:], b), slow_distance(a, b[1:]), slow_distance(a[1:], b[1:]))


@given(st.text("ab", max_size=5), st.text("abc", max_size=5))
def test_distance_by_its_definition(a: str, b: str) -> None:
    assert edit_distance(a, b) == slow_distance(a, b)


def test_error_rates() -> None:
    targets, predictions = [["a", "b"], ["c"], ["d", "e", "f"]], [["a", "b"], [], ["d", "x", "f", "g"]]
    found = error_rates(targets, predictions)
    assert found == {"sequence_error_rate": pytest.approx(2 / 3), "symbol_error_rate": pytest.approx(3 / 6)}


ODD = st.text("ab ,.-'12&;<>/:!\"[]`{}~()+@#\n\xa0äß。", max_size=12)


@given(st.sampled_from(["", "&quot;", "&amp;lt;", "<skipped>"]), ODD)
def test_words_are_cut_as_mteval_cuts_them(before: str, text: str) -> None:
    assert mteval_words(before + text) == Tokenizer13a()((before + text).rstrip()).split()


SENTENCE = st.lists(st.sampled_from(["a", "b", "cd", "e.", "1,2", "x-"]), max_size=9).map(" ".join)


@given(st.lists(st.tuples(SENTENCE, SENTENCE, st.booleans()), min_size=1, max_size=5))
def test_bleu_and_chrf_are_what_sacrebleu_has(pairs: list[tuple[str, str, bool]]) -> None:
    references = [reference for reference, _, _ in pairs]
    translations = [other if wrong else f"{reference} {other}"[:20] for reference, other, wrong in pairs]
    assert bleu(references, translations) == pytest.approx(
        sacrebleu.corpus_bleu(translations, [references], force=True).score, abs=1e-9
    )
    assert chrf(references, translations) == pytest.approx(
        sacrebleu.corpus_chrf(translations, [references]).score, abs=1e-9
    )


def test_sentences_are_judged_as_translations() -> None:
    references = ["A man, a dog and 2.5 cats walk by.", "Nobody is here today."]
    translations = ["A man , a dog and 2.5 cats walk by .", "Nobody was here today."]
    found = judge(Words(punctuation=True), references, translations)
    assert found["sequence_error_rate"] == 0.5
    assert found["word_error_rate"] == pytest.approx(1 / 16), "one of 11 + 5 words"
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(translations, [references], force=True).score)
    lowered = judge(Words(punctuation=True, lower=True), references, [text.lower() for text in translations])
    assert lowered["bleu"] == pytest.approx(found["bleu"])
    assert judge(Characters(), ["ab"], ["ab"]) == {"sequence_error_rate": 0.0, "symbol_error_rate": 0.0}


# Without a network ------------------------------------------------------------------------------------------


def slow_model_1(pairs: list[tuple[list[str], list[str]]]) -> dict[tuple[str, str], float]:
    """IBM's model 1 as Brown et al. write it, one pair of words after the other."""
    t: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for _ in range(ROUNDS):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        totals: dict[str, float] = defaultdict(float)
        for sources, targets in pairs:
            for e in targets:
                total = sum(t[f, e] for f in ["", *sources])
                for f in ["", *sources]:
                    counts[f, e] += t[f, e] / total
                    totals[f] += t[f, e] / total
        t = defaultdict(float, {(f, e): n / totals[f] for (f, e), n in counts.items()})
    return t


@given(st.lists(st.tuples(*[st.lists(st.sampled_from("abcd"), min_size=1, max_size=5)] * 2), min_size=1, max_size=8))
def test_a_dictionary_by_the_definition_of_model_1(pairs: list[tuple[list[str], list[str]]]) -> None:
    t, found = slow_model_1(pairs), fit_ibm_model1(pairs)
    assert found.keys() == {f for sources, _ in pairs for f in sources}
    for f, e in found.items():
        assert t[f, e] == pytest.approx(max(p for (other, _), p in t.items() if other == f), rel=1e-9)


def test_plain_models() -> None:
    rows = [("la casa", "the house"), ("la flor", "the flower"), ("la casa", "a house"), ("la casa", "the house")]
    train = [Pair(source, target, "x") for source, target in rows]
    models = translation_baselines(train, Words(), Words())
    assert models["copy"]("la casa") == "la casa"
    assert (models["look-up"]("la casa"), models["look-up"]("una casa")) == ("the house", "una casa")
    assert models["dictionary"]("una flor la casa") == "una flower the house"
    spelled = translation_baselines(
        [Pair("ab", "x y", "x"), Pair("ba", "y x", "x"), Pair("a", "x", "x")], Characters(), Spaced()
    )
    assert spelled["dictionary"]("aab?") == "x x y ?"


# What symbols are, where nobody says -------------------------------------------------------------------------


def settled(folder: Path, pairs: list[tuple[str, str]], **fields: object) -> Seq2SeqTask:
    table = write(folder, "p.tsv", "".join(f"{source}\t{target}\n" for source, target in pairs))
    options = make_options("seq2seq", {"texts": (table,), "valid": (table,), "test": (table,), **fields})
    task = task_of(task_of(options).settle(options))
    assert isinstance(task, Seq2SeqTask)
    return task


SENTENCES = [(f"der Hund {k} läuft heute im Park .", f"the dog {k} runs in the park today .") for k in range(40)]


def test_sentences_are_subwords_and_judged_by_bleu(tmp_path: Path) -> None:
    task = settled(tmp_path, SENTENCES, pieces=300)
    o = task.options
    assert (o.source_token, o.target_token, o.attention, o.embedding_init) == (
        "subword",
        "subword",
        "additive",
        "normal:1",
    )
    assert task.curve == "valid_bleu"
    assert settled(tmp_path, SENTENCES, attention="additive", pieces=300).options.attention == "additive"
    spelled = settled(tmp_path, [("hallo", "h a l o"), ("katze", "k a t s ə")] * 10)
    assert (spelled.options.source_token, spelled.options.target_token) == ("char", "space")
    assert spelled.options.attention == "additive"
    assert spelled.curve == "valid_sequence_error_rate"


def test_without_sentencepiece_sentences_are_words_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recur.tasks.seq2seq.task.has_subwords", lambda: False)
    task = settled(tmp_path, SENTENCES)
    assert (task.options.source_token, task.options.min_freq) == ("word", 2)
    said = task.describe(task.read())
    assert said.endswith("; sentencepiece is not installed, so that words are symbols: pip install 'recur[subword]'")


def test_what_many_words_cost_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.tasks.seq2seq.task.MANY", 40)
    task = settled(tmp_path, SENTENCES, source_token="word", target_token="word", min_freq=1)
    K = len(task.read().vocabs["target"])
    assert f"; {K} targets are most of the work of a step: --min-freq 2 or --target-token subword" in task.describe(
        task.read()
    )
    rare = settled(tmp_path, SENTENCES, source_token="word", target_token="word", min_freq=2)
    assert "most of the work" not in rare.describe(rare.read())


def test_outputs_that_were_cut_are_remarked(tmp_path: Path) -> None:
    task = settled(tmp_path, SENTENCES, max_length=50, pieces=300)
    assert not list(task.remarks({"cut": 0.01}))
    (remark,) = task.remarks({"cut": 0.5})
    assert remark.text.startswith("50.0 % of the outputs were truncated")
    assert remark.option == "--max-length 100"


def test_of_many_pairs_a_dictionary_reads_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.baselines.transducers.LINKS", 20)  # of 2,000: one pair in a hundred
    many = [Pair(f"w{k}", f"v{k}", "x") for k in range(1000)]
    assert translation_baselines(many, Words(), Words())["dictionary"]("w0 w1 w100") == "v0 w1 v100"
