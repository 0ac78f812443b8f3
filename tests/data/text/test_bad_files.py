"""What has a name and is no text, and texts that are made to take a memory or an afternoon: one line for each."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from recur.baselines.ngram import read_arpa
from recur.data.series import SeriesColumns, parse_panel, read_panel
from recur.data.text import (
    Characters,
    Corpus,
    Subwords,
    Vocab,
    fit_vocab,
    read_labelled,
    read_pairs,
    read_tagged,
    read_trees,
    recognise,
)
from recur.data.text.corpus import normalised
from recur.data.text.labelled import read_standard_input
from recur.data.text.sources import _spooled
from recur.data.text.treebanks import parse_tree
from recur.errors import TextError
from recur.utils.limits import TREE_DEPTH

READERS: dict[str, Any] = {
    "text": lambda name: Corpus.of(name).text(),
    "labelled": lambda name: read_labelled([name]),
    "tagged": lambda name: read_tagged([name]),
    "pairs": lambda name: read_pairs([name]),
    "trees": lambda name: read_trees([name]),
    "series": lambda name: read_panel([name]),
    "arpa": read_arpa,
    "vocabulary": lambda name: Vocab.load(Path(name)),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_refused_at_once(reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.utils.files.PATIENCE", 0.01)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary").write_bytes(b"PK\x03\x04\0\0\0")
    names = ["/dev/zero", "/dev/urandom", "/proc/self/mem", str(tmp_path / "pipe"), str(tmp_path / "empty")]
    for name in (*names, str(tmp_path / "absent"), str(tmp_path / "binary"), "a\0b", "\ud800"):
        with pytest.raises(TextError) as error:
            READERS[reader](name)
        assert "\n" not in str(error.value)


def test_a_gz_that_would_fill_a_memory_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.data.text.sources.GZIP_BYTES", 1 << 16)
    (tmp_path / "book.txt.gz").write_bytes(gzip.compress(b"a text\n" * 9000))
    assert Corpus.of(str(tmp_path / "book.txt.gz")).characters == 63_000
    (tmp_path / "bomb.txt.gz").write_bytes(gzip.compress(b"a" * (1 << 21)))
    with pytest.raises(TextError, match="bomb.txt.gz cannot be read: it unpacks to more than 30 times its size"):
        Corpus.of(str(tmp_path / "bomb.txt.gz")).text()
    (tmp_path / "cut.txt.gz").write_bytes((tmp_path / "book.txt.gz").read_bytes()[:-9])
    with pytest.raises(TextError, match="cut.txt.gz cannot be read"):
        Corpus.of(str(tmp_path / "cut.txt.gz")).text()


def test_marks_without_an_end_are_no_text(tmp_path: Path) -> None:
    """Composing them takes the square of their number; what languages and jokes write is read."""
    zalgo = "Z" + "\u0335\u0301" * 60 + "a" + "\u0316" * 200 + "\n"
    (tmp_path / "zalgo.txt").write_text(zalgo * 20)
    assert Corpus.of(str(tmp_path / "zalgo.txt")).text() == normalised(zalgo * 20)
    for marks in ("\u0301\u0316" * (4 << 20), "\u1161" * (4 << 20), "\u200d" * 300, "\U000e0100" * 300):
        (tmp_path / "marks.txt").write_text("a" + marks)
        with pytest.raises(TextError, match="marks.txt is not text: it has more than 256 accents or other marks"):
            Corpus.of(str(tmp_path / "marks.txt")).text()
        with pytest.raises(TextError, match="more than 256"):
            normalised("a" + marks)


def test_one_long_line_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long, with whatever line ends: nothing is looked at again and again."""
    monkeypatch.setattr("recur.data.text.corpus.PIECE_BYTES", 1 << 12)
    (tmp_path / "a.txt").write_text("\r" * 40_000 + "é" * 40_000 + "\r\r\n" + "x" * 40_000)
    expected = "\n" * 40_000 + "é" * 40_000 + "\n\n" + "x" * 40_000
    corpus = Corpus.of(str(tmp_path / "a.txt"))
    assert corpus.text() == expected
    assert max(map(len, corpus.pieces())) < 1 << 13
    words = fit_vocab(corpus, "word")
    assert words.decode(words.encode_corpus(corpus)) == expected


def test_a_file_of_examples_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n" * 30)
    assert len(read_labelled([str(tmp_path / "a.tsv")])) == 30
    monkeypatch.setattr("recur.data.text.tokenizers.LINES", 100)
    for reader in ("labelled", "tagged", "pairs", "trees", "series"):
        with pytest.raises(TextError, match="a.tsv has more than 100 characters"):
            READERS[reader](str(tmp_path / "a.tsv"))


def test_examples_take_half_of_a_memory_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n" * 30)
    taken = itertools.count(0, 1 << 20)  # each time it is asked, the process has a mebibyte more
    monkeypatch.setattr("recur.data.text.tokenizers.memory_taken", lambda: next(taken))
    assert len(read_labelled([str(tmp_path / "a.tsv")])) == 30
    monkeypatch.setattr("recur.data.text.tokenizers.MEMORY", 1000)
    for reader in ("labelled", "tagged", "pairs", "trees", "series"):
        with pytest.raises(TextError, match="a.tsv takes more than half of this machine's memory"):
            READERS[reader](str(tmp_path / "a.tsv"))


def test_empty_lines_take_no_memory(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,y\n1,2\n2,3\n" + "\n" * 60_000)
    tracemalloc.start()
    assert read_panel([str(tmp_path / "a.csv")]).lengths.tolist() == [2]
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_table_of_very_many_columns(tmp_path: Path) -> None:
    """Not the square of their number, in time or in what a message lists."""
    n = 30_000
    lines = [",".join(f"c{k}" for k in range(n)), ",".join(["1"] * n), ",".join(["2"] * n)]
    assert parse_panel(lines, "wide.csv").series[0].values.shape == (2, n - 1)
    with pytest.raises(TextError) as error:
        parse_panel(lines, "wide.csv", SeriesColumns(("d",)))
    assert len(str(error.value)) < 1000
    with pytest.raises(TextError, match="column 'a' occurs 2 times"):
        parse_panel(["a,a", "1,2"], "a.csv", SeriesColumns(("a",)))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["", "", ""], "the first line must name the columns"),
        ([], "the first line must name the columns"),
        (["t,y", "9" * 400 + ",1", "1,2"], "not a date"),
        (["t,y", "1,1e101", "2,2"], "larger than 1e\\+100"),
        (["t,y", '1,"2', "3"], "a.csv:3 is not a CSV"),
        (["t,y", "1," + "2" * 200_000], "a.csv:2 is not a CSV: field larger"),
        (["t,y", "1,2", "", "2,3"], "a.csv:3: empty row in the middle"),
    ],
)
def test_tables_that_are_none(lines: list[str], says: str) -> None:
    with pytest.raises(TextError, match=says):
        parse_panel(lines, "a.csv")


def test_trees_up_to_the_limit_of_depth() -> None:
    deep = TREE_DEPTH - 1
    line = "(a " * deep + "(b w)" + ")" * deep
    tree = parse_tree(line)
    assert tree.bracketed() == line
    with pytest.raises(TextError, match="never closed"):
        parse_tree("(" * TREE_DEPTH)
    with pytest.raises(TextError, match=r"expected at most 10,000 levels, got 10,001"):
        parse_tree("(" * 10**5)
    with pytest.raises(TextError, match="outside of all brackets"):
        parse_tree(")" * 10**5)
    assert (
        parse_tree("(3 (2 It) (4 (2 's) ((2 great) (1 .))))").bracketed() == "(3 (2 It) (4 (2 's) ((2 great) (1 .))))"
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("\\data\\\nngram 1=999999999999\n\\1-grams:\n-1\ta\n", "has 1 of 999999999999 rows"),
        ("\\data\\\nngram 1=1\n\\1-grams:\n\x1c\x1d\x1e\n\\end\\\n", "row 1 of .1-grams: is not"),
        ("\\data\\\nngram 1=1\n\\1-grams:\n\x0b\n\\end\\\n", "row 1 of .1-grams: is not"),
        ("\\data\\\n" + "".join(f"ngram {k}=0\n" for k in range(1, 200)), "expected 'ngram 101=count'"),
        ("x" * (1 << 21), "a line of 1,048,576 characters"),
        ("\\data\\\nngram 1=1\nngram 2=1\n\\1-grams:\n-1\ta\n\\2-grams:\n-1\ta a a a\n\\end\\\n", "has 2 tokens"),
        (
            "recur: tokens are escaped\n\\data\\\nngram 1=1\n\\1-grams:\n-1\t\\ud800\n\\end\\\n",
            "has an escape that is not a character",
        ),
        (
            "recur: tokens are escaped\n\\data\\\nngram 1=1\n\\1-grams:\n-1\t\\U99999999\n\\end\\\n",
            "has an escape that is not a character",
        ),
    ],
)
def test_arpa_files_that_are_none(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.arpa").write_text(content)
    with pytest.raises(TextError, match=says):
        read_arpa(tmp_path / "a.arpa")


def test_a_back_off_far_above_one_is_still_a_number(tmp_path: Path) -> None:
    rows = "-1\t<s>\t9999\n-1\t</s>\n-0.5\ta\t9999\n\n\\2-grams:\n-1\ta a\n"
    (tmp_path / "a.arpa").write_text(f"\\data\\\nngram 1=3\nngram 2=1\n\\1-grams:\n{rows}\\end\\\n")
    assert read_arpa(tmp_path / "a.arpa").sample(5)


SOUND = {"tokenizer": {"kind": "char"}, "tokens": ["<unk>", "<pad>", "<bos>", "<eos>", "a"], "counts": [0, 0, 0, 0, 1]}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"tokens": 3}, "not a list of texts"),
        ({"tokens": ["<unk>", 1]}, "not a list of texts"),
        ({"counts": {"a": 1}}, "not a list of whole numbers"),
        ({"counts": [0, 0, 0, 0, True]}, "not a list of whole numbers"),
        ({"counts": [0, 0, 0, 0, -1]}, "not a list of whole numbers"),
        ({"counts": [0, 0, 0, 0, 2**70]}, "not a list of whole numbers"),
        ({"tokens": [*SOUND["tokens"][:4], "\ud800"]}, "half of a character"),
        ({"tokenizer": {"kind": "word", "lower": "yes"}}, "true or false"),
        ({"tokenizer": {"kind": "word", "upper": True}}, "unexpected keyword"),
        ({"tokenizer": {"kind": ["char"]}}, "unknown token"),
        ({"tokenizer": {"kind": "subword", "model": "AAAA"}}, "sentencepiece model is damaged"),
        ({"tokenizer": {"kind": "subword", "model": ""}}, "sentencepiece model is damaged"),
    ],
)
def test_vocabularies_that_are_none(changed: dict[str, Any], says: str, tmp_path: Path) -> None:
    assert len(Vocab.from_json(json.dumps(SOUND))) == 5
    (tmp_path / "vocab.json").write_text(json.dumps({**SOUND, **changed}))
    with pytest.raises(TextError, match=f"vocab.json is not a vocabulary of recur: .*{says}"):
        Vocab.load(tmp_path / "vocab.json")


def test_a_vocabulary_of_brackets(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("[" * 10**6)
    with pytest.raises(TextError, match="vocab.json is not a vocabulary of recur: it is too deeply nested"):
        Vocab.load(tmp_path / "vocab.json")


def test_tokens_are_the_pieces_of_their_model() -> None:
    model = Subwords.train(["words of a text"] * 20, 290, "bpe")
    vocab = Vocab.from_json(Vocab.of_pieces(model, fit_vocab(Corpus.of("pydoc")).unknown_tokens("")).to_json())
    content = json.loads(vocab.to_json())
    content["tokens"][-1], content["tokens"][-2] = content["tokens"][-2:]
    with pytest.raises(TextError, match="not the pieces of its sentencepiece model"):
        Vocab.from_json(json.dumps(content))


def test_what_is_no_character_is_refused() -> None:
    vocab = Vocab(("<unk>", "<pad>", "<bos>", "<eos>", "a"), (1,) * 5, Characters())
    with pytest.raises(TextError, match=r"the text holds '\\udcff', which is no character"):
        vocab.encode("a\udcff")
    for call in (vocab.encode, vocab.unknown_tokens, normalised):
        with pytest.raises(TextError, match="a text is a str, got int 7"):
            call(7)  # type: ignore[operator]


def test_what_a_file_looks_like_is_seen_of_hostile_ones(tmp_path: Path) -> None:
    for k, content in enumerate(("\n" * 1000, "(" * 10**5, "a\u0301" + "\u0316" * 30_000, ",,,\n" * 50, '"' * 999)):
        (tmp_path / f"{k}.txt").write_text(content)
        assert recognise([str(tmp_path / f"{k}.txt")]).kind == "text"


def test_standard_input_that_is_closed_or_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/zero") as zero:
        for stdin in (None, zero):
            monkeypatch.setattr("sys.stdin", stdin)
            with pytest.raises(TextError, match="standard input is closed or endless"):
                Corpus.of("-")
            with pytest.raises(TextError, match="standard input is closed or endless"):
                list(read_standard_input())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"ab\n\xff\n", "standard input:2 is not UTF-8"),
        (b"ab\na" + "\u0301".encode() * 300, "standard input:2: this is not text"),
        (b"ab\n\nc\n", "standard input:2: the source is empty"),
        (b"a" * 200, "standard input:1: a line of more than 100 bytes"),
    ],
)
def test_lines_of_standard_input_that_are_none(content: bytes, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    monkeypatch.setattr("recur.data.text.labelled.MAX_LINE_BYTES", 100 if b"aaa" in content else 1 << 20)
    with pytest.raises(TextError, match=says):
        list(read_standard_input())


def test_a_pipe_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.data.text.sources.SPOOLED", 1000)
    with pytest.raises(TextError, match="a pipe has more than 0 GiB, all that is kept of a pipe: write a file first"):
        _spooled("a pipe", io.BytesIO(b"x" * 2000))
