"""The statistics of a text against counting by hand, and Zipf's law where it is known to hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from recur.baselines.ngram.statistics import describe, figure, fit_zipf
from recur.data.text import Characters, Corpus, Vocab, Words
from recur.errors import OptionError, TextError

TEXT = "The cat, the dog and the bird.\nA dog sees the cat!\n"


def corpus(tmp_path: Path, text: str, name: str = "text.txt") -> Corpus:
    (tmp_path / name).write_text(text)
    return Corpus.of(str(tmp_path / name))


def test_counts_by_hand(tmp_path: Path) -> None:
    text = corpus(tmp_path, TEXT)
    found = describe(text, None, Vocab.fit(text, Words(punctuation=True, lower=True)), top=3)
    assert found.tokens == 12
    assert found.types == 7
    assert found.top == [("the", 4), ("cat", 2), ("dog", 2)]
    assert found.stop_share == 6 / 12  # the ×4, and, a
    assert found.coverage[0.5] == 2
    assert [z.types for z in found.zipf] == [7, 9, 8]  # pairs and triples that stay within a line
    assert found.zipf[1].tokens == 10
    without = describe(text, None, Vocab.fit(text, Words(punctuation=True, lower=True)), top=2, stop_words=False)
    assert without.top == [("cat", 2), ("dog", 2)]


def test_what_is_new_in_the_held_out_part(tmp_path: Path) -> None:
    train, held = corpus(tmp_path, "a b c\na b d\n"), corpus(tmp_path, "a b x\nb c\n", "held.txt")
    found = describe(train, held, Vocab.fit(train, Words()))
    assert found.novel == pytest.approx({1: 1 / 5, 2: 1 / 3, 3: 1.0})


def test_words_across_lines_by_hand(tmp_path: Path) -> None:
    text = corpus(tmp_path, "... " + TEXT)  # what opens the text is no word
    vocab = Vocab.fit(text, Words(punctuation=True, lower=True))
    found = describe(text, text, vocab, across_lines=True)
    words = ["the", "cat", "the", "dog", "and", "the", "bird", "a", "dog", "sees", "the", "cat"]
    for k, zipf in enumerate(found.zipf, start=1):
        counted = Counter(tuple(words[at : at + k]) for at in range(len(words) - k + 1))
        assert zipf.counts.tolist() == sorted(counted.values(), reverse=True), "bird a, and what reaches over it"
    assert found.novel == dict.fromkeys(range(1, 6), 0.0)
    assert describe(text, None, vocab).zipf[1].tokens == 10


def test_characters_are_counted_across_lines(tmp_path: Path) -> None:
    text = corpus(tmp_path, "ab\nab\n")
    found = describe(text, text, Vocab.fit(text, Characters()))
    assert found.tokens == 6
    assert dict(found.top) == {"a": 2, "b": 2, "\n": 2}
    assert found.novel[5] == 0


@pytest.mark.parametrize("alpha", [0.7, 1.0, 1.3])
def test_a_text_that_follows_the_law_gives_its_exponent(alpha: float) -> None:
    ranks = np.arange(1, 5001)
    counts = np.round(2e6 / ranks**alpha).astype(int)
    zipf = fit_zipf(counts[counts > 0])
    assert abs(zipf.alpha - alpha) < 0.01
    assert zipf.r_squared > 0.999


def test_a_drawn_text_gives_its_exponent_roughly() -> None:
    p = 1 / np.arange(1, 2001) ** 1.1
    drawn = np.random.default_rng(0).choice(2000, size=400_000, p=p / p.sum())
    counts = np.array(sorted(Counter(drawn.tolist()).values(), reverse=True))
    assert abs(fit_zipf(counts).alpha - 1.1) < 0.05


def test_too_little_to_fit(tmp_path: Path) -> None:
    text = corpus(tmp_path, "a\n")
    found = describe(text, None, Vocab.fit(text, Words()))
    assert np.isnan(found.zipf[0].alpha)
    dots = corpus(tmp_path, "... !!!\n", "dots.txt")
    with pytest.raises(TextError, match="no word to count"):
        describe(dots, None, Vocab.fit(dots, Words()))


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    text = Corpus.of("pydoc").split()[1]
    found = describe(text, None, Vocab.fit(text, Words(punctuation=True)))
    figure(found, str(tmp_path / "zipf.png"), "pydoc")
    figure(found, str(tmp_path / "zipf.svg"), "pydoc")
    assert (tmp_path / "zipf.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "zipf.svg").read_text()
    with pytest.raises(OptionError, match="xyz"):
        figure(found, str(tmp_path / "zipf.xyz"), "pydoc")
