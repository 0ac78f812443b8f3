"""Settings of readers, and the report of what they found: encodings, and rows that were left out.

One `Reading` goes through all readers of one job, so that every file is read by the same rules and the user is told
once what was decoded, guessed or left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from recur.data.encodings import check_encoding, display_name
from recur.errors import TextError, shown
from recur.i18n import Message

OnBadRows = Literal["error", "skip", "warn"]
Header = Literal["auto", "yes", "no"]

NAMED_ROWS = 3
"""Bad rows that a note names; the others are counted."""

KEPT_ROWS = 1000
"""Bad rows that are kept for reports."""

MOST_BAD = 0.5
"""Share of bad rows from which a file is taken to have another layout than expected, and is refused."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Reading:
    """Settings of readers, and their report."""

    encoding: str = ""
    """Encoding of all files; empty to detect it."""
    likely: str = ""
    """Encoding to prefer where it cannot be told from the bytes: that of the training files."""
    delimiter: str = ""
    """Mark between columns; empty to detect it."""
    header: Header = "auto"
    """Whether the first row names the columns."""
    text: str = ""
    """Column of texts, here and below: a name, or a number from 1 where columns have no names."""
    label: str = ""
    id: str = ""
    group: str = ""
    source: str = ""
    target: str = ""
    words: str = ""
    tags: str = ""
    sentence: str = ""
    strict: bool = False
    """Whether each table must have the named columns; else a table with others is read by their usual names."""
    multi_label: bool | None = None
    """Whether a label cell holds several labels between bars."""
    on_bad_rows: OnBadRows = "error"
    date_format: str = ""
    decimal: str = ""
    encodings: dict[str, str] = field(default_factory=dict)
    """Encodings of the files that were read, other than UTF-8."""
    bad: list[str] = field(default_factory=list)
    """Errors of the first rows that were left out."""
    left_out: int = 0
    """Number of rows that were left out."""
    gaps: int = 0
    """Number of missing values that were filled."""
    gaps_at: str = ""
    """Where the first of them is."""
    notes: list[str] = field(default_factory=list)
    """Other remarks."""

    def __post_init__(self) -> None:
        self.encoding, self.likely = check_encoding(self.encoding), check_encoding(self.likely)
        self.delimiter = parse_delimiter(self.delimiter)

    def reject(self, error: TextError) -> None:
        """Count a bad row, or raise the error if bad rows stop the job."""
        if self.on_bad_rows == "error":
            raise error
        self.count(str(error))

    def count(self, error: str) -> None:
        """Count a bad row; the first ones are kept."""
        self.left_out += 1
        if len(self.bad) < KEPT_ROWS:
            self.bad.append(error)

    def check_share(self, kept: int, name: str) -> None:
        """Raise the first error if half of the rows or more were bad: the file has another layout."""
        if self.left_out and not kept:
            raise TextError(self.bad[0])
        if self.left_out and self.left_out >= MOST_BAD * (kept + self.left_out):
            raise TextError(
                f"{name}: {self.left_out:,} of {kept + self.left_out:,} rows cannot be read; the first: {self.bad[0]}"
            )

    def add_gaps(self, where: str, count: int) -> None:
        """Count missing values that are filled."""
        self.gaps += count
        self.gaps_at = self.gaps_at or where

    def add_note(self, note: str) -> None:
        if note and note not in self.notes:
            self.notes.append(note)

    def note(self) -> str:
        """Return what the user should know, in one line; empty if nothing."""
        found = [*self.notes, *self.encoding_notes()]
        if self.gaps:
            found.append(
                Message(
                    "{n} missing values ({where}): the value before each stands for it",
                    n=f"{self.gaps:,}",
                    where=self.gaps_at,
                )
            )
        if self.left_out:
            found.append(bad_rows_note(self.left_out, self.bad if self.on_bad_rows == "warn" else ()))
        return "; ".join(found)

    def encoding_notes(self) -> Iterator[str]:
        by_encoding = Counter(self.encodings.values())
        for encoding, count in by_encoding.items():
            name = next(name for name, one in self.encodings.items() if one == encoding)
            files = name if count == 1 else f"{count:,} files"
            yield Message(
                "{files} read as {encoding}; --encoding overrides it", files=files, encoding=display_name(encoding)
            )


def parse_delimiter(written: str) -> str:
    """Return a delimiter as the user writes it: a character, or tab, comma, semicolon, bar, space."""
    named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "pipe": "|", "space": " "}
    found = named.get(written.lower(), written)
    if found and (len(found) != 1 or found in '"\r\n'):
        raise TextError(f"--delimiter must be one character, or tab, comma, semicolon, bar, got {shown(written)}")
    return found


def bad_rows_note(count: int, errors: Iterable[str]) -> str:
    """Return a note with the number of rows that were left out, and the first reasons."""
    shown = list(errors)[:NAMED_ROWS]
    rows = "1 row was left out" if count == 1 else f"{count:,} rows were left out"
    return f"{rows}: {'; '.join(shown)}{' …' * (count > len(shown))}" if shown else rows


def kept(items: Iterable[Item], read: Callable[[Item], Result], reading: Reading) -> Iterator[Result]:
    """Yield the result of every item, without those that raise TextError if bad rows do not stop the job."""
    for item in items:
        try:
            found = read(item)
        except TextError as error:
            reading.reject(error)
        else:
            yield found
