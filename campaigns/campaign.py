"""What every campaign has in common: numbered attempts that a seed repeats, and a count of those that failed.

A campaign is a module of this folder with

    TRIES            how many attempts its long form makes
    attempts(seed, numbers)
                     make these attempts and yield what became of each; attempt k of a seed is the same whichever
                     others are made beside it

Its docstring's first line says what it tries. The test suite makes a few attempts of each; the long forms' figures
stand in docs/reliability.md.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import campaigns


class Attempt(NamedTuple):
    """What became of one."""

    number: int
    what: str
    """What was tried, in a few words."""
    failure: str | None = None
    """What went wrong; None where all that is promised held."""


class Campaign(Protocol):
    """A module of this folder."""

    __doc__: str | None
    TRIES: int

    def attempts(self, seed: int, numbers: Iterable[int]) -> Iterator[Attempt]: ...


def names() -> list[str]:
    """Every module that makes attempts."""
    found = [module.name for module in pkgutil.iter_modules(campaigns.__path__)]
    return sorted(name for name in found if hasattr(importlib.import_module(f"campaigns.{name}"), "attempts"))


def load(name: str) -> Campaign:
    return importlib.import_module(f"campaigns.{name}")


def dice(seed: int, number: int) -> random.Random:
    """The random numbers of one attempt."""
    return random.Random(f"{seed}/{number}")
