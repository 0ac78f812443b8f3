"""Defaults as a person reads them, and the order of the groups that options come in."""

from __future__ import annotations

from recur.options import Options
from recur.tasks.options import GPU_FACTOR, TaskOptions

GROUPS = (
    "Data",
    "Tokens",
    "Carry over",
    "Network",
    "Regularisation",
    "Decoder",
    "Optimisation",
    "Budget",
    "Machine",
)
"""What is the task's own comes before them."""


def shown_default(cls: type[Options], name: str) -> str:
    """What an option is if nobody says, in words; nothing where the data decide."""
    shown = shown_value(cls.default(name))
    if issubclass(cls, TaskOptions):
        budget = f"{cls.default_minutes:g}, if no budget is given"
        own = {
            "batch": f"{cls.cpu_batch}, on a GPU {GPU_FACTOR * cls.cpu_batch}",
            "minutes": budget,
            "epochs": f"{cls.default_epochs:g}, if no budget is given" if cls.default_epochs else "",
            "weight_decay": f"{cls.adamw_decay:g} with adamw",
        }
        shown = own.get(name, shown)
        others = [f"{token}s: {shown_value(d[name])}" for token, d in cls.by_token.items() if name in d]
        if name in getattr(cls, "carried", {}):
            others.append(f"with --from: {shown_value(cls.carried[name])}")  # type: ignore[attr-defined]
        shown += f" ({', '.join(others)})" if others else ""
    return shown


def shown_value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    return " ".join(f"{item:g}" if isinstance(item, float) else str(item) for item in values)
