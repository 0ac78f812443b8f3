"""Uploaded texts, in a folder beside the runs: complete or absent, and never stored twice.

A name is cleaned until it is the name of a file in this folder. A stored text is never overwritten, because a run may
have been trained on it: another text with the same name gets a number.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recur.data.text.recognition import recognise
from recur.data.text.tokenizers import composed
from recur.errors import OptionError, RecurError, TextError
from recur.i18n import Message
from recur.runs.safe_dir import PART, SafeDir, write_all
from recur.serve.http import TooLargeError, UnknownError
from recur.tasks.common.registry import CHOICES, TASKS
from recur.utils.files import sync_folder
from recur.utils.types import JsonObject

FOLDER = "texts"
MAX_TEXT_BYTES = 256 << 20
"""Bytes of one text."""
MAX_TOTAL_BYTES = 4 << 30
"""Bytes of all texts."""
BUILT_IN = ("pydoc", "stdlib")
"""Texts that every Python installation has."""
MAX_NAME_BYTES = 60
"""Bytes of a name without its suffix."""


class TextStore:
    """Folder of uploaded texts.

    The quota counts uploads in progress, too: each upload reserves the bytes that its client declared, and more as
    they arrive, before it writes them. Parallel uploads that each fit alone cannot exceed the quota together.
    """

    def __init__(self, folder: Path) -> None:
        self.runs, self.path = folder, folder / FOLDER
        self._naming = threading.Lock()
        self._quota = threading.Lock()
        self._reserved = 0
        """Bytes of uploads under way: written to hidden files, which `list` leaves out."""

    def list(self) -> list[JsonObject]:
        """Return every text that is a regular file with one hard link, the newest first."""
        found = []
        with suppress(OSError), os.scandir(self._checked()) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and not entry.name.startswith("."):
                    found.append({"name": entry.name, "bytes": about.st_size, "changed": about.st_mtime})
        return sorted(found, key=lambda text: -float(text["changed"]))

    def file(self, name: str) -> str:
        """Return the path of a text for `recur train`, relative to the folder of runs."""
        if name in BUILT_IN:
            return name
        if name not in {text["name"] for text in self.list()}:
            raise UnknownError(Message("unknown text {name}", name=repr(name[:100])))
        return f"{FOLDER}/{name}"

    @contextmanager
    def receiving(self, name: str, declared: int = 0) -> Iterator[TextUpload]:
        """Receive a text piece by piece; after a block without an error it is stored under its `name`.

        declared: bytes that the client announced, which are reserved before any are read.
        """
        SafeDir(self.runs).make_folder(FOLDER)
        made = TextUpload(self, clean_name(name, "text.txt"), declared)
        try:
            yield made
            made.finish()
        finally:
            made.close()

    def reserve(self, count: int) -> None:
        """Count bytes of an upload against the quota before they are written, or refuse them."""
        with self._quota:  # uploads in parallel: each must see the reservations of the others
            stored = sum(int(text["bytes"]) for text in self.list())
            if stored + self._reserved + count > MAX_TOTAL_BYTES:
                raise TooLargeError(
                    Message(
                        "all texts together are too large: at most {most} GiB; remove some of them",
                        most=f"{MAX_TOTAL_BYTES >> 30:,}",
                    )
                )
            self._reserved += count

    def release(self, count: int) -> None:
        """Give a reservation back, once its bytes are counted as a text or gone."""
        with self._quota:
            self._reserved -= count

    def sweep(self) -> None:
        """Delete partial files of a server that was killed."""
        with suppress(RecurError):
            SafeDir(self.runs).sweep(FOLDER)

    def look(self, name: str) -> JsonObject:
        """Return the task that a text is for, the reason, and the alternatives."""
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
        """Delete a text that no run was trained on."""
        (self._checked() / name).unlink(missing_ok=True)

    def _checked(self) -> Path:
        if self.path.is_symlink():
            raise OSError(Message("{name} is a link", name=self.path))
        return self.path

    def keep(self, part: Path, name: str, digest: str) -> tuple[str, bool]:
        """Store a complete upload; return its name and whether it is new. An equal text keeps its stored name."""
        stem, suffix = split_name(name)
        with self._naming:
            for k in range(1, 10_000):
                tried = name if k == 1 else f"{stem}-{k}{suffix}"
                there = self.path / tried
                if not os.path.lexists(there):
                    os.rename(part, there)
                    sync_folder(self.path)
                    return tried, True
                if _file_digest(there) == digest:
                    return tried, False
        raise OptionError(Message("there are too many texts named {name}", name=name))


class TextUpload:
    """Upload in progress: one text that is written to a hidden file."""

    def __init__(self, texts: TextStore, name: str, declared: int) -> None:
        self.texts, self.name = texts, name
        self.bytes, self._sha = 0, hashlib.sha256()
        self.new = False
        self._reserved = 0
        self._reserve(declared)
        part = f"{FOLDER}/.{name[:40]}.{secrets.token_hex(4)}.part"
        self._part = texts.runs / part
        self._handle = SafeDir(texts.runs).open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def write(self, piece: bytes) -> None:
        self.bytes += len(piece)
        self._reserve(self.bytes)
        self._sha.update(piece)
        write_all(self._handle, piece)

    def finish(self) -> None:
        if not self.bytes:
            raise TextError(Message("the text is empty"))
        os.fsync(self._handle)
        self.name, self.new = self.texts.keep(self._part, self.name, self._sha.hexdigest())

    def close(self) -> None:
        os.close(self._handle)
        self._part.unlink(missing_ok=True)
        self.texts.release(self._reserved)

    def _reserve(self, count: int) -> None:
        """Reserve at least so many bytes of the quota for this upload."""
        if count > MAX_TEXT_BYTES:
            raise TooLargeError(Message("the text is too large: at most {most} MiB", most=f"{MAX_TEXT_BYTES >> 20:,}"))
        if count > self._reserved:
            self.texts.reserve(count - self._reserved)
            self._reserved = count


def _file_digest(path: Path) -> str:
    try:
        return SafeDir(path.parent).digest(path.name)
    except (OSError, RecurError):
        return ""


def clean_name(name: str, default: str) -> str:
    """Return a name that is a valid file name on every system: letters, digits, - _ and dots inside."""
    name = composed(name, "the name of the file").replace("\\", "/").rpartition("/")[2]
    name = re.sub(r"[^\w.-]+", "-", name)
    stem, suffix = split_name(re.sub(r"\.{2,}", ".", name).strip(".-_ "))
    stem = stem.encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip(".-_ ")
    found = f"{stem}{suffix}"
    return default if not stem or PART.fullmatch(found) else found


def split_name(name: str) -> tuple[str, str]:
    """Split book.txt.gz into book and .txt.gz; the suffix decides how a file is read."""
    found = re.fullmatch(r"(.+?)((?:\.[A-Za-z0-9]{1,8}){1,2})", name)
    return (found[1], found[2]) if found else (name, "")
