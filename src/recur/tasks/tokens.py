"""What a token is, where a file's user does not say: a look at its first lines."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Literal

LOOK = 2000
"""Lines looked at."""

SENTENCE = 3.0
"""Words, on average, from which on lines are sentences: then words are tokens, else characters."""


def choose_token(texts: Iterable[str]) -> Literal["char", "word"]:
    """Words where texts are sentences between spaces; characters where they are names, words or Chinese."""
    counts = [len(text.split()) for text in islice(texts, LOOK)]
    return "word" if counts and sum(counts) / len(counts) >= SENTENCE else "char"
