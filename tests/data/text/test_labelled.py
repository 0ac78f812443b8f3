"""Labelled texts in the forms that people have them in: headers, columns in another order, CSV."""

from __future__ import annotations

from pathlib import Path

import pytest

from recur.data.text import layout_note, read_labelled
from recur.data.text.recognition import recognise
from recur.errors import TextError

WORDS = ["one fine day", "a dull one", "so it goes", "as it was", "more of it", "and less"]
LABELS = ["good", "bad", "so", "so", "good", "bad"]
PAIRS = list(zip(LABELS, WORDS, strict=True))


def written(folder: Path, lines: list[str], name: str = "file.tsv") -> str:
    (folder / name).write_text("\n".join(lines) + "\n")
    return str(folder / name)


def read(name: str) -> list[tuple[str, str]]:
    return [(one.label, one.text) for one in read_labelled([name])]


def test_the_plain_form_is_not_spoken_of(tmp_path: Path) -> None:
    name = written(tmp_path, [f"{label}\t{text}" for label, text in PAIRS])
    assert read(name) == PAIRS
    assert layout_note([name]) == ""


@pytest.mark.parametrize("header", ["label\ttext", "Class\tSentence", "LABEL\twhat they said"])
def test_a_header_is_left_out_and_said(header: str, tmp_path: Path) -> None:
    name = written(tmp_path, [header, *(f"{label}\t{text}" for label, text in PAIRS)])
    assert read(name) == PAIRS
    assert layout_note([name]) == f"{name}: its first line ({', '.join(header.split(chr(9)))}) is a header"
    assert read_labelled([name])[0].where == f"{name}:2"


def test_a_class_of_a_columns_name_is_no_header(tmp_path: Path) -> None:
    pairs = [("target", "hit"), ("miss", "no hit"), ("target", "a hit")]
    assert read(written(tmp_path, [f"{label}\t{text}" for label, text in pairs])) == pairs


@pytest.mark.parametrize("header", [[], ["text\tlabel"], ["review\tsentiment"]])
def test_a_text_in_front_of_its_label_is_known_by_names_or_values(header: list[str], tmp_path: Path) -> None:
    name = written(tmp_path, [*header, *(f"{text}\t{label}" for label, text in PAIRS)])
    assert read(name) == PAIRS
    assert layout_note([name]).endswith("column 1 is the text and column 2 its label")


def test_a_few_lines_are_known_by_the_classes_of_a_model(tmp_path: Path) -> None:
    name = written(tmp_path, ["fine\tgood", "poor\tbad"])
    assert [one.label for one in read_labelled([name])] == ["fine", "poor"]
    assert [one.label for one in read_labelled([name], ("good", "bad"))] == ["good", "bad"]
    assert [one.label for one in read_labelled([name], ("fine", "poor"))] == ["fine", "poor"]


def test_a_csv_with_quotes_and_more_columns(tmp_path: Path) -> None:
    rows = ["id,text,label", '1,"well, ""yes""",good', '2,"two', "", 'lines",bad', "", "3,plain,good"]
    name = written(tmp_path, rows, "file.csv")
    assert read(name) == [("good", 'well, "yes"'), ("bad", "two  lines"), ("good", "plain")]
    assert layout_note([name]).endswith("(id, text, label) is a header; column 2 is the text and column 3 its label")
    name = written(tmp_path, [f"{label},{text}" for label, text in PAIRS], "plain.csv")
    assert read(name) == PAIRS
    assert recognise([name]).kind == "labelled"


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (["label,text", "good"], r"file.csv:2: a row is label,text, got 'good'"),
        (["label,text", 'good,"never closed'], "file.csv:2 is not a CSV"),
        (["id,label,text", "1,good"], "file.csv:2: 2 columns, where the first line names 3"),
        (["label,text", "good, "], r"file.csv:2: its text is empty \(column text\)"),
        (["1,well said,good", "2,so so,bad"], "file.csv: 3 columns, and its first line does not name which"),
    ],
)
def test_what_is_wrong_with_a_csv_is_said(rows: list[str], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=complaint):
        read_labelled([written(tmp_path, rows, "file.csv")])


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_csv_as_other_programs_write_it(mark: str, tmp_path: Path) -> None:
    rows = [mark.join(row) for row in (("编号", "评论", "类别"), ("1", "well, yes", "good"), ("2", "no", "bad"))]
    name = written(tmp_path, rows, "file.csv")
    assert read(name) == [("good", "well, yes"), ("bad", "no")]
    if mark == ";":
        assert recognise([name]).why == "rows with a text (评论) and its label (类别)"
