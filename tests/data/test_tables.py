"""Files as people have them: encodings, spreadsheets, delimiters, numbers and dates of other countries."""

from __future__ import annotations

import datetime
import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from recur.data.csv_files import CsvRow
from recur.data.encodings import detect_encoding
from recur.data.locales import LocaleFormat, localise
from recur.data.reading import Reading
from recur.data.series import read_panel
from recur.data.signals import read_signal, read_signals
from recur.data.text import Corpus, read_labelled, read_pairs, read_tagged, tables
from recur.data.text.recognition import recognise
from recur.data.text.tables import delimited, read_table
from recur.errors import RecurError, TextError
from tests.workbooks import write_workbook

CHINESE = "今天天气很好，我们去公园散步。学习神经网络很有意思！\n"
TRADITIONAL = "今天天氣很好，我們去公園散步。學習類神經網路很有意思！\n"
WESTERN = "Die Größe der Straße übertrifft alles – élève à l'école, £5 and €3\n"


@pytest.mark.parametrize(
    ("text", "encoding", "found"),
    [
        (CHINESE, "utf-8", "utf-8"),
        (CHINESE, "utf-8-sig", "utf-8"),
        (CHINESE, "gb18030", "gb18030"),
        (TRADITIONAL, "big5", "big5"),
        (CHINESE, "utf-16", "utf-16"),
        ("label,text\ngood,fine\n", "utf-16-le", "utf-16-le"),
        ("label,text\ngood,fine\n", "utf-16-be", "utf-16-be"),
        (WESTERN, "cp1252", "cp1252"),
        ("Привет, как дела сегодня?\n", "cp1251", None),
        ("これは日本語の文章です。\n", "shift_jis", None),
    ],
)
def test_encodings_are_detected(text: str, encoding: str, found: str | None, tmp_path: Path) -> None:
    content = (text * 3).encode(encoding)
    assert detect_encoding(content, whole=True) == found
    (tmp_path / "a.txt").write_bytes(content)
    reading = Reading()
    if found is None:
        with pytest.raises(TextError, match="--encoding"):
            Corpus.of(str(tmp_path / "a.txt"), reading=reading).text()
        reading = Reading(encoding=encoding)
    assert Corpus.of(str(tmp_path / "a.txt"), reading=reading).text() == text * 3
    named = reading.encodings.get(str(tmp_path / "a.txt"))
    assert named == (None if found == "utf-8" else found or encoding)
    assert ("--encoding overrides" in reading.note()) == (named is not None)


def test_a_wrong_byte_in_utf_8_is_no_other_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(CHINESE.encode() * 3 + b"\xff" + CHINESE.encode())
    with pytest.raises(TextError, match=rf"not UTF-8 at byte {3 * len(CHINESE.encode())}"):
        Corpus.of(str(tmp_path / "a.txt")).text()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"%PDF-1.7\n%\xe2\xe3", "is a PDF, not text; convert it first"),
        ("a.csv", b"\x89PNG\r\n\x1a\n\0\0", "is a PNG image"),
        ("a.txt", b"PAR1\x15\0", "is a Parquet table.*rename"),
        ("a.txt", b"PK\x03\x04....word/document.xml", "is a Word document"),
        ("a.txt", b"PK\x03\x04....xl/workbook.xml", "is an Excel workbook.*xlsx"),
        ("a.txt", b"PK\x03\x04....book.txt", "is a ZIP archive.*unpack"),
        ("a.csv", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "old Office file"),
    ],
)
def test_binary_files_are_named(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    for read in (recognise, read_labelled, lambda names: Corpus.of(*names).text()):
        with pytest.raises(TextError, match=said):
            read([str(tmp_path / name)])


def panel_rows() -> list[list[object]]:
    first = datetime.date(2024, 1, 1)
    rows: list[list[object]] = [["Date", "Store", "Sales", "Promo"]]
    for store in ("Nord", "Süd"):
        rows += [[first + datetime.timedelta(k), store, 10.5 + k, k % 2 == 0] for k in range(6) if k != 3]
    return rows


def test_a_workbook_is_a_panel(tmp_path: Path) -> None:
    name = write_workbook(tmp_path / "panel.xlsx", panel_rows())
    table = read_table(name)
    assert table.header == ("Date", "Store", "Sales", "Promo")
    assert table.rows[0].cells == ["2024-01-01", "Nord", "10.5", "true"]
    assert recognise([name]).kind == "series"
    panel = read_panel([name])
    assert [one.id for one in panel.series] == ["Nord", "Süd"]
    values = panel.series[0].values[:, 0]
    assert np.isnan(values[3]), "a missing day is a gap"
    assert values[[0, 1, 2, 4, 5]].tolist() == [10.5, 11.5, 12.5, 14.5, 15.5]
    assert panel.series[0].past[:, 0].tolist()[:3] == [1.0, 0.0, 1.0], "booleans are 1 and 0"


def test_a_workbook_reads_as_openpyxl_writes_it(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in panel_rows():
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    own = read_table(write_workbook(tmp_path / "b.xlsx", panel_rows()))
    peer = read_table(str(tmp_path / "a.xlsx"))
    assert (peer.header, [row.cells for row in peer.rows]) == (own.header, [row.cells for row in own.rows])


def test_a_workbook_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    name = write_workbook(tmp_path / "a.xlsx", [["a", "b"], ["c", 1.0]])
    with zipfile.ZipFile(name) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    parts["xl/worksheets/sheet1.xml"] = b"<x>" + b" " * (1 << 26) + b"</x>"
    with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    with pytest.raises(TextError, match="at most .* bytes"):
        read_table(name)


ROWS = [("a fine day", "good"), ("a dull day, too", "bad")] * 3


def test_json_lines_json_gzip_and_typed_columns_give_the_same(tmp_path: Path) -> None:
    objects = [{"id": k, "text": text, "label": label} for k, (text, label) in enumerate(ROWS)]
    lines = "".join(f"{json.dumps(one)}\n" for one in objects)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.json").write_text(json.dumps({"data": objects}))
    (tmp_path / "c.json").write_text(json.dumps({key: [one[key] for one in objects] for key in objects[0]}))
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    names = ["a.jsonl", "b.json", "c.json", "d.jsonl.gz"]
    if (polars := pytest.importorskip("polars")) is not None:
        polars.DataFrame(objects).write_parquet(tmp_path / "e.parquet")
        polars.DataFrame(objects).write_ipc(tmp_path / "f.feather")
        names += ["e.parquet", "f.feather"]
    for name in names:
        path = str(tmp_path / name)
        assert [(one.text, one.label) for one in read_labelled([path])] == ROWS, name
        assert recognise([path]).kind == "labelled", name
        assert Corpus.of(path).text() == "".join(f"{text}\n" for text, _ in ROWS), "no braces are text"


def test_zstandard_is_unpacked(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    content = "".join(f"{label}\t{text}\n" for text, label in ROWS).encode()
    (tmp_path / "a.tsv.zst").write_bytes(zstandard.ZstdCompressor().compress(content))
    assert [(one.text, one.label) for one in read_labelled([str(tmp_path / "a.tsv.zst")])] == ROWS
    (tmp_path / "b.txt.zst").write_bytes(zstandard.ZstdCompressor().compress(b" " * (1 << 25)))
    with pytest.raises(TextError, match="unpacks to more than"):
        Corpus.of(str(tmp_path / "b.txt.zst")).text()


def test_a_saved_dataset_has_the_names_of_its_classes(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    folder = tmp_path / "data" / "train"
    folder.mkdir(parents=True)
    frame = polars.DataFrame({"text": [text for text, _ in ROWS], "label": [int(label == "good") for _, label in ROWS]})
    frame.write_ipc_stream(folder / "data-00000-of-00001.arrow")
    (tmp_path / "data" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    info = {"features": {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    for name in (tmp_path / "data", folder):
        assert [(one.text, one.label) for one in read_labelled([str(name)])] == ROWS


def test_lists_of_words_and_tags(tmp_path: Path) -> None:
    rows = [{"tokens": ["New", "York", "a|b"], "ner_tags": ["B-LOC", "I-LOC", "O"]}, {"tokens": [], "ner_tags": []}]
    rows.append({"tokens": ["so"], "ner_tags": ["O"]})
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    name = str(tmp_path / "a.jsonl")
    assert recognise([name]).kind == "tagged"
    with pytest.raises(TextError, match=r"a.jsonl:2: the sentence has no word"):
        read_tagged([name])
    reading = Reading(on_bad_rows="warn")
    sentence, _ = read_tagged([name], reading=reading)
    assert (sentence.words, sentence.tags) == (("New", "York", "a|b"), ("B-LOC", "I-LOC", "O"))
    assert reading.left_out == 1
    (tmp_path / "b.csv").write_text("Sentence #,Word,POS,Tag\nS: 1,New,NNP,B\n,York,NNP,I\nS: 2,to,IN,O\n")
    found = read_tagged([str(tmp_path / "b.csv")])
    assert [(one.words, one.tags) for one in found] == [(("New", "York"), ("B", "I")), (("to",), ("O",))]


def test_pairs_of_named_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('nr;Frage;Antwort\n1;"wie; so?";ja\n2;was?;nein\n')
    reading = Reading(source="Frage", target="Antwort")
    assert [(p.source, p.target) for p in read_pairs([str(tmp_path / "a.csv")], reading)] == [
        ("wie; so?", "ja"),
        ("was?", "nein"),
    ]


# Columns of labelled texts ------------------------------------------------------------------------------------------


def test_columns_are_named_and_cells_span_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        'Nr;Betreff;Körper;Prio\n1;x;"grüße;\nhallo";hoch\n2;y;kurz;tief\n'.encode("cp1252")
    )
    name = str(tmp_path / "a.csv")
    with pytest.raises(TextError, match="name them with --text and --label"):
        read_labelled([name])
    for text, label in (("Körper", "prio"), ("3", "4")):
        found = read_labelled([name], reading=Reading(text=text, label=label, id="Nr", header="yes"))
        assert [(one.text, one.label, one.id) for one in found] == [
            ("grüße; hallo", "hoch", "1"),
            ("kurz", "tief", "2"),
        ]
    with pytest.raises(TextError, match="no column 'Body' for --text; its columns are 'Nr', 'Betreff', 'Körper'"):
        read_labelled([name], reading=Reading(text="Body", label="Prio", strict=True))


def test_bad_rows_are_counted_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\nfine,good\n,good\ndull,bad\nonly\nso,bad\n")
    name = str(tmp_path / "a.csv")
    with pytest.raises(TextError, match=r"a.csv:3: its text is empty"):
        read_labelled([name])
    for how in ("warn", "skip"):
        reading = Reading(on_bad_rows=how)  # type: ignore[arg-type]
        assert [one.text for one in read_labelled([name], reading=reading)] == ["fine", "dull", "so"]
        assert reading.left_out == 2
        assert ("a.csv:3: its text is empty" in reading.note()) == (how == "warn")
    (tmp_path / "b.csv").write_text("text,label\nfine,good\n,good\n,bad\n,bad\n")
    with pytest.raises(TextError, match="3 of 4 rows cannot be read"):
        read_labelled([str(tmp_path / "b.csv")], reading=Reading(on_bad_rows="skip"))


# Numbers and dates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "decimal", "wanted"),
    [
        (["1.234,5", "0,25", "-3"], "", ["1234.5", "0.25", "-3"]),
        (["1,234.5", "0.25", ""], "", ["1234.5", "0.25", ""]),
        (["1 234,5", "7,0"], "", ["1234.5", "7.0"]),
        (["1.234", "2.345"], ",", ["1234", "2345"]),
        (["1.234", "2.345"], "", ["1.234", "2.345"]),
        (["€ 12,50", "€ 7,00"], "", ["12.50", "7.00"]),
        (["12,5 %", "7,0 %"], "", ["12.5", "7.0"]),
        (["yes", "no", "yes"], "", ["1", "0", "1"]),
        (["是", "否"], "", ["1", "0"]),
        (["Nord", "12,5"], "", ["Nord", "12,5"]),
        (["31.12.2024", "1.1.2025"], "", ["2024-12-31", "2025-01-01"]),
        (["12/31/2024", "1/1/2025"], "", ["2024-12-31", "2025-01-01"]),
        (["31/12/24 14:30", "1/1/25 0:00"], "", ["2024-12-31 14:30:00", "2025-01-01 00:00:00"]),
        (["1/31/2024 2:30 PM", "2/1/2024 12:05 AM"], "", ["2024-01-31 14:30:00", "2024-02-01 00:05:00"]),
        (["2024年12月31日", "2025年1月1日"], "", ["2024-12-31", "2025-01-01"]),
        (["31-Dec-2024", "01-Jan-2025"], "", ["2024-12-31", "2025-01-01"]),
        (["2024-12-31", "2025-01-01"], "", ["2024-12-31", "2025-01-01"]),
    ],
)
def test_numbers_and_dates_of_other_countries(cells: list[str], decimal: str, wanted: list[str]) -> None:
    rows = delimited([f'"{cell}"' if cell else '"",x' for cell in cells], "a.csv").rows
    localise(["a"], rows, LocaleFormat(decimal))
    assert [row.cells[0] for row in rows] == wanted


def test_a_date_that_can_be_two_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("day,y\n" + "".join(f"1/{k}/2024,{k}\n" for k in range(1, 13)))
    name = str(tmp_path / "a.csv")
    with pytest.raises(TextError, match="--date-format dmy or --date-format mdy"):
        read_panel([name])
    days = read_panel([name], reading=Reading(date_format="mdy"))
    assert days.frequency is not None
    assert days.frequency.name == "days"
    months = read_panel([name], reading=Reading(date_format="dmy"))
    assert months.frequency is not None
    assert months.frequency.name == "months"


def test_a_german_export_with_holes_keeps_its_days(tmp_path: Path) -> None:
    lines = ["Datum;Umsatz;Filiale;"]
    lines += [f"{k:02}.03.2024;1.{k:03},50;ja;" for k in range(1, 16) if k != 5]
    lines[8] = "09.03.2024;kaputt;ja;"
    (tmp_path / "a.csv").write_bytes("\r\n".join(lines).encode("utf-16"))
    reading = Reading(on_bad_rows="warn")
    panel = read_panel([str(tmp_path / "a.csv")], reading=reading)
    values = panel.series[0].values[:, panel.targets.index("Umsatz")]
    assert len(values) == 15
    assert np.flatnonzero(np.isnan(values)).tolist() == [4, 8], (
        "a missing day and a bad cell are gaps, and shift nothing"
    )
    assert values[14] == 1015.5
    assert reading.left_out == 1
    assert "a.csv:9" in reading.note()
    assert (reading.decimal, reading.date_format) == (",", "dmy")


def test_recordings_with_times_commas_and_holes(tmp_path: Path) -> None:
    lines = ["Zeit;x;y", "2024-01-01 10:00:00;0,5;1", "2024-01-01 10:00:01;;2", "2024-01-01 10:00:02;1,5;NaN"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(TextError, match="step 2 is not finite: a value is missing"):
        read_signal(tmp_path / "a.csv")
    reading = Reading(on_bad_rows="warn")
    assert read_signal(tmp_path / "a.csv", reading).values.tolist() == [[0.5, 1], [0.5, 2], [1.5, 2]]
    assert "2 missing values" in reading.note()
    np.savez(tmp_path / "a.npz", x=np.array([[[1.0], [np.nan]], [[3.0], [4.0]]]), y=np.array(["a", "b"]))
    with pytest.raises(RecurError):
        read_signals([str(tmp_path / "a.npz")])
    found = read_signals([str(tmp_path / "a.npz")], reading=Reading(on_bad_rows="skip"))
    assert [one.values.ravel().tolist() for one in found] == [[1.0, 1.0], [3.0, 4.0]]


def test_a_decimal_comma_after_zero() -> None:
    """0,123 is no number of thousands."""
    rows = [CsvRow(k, [cell]) for k, cell in enumerate(["0,123", "0,456", "1,250"], start=1)]
    assert localise(["p"], rows, LocaleFormat()).decimal == ","
    assert [float(row.cells[0]) for row in rows] == [0.123, 0.456, 1.25]


@pytest.mark.parametrize("at", [7, -1])
def test_a_workbook_with_a_wrong_reference(tmp_path: Path, at: int) -> None:
    path = tmp_path / "a.xlsx"
    write_workbook(path, [["text", "label"], ["good", "pos"]])
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content.replace(b"<v>1</v>", b"<v>%d</v>" % at))
    with pytest.raises(TextError, match=f"damaged: a cell refers to the shared text {at}"):
        read_table(str(path))


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_workbook_with_damaged_data(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.xlsx"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>" * 50)
    content = bytearray(path.read_bytes())
    for k in range(59, 90):  # of the compressed data, behind its header
        content[k] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(TextError, match=r"not a readable \.xlsx"):
        read_table(str(path))


def test_equal_cells_of_a_small_file_are_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    polars = pytest.importorskip("polars")
    path = tmp_path / "a.parquet"
    polars.DataFrame({"text": ["a" * 10_000] * 1000}).write_parquet(path)
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(tables, "TABLE_BYTES", 1 << 20)
    with pytest.raises(TextError, match="expected at most 1,048,576 bytes, got 10,000,000"):
        read_table(str(path))


def test_json_lines_in_a_json_leave_out_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"text":"a"}\n{bad\n{"text":"b"}\n')
    reading = Reading(on_bad_rows="skip")
    assert [row.cells for row in read_table(str(path), reading).rows] == [["a"], ["b"]]
    assert reading.left_out == 1


def test_an_empty_table_has_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n\n")
    with pytest.raises(TextError, match="holds no row"):
        tables.text_column(str(path))


def test_a_panic_of_polars_is_an_error_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars panics on some damaged Feather files, which is no Exception of Python."""
    polars = pytest.importorskip("polars")
    path = tmp_path / "a.feather"
    polars.DataFrame({"text": ["a"]}).write_ipc(path)

    def panic(*_: object) -> None:
        raise polars.exceptions.PanicException("range end index 11666240 out of range")

    monkeypatch.setattr(polars.LazyFrame, "collect", panic)
    with pytest.raises(TextError, match="cannot be read: range end index"):
        read_table(str(path))
