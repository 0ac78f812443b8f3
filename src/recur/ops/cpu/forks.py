"""Processes made by `os.fork`: torch's threads do not come along.

The child has the book-keeping of OpenMP's pool and none of its threads, so the first call that counts on them waits for
ever, torch's own matrix product as much as the core. A child therefore goes on with one thread, as PyTorch's DataLoader
has its workers do. Processes that start anew (`spawn`, `forkserver`) have a pool of their own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def _one_thread() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > 1:
        torch.set_num_threads(1)


def in_child(work: Callable[[], object]) -> None:
    """Have every child of this process begin with this."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=work)


in_child(_one_thread)
