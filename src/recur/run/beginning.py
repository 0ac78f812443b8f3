"""Where a run is, and where one can begin."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recur.errors import RunError
from recur.run import lock, manifest

DATA = "data"
"""What a run learned from that was in memory."""


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
        r"lock|resume|data|cell\.py|config\.toml|(metrics|samples|progress)\.jsonl|[\w-]+\.json|\..+\.[0-9a-f]{8}\.part"
    )
    marked = names == [lock.NAME] or lock.is_ours(path)
    return marked and all(ours.fullmatch(name) for name in names)


@contextmanager
def data_folder(path: Path) -> Iterator[Path]:
    """A folder for the data of a run that is about to begin, inside of the run's. What was written before an error is
    removed."""
    check_free(path)
    (path / DATA).mkdir(parents=True, exist_ok=True)
    held = lock.Lock(path)
    try:
        yield path / DATA
    except BaseException:
        shutil.rmtree(path / DATA)
        held.release()
        with suppress(OSError):  # it is not empty
            path.rmdir()
        raise
    held.release(remove=False)  # which says that this is the beginning of a run


def taken(path: Path) -> RunError:
    return RunError(f"{path} holds a run already; go on with it (recur resume {path}) or name another")
