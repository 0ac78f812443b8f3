"""Options of networks that are written in a form of their own."""

from __future__ import annotations

from typing import Annotated

from recur.errors import OptionError, shown
from recur.options import Form


def parse_embedding(init: str) -> tuple[str, float]:
    """How embeddings start: `normal:0.1` → its name and its number; `scaled` has none, for it depends on how many."""
    kind, colon, written = init.partition(":")
    try:
        scale = float(written) if colon else 0.0
    except ValueError:
        scale = 0.0
    if init != "scaled" and (kind not in ("uniform", "normal") or not 0 < scale < 1e30):
        raise OptionError(
            f"embedding_init must be scaled, or uniform:a or normal:σ with a number above 0, got {shown(init)}"
        )
    return kind, scale


EmbeddingInit = Annotated[str, Form(parse_embedding)]


def parse_bptt(spec: str) -> None:
    if spec != "full":
        from recur.ops.bptt import BPTT  # which needs torch

        BPTT.parse(spec)
