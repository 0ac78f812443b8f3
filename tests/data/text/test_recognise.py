"""What files look like: made up ones of every kind, and real ones where they are."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest

from recur.data.series import parse_panel
from recur.data.text import between_spaces, read_labelled, read_pairs, read_tagged, read_trees, recognise
from recur.errors import TextError

DATA = Path(__file__).parents[4] / "shared" / "data"

PROSE = (
    "It was the best of times, it was the worst of times,\nit was the age of wisdom, it was the age of foolishness.\n"
)
TREES = "(3 (2 It) (4 (2 's) (4 great)))\n(2 word)\n"
CONLLU = (
    "# text = can't\n1-2\tcan't" + "\t_" * 8 + "\n1\tca\tcan\tAUX\tMD" + "\t_" * 5 + "\n2\tn't\tnot\tPART" + "\t_" * 6
)
TAGGED = "We\tPRP\nsaw\tVBD\nit\tPRP\n\nParis\tNNP\nis\tVBD\nhere\tRB\n.\t.\n\nWe\tPRP\ntoo\tRB\n"
LABELLED = "".join(f"{'pos' if k % 3 else 'neg'}\tthe film was number {k} of the year\n" for k in range(30))
PAIRS = "".join(f"word{k}\tw ɔː d {'ɪ ' * k}k\n" for k in range(30))
DATED = "date,y,z\n" + "".join(f"2020-{k:02},{k * k},{-k}\n" for k in range(1, 13))


def written(folder: Path, text: str, name: str = "file.txt") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(
    ("text", "kind", "sure", "why"),
    [
        (PROSE, "text", True, "lines of text"),
        ("", "text", True, "nothing"),
        ("四時運灰琯，一夕變冬春。\n送寒餘雪盡，迎歲早梅新。\n\n燄聽風來動。\n", "text", True, "lines of text"),
        ("def f():\n\treturn 1\n\n\ndef g():\n\treturn 2\n", "text", True, "lines of text"),
        ("(as he said)\n(and did not)\n", "text", True, "lines of text"),
        ("(define (square x) (* x x))\n(define y 2)\n", "text", True, "lines of text"),
        ("red rose\nblue sky\n\nold house\nnew day\n", "text", True, "lines of text"),
        (TREES, "trees", True, "bracketed trees, one a line"),
        (TAGGED, "tagged", True, "CoNLL columns: a word and a tag a line, blank lines between sentences"),
        (TAGGED.replace("\t", " "), "tagged", True, "CoNLL columns"),
        ("# id 1\n" + TAGGED, "tagged", True, "CoNLL columns"),
        (TAGGED.lower(), "tagged", False, "CoNLL columns"),
        (TAGGED.replace("\t", "\tx\t"), "tagged", True, "3 columns, blank lines between sentences: the last is a tag"),
        (TAGGED.replace("\t", "\tx\t").lower(), "tagged", False, "3 columns, blank lines between sentences"),
        ("-DOCSTART- -X- O\n\n" + TAGGED.replace("\t", " x "), "tagged", True, "3 columns"),
        ("1 2 7\n2 3 7\n\n3 4 7\n4 5 7\n", "tagged", False, "3 columns"),
        (CONLLU, "tagged", True, "CoNLL-U: ten columns a word"),
        (LABELLED, "labelled", False, "2 columns between tabs, the first one of 2 short values that repeat"),
        (LABELLED.replace("\n", "\n\n"), "labelled", False, "the first one of 2 short values"),
        ("".join(f"it is number {k}\tyes\n" for k in range(9)), "labelled", False, "the second one of 1 short values"),
        (PAIRS, "pairs", False, "values that hardly repeat, the second one of symbols between spaces"),
        ("a cat\teine Katze\na dog\tein Hund\n", "pairs", False, "values that hardly repeat"),
        ("a\tb\tc\nd\te\tf\n", "text", False, "3 columns between tabs"),
        (DATED, "series", True, "12 rows of a column of dates and 2 of numbers"),
        ("t,y\n1,2.5\n2,NA\n3,1e3\n", "series", True, "3 rows of a column of evenly counted steps and one of numbers"),
        ("x,y\n1,2\n5,3\n2,2\n", "series", False, "3 rows with 2 columns of numbers and none of dates"),
        ("y\n1\n5\n2\n", "series", False, "3 rows with one column of numbers and none of dates"),
        ("2020-01,5\n2020-02,6\n2020-03,7\n", "series", False, "dates and one of numbers, without a header"),
        ("date,shop,y\n2020-01,a,1\n2020-02,a,3\n", "series", False, "one of numbers, beside words (shop)"),
        ("date,shop,y\n2020-01,a,1\n2020-01,b,3\n", "series", True, "2 rows of several series, told apart by 'shop'"),
        ("unique_id,ds,y\n1,2020-01,1\n1,2020-02,3\n", "series", True, "told apart by 'unique_id'"),
        ('"V1","V2","V3"\n"W1","1","2"\n"W2","4",""\n', "series", True, "2 series, a row each"),
        ("id,2020-01,2020-02\na,1,2\nb,3\n", "series", True, "2 series, a row each"),
        ("V1,V2,V3\na,1,2\nb,3,x\n", "series", False, "beside words (V1, V3)"),
    ],
)  # fmt: skip
def test_kinds(tmp_path: Path, text: str, kind: str, sure: bool, why: str) -> None:
    found = recognise([written(tmp_path, text)])
    assert found[:2] == (kind, sure)
    assert why in found.why
    with gzip.open(tmp_path / "file.txt.gz", "wt") as out:
        out.write(text)
    assert recognise([str(tmp_path / "file.txt.gz")]) == found
    windows = written(tmp_path, "\ufeff" + text.replace("\n", "\r\n"), "windows.txt")
    assert recognise([windows]) == found


def test_what_is_sure_can_be_read(tmp_path: Path) -> None:
    assert len(read_trees([written(tmp_path, TREES)])) == 2
    assert len(read_tagged([written(tmp_path, TAGGED)])) == 3
    assert len(read_labelled([written(tmp_path, LABELLED)])) == 30
    assert len(read_pairs([written(tmp_path, PAIRS)])) == 30
    assert parse_panel(DATED.splitlines(), "x").targets == recognise([written(tmp_path, DATED)]).columns[1:]


def test_what_is_no_file_is_text(tmp_path: Path) -> None:
    written(tmp_path, TREES)
    for name in ("-", "/dev/stdin", "/dev/null", "pydoc", "stdlib", str(tmp_path)):
        assert recognise([name])[:2] == ("text", True)
    with pytest.raises(TextError, match="no file 'absent'"):
        recognise(["absent"])
    with pytest.raises(TextError, match="no text given"):
        recognise([])
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b\x08nothing")
    with pytest.raises(TextError, match=r"bad.gz cannot be read"):
        recognise([str(tmp_path / "bad.gz")])


def test_a_csv_without_numbers_is_not_surely_text(tmp_path: Path) -> None:
    words = "label,text\npos,good\nneg,bad\n"
    assert recognise([written(tmp_path, words)])[:2] == ("text", True)
    assert recognise([written(tmp_path, words, "a.csv")])[:2] == ("labelled", False)
    assert recognise([written(tmp_path, "a,b,c\nx,y,z\nx,y,w\n", "b.csv")])[:2] == ("text", False)


def test_several_files(tmp_path: Path) -> None:
    tree, other = written(tmp_path, TREES, "a"), written(tmp_path, TREES * 2, "b")
    assert recognise([tree, other])[:2] == ("trees", True)
    prose, same, longer = (written(tmp_path, PROSE * k, f"prose{n}") for n, k in enumerate((1, 1, 2)))
    assert recognise([prose, same])[:3] == ("pairs", False, "two texts with the same number of lines")
    assert recognise([prose, written(tmp_path, PROSE.removesuffix("\n"), "c")])[:2] == ("pairs", False)
    assert recognise([prose, longer])[:2] == recognise([prose, same, longer])[:2] == ("text", True)
    found = recognise([prose, tree])
    assert found[:2] == ("text", False)
    assert "prose0 has lines of text; " in found.why
    few = written(tmp_path, "\n".join(LABELLED.split("\n")[:2]), "few.tsv")  # too few to see that labels repeat
    assert recognise([few]).kind == "pairs"
    assert recognise([written(tmp_path, LABELLED, "many.tsv"), few])[:2] == ("labelled", False)


def test_a_large_file_takes_no_time(tmp_path: Path) -> None:
    name = written(tmp_path, LABELLED * 100_000)
    begun = time.perf_counter()
    assert recognise([name]).kind == "labelled"
    assert time.perf_counter() - begun < 0.2


def test_a_header_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    header = ",".join(f"V{k}" for k in range(1, 20_000))
    assert recognise([written(tmp_path, f"{header}\na,1\n", "a.csv")])[:2] == ("series", True)


@pytest.mark.parametrize(
    "lines",
    [
        ["t͡ʃ a n d", "ɯ̟ᵝ k a̠", "a"],
        ["HH AH0 L OW1", "W ER1 L D"],
        ["h e l l o", "y o u"],
        ["aː b aː d͡zʷʰ"],
    ],
)
def test_symbols_between_spaces(lines: list[str]) -> None:
    assert between_spaces(lines)


@pytest.mark.parametrize(
    "lines",
    [
        PROSE.splitlines(),
        ["Zwei junge Männer sind im Freien in der Nähe vieler Büsche."],
        ["四時運灰琯，一夕變冬春。", "送寒餘雪盡，迎歲早梅新。"],
        ["나는 학교에 갔다", "오늘 날씨가 좋다"],
        ["Tôi là người Việt Nam và tôi sống ở Hà Nội"],
        ["Goodman", "de la Tour", "Ng"],
        ["a", "b"],
        ["one"],
        [""],
        [],
    ],
)
def test_words_and_names_are_no_symbols(lines: list[str]) -> None:
    assert not between_spaces(lines)


def real(folder: str) -> list[str]:
    if not (DATA / folder).is_dir():
        pytest.skip(f"{folder} is not here")
    return sorted(str(path) for path in (DATA / folder).iterdir())


@pytest.mark.parametrize(
    ("folder", "kind", "sure"),
    [
        ("sst-trees", "trees", True),
        ("chunking", "tagged", True),
        ("series", "series", True),
        ("ett", "series", True),
        ("m4", "series", True),
        ("names", "labelled", False),
        ("sentences", "labelled", False),
        ("g2p", "pairs", False),
        ("ptb", "text", True),
        ("tang", "text", True),
        ("timemachine", "text", True),
        ("multi30k", "text", True),
    ],
)
def test_real_files(folder: str, kind: str, sure: bool) -> None:
    for name in real(folder):
        assert recognise([name])[:2] == (kind, sure), name


def test_real_pairs_of_texts() -> None:
    names = [name for name in real("multi30k") if "valid" in name]
    assert recognise(names)[:2] == ("pairs", False)


def test_real_symbols() -> None:
    for name in real("g2p"):
        pairs = read_pairs([name])
        assert between_spaces(pair.target for pair in pairs), name
        assert not between_spaces(pair.source for pair in pairs), name


@pytest.mark.parametrize("folder", ["names", "sentences", "ptb", "tang", "multi30k", "timemachine"])
def test_real_words_are_no_symbols(folder: str) -> None:
    for name in real(folder):
        lines = Path(name).read_text().splitlines()[:2000]
        assert not between_spaces(line.partition("\t")[2] or line for line in lines), name


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "file.csv has nothing in it"),
        (b"date,y\n", "file.csv has a header and no rows"),
        ("date,y\n".encode("utf-16"), "file.csv has a header and no rows"),
        (b"date,y\n\xff,1\n", "file.csv is not UTF-8 at byte 7"),
        (b"PK\x03\x04xl/", "file.csv is an Excel workbook"),
    ],
)
def test_what_is_no_table_says_why(content: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "file.csv").write_bytes(content)
    with pytest.raises(TextError, match=complaint):
        recognise([str(tmp_path / "file.csv")])


def test_encodings_and_delimiters_of_tables(tmp_path: Path) -> None:
    rows = "date;y\n2024-01-01;1,5\n2024-01-02;2,5\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        (tmp_path / "file.csv").write_bytes(rows.encode(encoding))
        assert recognise([str(tmp_path / "file.csv")])[:2] == ("series", True)
    (tmp_path / "file.csv").write_bytes("日期,销量\n2024年1月1日,10\n2024年1月2日,12\n".encode("gb18030"))
    assert recognise([str(tmp_path / "file.csv")])[:2] == ("series", True)


def test_other_dates_and_long_tables(tmp_path: Path) -> None:
    """Dates of other countries are dates; names that texts and labels may have make no text of a series."""
    assert recognise([written(tmp_path, "day,y\n01/31/2024,1\n02/01/2024,2\n", "us.csv")])[:2] == ("series", True)
    found = recognise([written(tmp_path, "day,y\n01/02/2024,1\n02/03/2024,2\n", "either.csv")])
    assert found.why.endswith("beside words (day); --date-format dmy or mdy tells how dates are written")
    rows = "".join(f"2024-01-{k:02},{name},{k}\n" for k in range(1, 20) for name in ("a", "b"))
    assert recognise([written(tmp_path, f"date,name,y\n{rows}", "long.csv")]).kind == "series"
