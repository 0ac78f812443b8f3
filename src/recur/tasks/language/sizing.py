"""How large a network, for a text, a device and so many minutes.

A device enters by one number, which it is asked for: how many tokens a second it trains on at some width. With N tokens
to learn from, read D in the minutes (D/N passes), the rule is

    worth     W = N · (1 + R (1 − e^(−(p − 1)/R))),  p = D/N    a text read again teaches less (Muennighoff et al. 2023)
    hidden    H = width · (W / 10⁶)^a                           the more there is to learn from, the wider
    passes    p at most `passes`                                beyond them nothing is learned that carries
    dropout   first + more · ln(p), p > 1                       the more often it is read, the more is held back
    rate      rate · (H / 256)^−b
    batch     lanes · (D / 10⁶)^c, a power of two               the longer it learns, the smoother its steps may be

D falls with H, since a wider network takes longer for a token, and H rises with D: they meet at one width, found by
asking for the speed at a few. Constants are those of two kinds of text, of letters and of words (Chinese characters
are such), fitted on four texts by `python -m bench sizing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from recur.tasks.language.options import LanguageOptions
from recur.typedefs import JsonObject

LEAST = 0.2
"""Minutes from which on a network is sized: below them, to measure the speed would take too much of them."""

TRAINING = 0.9
"""The share of the minutes in which weights move; the rest is measuring."""

NARROWEST, WIDEST, STEP = 64, 4096, 32

PROBES = 4
"""Widths whose speed is asked for, at most."""

NEAR = 0.1
"""A width within a tenth of the one that is wanted is it."""


class Kind(NamedTuple):
    """The constants of a kind of text."""

    width: float
    a: float
    rate: float
    b: float
    lanes: float
    c: float
    window: int
    passes: float
    first: tuple[float, float]
    """Dropout of input and output in the first pass."""
    more: tuple[float, float]
    """… and for each e-fold of passes."""
    embedding: float
    """As a share of the width; tied, where tokens are many."""


LETTERS = Kind(
    width=280, a=0.33, rate=0.01, b=0.5, lanes=16, c=0.25, window=32, passes=60,
    first=(0.0, 0.0), more=(0.04, 0.1), embedding=0.25,
)  # fmt: skip
WORDS = Kind(
    width=280, a=0.33, rate=0.008, b=0.5, lanes=16, c=0.25, window=32, passes=40,
    first=(0.1, 0.2), more=(0.1, 0.1), embedding=1.0,
)  # fmt: skip

REPEATED = 10.0
"""R: passes behind which a text read again teaches nothing more."""

Speed = Callable[[LanguageOptions], float]
"""Tokens a second that the device trains on with some options."""

FIELDS = (
    *("hidden", "embedding", "layers", "batch", "window", "rate"),
    *("dropout_input", "dropout_hidden", "dropout_output", "epochs"),
)
"""What the rule decides, where nobody else has."""


def applies(o: LanguageOptions) -> bool:
    """Whether options, as they were asked for, leave it to the rule: the budget is in minutes, and no recipe is
    followed."""
    budget = o.default_minutes if o.minutes is None else o.minutes
    free = any(not o.is_set(name) for name in FIELDS if name != "epochs")
    followed = o.tuned_on or o.from_ or o.vectors is not None or o.recurrence == "output"
    return o.sized and free and not followed and o.epochs is None and o.steps is None and budget >= LEAST


def worth(tokens: float, read: float) -> float:
    """As how many tokens, all of them new, a text of `tokens` counts of which `read` are read."""
    if read <= tokens:
        return read
    return tokens * (1 + REPEATED * (1 - math.exp((1 - read / tokens) / REPEATED)))


def at_width(kind: Kind, hidden: int, tokens: int, read: float) -> dict[str, float | int]:
    """Everything but the width, for a text of `tokens` of which so many are read in the minutes."""
    read = min(read, kind.passes * tokens)
    passes = max(1.0, read / tokens)
    drops = [min(0.6, first + more * math.log(passes)) for first, more in zip(kind.first, kind.more, strict=True)]
    lanes = kind.lanes * (read / 1e6) ** kind.c
    return {
        "embedding": max(32, 16 * round(kind.embedding * hidden / 16)),
        "layers": 1,
        "batch": 2 ** max(3, min(8, round(math.log2(lanes)))),
        "window": kind.window,
        "rate": float(f"{kind.rate * (hidden / 256) ** -kind.b:.2g}"),
        "dropout_input": round(drops[0], 2),
        "dropout_hidden": round(drops[0], 2),
        "dropout_output": round(drops[1], 2),
    }


def wanted_width(kind: Kind, tokens: int, read: float) -> float:
    """The width for a text of `tokens` of which so many are read in the minutes."""
    return kind.width * (worth(tokens, min(read, kind.passes * tokens)) / 1e6) ** kind.a


class Sized(NamedTuple):
    options: LanguageOptions
    speed: float
    """Tokens a second at its width."""


def size(asked: LanguageOptions, o: LanguageOptions, tokens: int, words: bool, speed: Speed) -> Sized:
    """Settled options `o` with the rule's numbers in place of what was not `asked` for."""
    kind = WORDS if words else LETTERS
    free = [name for name in FIELDS if not asked.is_set(name)]
    assert o.minutes is not None  # that is what is settled
    minutes = o.minutes
    hidden, read = (256 if "hidden" in free else o.hidden), 1e6 * minutes
    for _ in range(PROBES):
        found = with_width(kind, o, free, hidden, tokens, read)
        rate = speed(found)
        read = 60 * minutes * TRAINING * rate
        away = math.log(wanted_width(kind, tokens, read) / hidden)
        if "hidden" not in free or abs(away) < NEAR:
            break
        # Twice as wide, it reads between a quarter and all of the tokens: what is wanted falls as the width rises.
        hidden = rounded(hidden * math.exp(away / (1 + kind.a)))
    return Sized(with_width(kind, o, free, found.hidden, tokens, read), rate)


def rounded(hidden: float) -> int:
    return max(NARROWEST, min(WIDEST, STEP * round(hidden / STEP)))


def with_width(
    kind: Kind, o: LanguageOptions, free: list[str], hidden: int, tokens: int, read: float
) -> LanguageOptions:
    """All that is free, at a width."""
    found = {"hidden": hidden, **at_width(kind, hidden, tokens, read)}
    if read > kind.passes * tokens:
        found["epochs"] = kind.passes
    if o.embedding == 0:  # one-hot tokens, which somebody asked for
        free = [name for name in free if name != "embedding"]
    return o.changed(**{name: value for name, value in found.items() if name in free})


def fields_of(asked: LanguageOptions, o: LanguageOptions) -> JsonObject:
    """What the rule decided."""
    return {name: getattr(o, name) for name in FIELDS if not asked.is_set(name) and getattr(o, name) is not None}


def words_of(asked: LanguageOptions, found: Sized) -> str:
    """What was decided, in a line."""
    o = found.options
    shown = ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in fields_of(asked, o).items())
    device = "CPU" if o.device == "cpu" else "GPU"
    time = f"{o.minutes:g} minute{'s' * (o.minutes != 1)}"
    by_hand = "what is given by hand stays, and the rest follows from it"
    return f"sized for {time} of this {device} ({found.speed:,.0f} tokens a second): {shown}; {by_hand}"
