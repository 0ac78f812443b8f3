"""What a file, a folder or another text holds, as a size and a SHA-256: by these it is known again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from recur.errors import TextError
from recur.images.arrays import split_name
from recur.text.sources import files_in, find_sources

PIECE = 1 << 22


def is_there(name: str) -> bool:
    return Path(split_name(name)[0]).exists()


def fingerprint(name: str, most: int | None = None) -> tuple[int, str]:
    """Bytes in all, and their digest; of a folder, its files' names are part of it. What has more bytes than `most` is
    read no further."""
    path = Path(split_name(name)[0])
    if not path.is_dir():
        return _digest(path, most)
    sha, size = hashlib.sha256(), 0
    for file in files_in(path):
        bytes_, digest = _digest(file, None if most is None else most - size)
        sha.update(f"{file.relative_to(path).as_posix()}\0{digest}\n".encode(errors="surrogateescape"))
        size += bytes_
        if most is not None and size > most:
            break
    return size, sha.hexdigest()


def _digest(path: Path, most: int | None) -> tuple[int, str]:
    sha, size = hashlib.sha256(), 0
    try:
        streams = [path.open("rb")] if path.is_file() else [source.open() for source in find_sources([str(path)])[0]]
        for stream in streams:
            with stream:
                while (data := stream.read(PIECE)) and (most is None or size <= most):
                    sha.update(data)
                    size += len(data)
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror}") from None
    return size, sha.hexdigest()
