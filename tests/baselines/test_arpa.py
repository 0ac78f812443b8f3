"""ARPA files: written, read, and refused when they are broken."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recur.baselines import ngram
from recur.data.text import Characters, Vocab, Words
from recur.errors import TextError
from tests.baselines.test_estimates import HELD, HERE, small


@pytest.mark.parametrize("smoothing", ngram.SMOOTHINGS)
def test_what_is_written_reads_as_the_same_model(smoothing: str, tmp_path: Path) -> None:
    model = small(3, smoothing)
    ngram.write_arpa(model, tmp_path / "model.arpa")
    again = ngram.read_arpa(tmp_path / "model.arpa")
    a, b = model.logprobs(model.vocab.encode(HELD)), again.logprobs(again.vocab.encode(HELD))
    np.testing.assert_allclose(a, b, atol=1e-5)


@given(text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_any_character_survives(text: str) -> None:
    import tempfile

    tokenizer = Characters()
    model = ngram.fit(text, Vocab.from_counts(tokenizer.count([text]), tokenizer), 2, "laplace")
    with tempfile.TemporaryDirectory() as folder:
        ngram.write_arpa(model, Path(folder) / "model.arpa")
        again = ngram.read_arpa(Path(folder) / "model.arpa", tokenizer)
    assert set(again.vocab.tokens) == set(model.vocab.tokens)
    a, b = model.logprobs(model.vocab.encode(text)), again.logprobs(again.vocab.encode(text))
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_backslash_that_escapes_nothing_is_left_alone(tmp_path: Path) -> None:
    text = "1\\/2 of a\\b\n"
    model = ngram.fit(text, Vocab.from_counts(Words().count([text]), Words()), 1, "laplace")
    ngram.write_arpa(model, tmp_path / "model.arpa")
    assert "\t1\\/2\n" in (tmp_path / "model.arpa").read_text()
    assert "1\\/2" in ngram.read_arpa(tmp_path / "model.arpa").vocab.tokens


WHOLE = (HERE / "kenlm.arpa").read_text()
N2 = int(re.findall(r"ngram 2=(\d+)", WHOLE)[0])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WHOLE[: len(WHOLE) // 2], r"is cut off: \\3-grams: has \d+ of 365 rows"),
        (WHOLE[: len(WHOLE) - 10], "is cut off"),
        ("\\data\\\nngram 1=18\n", r"is cut off: it ends inside \\data"),
        ("", r"is not an ARPA file: it has no \\data"),
        ("\\data\\\nngram 2=3\n", "expected 'ngram 1=count'"),
        (WHOLE.replace("\\3-grams:", "\\4-grams:"), "expected .3-grams: and got"),
        (WHOLE.replace("\tthe network\t", "\tthe\t"), "not every row of .2-grams has 2 tokens"),
        (WHOLE.replace("\tthe network\t", "\tthe zebra\t"), "'zebra' is in .2-grams but not in .1-grams"),
        (WHOLE.replace("\tthe network\t", "\tthe word\t"), "is repeated in .2-grams"),
        (WHOLE.replace("-1.", "x", 1), "is not 'log10 p, tokens, back-off'"),
        (WHOLE.replace("-1.", "nan ", 1), "is not 'log10 p, tokens, back-off'"),
        (WHOLE.replace("\n-1.", "\n1.", 1), "is not 'log10 p, tokens, back-off'"),
        (
            re.sub(r"\n[^\n]*\t(the network)\t[^\n]*", "", WHOLE).replace(f"ngram 2={N2}", f"ngram 2={N2 - 1}"),
            "is missing from",
        ),
    ],
)
def test_a_broken_file_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.arpa"
    path.write_text(text)
    with pytest.raises(TextError, match=says):
        ngram.read_arpa(path)


def test_other_programs_ways_of_writing() -> None:
    plain = ngram.read_arpa(HERE / "kenlm.arpa")
    spaced = re.sub(r"(?m)^(-?[\d.]+)\t", r"\1 ", WHOLE).replace("\t", " ")
    capitals = "\ufeff\n" + WHOLE.replace("<unk>", "<UNK>").replace("<s>", "<S>").replace("\\data\\", "\\data\\ ")
    for text in (spaced, capitals.replace("ngram 1=", "ngram  1 = ").replace("\n\n", " \n\n")):
        again = _read(text)
        a, b = plain.logprobs(plain.vocab.encode(HELD)), again.logprobs(again.vocab.encode(HELD))
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_escapes_are_read_only_where_they_were_written() -> None:
    theirs = _read("\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<unk>\n-1\t\\tau\n-1\t</s>\n\n\\end\\\n")
    assert "\\tau" in theirs.vocab.tokens


def test_words_that_look_like_our_ends_and_what_is_impossible_survive(tmp_path: Path) -> None:
    text = "a <s> b </s>\n" * 3
    model = ngram.fit(text, Vocab.from_counts(Words().count([text]), Words()), 2, "add-k", k=0.0)
    ngram.write_arpa(model, tmp_path / "m.arpa")
    again = ngram.read_arpa(tmp_path / "m.arpa")
    assert again.perplexity(text) == pytest.approx(model.perplexity(text), rel=1e-5)
    assert again.evaluate("b a\n").impossible == model.evaluate("b a\n").impossible == "'b', token 1 of 3"


def _read(text: str) -> ngram.NGram:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".arpa") as out:
        out.write(text)
        out.flush()
        return ngram.read_arpa(out.name)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="cannot be read"):
        ngram.read_arpa(tmp_path / "absent.arpa")
