"""Character encodings of text files, and the kinds of binary files that are not text.

The encoding is found in this order: a byte-order mark; valid UTF-8; UTF-16 without a mark, by its zero bytes; GB18030
or Big5, whichever makes more of the bytes common Chinese characters; Windows-1252, if single letters above ASCII stand
between others. Text in any other encoding needs its name (`--encoding`).
"""

from __future__ import annotations

import codecs
import re

from recur.errors import TextError, shown
from recur.i18n import Message

NAMES = {
    "utf-8": "UTF-8",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "utf-32": "UTF-32",
    "gb18030": "GB18030",
    "big5": "Big5",
    "cp1252": "Windows-1252",
}
"""Display names of encodings."""

MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
"""Byte-order marks. The mark of UTF-32 begins with that of UTF-16, so it is tried first."""

COMMON_SHARE = 0.7
"""Least share of common characters among those above ASCII, for text to be taken for GB18030 or Big5."""

INSPECTED_BYTES = 1 << 18
"""Bytes that are scored."""


def display_name(encoding: str) -> str:
    """Return the usual spelling of an encoding's name."""
    return NAMES.get(encoding, encoding)


def check_encoding(name: str) -> str:
    """Return the codec name of an encoding that the user named; empty for an empty name."""
    if not name:
        return ""
    try:
        found = codecs.lookup(name)
        "a".encode(found.name).decode(found.name)
    except (LookupError, ValueError, AttributeError, TypeError):
        raise TextError(
            f"unknown encoding {shown(name)}; expected a name such as utf-8, gb18030, big5, cp1252, utf-16, shift_jis"
        ) from None
    return "gb18030" if found.name in ("gb2312", "gbk") else found.name  # which contains both


def detect_encoding(data: bytes, whole: bool, likely: str = "") -> str | None:
    """Return the encoding of the first bytes of a file; None if it cannot be told.

    Args:
        whole: whether these are all bytes; else the last character may be incomplete.
        likely: encoding to prefer where the bytes are not Unicode, such as that of the training files.
    """
    for mark, name in MARKS:
        if data.startswith(mark):
            return name
    if _decodes(data, "utf-8", whole):
        return "utf-8" if b"\0" not in data else _utf_16(data, whole)
    if _ends_inside(data) and _decodes(data, "utf-8", False):
        return "utf-8"  # which is cut off inside of a character
    if (wide := _utf_16(data, whole)) is not None:
        return wide
    if likely and likely != "utf-8" and _decodes(data, likely, whole):
        return likely
    part = data[:INSPECTED_BYTES] if len(data) <= INSPECTED_BYTES else _around_first(data)
    shares = {"gb18030": _share(part, "gb18030", 0xB0, 0xD7), "big5": _share(part, "big5", 0xA4, 0xC6)}
    best = max(shares, key=lambda name: shares[name])
    if shares[best] >= COMMON_SHARE and _decodes(data, best, whole):
        return best
    return "cp1252" if _is_western(part) and _decodes(data, "cp1252", whole) else None


def _decodes(data: bytes, encoding: str, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)("strict").decode(data, whole)
    except (UnicodeError, LookupError):
        return False
    return True


def _ends_inside(data: bytes) -> bool:
    """Return True if the last two bytes begin a character of UTF-8 of three bytes or more, and do not end it."""
    return len(data) > 2 and 0xE0 <= data[-2] < 0xF5 and 0x80 <= data[-1] < 0xC0


def _around_first(data: bytes) -> bytes:
    """Return a part of long data that begins at the line of its first byte above ASCII."""
    match = _ABOVE.search(data)
    begin = data.rfind(b"\n", 0, match.start()) + 1 if match else 0
    return data[begin : begin + INSPECTED_BYTES]


_ABOVE = re.compile(rb"[\x80-\xff]")


def _utf_16(data: bytes, whole: bool) -> str | None:
    """Return UTF-16 if zero bytes stand at every second place of much of the data, as in text with ASCII."""
    if whole and len(data) % 2:
        return None
    part = data[: min(len(data), 4096) & ~1]
    if b"\0" not in part:
        return None
    low, high = part[::2].count(0), part[1::2].count(0)
    for name, zeros, others in (("utf-16-le", high, low), ("utf-16-be", low, high)):
        if zeros > 0.1 * len(part) / 2 and others <= zeros / 20 and _decodes(part, name, False):
            text = part.decode(name, "ignore")
            if sum(c.isprintable() or c in "\t\r\n" for c in text) > 0.98 * len(text):
                return name
    return None


def _share(data: bytes, encoding: str, first: int, last: int) -> float:
    """Return the share of common characters among the pairs of bytes above ASCII.

    Common are those of the first level of the character set, which has the frequent characters (lead bytes first …
    last), and its punctuation (lead bytes A1 … A3).
    """
    common = total = k = 0
    while k < len(data) - 1:
        lead, trail = data[k], data[k + 1]
        if lead < 0x80:
            k += 1
            continue
        total += 1
        own = trail >= 0xA1 if encoding == "gb18030" else trail >= 0xA1 or 0x40 <= trail <= 0x7E
        common += own and (first <= lead <= last or 0xA1 <= lead <= 0xA3)
        k += 2
    return common / total if total else 0.0


_UTF_8 = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_WRONG = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\xff]")
"""Bytes that text in Windows-1252 does not have; FF is a letter that starts no word of a usual language."""


def _is_western(data: bytes) -> bool:
    """Return True if bytes above ASCII are as rare as accents and signs are in Western European text."""
    above = len(_ABOVE.findall(data))
    letters = sum(data.count(bytes((k,))) for k in (*range(65, 91), *range(97, 123)))
    damaged = sum(map(len, _UTF_8.findall(data)))  # text in UTF-8 with a wrong byte somewhere
    return not _WRONG.search(data) and 0 < above <= max(letters, 1) and 2 * damaged <= above


def encoding_error(name: str, offset: int, data: bytes, error: UnicodeDecodeError, encoding: str) -> str:
    """Return a message that names the invalid byte and what to do."""
    return (
        f"{name} is not {display_name(encoding)} at byte {offset} (0x{data[error.start]:02x}, {error.reason}); name "
        "its encoding: --encoding cp1251, shift_jis, euc_kr or another"
    )


# Binary files -----------------------------------------------------------------------------------------------------

SIGNATURES = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"%PDF-", "a PDF"),
    (b"PAR1", "a Parquet table"),
    (b"ARROW1", "a Feather (Arrow) table"),
    (b"FEA1", "a Feather table of version 1"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"BM", "a BMP image"),
    (b"RIFF", "audio or an image (RIFF)"),
    (b"OggS", "Ogg audio"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file (.xls or .doc)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"\x80\x04\x95", "a Python pickle"),
    (b"{\\rtf", "an RTF document"),
)  # fmt: skip

ADVICE = {
    "an Excel workbook": "rename it to .xlsx: recur reads its first sheet",
    "a Word document": "save it as plain text (.txt, UTF-8) first",
    "a PowerPoint file": "save its text as .txt first",
    "an OpenDocument file": "save it as .xlsx, .csv or .txt first",
    "a PDF": "convert it first: pdftotext FILE.pdf FILE.txt",
    "a Parquet table": "rename it to .parquet: recur reads it with polars",
    "a Feather (Arrow) table": "rename it to .feather: recur reads it with polars",
    "an old Office file (.xls or .doc)": "save it as .xlsx, .csv or .txt first",
    "a gzip archive": "rename it to .gz: recur unpacks it",
    "a Zstandard archive": "rename it to .zst: recur unpacks it",
    "a ZIP archive": "unpack it first and name the files in it",
    "a PNG image": "images are for --task grid, in a folder for each class",
    "a JPEG image": "images are for --task grid, in a folder for each class",
    "a NumPy array": "rename it to .npy: it is read as numbers",
    "an SQLite database": "export the table as .csv first",
    "an RTF document": "save it as plain text (.txt, UTF-8) first",
}

ZIPPED = (
    (b"xl/", "an Excel workbook"),
    (b"word/", "a Word document"),
    (b"ppt/", "a PowerPoint file"),
    (b"mimetypeapplication/vnd.oasis", "an OpenDocument file"),
)


def binary_kind(head: bytes) -> str | None:
    """Return what kind of binary file begins with these bytes; None for text."""
    kind = next((kind for mark, kind in SIGNATURES if head.startswith(mark)), None)
    if kind == "a BMP image" and head[6:10] != b"\0\0\0\0":
        return None
    if kind == "a ZIP archive":
        return next((inner for mark, inner in ZIPPED if mark in head), kind)
    if kind in ("audio or an image (RIFF)", "Ogg audio", "MP3 audio", "an RTF document", "a GIF image"):
        return kind if b"\0" in head or kind == "an RTF document" else None
    return kind


def binary_error(name: str, head: bytes) -> str | None:
    """Return a message that names a binary file for what it is and says what to do; None for text."""
    kind = binary_kind(head)
    if kind is None:
        return None
    advice = ADVICE.get(kind, "give a text or a table instead")
    return Message("{name} is {kind}, not text; {advice}", name=name, kind=kind, advice=advice)
