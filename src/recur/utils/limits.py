"""Limits on what readers accept, and the checks that enforce them.

A limit on bytes is not enough: a few bytes can stand for many items. An archive of 9 KB unpacks to 4 million images, a
line of 250 KB holds 120,000 combining marks, and a log of 240 MB holds 80 million records. Readers therefore also limit
counts: items, values, depth and the length of a line. Each limit is far above real data and far below what fills a
memory: an input of a few kilobytes takes less than 2 s and 500 MiB (`python -m campaigns fuzz` checks this).
"""

from __future__ import annotations

from recur.errors import TextError

# Archives and compressed files -----------------------------------------------------------------------------------

NPZ_RATIO, NPZ_BYTES = 100, 1 << 26
"""An array of an .npz unpacks to at most NPZ_RATIO times its compressed size plus NPZ_BYTES."""

NPZ_ARRAYS = 1000
"""Arrays of an .npz."""

GZIP_RATIO, GZIP_BYTES = 30, 1 << 20
"""A .gz unpacks to at most GZIP_RATIO times its size plus GZIP_BYTES. Text shrinks to a third or a tenth."""

ZSTD_WINDOW = 1 << 27
"""Bytes of memory that a .zst may ask for while it is unpacked; it unpacks to as much as a .gz does."""

FREE_ITEMS, BYTES_PER_ITEM, MOST_ITEMS = 1 << 16, 8, 1 << 22
"""A file holds FREE_ITEMS images or sequences plus one per BYTES_PER_ITEM bytes at most, and never over MOST_ITEMS."""

FREE_LABELS = 1 << 20
"""An .npz holds at most so many labels plus four per byte of the file."""

# Images ----------------------------------------------------------------------------------------------------------

IMAGE_BYTES, IMAGE_PIXELS = 1 << 28, 1 << 25
"""Bytes of a file, and pixels of an image."""

JPEG_SCANS = 256
"""Scans of a JPEG: a progressive one has about ten, and the decoder visits every pixel in each scan."""

# Sequences of numbers --------------------------------------------------------------------------------------------

SIGNAL_BYTES, SIGNAL_CSV_BYTES, LABEL_FILE_BYTES = 1 << 28, 1 << 26, 1 << 26
"""Bytes of an .npy, of a .csv (a cell takes 20 times its size in memory) and of a list of labels."""

# Text ------------------------------------------------------------------------------------------------------------

LINE = 1 << 24
"""Characters of a line in a file of examples, and of a word."""

MARKS = 256
"""Combining marks in a row. Languages use a few (Unicode's stream-safe format allows 30), and normalisation takes time
that grows with the square of this number."""

TREE_DEPTH, TREE_NODES = 10_000, 1 << 18
"""Levels and nodes of a bracketed tree: a network keeps about 27 KB per level."""

# JSON and TOML ---------------------------------------------------------------------------------------------------

JSON_BYTES, JSON_VALUES = 1 << 28, 1 << 22
"""Bytes and values of a JSON file. A value takes up to 20 times its size in memory."""

VOCABULARY_BYTES, VOCABULARY_VALUES = 1 << 30, 1 << 26
"""Bytes and values of a vocabulary, which has two values per token."""

LOG_RECORDS, LOG_LINE = 1 << 16, 1 << 20
"""Records of a log (one per evaluation), and bytes of a line."""

KEY_PARTS = 32
"""Parts of a dotted TOML key: the standard library's parser takes time that grows with the square of this number."""

# Tables ----------------------------------------------------------------------------------------------------------

TABLE_BYTES, TABLE_CELLS, TABLE_COLUMNS = 1 << 30, 1 << 26, 1 << 14
"""Bytes of a table, unpacked; its cells (about 60 bytes each in memory) and columns."""

SHEET_BYTES, SHEET_RATIO = 1 << 24, 200
"""A part of an .xlsx unpacks to at most SHEET_RATIO times its packed size plus SHEET_BYTES. A sheet of equal rows
shrinks to a hundredth."""

# Checkpoints and tokenizers --------------------------------------------------------------------------------------

TENSOR_HEADER = 1 << 24
"""Bytes of the header of a safetensors file, which names every tensor."""

PIECES_BYTES = 1 << 26
"""Bytes of a sentencepiece model: one of 250,000 pieces has 5 MB."""


def check_count(where: str, what: str, got: int, most: int, advice: str) -> None:
    """Refuse an input with too many of something.

    Args:
        where: the file, with the line where that is known.
        what: the plural noun of what is counted.
        advice: the imperative clause that says how to make the input acceptable.
    """
    if got > most:
        raise TextError(f"{where}: expected at most {most:,} {what}, got {got:,}; {advice}")


def most_items(size: int) -> int:
    """Return how many items a file of `size` bytes may hold."""
    return min(FREE_ITEMS + size // BYTES_PER_ITEM, MOST_ITEMS)


def json_values(content: bytes | str) -> int:
    """Return an upper bound on the number of values in JSON, without parsing it.

    Every value but the first follows a comma, a colon or an opening bracket. Characters inside of strings are counted
    as well, so the bound may be larger than the number of values.
    """
    if isinstance(content, bytes):
        return 1 + sum(content.count(sign) for sign in (b",", b":", b"[", b"{"))
    return 1 + sum(content.count(sign) for sign in (",", ":", "[", "{"))


def check_json(where: str, content: bytes | str, most: int = JSON_VALUES) -> None:
    """Refuse JSON that may hold more values than `most`, before it is parsed."""
    check_count(where, "values", json_values(content), most, "check that it is the file that recur wrote")
