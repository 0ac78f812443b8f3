"""Ctrl-C while torch follows and translates a model.

An interrupt can arrive in a callback of a weak reference, where Python prints the exception and drops it, or in the
middle of torch's bookkeeping, whose cleanup then fails with an error of its own. `interruptible` remembers that the
interrupt came, and `keep_files` writes nothing after one.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from recur.files import write_atomically

_interrupted = threading.Event()


@contextmanager
def interruptible() -> Iterator[None]:
    """Leave the block with KeyboardInterrupt if Ctrl-C was pressed in it, whatever became of the first exception.
    Signals reach the main thread only: in another one, the block runs as it is."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    hook = sys.unraisablehook

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            previous(number, frame)
        except KeyboardInterrupt:
            _interrupted.set()
            raise

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        if not (_interrupted.is_set() and issubclass(unraisable.exc_type, KeyboardInterrupt)):
            hook(unraisable)

    _interrupted.clear()
    signal.signal(signal.SIGINT, handle)
    sys.unraisablehook = report
    try:
        yield
        _check()
    except Exception:
        _check()
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
        sys.unraisablehook = hook
        _interrupted.clear()


def _check() -> None:
    if _interrupted.is_set():
        raise KeyboardInterrupt from None


def keep_files(files: Mapping[Path, bytes]) -> None:
    """Write the files of an export, unless Ctrl-C was pressed."""
    _check()
    for path, content in files.items():
        write_atomically(path, content)
