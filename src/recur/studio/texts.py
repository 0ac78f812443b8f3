"""Texts that the page was given, in a folder of their own beside the runs: whole or not at all, and none twice.

A name is cleaned until it is one of a file in that folder and nowhere else. What is there is never written over, for a
run may have learned from it: another text of the same name gets a number.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recur.errors import OptionError, RecurError, TextError
from recur.files import sync_folder
from recur.run.place import NO_LINK, PART, Place
from recur.tasks.recognise import CHOICES, TASKS
from recur.text.recognise import recognise
from recur.typedefs import JsonObject
from recur.web.answers import TooLargeError, UnknownError

FOLDER = "texts"
TEXT = 256 << 20
"""Bytes of a text, at most."""
ALL = 4 << 30
"""… and of all of them."""
BUILT_IN = ("pydoc", "stdlib")
"""Texts that every Python carries."""
LONGEST = 60
"""Characters of a name."""


class Texts:
    """The folder of texts beside runs."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.path = folder, folder / FOLDER
        self._naming = threading.Lock()

    def list(self) -> list[JsonObject]:
        """Every text that is a plain file, the newest first."""
        found = []
        with suppress(OSError), os.scandir(self._checked()) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(about.st_mode) and not entry.name.startswith("."):
                    found.append({"name": entry.name, "bytes": about.st_size, "changed": about.st_mtime})
        return sorted(found, key=lambda text: -float(text["changed"]))

    def file(self, name: str) -> str:
        """What `recur train` is given for a text, run in the folder of runs."""
        if name in BUILT_IN:
            return name
        if name not in {text["name"] for text in self.list()}:
            raise UnknownError(f"unknown text {name[:100]!r}")
        return f"{FOLDER}/{name}"

    @contextmanager
    def receiving(self, name: str) -> Iterator[Receiving]:
        """A text piece by piece; once the block has ended without an error it is there, under its `name`."""
        Place(self.runs).make_folder(FOLDER)
        made = Receiving(self, clean_name(name, "text.txt"))
        try:
            yield made
            made.finish()
        finally:
            made.close()

    def sweep(self) -> None:
        """Remove what a server that was killed left half-written."""
        with suppress(RecurError):
            Place(self.runs).sweep(FOLDER)

    def look(self, name: str) -> JsonObject:
        """Which task a text is for, why, and what else it could be meant for."""
        if name in BUILT_IN:
            return {"text": name, "task": "language", "sure": True, "why": "", "choices": []}
        file = self.file(name)
        found = recognise([str(self.runs / file)])
        choices = CHOICES.get(found.kind, (("language", "reads it as text"),))
        task = TASKS.get(found.kind, choices[0][0])
        return {
            "text": name,
            "task": task if found.sure else choices[0][0],
            "sure": found.sure,
            "why": found.why,
            "choices": [{"task": task, "what": what} for task, what in choices],
        }

    def remove(self, name: str) -> None:
        """One that nothing was learned from yet."""
        (self._checked() / name).unlink(missing_ok=True)

    def _checked(self) -> Path:
        if self.path.is_symlink():
            raise OSError(f"{self.path} is a link")
        return self.path

    def keep(self, part: Path, name: str, digest: str) -> tuple[str, bool]:
        """Give a whole text its name; the one that it has already, if it is there. And whether it is new."""
        stem, suffix = split_name(name)
        with self._naming:
            for k in range(1, 10_000):
                tried = name if k == 1 else f"{stem}-{k}{suffix}"
                there = self.path / tried
                if not os.path.lexists(there):
                    os.rename(part, there)
                    sync_folder(self.path)
                    return tried, True
                if _digest(there) == digest:
                    return tried, False
        raise OptionError(f"there are too many texts named {name}")


class Receiving:
    """One text on its way to disk."""

    def __init__(self, texts: Texts, name: str) -> None:
        self.texts, self.name = texts, name
        self.bytes, self._sha = 0, hashlib.sha256()
        self.new = False
        self._room = ALL - sum(int(text["bytes"]) for text in texts.list())
        self._part = texts.path / f".{name[:40]}.{secrets.token_hex(4)}.part"
        self._handle = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o666)

    def write(self, piece: bytes) -> None:
        self.bytes += len(piece)
        if self.bytes > TEXT:
            raise TooLargeError(f"the text is too large: at most {TEXT >> 20:,} MiB")
        if self.bytes > self._room:
            raise TooLargeError(f"all texts together are too large: at most {ALL >> 30:,} GiB; remove some of them")
        self._sha.update(piece)
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(self._handle, rest) :]

    def finish(self) -> None:
        if not self.bytes:
            raise TextError("the text is empty")
        os.fsync(self._handle)
        self.name, self.new = self.texts.keep(self._part, self.name, self._sha.hexdigest())

    def close(self) -> None:
        os.close(self._handle)
        self._part.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    try:
        return Place(path.parent).digest(path.name)
    except (OSError, RecurError):
        return ""


def clean_name(name: str, default: str) -> str:
    """A name that is one of a file here on every system: letters, digits, - _ and dots inside."""
    name = unicodedata.normalize("NFC", name).replace("\\", "/").rpartition("/")[2]
    name = re.sub(r"[^\w.-]+", "-", name)
    stem, suffix = split_name(re.sub(r"\.{2,}", ".", name).strip(".-_ "))
    stem = stem.encode()[:LONGEST].decode(errors="ignore").strip(".-_ ")
    found = f"{stem}{suffix}"
    return default if not stem or PART.fullmatch(found) else found


def split_name(name: str) -> tuple[str, str]:
    """book.txt.gz is book and .txt.gz: what says how a file is to be read stays."""
    found = re.fullmatch(r"(.+?)((?:\.[A-Za-z0-9]{1,8}){1,2})", name)
    return (found[1], found[2]) if found else (name, "")
