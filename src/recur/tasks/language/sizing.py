"""How large a network, for a text, a device and so many minutes.

A device enters by one number, which it is asked for: how many tokens a second it trains on at some width. With N tokens
to learn from, read D in the minutes (D/N passes), the rule is

    worth     W = N · (1 + R (1 − e^(−(p − 1)/R))),  p = D/N    a text read again teaches less (Muennighoff et al. 2023)
    hidden    H = width · (W / 10⁶)^a                           the more there is to learn from, the wider
    passes    p at most `passes`                                beyond them nothing is learned that carries
    dropout   first + more · ln(p), p > 1                       the more often it is read, the more is held back
    rate      rate · (H / 256)^−b
    batch     lanes · (D / 10⁶)^c, a power of two               the longer it learns, the smoother its steps may be
    softmax   sampled, of many types, while p < `sampled`       more is learned from more words than from better steps

D falls with H, since a wider network takes longer for a token, and H rises with D: they meet at one width, found by
asking for the speed at a few. Constants are of two kinds of text, letters and words (Chinese characters are such);
where they come from, and what the rule came to on other texts, stands in docs/language.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from recur.tasks.language.options import LanguageOptions
from recur.typedefs import JsonObject

LEAST = 0.2
"""Minutes from which on a network is sized: below them, to measure the speed would take too much of them."""

TRAINING = 0.85
"""The share of the minutes in which weights move; the rest is measuring."""

NARROWEST, WIDEST, STEP = 64, 4096, 32

PROBES = 4
"""Widths whose speed is asked for, at most."""

NEAR = 0.1
"""A width within a tenth of the one that is wanted is it."""


class Kind(NamedTuple):
    """The constants of a kind of text."""

    layers: int
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
    sampled: float
    """Passes below which the softmax is sampled, where types are MANY."""


LETTERS = Kind(
    layers=2, width=180, a=0.35, rate=0.012, b=0.5, lanes=32, c=0.25, window=32, passes=60,
    first=(0.0, 0.05), more=(0.04, 0.1), embedding=0.3, sampled=0,
)  # fmt: skip
WORDS = Kind(
    layers=1, width=280, a=0.33, rate=0.008, b=0.5, lanes=24, c=0.25, window=32, passes=40,
    first=(0.05, 0.1), more=(0.1, 0.15), embedding=1.0, sampled=10,
)  # fmt: skip

MANY, SAMPLES = 4000, 512
"""Types from which on the softmax may be sampled, and how many are."""

REPEATED = 10.0
"""R: passes behind which a text read again teaches nothing more."""

Speed = Callable[[LanguageOptions], float]
"""Tokens a second that the device trains on with some options."""

FIELDS = (
    *("hidden", "embedding", "layers", "batch", "window", "rate"),
    *("dropout_input", "dropout_hidden", "dropout_output", "bias_init", "softmax", "softmax_samples", "epochs"),
)
"""What the rule decides, where nobody else has."""


def applies(o: LanguageOptions) -> bool:
    """Whether options, as they were asked for, leave it to the rule: the budget is in minutes, and no recipe is
    followed."""
    budget = o.default_minutes if o.minutes is None else o.minutes
    free = any(not o.is_set(name) for name in FIELDS[: FIELDS.index("bias_init")])
    followed = o.tuned_on or o.from_ or o.vectors is not None or o.recurrence == "output"
    return o.sized and free and not followed and o.epochs is None and o.steps is None and budget >= LEAST


def worth(tokens: float, read: float) -> float:
    """As how many tokens, all of them new, a text of `tokens` counts of which `read` are read."""
    if read <= tokens:
        return read
    return tokens * (1 + REPEATED * (1 - math.exp((1 - read / tokens) / REPEATED)))


class Text(NamedTuple):
    """What the rule has to know of one."""

    tokens: int
    """To learn from."""
    types: int
    words: bool
    """Or whatever else is of many types."""

    @property
    def kind(self) -> Kind:
        return WORDS if self.words else LETTERS


def at_width(text: Text, hidden: int, read: float) -> JsonObject:
    """Everything, at a width, for a text of which so many tokens are read in the minutes."""
    kind, tokens = text.kind, text.tokens
    found: JsonObject = {"epochs": kind.passes} if read > kind.passes * tokens else {}
    if text.types > MANY and read < kind.sampled * tokens:
        found |= {"softmax": "sampled", "softmax_samples": SAMPLES}
    read = min(read, kind.passes * tokens)
    passes = max(1.0, read / tokens)
    drops = [min(0.6, first + more * math.log(passes)) for first, more in zip(kind.first, kind.more, strict=True)]
    lanes = kind.lanes * (read / 1e6) ** kind.c
    return found | {
        "hidden": hidden,
        "embedding": max(32, 16 * round(kind.embedding * hidden / 16)),
        "layers": kind.layers,
        "batch": 2 ** max(3, min(8, round(math.log2(lanes)))),
        "window": kind.window,
        "rate": float(f"{kind.rate * (hidden / 256) ** -kind.b:.2g}"),
        "dropout_input": round(drops[0], 2),
        "dropout_hidden": round(drops[0], 2),
        "dropout_output": round(drops[1], 2),
        "bias_init": "unigram",
    }


def wanted_width(text: Text, read: float) -> float:
    """The width for a text of which so many tokens are read in the minutes."""
    kind = text.kind
    return kind.width * math.pow(worth(text.tokens, min(read, kind.passes * text.tokens)) / 1e6, kind.a)


class Sized(NamedTuple):
    options: LanguageOptions
    speed: float
    """Tokens a second at its width."""


def size(asked: LanguageOptions, o: LanguageOptions, text: Text, speed: Speed) -> Sized:
    """Settled options `o` with the rule's numbers in place of what was not `asked` for."""
    assert o.minutes is not None  # that is what is settled
    free = {name for name in FIELDS if not asked.is_set(name)}
    hidden, read = (256 if "hidden" in free else o.hidden), 1e6 * o.minutes

    def at(hidden: int, read: float) -> LanguageOptions:
        found = {name: value for name, value in at_width(text, hidden, read).items() if name in free}
        if found.get("softmax", o.softmax) != "sampled":
            found.pop("softmax_samples", None)
        return o.changed(**found)

    for _ in range(PROBES):
        tried = at(hidden, read)
        rate = speed(tried)
        read = 60 * o.minutes * TRAINING * rate
        away = math.log(wanted_width(text, read) / hidden)
        if "hidden" not in free or abs(away) < NEAR:
            break
        # Twice as wide, it reads between a quarter and all of the tokens: what is wanted falls as the width rises.
        hidden = rounded(hidden * math.exp(away / (1 + text.kind.a)))
    return Sized(at(tried.hidden, read), rate)


def rounded(hidden: float) -> int:
    return max(NARROWEST, min(WIDEST, STEP * round(hidden / STEP)))


def fields_of(asked: LanguageOptions, o: LanguageOptions) -> JsonObject:
    """What the rule decided."""
    unused = o.unused()
    decided = {name: getattr(o, name) for name in FIELDS if not asked.is_set(name) and name not in unused}
    return {name: value for name, value in decided.items() if value is not None}


def words_of(asked: LanguageOptions, found: Sized) -> str:
    """What was decided, in a line."""
    o = found.options
    pairs = [(name.replace("_", "-"), value) for name, value in fields_of(asked, o).items()]
    shown = ", ".join(f"{name} {value if isinstance(value, str) else f'{value:g}'}" for name, value in pairs)
    device = "CPU" if o.device == "cpu" else "GPU"
    time = f"{o.minutes:g} minute{'s' * (o.minutes != 1)}"
    by_hand = "what is given by hand stays, and the rest follows from it"
    return f"sized for {time} of this {device} ({found.speed:,.0f} tokens a second): {shown}; {by_hand}"
