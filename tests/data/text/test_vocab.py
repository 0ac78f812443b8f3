"""Tokens, vocabularies, encoded files and batches."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recur.data.text import (
    EOS,
    SPECIALS,
    UNK,
    Characters,
    Corpus,
    Stream,
    Subwords,
    Vocab,
    Words,
    encoded,
    make_tokenizer,
)
from recur.data.text.tokenizers import whole_words
from recur.data.text.vocabulary import fit_lines
from recur.errors import OptionError, TextError

anything = st.text(st.characters(codec="utf-8"), max_size=80)


def vocab_of(text: str, tokenizer: Any) -> Vocab:
    return Vocab.from_counts(tokenizer.count([text]), tokenizer)


# Tokens ---------------------------------------------------------------------------------------------------


@given(text=anything)
def test_characters_come_back_exactly(text: str) -> None:
    vocab = vocab_of(text, Characters())
    ids = vocab.encode(text)
    assert len(ids) == len(text)
    assert UNK not in ids
    assert vocab.decode(ids) == text


@given(text=anything)
def test_words_come_back_with_single_spaces(text: str) -> None:
    vocab = vocab_of(text, Words())
    lines = [" ".join(line.split()) for line in text.split("\n")]
    assert vocab.decode(vocab.encode(text)) == "\n".join(lines)


def test_words_and_their_options() -> None:
    assert Words().split("It's a well-known fact, isn't it?\n\nYes") == (
        ["It's", "a", "well-known", "fact,", "isn't", "it?", "<eos>", "<eos>", "Yes"]
    )
    marked = Words(punctuation=True, lower=True)
    assert marked.split("It's a well-known fact, isn't it?") == (
        ["it's", "a", "well-known", "fact", ",", "isn't", "it", "?"]
    )
    assert marked.split("<unk> 3.14 (a_b)") == ["<unk>", "3", ".", "14", "(", "a_b", ")"]


def test_words_keep_their_marks_in_every_script() -> None:
    marked = Words(punctuation=True)
    for word in ("हिन्दी", "ọ̀rọ̀", "שָׁלוֹם", "ไทยที่", "می\u200cخواهم", "n̩"):
        assert marked.split(f"{word}, {word}!") == [word, ",", word, "!"], word
    assert marked.split("👩\u200d🚀 ok") == ["👩\u200d🚀", "ok"]


def test_chinese_in_all_three() -> None:
    text = "今天天气很好。\n我们去公园 玩吧！\n" * 20
    assert Characters().split("今天 好") == ["今", "天", " ", "好"]
    assert Words().split("今天 天气 很 好\n") == ["今天", "天气", "很", "好", "<eos>"]
    assert Words(punctuation=True).split("今天，好abc") == ["今", "天", "，", "好", "abc"]
    assert Words(punctuation=True).split("日本語のテキスト") == list("日本語のテキスト")
    subwords = Subwords.train([text], 300)
    vocab = Vocab(tuple(subwords.pieces()), (1,) * len(subwords.pieces()), subwords)
    assert vocab.decode(vocab.encode(text)) == text
    assert vocab.decode(vocab.encode("𠮷 is rare")) == "𠮷 is rare"
    assert "𠮷" in Characters().split("a𠮷b")


@given(text=st.text(st.sampled_from(" ab\n今🙂"), max_size=40))
def test_subwords_come_back_exactly(text: str) -> None:
    subwords = Subwords.train(["the cat sat on the mat\n" * 10], 290)
    vocab = Vocab(tuple(subwords.pieces()), (1,) * len(subwords.pieces()), subwords)
    assert vocab.decode(vocab.encode(text)) == text


def test_subwords_that_cannot_be_learned() -> None:
    with pytest.raises(TextError, match="cannot learn 5 pieces"):
        Subwords.train(["a"], 5)


@given(text=anything, cuts=st.lists(st.integers(0, 80), max_size=6))
def test_no_word_is_cut_by_a_piece(text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(c for c in cuts if c < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert "".join(whole_words(pieces)) == text
    for tokenizer in (Words(), Words(punctuation=True), Characters()):
        assert tokenizer.count(pieces) == Counter(tokenizer.split(text))
        vocab = vocab_of(text, tokenizer)
        got = list(vocab.encode_pieces(pieces))
        assert np.array_equal(np.concatenate(got) if got else [], vocab.encode(text))


# Vocab ----------------------------------------------------------------------------------------------------


def test_ids_by_frequency_with_ties_in_order() -> None:
    vocab = vocab_of("b a c a b d e", Words())
    assert vocab.tokens == (*SPECIALS, "a", "b", "c", "d", "e")
    assert vocab.counts == (0, 0, 0, 0, 2, 2, 1, 1, 1)
    assert vocab.ids["<eos>"] == EOS


def test_what_is_left_out_is_unknown() -> None:
    counts = Words().count(["b a c a b d e <unk>\n"])
    rare = Vocab.from_counts(counts, Words(), min_freq=2)
    assert rare.tokens == (*SPECIALS, "a", "b")
    assert rare.counts[UNK] == 4  # c, d, e, and the one that says so itself
    assert Vocab.from_counts(counts, Words(), max_vocab_size=5).tokens == (*SPECIALS, "a")
    assert rare.encode("a c").tolist() == [rare.ids["a"], UNK]
    assert rare.unknown_tokens("a c d c") == {"c": 2, "d": 1}


def test_fit_counts_the_training_part_only(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a a a a a a a a\n" * 9 + "z\n")
    train, _, _ = Corpus.of(str(tmp_path / "t.txt")).split(0.9, 0.05)
    vocab = Vocab.fit(train, Words())
    assert "z" not in vocab.ids
    assert vocab.ids["a"] == 4


@given(text=anything)
def test_json_round_trip(text: str) -> None:
    for tokenizer in (Characters(), Words(), Words(punctuation=True, lower=True)):
        vocab = vocab_of(text, tokenizer)
        assert Vocab.from_json(vocab.to_json()) == vocab


def test_files_round_trip_subwords_too(tmp_path: Path) -> None:
    subwords = Subwords.train(["the cat sat on the mat\n" * 10], 290)
    vocab = Vocab(tuple(subwords.pieces()), (1,) * len(subwords.pieces()), subwords)
    vocab.save(tmp_path / "vocab.json")
    again = Vocab.load(tmp_path / "vocab.json")
    assert again == vocab
    assert again.digest == vocab.digest
    assert again.encode("the mat").tolist() == vocab.encode("the mat").tolist()


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "{}",
        '{"tokenizer": {"kind": "char"}, "tokens": ["a"], "counts": [1]}',
        '{"tokenizer": {"kind": "bytes"}, "tokens": [], "counts": []}',
        json.dumps({"tokenizer": {"kind": "char"}, "tokens": [*SPECIALS, "a"], "counts": [0, 0, 0, 0]}),
        json.dumps({"tokenizer": {"kind": "char"}, "tokens": [*SPECIALS, "a", "a"], "counts": [0] * 6}),
        json.dumps({"tokenizer": {"kind": "subword", "model": "?"}, "tokens": [*SPECIALS], "counts": [0] * 4}),
    ],
)
def test_a_broken_vocabulary_is_refused(content: str) -> None:
    with pytest.raises(TextError, match=r"vocab.json is not a vocabulary of recur"):
        Vocab.from_json(content, "vocab.json")


def test_options_out_of_range(tmp_path: Path) -> None:
    for options, says in (({"min_freq": 0}, "min_freq"), ({"max_vocab_size": 4}, "max_vocab_size must be above 4")):
        with pytest.raises(OptionError, match=says):
            Vocab.fit(Corpus.of("pydoc"), Characters(), **options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="unknown token 'byte'"):
        make_tokenizer("byte")
    (tmp_path / "blank.txt").write_text("   ")
    with pytest.raises(TextError, match="holds no word"):
        Vocab.fit(Corpus.of(str(tmp_path / "blank.txt")), Words())
    with pytest.raises(TextError, match="cannot be read"):
        Vocab.load(tmp_path / "absent.json")


# Encoded files --------------------------------------------------------------------------------------------


def test_encoded_once_and_found_again(tmp_path: Path) -> None:
    corpus = Corpus.of("pydoc").split()[1]
    vocab = Vocab.fit(corpus, Characters())
    ids = encoded(corpus, vocab, tmp_path)
    assert isinstance(ids, np.memmap)
    assert ids.dtype == np.uint16
    assert np.array_equal(ids, vocab.encode_corpus(corpus))
    (data,) = tmp_path.glob("*.ids")
    before = data.stat().st_mtime_ns
    encoded(corpus, vocab, tmp_path)
    assert data.stat().st_mtime_ns == before
    assert not list(tmp_path.glob("*.part"))


def test_a_torn_file_is_made_anew_and_another_text_is_another_file(tmp_path: Path) -> None:
    corpus = Corpus.of("pydoc").split()[1]
    vocab = Vocab.fit(corpus, Characters())
    encoded(corpus, vocab, tmp_path)
    (data,) = tmp_path.glob("*.ids")
    data.write_bytes(data.read_bytes()[:100])
    assert np.array_equal(encoded(corpus, vocab, tmp_path), vocab.encode_corpus(corpus))
    encoded(Corpus.of("pydoc").split()[2], vocab, tmp_path)
    assert len(list(tmp_path.glob("*.ids"))) == 2


def test_a_cache_is_what_was_encoded_or_is_made_anew(tmp_path: Path) -> None:
    """Whatever happened to its files, and whichever of them came from elsewhere, the ids are those of the text."""
    text = "the network reads a word " * 20
    for name, content in (("a.txt", text), ("b.txt", text[::-1])):
        (tmp_path / name).write_text(content)
    vocab = vocab_of(text, Characters())
    one, other = Corpus.of(str(tmp_path / "a.txt")), Corpus.of(str(tmp_path / "b.txt"))
    right = vocab.encode_corpus(one)
    encoded(other, vocab, tmp_path)
    (of_other,) = tmp_path.glob("*.ids")
    encoded(one, vocab, tmp_path)
    (data,) = set(tmp_path.glob("*.ids")) - {of_other}
    about, about_other = data.with_suffix(".json"), of_other.with_suffix(".json")

    def damage(content: bytes) -> None:
        data.unlink()
        data.write_bytes(content)

    whole, said = data.read_bytes(), json.loads(about.read_text())
    outside = np.full(len(right), 65_535, np.uint16).tobytes()
    changes = [
        lambda: damage(whole[:-1]),
        lambda: damage(whole[:-2]),
        lambda: damage(b""),
        lambda: damage(whole[2:4] + whole[2:]),
        lambda: damage(of_other.read_bytes()),
        lambda: (damage(of_other.read_bytes()), about.write_text(about_other.read_text())),
        lambda: (damage(outside), about.write_text(json.dumps({**said, "sha256": sha256(outside).hexdigest()}))),
        lambda: about.write_text("[" * 10**5),
        lambda: about.write_text('{"key": 3, "sha256": []}'),
        lambda: about.write_bytes(b"\xff"),
        about.unlink,
        data.unlink,
    ]
    for change in changes:
        change()
        assert np.array_equal(encoded(one, vocab, tmp_path), right)
    assert np.array_equal(encoded(other, vocab, tmp_path), vocab.encode_corpus(other))


def test_parts_that_nobody_writes_are_swept(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")
    corpus = Corpus.of(str(tmp_path / "a.txt"))
    for name in (".old.ids.1.part", ".new.ids.2.part"):
        (tmp_path / name).touch()
    os.utime(tmp_path / ".old.ids.1.part", (0, 0))
    encoded(corpus, vocab_of("some text", Characters()), tmp_path)
    assert [part.name for part in tmp_path.glob(".*.part")] == [".new.ids.2.part"]


def test_several_processes_share_a_cache(tmp_path: Path) -> None:
    """All encode at once, into the same files; each has the ids of the text."""
    code = (
        "import sys, numpy as np; from recur.data.text import Corpus, encoded, fit_vocab\n"
        "corpus = Corpus.of('pydoc').split()[2]; vocab = fit_vocab(corpus)\n"
        "from pathlib import Path; expected = vocab.encode_corpus(corpus)\n"
        "folders = [Path(sys.argv[1]) / str(k) for k in range(9)]\n"
        "sys.exit(not all(np.array_equal(encoded(corpus, vocab, folder), expected) for folder in folders))"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len(list(tmp_path.rglob("*.ids"))) == 9
    assert not list(tmp_path.rglob("*.part"))


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")
    with pytest.raises(
        TextError, match="a.txt cannot be encoded: Not a directory: .*; set RECUR_CACHE to another folder"
    ):
        encoded(Corpus.of(str(tmp_path / "a.txt")), vocab_of("some text", Characters()), tmp_path / "a.txt" / "cache")


def test_another_vocabulary_is_another_file_and_a_large_one_takes_wider_ids(tmp_path: Path) -> None:
    corpus = Corpus.of("pydoc").split()[1]
    small, other = Vocab.fit(corpus, Characters()), Vocab.fit(corpus, Characters(), max_vocab_size=20)
    a, b = encoded(corpus, small, tmp_path), encoded(corpus, other, tmp_path)
    assert not np.array_equal(a, b)
    many = Counter({chr(0x4E00 + k % 20000) + str(k): 1 for k in range(70_000)})
    wide = Vocab.from_counts(many, Words())
    ids = encoded(corpus, wide, tmp_path)
    assert ids.dtype == np.int32
    assert np.array_equal(ids, wide.encode_corpus(corpus))


def test_a_text_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one text\n")
    corpus = Corpus.of(str(path))
    vocab = Vocab.fit(corpus, Characters())
    assert corpus.digest
    path.write_text("or other\n")
    with pytest.raises(TextError, match="changed while it was being read"):
        encoded(corpus, vocab, tmp_path)
    assert not list(tmp_path.glob("*.ids"))


def test_the_cache_is_where_it_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "here"))
    corpus = Corpus.of("pydoc").split()[1]
    encoded(corpus, Vocab.fit(corpus, Characters()))
    assert list((tmp_path / "here").glob("*.ids"))


def test_memory_stays_bounded_however_long_the_text(tmp_path: Path) -> None:
    """64 MB of text are encoded and read through in a process that may not grow by half of that."""
    import subprocess
    import sys

    big = tmp_path / "big.txt"
    line = "the quick brown fox jumps over the lazy dog and the network reads on\n"
    with big.open("w") as out:
        for _ in range(64):
            out.write(line * (1_000_000 // len(line)))
    code = f"""
import resource
from pathlib import Path
from recur.data.text import Characters, Corpus, Stream, Vocab, Words, encoded
small = Corpus.of("pydoc")
encoded(small, Vocab.fit(small, Words()), Path({str(tmp_path)!r}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
corpus = Corpus.of({str(big)!r})
ids = encoded(corpus, Vocab.fit(corpus, Words()), Path({str(tmp_path)!r}))
batches = sum(1 for _ in Stream(ids, 64, 1000).batches())
print(len(ids), batches, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tokens, batches, grown = done.stdout.split()
    assert int(tokens) > 10_000_000
    assert int(batches) > 100
    # A piece and its words take about 100 MB; ids mapped from the file count as resident while they are read.
    assert float(grown) < 220, f"grew by {grown} MiB"


# Batches --------------------------------------------------------------------------------------------------


@given(n=st.integers(8, 400), batch=st.integers(1, 7), window=st.integers(1, 20))
def test_sequential_lanes_go_on_where_they_stopped(n: int, batch: int, window: int) -> None:
    ids = np.arange(n)
    stream = Stream(ids, batch, window)
    found = list(stream.batches())
    assert len(found) == len(stream)
    x = np.concatenate([b.x for b in found], axis=1)
    y = np.concatenate([b.y for b in found], axis=1)
    assert np.array_equal(y, x + 1)
    assert np.array_equal(np.diff(x, axis=1), np.ones_like(x[:, 1:]))
    assert n - 1 - x.size < batch, "at most a token a lane is left over"
    assert [bool(b.fresh.all()) for b in found] == [True] + [False] * (len(found) - 1)
    again = [b.x.tolist() for b in stream.batches(skip=1)]
    assert again == [b.x.tolist() for b in found[1:]]


@given(n=st.integers(150, 400), batch=st.integers(1, 7), window=st.integers(1, 20), epoch=st.integers(0, 3))
def test_random_windows_are_apart_and_fresh(n: int, batch: int, window: int, epoch: int) -> None:
    stream = Stream(np.arange(n), batch, window, "random", seed=5)
    found = list(stream.batches(epoch))
    assert len(found) >= len(stream) >= 1
    x = np.concatenate([b.x for b in found])
    assert x.shape[1] == window
    assert len(np.unique(x)) == x.size, "no token is read twice in an epoch"
    assert all(np.array_equal(b.y, b.x + 1) and b.fresh.all() for b in found)
    assert [b.x.tolist() for b in stream.batches(epoch, skip=1)] == [b.x.tolist() for b in found[1:]]


def test_random_windows_are_shuffled_by_their_seed() -> None:
    def order(seed: int) -> list[int]:
        return [int(row[0]) // 35 for b in Stream(np.arange(3000), 4, 35, "random", seed).batches() for row in b.x]

    assert order(1) == order(1) != order(2)
    assert order(1) != sorted(order(1))


@given(n=st.integers(100, 400), batch=st.integers(1, 5), epoch=st.integers(0, 3))
def test_jittered_windows_still_read_every_lane_whole(n: int, batch: int, epoch: int) -> None:
    stream = Stream(np.arange(n), batch, 12, jitter=True)
    found = list(stream.batches(epoch))
    x = np.concatenate([b.x for b in found], axis=1)
    assert np.array_equal(np.diff(x, axis=1), np.ones_like(x[:, 1:]))
    assert n - 1 - x.size < batch
    assert [b.x.tolist() for b in stream.batches(epoch, skip=2)] == [b.x.tolist() for b in found[2:]]


def test_jitter_differs_from_epoch_to_epoch() -> None:
    stream = Stream(np.arange(3000), 2, 30, jitter=True)
    lengths = [[b.x.shape[1] for b in stream.batches(epoch)] for epoch in (0, 1)]
    assert lengths[0] != lengths[1]
    assert len(set(lengths[0])) > 3


def test_epochs_start_at_different_offsets() -> None:
    stream = Stream(np.arange(1000), 4, 35, "random")
    offsets = {int(min(b.x.min() for b in stream.batches(epoch)) % 35) for epoch in range(20)}
    assert len(offsets) > 5


def test_a_text_too_short_for_a_batch() -> None:
    with pytest.raises(TextError, match="the text has 10 tokens, and a batch of 32 sequential windows of 35 needs 33"):
        Stream(np.arange(10), 32, 35)
    with pytest.raises(TextError, match="needs 1121"):
        Stream(np.arange(1000), 32, 35, "random")
    with pytest.raises(OptionError, match="batch and window"):
        Stream(np.arange(10), 0, 35)
    with pytest.raises(OptionError, match="unknown partition"):
        Stream(np.arange(10), 1, 1, "sorted")


def test_many_lines_at_once_are_each_by_itself() -> None:
    lines = ["the cat sat", "on the mat", "ß the", "", "  a  "]
    subwords = Subwords.train(["the cat sat on the mat\n" * 10], 290)
    counted = fit_lines(lines * 40, "subword", pieces=290)
    assert (
        counted.counts
        == Vocab.of_pieces(
            counted.tokenizer,  # type: ignore[arg-type]
            Counter(token for line in lines * 40 for token in counted.tokenizer.split(line)),
        ).counts
    )
    pieces = Vocab(tuple(subwords.pieces()), (1,) * len(subwords.pieces()), subwords)
    for vocab in (pieces, Vocab.from_counts(Counter("the cat"), Characters())):
        assert [ids.tolist() for ids in vocab.encode_lines(lines)] == [vocab.encode(line).tolist() for line in lines]
        with pytest.raises(TextError, match="which is no character"):
            vocab.encode_lines(["a", "\udcff"])
        with pytest.raises(TextError, match="a text is a str, got int 3"):
            vocab.encode_lines(["a", 3])  # type: ignore[list-item]


def test_a_vocabulary_goes_on_behind_another() -> None:
    first, second = (fit_lines([text], "word") for text in ("b b a c", "d c c e"))
    joined = first.joined(second)
    assert joined.tokens == (*first.tokens, "d", "e")
    counts = dict(zip(joined.tokens, joined.counts, strict=True))
    assert (counts["a"], counts["b"], counts["c"], counts["d"], counts["e"]) == (1, 2, 3, 1, 1)
    assert joined.encode("b a").tolist() == first.encode("b a").tolist()
    assert first.joined(first).tokens == first.tokens


def test_tokens_that_no_text_had_are_known_and_not_predicted() -> None:
    vocab = fit_lines(["a b"], "word", lower=True)
    more = vocab.with_unseen(["b", "New", "new", "two words", "new"])
    assert more.tokens == (*vocab.tokens, "new")
    assert not more.predictable()[more.ids["new"]]
