"""Consent of this user: which texts outside of a run are opened.

A run may come from anybody, and it names the texts that it was trained on, which may be any path. A text outside of
the run is opened only if this user has trained with it or allows it. Texts are remembered as SHA-256 digests, one per
line, in the file `texts` of the state folder; recur.utils.trust does the same for custom cells. So one's own
runs open without a flag; a run of somebody else is refused with a line that names the option to add: `--allow-path`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from recur.errors import RunError
from recur.i18n import Message
from recur.runs.manifest import Fingerprint
from recur.utils.trust import DigestFile

_TEXTS = DigestFile("texts")


def allow_text(text: Fingerprint) -> None:
    """Open this text from now on, wherever a run names it."""
    _TEXTS.add(_key(text))


def check_allowed(run: Path, paths: Iterable[Path], text: Fingerprint, allowed: Sequence[str | Path] = ()) -> None:
    """Refuse paths that a run names for a text, unless this user has trained with the text or each path is inside of
    the run's folder, of the folder around the run, of the current folder or of an `allowed` path."""
    if _TEXTS.has(_key(text)):
        return
    inside, consented = [_real(run), _real(run.parent), _real(Path())], [_real(Path(one)) for one in allowed]
    outside = False
    for path in paths:
        found = _real(path)
        if any(found.is_relative_to(folder) for folder in inside):
            continue
        outside = True
        if not any(found.is_relative_to(one) for one in consented):
            raise RunError(
                Message(
                    "{run} names a text outside of its folder, which you have not trained with: {path}; if it may be "
                    'read, add --allow-path {path} (in Python: allow_path=["{path}"])',
                    run=run,
                    path=path,
                )
            )
    if outside:
        allow_text(text)


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a zero byte
        raise RunError(f"no file has such a name: {str(path)!r}") from None


def _key(text: Fingerprint) -> bytes:
    return f"{text.name}\0{text.bytes}\0{text.sha256}".encode(errors="surrogatepass")
