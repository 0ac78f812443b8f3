"""Texts beyond memory: cut into shards, they are the same text, and come to the same numbers."""

from __future__ import annotations

import json
import random
import weakref
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from recur.baselines import ngram
from recur.baselines.ngram import model
from recur.data.text import Corpus, Stream, encoded, fit_vocab
from recur.data.text import corpus as shards
from recur.data.text.corpus import Shards
from recur.data.text.sources import part_of
from recur.errors import TextError, TooLargeError
from recur.tasks import make_options
from recur.training import train
from recur.utils import processes

SIZE = 30_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with everything that reading changes, and one without an end."""
    path, draw = tmp_path_factory.mktemp("many"), random.Random(0)
    kinds = ["the cafe\u0301 ", "a word\r\n", "\ufeffnew ", "line\n", "x" * 30 + " "]
    for name, count, last in (("a", 9000, ""), ("b", 3000, "no end"), ("c", 4000, "")):
        text = "".join(draw.choices(kinds, k=count)) + last
        (path / f"{name}.txt").write_bytes(f"\ufeff{text}".encode())
    return path


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, cached: Path) -> None:
    """What is large begins here."""
    monkeypatch.setattr(shards, "LARGE_TEXT_BYTES", 1)
    monkeypatch.setattr(shards, "SHARD_BYTES", SIZE)


def test_shards_are_the_text(folder: Path, monkeypatch: pytest.MonkeyPatch, cached: Path) -> None:
    """Characters, parts, vocabularies and ids are those of a text that is read whole, with its files on several
    processes."""
    plain = Corpus.of(str(folder))
    parts = plain.split()
    wanted = {token: fit_vocab(parts[0], token) for token in ("char", "word")}
    monkeypatch.setattr(shards, "LARGE_TEXT_BYTES", 1)
    monkeypatch.setattr(shards, "SHARD_BYTES", SIZE)
    monkeypatch.setattr(processes, "available_cores", lambda: 2)
    large = Corpus.of(str(folder))
    assert len(large.sources) > 5
    assert large.notes.shards == len(large.sources)
    assert (large.notes.files, large.notes.line_ends, large.notes.byte_order_marks) == (3, plain.notes.line_ends, 3)
    assert large.text() == plain.text()
    assert large.characters == plain.characters
    for one, other in zip(parts, large.split(), strict=True):
        assert (one.begin, one.end, one.characters, one.text()) == (
            other.begin,
            other.end,
            other.characters,
            other.text(),
        )
    for token, vocab in wanted.items():
        assert fit_vocab(large.split()[0], token) == vocab
        for one, other in zip(parts, large.split(), strict=True):
            ids, found = vocab.encode_corpus(one), encoded(other, vocab)
            assert isinstance(found, Shards)
            assert np.array_equal(np.asarray(found), ids)
            for at in (0, 999, len(ids) - 5):
                assert np.array_equal(found[at : at + 3000], ids[at : at + 3000])
                assert np.array_equal(found[::-1][at : at + 3000], ids[::-1][at : at + 3000])
    lanes = [next(Stream(ids, 7, 11).batches()).x for ids in (found, ids)]
    assert np.array_equal(*lanes)


def test_training_on_shards_comes_to_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: Path
) -> None:
    monkeypatch.setattr(processes, "available_cores", lambda: 1)
    fields = {"texts": [str(folder)], "hidden_size": 4, "steps": 6, "threads": 1, "token": "word", "device": "cpu"}
    for name, large in (("memory", 1 << 30), ("disk", 1)):
        monkeypatch.setattr(shards, "LARGE_TEXT_BYTES", large)
        monkeypatch.setattr(shards, "SHARD_BYTES", SIZE)
        said: list[str] = []
        train(
            make_options("language", fields), tmp_path / name, lambda e, to=said: to.append(e.content.get("text", ""))
        )
        assert any("shards, encoded on disk" in text for text in said) == (name == "disk")
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("memory", "disk")]
    figures = [[(m["step"], m["train_loss"], m["valid_loss"]) for m in map(json.loads, each)] for each in lines]
    assert figures[0] == figures[1]


@pytest.mark.usefixtures("small")
def test_what_is_kept_is_checked(folder: Path, cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that are damaged, and what is known of shards, are made anew; nothing is read again that is whole."""
    monkeypatch.setattr(processes, "available_cores", lambda: 1)
    corpus = Corpus.of(str(folder))
    vocab = fit_vocab(corpus)
    ids = np.asarray(encoded(corpus, vocab)).copy()
    monkeypatch.setattr(shards, "scan_shard", None)
    assert Corpus.of(str(folder)).known == corpus.known
    monkeypatch.undo()
    monkeypatch.setenv("RECUR_CACHE", str(cached))
    damaged = sorted(cached.glob("*.ids"))[0]
    damaged.write_bytes(b"\xff" * damaged.stat().st_size)
    assert np.array_equal(np.asarray(encoded(corpus, vocab)), ids)
    for name in ("*.shards.json", "*.vocab.json"):
        (kept,) = cached.glob(name)
        kept.write_text("[[1, 2]]")
    monkeypatch.setattr(shards, "LARGE_TEXT_BYTES", 1)
    monkeypatch.setattr(shards, "SHARD_BYTES", SIZE)
    again = Corpus.of(str(folder))
    assert again.known == corpus.known
    assert fit_vocab(again) == vocab


@pytest.mark.usefixtures("small")
def test_what_is_wrong_with_a_shard_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "available_cores", lambda: 2)
    line = b"a line of words\n" * 2000
    (tmp_path / "book.txt").write_bytes(line * 4 + b"\xff\n" + line)
    with pytest.raises(TextError, match=f"book.txt is not UTF-8 at byte {4 * len(line)} "):
        Corpus.of(str(tmp_path / "book.txt"))
    (tmp_path / "book.txt").write_bytes(line * 4)
    corpus = Corpus.of(str(tmp_path / "book.txt"))
    (tmp_path / "book.txt").write_bytes(line[:-3] * 4)
    with pytest.raises(TextError, match="changed while it was being read"):
        encoded(corpus, fit_vocab(Corpus.of(str(tmp_path / "book.txt"))))
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "book.txt"))
    with pytest.raises(TextError, match="set RECUR_CACHE to another folder"):
        Corpus.of(str(tmp_path / "book.txt"))


def test_a_range_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    with part_of(str(tmp_path / "a"), 2, 6).open() as stream:
        assert (stream.read(3), stream.read(), stream.read(1)) == (b"234", b"5", b"")
    with pytest.raises(IndexError, match="read forwards in slices"):
        Shards([np.arange(4)])[::2]


def test_counts_of_many_shards_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MAX_DISTINCT_TOKENS", 3)
    found = shards.merge_counts(iter([Counter("aab"), Counter("acd"), Counter("bb")]))
    assert found == Counter(a=3, b=2), "those seen once are forgotten when there are more than three"


def test_a_worker_that_dies_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TextError, match="a worker process that read a part of the text was killed"):
        list(processes.map_in_processes(exit, [1, 2], 2))


def test_counting_beyond_memory_is_refused_and_training_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "memory", lambda: 1e6)
    corpus = Corpus.of(str(folder))
    with pytest.raises(TooLargeError, match=r"up to order 5 takes up to 0 GB.*lmplz -o 5.*recur eval RUN MODEL.arpa"):
        ngram.fit(corpus, fit_vocab(corpus), 5)
    said: list[str] = []
    fields = {"texts": [str(folder)], "hidden_size": 4, "steps": 2, "threads": 1, "device": "cpu"}
    outcome = train(
        make_options("language", fields), tmp_path / "run", lambda e: said.append(e.content.get("text", ""))
    )
    assert outcome.summary["baselines"] == []
    assert any(text.startswith("no baseline: counting") for text in said)


def test_what_processes_found_is_held_by_nobody_else() -> None:
    seen: list[weakref.ref[Counter[str]]] = []
    for number, found in enumerate(processes.map_in_processes(Counter, [["a", "b", str(n)] for n in range(12)], 2)):
        assert found == Counter(["a", "b", str(number)]), "in the order of the jobs"
        seen.append(weakref.ref(found))
        assert sum(one() is not None for one in seen) <= 2, "the last one and this one"
    assert len(seen) == 12
