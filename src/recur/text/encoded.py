"""Encoded corpora on disk: ids, mapped into memory, found again by what they were made from.

A corpus of many gigabytes is encoded once, piece by piece, and then read through the page cache: memory stays bounded
however long it is. The file's name is the hash of the text and of the vocabulary, so a changed text is never confused
with the one before.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np

from recur.text.corpus import Corpus
from recur.text.tokens import Ids
from recur.text.vocab import Vocab


def cache_folder() -> Path:
    """$RECUR_CACHE, or recur in the user's cache."""
    if chosen := os.environ.get("RECUR_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recur"


def encoded(corpus: Corpus, vocab: Vocab, folder: Path | None = None) -> Ids:
    """The ids of a corpus as a read-only memory map."""
    folder = folder or cache_folder()
    key = hashlib.sha256(f"1 {corpus.digest} {vocab.digest}".encode()).hexdigest()[:32]
    data, about = folder / f"{key}.ids", folder / f"{key}.json"
    dtype = np.dtype("<u2" if len(vocab) <= 1 << 16 else "<i4")
    count = _whole(data, about, dtype)
    if count is None:
        folder.mkdir(parents=True, exist_ok=True)
        count = _write(corpus, vocab, data, dtype)
        _atomically(about, json.dumps({"tokens": count, "dtype": dtype.str, "text": corpus.name}).encode())
    if not count:
        return np.empty(0, dtype)
    return np.memmap(data, dtype, "r", shape=(count,))


def _whole(data: Path, about: Path, dtype: np.dtype[np.generic]) -> int | None:
    """How many ids a finished file holds; None if there is none or it is torn."""
    try:
        count = int(json.loads(about.read_text())["tokens"])
        return count if data.stat().st_size == count * dtype.itemsize else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(corpus: Corpus, vocab: Vocab, data: Path, dtype: np.dtype[np.generic]) -> int:
    part = data.with_suffix(f".{os.getpid()}.part")
    count = 0
    try:
        with part.open("wb") as out:
            for ids in vocab.encode_pieces(corpus.pieces()):
                out.write(ids.astype(dtype).tobytes())
                count += len(ids)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, data)
    finally:
        part.unlink(missing_ok=True)
    return count


def _atomically(path: Path, content: bytes) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    os.replace(part, path)
