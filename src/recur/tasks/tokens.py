"""What a token is, where a file's user does not say; and lines of tokens as n-grams count them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Literal, TypeVar

from recur.models.options import NetworkOptions

LOOK = 2000
"""Lines looked at."""

SENTENCE = 3.0
"""Words, on average, from which on lines are sentences: then words are tokens, else characters."""


OptionsT = TypeVar("OptionsT", bound=NetworkOptions)


def with_time_scale(options: OptionsT, lengths: Callable[[], Iterable[int]]) -> OptionsT:
    """Options whose time is divided by the longest of these lengths, where t is an input and nothing else is said."""
    if not options.time_input or options.time_scale is not None:
        return options
    return options.changed(time_scale=float(max(lengths(), default=1)))


def choose_token(texts: Iterable[str]) -> Literal["char", "word"]:
    """Words where texts are sentences between spaces; characters where they are names, words or Chinese."""
    counts = [len(text.split()) for text in islice(texts, LOOK)]
    return "word" if counts and sum(counts) / len(counts) >= SENTENCE else "char"
