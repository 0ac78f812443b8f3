"""A few validation examples and what a model says of them: something to watch while it trains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

FEW = 4
LONGEST = 120
"""Characters of an example."""


def examples_line(what: str, found: str, true: str) -> str:
    """`a fine film → good`, and what it should have said where that is something else."""
    what = what if len(what) <= LONGEST else what[: LONGEST - 1] + "…"
    return f"{what} → {found}" + ("" if found == true else f"   ✗ {true}")


def with_classes(
    shown: Sequence[str], found: Iterable[int], true: Iterable[int], classes: Sequence[str], unseen: str = "?"
) -> str:
    """Examples with their classes; of a class that training did not have, no name is known."""
    names = [*classes, unseen]
    triples = zip(shown, found, true, strict=True)
    return "\n".join(
        examples_line(what, names[k], names[min(j, len(classes)) if j >= 0 else -1]) for what, k, j in triples
    )
