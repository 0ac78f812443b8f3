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

from typing import Any

from recur.tasks.language.options import LanguageOptions

DROPOUT, WIDTH, EPOCHS = 0.36, 0.165, 0.68
MOST = 0.75
MANY = 100_000
"""Types from which on the softmax is sampled."""
NEAR = 1.1
"""Texts within a tenth of N₀ are the same."""

DROPPED = ("dropout_embedding", "dropout_input", "dropout_hidden", "dropout_weight", "dropout_output")


def for_text(o: LanguageOptions, tokens: int, types: int) -> LanguageOptions:
    """The options for a text of so many tokens of so many types; those `untouched` stay."""
    ratio = tokens / o.tuned_on
    found: dict[str, Any] = {}
    if not 1 / NEAR < ratio < NEAR:
        found |= {name: min(MOST, getattr(o, name) * ratio**-DROPOUT) for name in DROPPED}
        found |= {name: getattr(o, name) * ratio**-DROPOUT for name in ("alpha", "beta")}
        found = {name: float(f"{value:.3g}") for name, value in found.items()}
        found["hidden"] = max(32, 32 * round(o.hidden * ratio**WIDTH / 32))
        if o.epochs is not None:
            found["epochs"] = max(1.0, float(round(o.epochs * ratio**-EPOCHS)))
            found["measure"] = float(f"{o.measure * found['epochs'] / o.epochs:.3g}")
    if types > MANY and o.softmax == "full":
        found |= {"softmax": "sampled", "softmax_samples": 8192}
    kept = {name: value for name, value in found.items() if name not in o.untouched}
    return o.changed(**kept, tuned_on=tokens)


def words(before: LanguageOptions, after: LanguageOptions) -> str:
    """What the rule changed."""
    changed = [
        f"{name} {getattr(before, name):g} → {getattr(after, name):g}"
        for name in (*DROPPED, "alpha", "beta", "hidden", "epochs", "measure")
        if getattr(before, name) != getattr(after, name)
    ]
    if after.softmax != before.softmax:
        changed.append(f"softmax {after.softmax}")
    size = f"{after.tuned_on:,} tokens; settings of a text of {before.tuned_on:,} tokens"
    return f"{size}, by rule: {', '.join(changed)}" if changed else f"{size}, as they are"
