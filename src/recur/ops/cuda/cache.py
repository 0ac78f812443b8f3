"""Compiled kernels, kept in memory and on disk.

On disk a kernel is a file named by the digest of all that it was made of: its text, the architecture and the compiler.
It is written whole or not at all, with a digest of its content, and one that does not agree with it is made again. A
folder that cannot be written costs time at the next start, and a warning.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
import warnings
from pathlib import Path

from recur.errors import BackendError
from recur.ops.cuda import nvrtc
from recur.ops.cuda.driver import Module
from recur.ops.cuda.nvrtc import Compiled, Usage
from recur.utils.files import write_atomically

FORMAT = b"recur-cubin-1\n"


def folder() -> Path:
    """RECUR_CACHE, or where the system keeps such things."""
    asked = os.environ.get("RECUR_CACHE")
    if asked:
        return Path(asked)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recur" / "cuda"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / f"recur-{os.getuid()}" / "cuda"


def compiled(source: str, architecture: str) -> Compiled:
    """From disk, or made now and left there."""
    compiler = nvrtc.compiler()
    if compiler is None:
        raise BackendError(f"backend 'cuda' has no compiler: {nvrtc.missing()}")
    made_of = "\n".join([compiler.version, architecture, *nvrtc.OPTIONS, source])
    path = folder() / f"{hashlib.sha256(made_of.encode()).hexdigest()}.cubin"
    found = _read(path)
    if found is None:
        found = compiler.compile(source, architecture)
        _write(path, found)
    return found


def _read(path: Path) -> Compiled | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, _, rest = content.removeprefix(FORMAT).partition(b"\n")
    if not content.startswith(FORMAT) or hashlib.sha256(rest).hexdigest().encode() != digest:
        return None
    usage, _, cubin = rest.partition(b"\n")
    return Compiled(cubin, {name: Usage(*numbers) for name, numbers in json.loads(usage).items()})


def _write(path: Path, made: Compiled) -> None:
    rest = json.dumps(made.usage).encode() + b"\n" + made.cubin
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, FORMAT + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
    except OSError as error:
        _warn_once(str(path.parent), error.strerror or str(error))


@functools.cache
def _warn_once(where: str, why: str) -> None:
    warnings.warn(
        f"compiled kernels cannot be kept in {where}: {why}; set RECUR_CACHE to a folder with room", stacklevel=2
    )


@functools.cache
def loaded(source: str, architecture: str, index: int) -> Module:
    """On the device of this index, which must be current."""
    return Module(compiled(source, architecture).cubin)
