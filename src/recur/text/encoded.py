"""Encoded corpora on disk: ids, mapped into memory, found again by what they were made from.

A corpus of many gigabytes is encoded once, piece by piece, and then read through the page cache: memory stays bounded
however long it is. The file's name is the hash of the text and of the vocabulary, so a changed text is never confused
with the one before.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recur.errors import TextError
from recur.files import replacing, write_atomically
from recur.text.arrays import Ids
from recur.text.corpus import Corpus
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
        content = {"tokens": count, "dtype": dtype.str, "text": corpus.name}
        write_atomically(about, json.dumps(content).encode())
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
    count = 0
    sha = hashlib.sha256()

    def hashed() -> Iterator[str]:
        for piece in corpus.pieces():
            sha.update(piece.encode())
            yield piece

    with replacing(data) as out:
        for ids in vocab.encode_pieces(hashed()):
            out.write(ids.astype(dtype).tobytes())
            count += len(ids)
        if sha.hexdigest() != corpus.digest:
            raise TextError(f"{corpus.name} changed while it was being read")
    return count
