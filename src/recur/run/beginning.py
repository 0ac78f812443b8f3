"""Where a run is, and where one can begin."""

from __future__ import annotations

import re
from pathlib import Path

from recur.errors import RunError
from recur.run import lock, manifest


def is_run(path: Path) -> bool:
    return (path / manifest.NAME).is_file()


def check_free(path: Path) -> None:
    """Refuse a folder that a new run cannot be made in: one that holds a run, or anything but a beginning of one."""
    if is_run(path):
        raise taken(path)
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is in the way: a run is a folder")
    if path.is_dir() and any(path.iterdir()) and not _begun(path):
        raise RunError(f"{path} holds other files and no run; name a new folder: --out {path}/first")


def _begun(path: Path) -> bool:
    """Whether all that lies there is what a run left that ended before its first checkpoint."""
    names = [entry.name for entry in path.iterdir()]
    ours = re.compile(
        r"lock|resume|cell\.py|config\.toml|(metrics|samples)\.jsonl|[\w-]+\.json|\..+\.[0-9a-f]{8}\.part"
    )
    marked = names == [lock.NAME] or lock.is_ours(path)
    return marked and all(ours.fullmatch(name) for name in names)


def taken(path: Path) -> RunError:
    return RunError(f"{path} holds a run already; go on with it (recur resume {path}) or name another")
