"""Encoded corpora on disk: ids, mapped into memory, found again by what they were made from.

A corpus of many gigabytes is encoded once, piece by piece, and then read through the page cache: memory stays bounded
however long it is. The file's name is the hash of the text and of the vocabulary, so a changed text is never confused
with the one before. What stands beside it says the same and the hash of the ids: a file that is damaged, cut, exchanged
for another or that holds ids which the vocabulary does not have is made anew, without a word.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from recur.data.text.arrays import Ids
from recur.data.text.corpus import Corpus
from recur.data.text.mapped import Shards
from recur.data.text.shards import look, once
from recur.data.text.vocab import Vocab
from recur.data.text.workers import each
from recur.errors import TextError
from recur.utils.files import cache_folder, read_bounded, replacing, write_atomically

CHUNK = 1 << 20
"""Ids looked at together."""

LEFT = 3600.0
"""Seconds after which a part that nobody writes to is one that a killed process left."""


def encoded(corpus: Corpus, vocab: Vocab, folder: Path | None = None) -> Ids:
    """The ids of a corpus as a read-only memory map."""
    folder = folder or cache_folder()
    if len(corpus.known) > 1:
        written = each(_encode_shard, [(part, vocab, folder) for part in corpus.shards()])
        return Shards(_mapped(path, np.dtype(dtype)) for path, dtype in written)  # type: ignore[return-value]
    return _mapped(*_kept(corpus, vocab, folder))


def _encode_shard(job: tuple[Corpus, Vocab, Path]) -> tuple[Path, str]:
    path, dtype = _kept(*job)
    return path, dtype.str


def _kept(corpus: Corpus, vocab: Vocab, folder: Path) -> tuple[Path, np.dtype[Any]]:
    """The file of a text's ids, which is made if it is not there, by one process at a time."""
    key = hashlib.sha256(f"2 {corpus.digest} {vocab.digest}".encode()).hexdigest()[:32]
    data, about = folder / f"{key}.ids", folder / f"{key}.json"
    dtype = np.dtype("<u2" if len(vocab) <= 1 << 16 else "<i4")
    with once(data):
        if _found(data, about, key, dtype, len(vocab)) is None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                _sweep(folder)
                written = _write(corpus, vocab, data, dtype)
                write_atomically(about, json.dumps({"key": key, "sha256": written, "text": corpus.name}).encode())
            except OSError as error:
                why = f"{error.strerror or error}: {error.filename or folder}"
                raise TextError(f"{corpus.name} cannot be encoded: {why}; RECUR_CACHE names another folder") from None
    return data, dtype


def _found(data: Path, about: Path, key: str, dtype: np.dtype[np.generic], K: int) -> Ids | None:
    """The ids of a finished file; None if there is none, or it is not what it was."""
    try:
        content = json.loads(read_bounded(about, 1 << 20))
        if not isinstance(content, dict) or content.get("key") != key or data.stat().st_size % dtype.itemsize:
            return None
        ids = _mapped(data, dtype)
    except (OSError, ValueError, RecursionError):
        return None
    sha = hashlib.sha256()
    for at in range(0, len(ids), CHUNK):
        chunk = np.asarray(ids[at : at + CHUNK])
        if int(chunk.max()) >= K or int(chunk.min()) < 0:
            return None
        sha.update(chunk.tobytes())
    return ids if sha.hexdigest() == content.get("sha256") else None


def _mapped(data: Path, dtype: np.dtype[np.generic]) -> Ids:
    if not data.stat().st_size:  # which cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(data, dtype, "r")


def _write(corpus: Corpus, vocab: Vocab, data: Path, dtype: np.dtype[np.generic]) -> str:
    """The hash of the ids."""
    text, written = hashlib.sha256(), hashlib.sha256()

    def hashed() -> Iterator[str]:
        for piece in corpus.pieces():
            text.update(piece.encode())
            yield piece

    # Of a shard all is read, though a part is taken: its digest is that of what it was when it was looked at.
    if corpus.known and look(corpus.sources[0]).digest != corpus.known[0].digest:
        raise TextError(f"{corpus.sources[0].name} changed while it was being read")
    with replacing(data) as out:
        for ids in vocab.encode_pieces(hashed()):
            content = ids.astype(dtype).tobytes()
            out.write(content)
            written.update(content)
        if not corpus.known and text.hexdigest() != corpus.digest:
            raise TextError(f"{corpus.name} changed while it was being read")
    return written.hexdigest()


def _sweep(folder: Path) -> None:
    """Remove what killed processes left behind; what another one is writing now is younger."""
    for part in folder.glob(".*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > LEFT:
                part.unlink()
