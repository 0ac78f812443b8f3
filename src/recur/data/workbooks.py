"""Excel workbooks (.xlsx): the cells of the first sheet, read with the standard library alone.

A workbook is a ZIP archive of XML files: the names of the sheets, the shared texts, the number formats (which tell
dates from numbers) and the cells. Formulas are not computed: their stored results are read.
"""

from __future__ import annotations

import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from recur.errors import TextError
from recur.utils.limits import SHEET_BYTES, SHEET_RATIO, TABLE_BYTES, TABLE_CELLS, TABLE_COLUMNS, check_count

UNPACKING = (OSError, zlib.error, lzma.LZMAError, NotImplementedError)
"""Errors of damaged data, by the method of compression."""

DATE_FORMATS = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
"""Numbers of the built-in number formats of dates and times (ECMA-376, 18.8.30)."""

_DATE = re.compile(r"[ymdhs]", re.IGNORECASE)
_LITERAL = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|_.|\*.')
_CELL = re.compile(r"([A-Z]{1,3})\d+")
_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)

Cell = str | float | bool | datetime | None


def read_workbook(path: Path, content: bytes) -> list[tuple[int, list[Cell]]]:
    """Return the rows of the first sheet with their numbers; rows without a value are left out."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _read(archive, str(path))
    except (zipfile.BadZipFile, ElementTree.ParseError, KeyError, EOFError, *UNPACKING) as error:
        raise TextError(f"{path} is not a readable .xlsx: {error}; save it again, or as .csv") from None
    except (ValueError, OverflowError, RuntimeError, UnicodeError, AttributeError, TypeError) as error:
        if isinstance(error, TextError):
            raise
        raise TextError(f"{path} is damaged: {error}; save it again, or as .csv") from None


def _read(archive: zipfile.ZipFile, name: str) -> list[tuple[int, list[Cell]]]:
    parts = {info.filename: info for info in archive.infolist()}
    sheet, epoch = _first_sheet(archive, parts, name)
    texts = list(_shared_texts(archive, parts, name))
    dates = _date_styles(archive, parts, name)
    found: list[tuple[int, list[Cell]]] = []
    number = cells = 0
    with _open(archive, parts, sheet, name) as stream:
        for _, row in ElementTree.iterparse(stream):
            if _tag(row) != "row":
                continue
            number = int(row.get("r") or number + 1)
            values: list[Cell] = []
            for cell in row:
                match = _CELL.fullmatch(cell.get("r") or "")
                at = _column(match[1]) if match else len(values)
                check_count(name, "columns", at + 1, TABLE_COLUMNS, "take fewer columns")
                values += [None] * (at - len(values))
                value = _value(cell, texts, dates, epoch)
                values[at:] = [value]
            row.clear()
            cells += len(values)
            check_count(name, "cells", cells, TABLE_CELLS, "split the table")
            if any(value is not None and value != "" for value in values):
                found.append((number, values))
    return found


def _open(archive: zipfile.ZipFile, parts: dict[str, zipfile.ZipInfo], part: str, name: str) -> BinaryIO:
    """Open a part of the archive after a check of its unpacked size."""
    info = parts[part]
    most = min(SHEET_RATIO * info.compress_size + SHEET_BYTES, TABLE_BYTES)
    check_count(f"{name}: {part}", "bytes", info.file_size, most, "save it as .csv")
    return io.BytesIO(archive.read(info))  # which checks that there are no more bytes than file_size


def _tag(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _column(letters: str) -> int:
    """Return the index of a column: A is 0, Z 25, AA 26."""
    found = 0
    for letter in letters:
        found = 26 * found + ord(letter) - 64
    return found - 1


def _first_sheet(archive: zipfile.ZipFile, parts: dict[str, zipfile.ZipInfo], name: str) -> tuple[str, datetime]:
    """Return the name of the part with the first visible sheet, and the date that 0 stands for."""
    relation, epoch = "", _EPOCH
    for _, element in ElementTree.iterparse(_open(archive, parts, "xl/workbook.xml", name)):
        if _tag(element) == "workbookPr" and element.get("date1904") in ("1", "true"):
            epoch = _EPOCH_1904
        if _tag(element) == "sheet" and not relation and element.get("state", "visible") == "visible":
            relation = next((value for key, value in element.attrib.items() if key.endswith("}id")), "")
    for _, element in ElementTree.iterparse(_open(archive, parts, "xl/_rels/workbook.xml.rels", name)):
        if element.get("Id") == relation:
            target = str(element.get("Target"))
            return target.removeprefix("/") if target.startswith("/") else f"xl/{target}", epoch
    raise TextError(f"{name} has no sheet")


def _shared_texts(archive: zipfile.ZipFile, parts: dict[str, zipfile.ZipInfo], name: str) -> Iterator[str]:
    if "xl/sharedStrings.xml" not in parts:
        return
    for _, element in ElementTree.iterparse(_open(archive, parts, "xl/sharedStrings.xml", name)):
        if _tag(element) == "si":
            yield _text_of(element)
            element.clear()


def _text_of(element: Element) -> str:
    """Return the text of an element without its phonetic hints."""
    found = []
    for inner in element:
        if _tag(inner) == "t":
            found.append(inner.text or "")
        elif _tag(inner) == "r":
            found += [part.text or "" for part in inner if _tag(part) == "t"]
    return "".join(found)


def _date_styles(archive: zipfile.ZipFile, parts: dict[str, zipfile.ZipInfo], name: str) -> list[bool]:
    """Return for each cell style whether it shows a date."""
    if "xl/styles.xml" not in parts:
        return []
    root = ElementTree.parse(_open(archive, parts, "xl/styles.xml", name)).getroot()
    custom = {
        int(element.get("numFmtId", "0"))
        for element in root.iter()
        if _tag(element) == "numFmt" and _DATE.search(_LITERAL.sub("", element.get("formatCode") or ""))
    }
    styles = next((element for element in root if _tag(element) == "cellXfs"), ())
    return [int(style.get("numFmtId", "0")) in DATE_FORMATS | custom for style in styles]


def _value(cell: Element, texts: list[str], dates: list[bool], epoch: datetime) -> Cell:
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        return next((_text_of(inner) for inner in cell if _tag(inner) == "is"), None)
    written = next((inner.text for inner in cell if _tag(inner) == "v"), None)
    if written is None:
        return None
    if kind == "s":
        if not 0 <= (at := int(written)) < len(texts):
            raise ValueError(f"a cell refers to the shared text {at}, of {len(texts)}")
        return texts[at]
    if kind == "b":
        return written.strip() == "1"
    if kind == "e":  # an error such as #N/A
        return None
    if kind in ("str", "d"):
        return written
    number = float(written)
    style = int(cell.get("s") or 0)
    if 0 <= style < len(dates) and dates[style]:
        return epoch + timedelta(seconds=round(number * 86400))
    return number
