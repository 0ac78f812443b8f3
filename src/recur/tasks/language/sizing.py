"""Settings that were found on one text, for a text of another size.

A text of N tokens in place of the N₀ that a recipe was tuned on:

    dropouts, α, β      × (N₀/N)^0.36, and dropouts no more than 0.75      the more text, the less has to be held back
    hidden              × (N/N₀)^0.165, to a multiple of 32                 and the more there is to know
    epochs              × (N₀/N)^0.68, at least 1                           tokens read grow with N^0.32
    measure             as often in a run: epochs' own factor
    softmax             sampled from 100,000 types on

At N₀ they are the recipe's own, to the last digit. The exponents lie between two ends: `recipes/awd-ptb.toml` on the
Penn Treebank (0.93 million tokens: dropout of the input 0.55, 1152 units, 350 epochs) and what Merity, Keskar and
Socher published for WikiText-103 (103 million: 0.1, 2500 units, 14 epochs). Between them lies WikiText-2, whose
settings they had tuned by hand, as a check: 0.55 → 0.41 where they have 0.65 to 0.2 by place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from recur.i18n import Message
from recur.tasks.language.options import LanguageOptions
from recur.utils.types import JsonObject

DROPOUT, WIDTH, EPOCHS = 0.36, 0.165, 0.68
MOST = 0.75
SAMPLED_TYPES = 100_000
"""Types from which on the softmax is sampled."""
SAME_SIZE = 1.1
"""Texts within a tenth of N₀ are the same."""

DROPPED = ("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_weight", "dropout_output")


def for_text(o: LanguageOptions, tokens: int, types: int) -> LanguageOptions:
    """Return the options for a text of `tokens` tokens and `types` types; `untouched` options stay."""
    ratio = tokens / o.tuned_on
    found: dict[str, Any] = {}
    if not 1 / SAME_SIZE < ratio < SAME_SIZE:
        found |= {name: min(MOST, getattr(o, name) * ratio**-DROPOUT) for name in DROPPED}
        found |= {name: getattr(o, name) * ratio**-DROPOUT for name in ("alpha", "beta")}
        found = {name: float(f"{value:.3g}") for name, value in found.items()}
        found["hidden_size"] = max(32, 32 * round(o.hidden_size * ratio**WIDTH / 32))
        if o.epochs is not None:
            found["epochs"] = max(1.0, float(round(o.epochs * ratio**-EPOCHS)))
            found["eval_every"] = float(f"{o.eval_every * found['epochs'] / o.epochs:.3g}")
    if types > SAMPLED_TYPES and o.softmax == "full":
        found |= {"softmax": "sampled", "softmax_samples": 8192}
    kept = {name: value for name, value in found.items() if name not in o.untouched}
    return o.changed(**kept, tuned_on=tokens)


def describe_rule(before: LanguageOptions, after: LanguageOptions) -> str:
    """Describe the changes of the rule."""
    changed = [
        f"{name} {getattr(before, name):g} → {getattr(after, name):g}"
        for name in (*DROPPED, "alpha", "beta", "hidden_size", "epochs", "eval_every")
        if getattr(before, name) != getattr(after, name)
    ]
    if after.softmax != before.softmax:
        changed.append(f"softmax {after.softmax}")
    size = f"{after.tuned_on:,} tokens; settings of a text of {before.tuned_on:,} tokens"
    return f"{size}, by rule: {', '.join(changed)}" if changed else f"{size}, as they are"


LEAST = 0.2
"""Minutes from which on a network is sized: below them, to measure the speed would take too much of them."""

TRAINING = 0.85
"""The share of the minutes in which weights move; the rest is measuring."""

NARROWEST, WIDEST, STEP = 64, 4096, 32

PROBES, PROBING = 4, 0.1
"""Widths whose speed is measured, at most; and the share of the minutes after which no further one is."""

NEAR = 0.1
"""A width within a tenth of the one that is wanted is it."""


class SizingRule(NamedTuple):
    """Constants of the rule for a kind of text."""

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


LETTERS = SizingRule(
    layers=2, width=180, a=0.35, rate=0.012, b=0.5, lanes=32, c=0.25, window=32, passes=60,
    first=(0.0, 0.05), more=(0.04, 0.1), embedding=0.3, sampled=0,
)  # fmt: skip
WORDS = SizingRule(
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
    *("hidden_size", "embedding_size", "num_layers", "batch_size", "window", "lr"),
    *("dropout_input", "dropout_hidden", "dropout_output", "bias_init", "softmax", "softmax_samples", "epochs"),
)
"""What the rule decides, where nobody else has."""


def applies(o: LanguageOptions) -> bool:
    """Return True if the requested options leave the size to the rule: a budget in minutes, and no recipe."""
    budget = o.default_minutes if o.minutes is None else o.minutes
    free = any(not o.is_set(name) for name in FIELDS[: FIELDS.index("bias_init")])
    followed = o.tuned_on or o.from_ or o.vectors is not None or o.recurrence == "output"
    return o.auto_size and free and not followed and o.epochs is None and o.steps is None and budget >= LEAST


def worth(tokens: float, read: float) -> float:
    """Return the number of distinct tokens that a text of `tokens` tokens is worth if `read` tokens are read."""
    if read <= tokens:
        return read
    return tokens * (1 + REPEATED * (1 - math.exp((1 - read / tokens) / REPEATED)))


class TextStatistics(NamedTuple):
    """Statistics of a text that the rule reads."""

    tokens: int
    """To learn from."""
    types: int
    words: bool
    """Or whatever else is of many types."""

    @property
    def kind(self) -> SizingRule:
        return WORDS if self.words else LETTERS


def at_width(text: TextStatistics, hidden: int, read: float) -> JsonObject:
    """Return all options at a width, for the number of tokens that are read in the budget."""
    kind, tokens = text.kind, text.tokens
    found: JsonObject = {"epochs": kind.passes} if read > kind.passes * tokens else {}
    if text.types > MANY and read < kind.sampled * tokens:
        found |= {"softmax": "sampled", "softmax_samples": SAMPLES}
    read = min(read, kind.passes * tokens)
    passes = max(1.0, read / tokens)
    drops = [min(0.6, first + more * math.log(passes)) for first, more in zip(kind.first, kind.more, strict=True)]
    lanes = kind.lanes * (read / 1e6) ** kind.c
    return found | {
        "hidden_size": hidden,
        "embedding_size": max(32, 16 * round(kind.embedding * hidden / 16)),
        "num_layers": kind.layers,
        "batch_size": 2 ** max(3, min(8, round(math.log2(lanes)))),
        "window": kind.window,
        "lr": float(f"{kind.rate * (hidden / 256) ** -kind.b:.2g}"),
        "dropout_input": round(drops[0], 2),
        "dropout_hidden": round(drops[0], 2),
        "dropout_output": round(drops[1], 2),
        "bias_init": "unigram",
    }


def wanted_width(text: TextStatistics, read: float) -> float:
    """Return the width for the number of tokens that are read in the budget."""
    kind = text.kind
    return kind.width * math.pow(worth(text.tokens, min(read, kind.passes * text.tokens)) / 1e6, kind.a)


class NetworkSize(NamedTuple):
    options: LanguageOptions
    speed: float
    """Tokens a second at its width."""


def size(
    asked: LanguageOptions,
    o: LanguageOptions,
    text: TextStatistics,
    speed: Speed,
    clock: Callable[[], float] = time.monotonic,
) -> NetworkSize:
    """Return settled options `o` with the rule's numbers in place of what was not `asked` for."""
    assert o.minutes is not None  # that is what is settled
    free = {name for name in FIELDS if not asked.is_set(name)}
    hidden, read = (256 if "hidden_size" in free else o.hidden_size), 1e6 * o.minutes

    def at(hidden: int, read: float) -> LanguageOptions:
        found = {name: value for name, value in at_width(text, hidden, read).items() if name in free}
        if found.get("softmax", o.softmax) != "sampled":
            found.pop("softmax_samples", None)
        return o.changed(**found)

    begun = clock()
    for _ in range(PROBES):
        tried = at(hidden, read)
        rate = speed(tried)
        read = 60 * o.minutes * TRAINING * rate
        away = math.log(wanted_width(text, read) / hidden)
        if "hidden_size" not in free or abs(away) < NEAR:
            break
        # Twice as wide, it reads between a quarter and all of the tokens: what is wanted falls as the width rises.
        hidden = rounded(hidden * math.exp(away / (1 + text.kind.a)))
        if clock() - begun > PROBING * 60 * o.minutes:
            tried = at(hidden, read)
            break
    return NetworkSize(at(tried.hidden_size, read), rate)


def rounded(hidden: float) -> int:
    return max(NARROWEST, min(WIDEST, STEP * round(hidden / STEP)))


def fields_of(asked: LanguageOptions, o: LanguageOptions) -> JsonObject:
    """Return the options that the rule chose."""
    unused = o.unused()
    decided = {name: getattr(o, name) for name in FIELDS if not asked.is_set(name) and name not in unused}
    return {name: value for name, value in decided.items() if value is not None}


def describe_size(asked: LanguageOptions, found: NetworkSize) -> str:
    """Describe the choice in one line."""
    o = found.options
    pairs = [(name.replace("_", "-"), value) for name, value in fields_of(asked, o).items()]
    shown = ", ".join(f"{name} {value if isinstance(value, str) else f'{value:g}'}" for name, value in pairs)
    device = "CPU" if o.device == "cpu" else "GPU"
    minutes = Message("1 minute") if o.minutes == 1 else Message("{n:g} minutes", n=o.minutes)
    return Message(
        "options chosen for {time} on this {device} ({speed:,.0f} tokens/s): {sizes}; options that you give are kept",
        time=minutes,
        device=device,
        speed=found.speed,
        sizes=shown,
    )
