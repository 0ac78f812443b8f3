"""Options of training that are written in a form of their own."""

from __future__ import annotations

import math

from recur.errors import OptionError, shown


def parse_schedule(spec: str) -> tuple[str, list[float]]:
    """The name of a schedule and its numbers."""
    name, *written = spec.split(":")
    takes = {"constant": (0,), "cosine": (0,), "slanted": (0, 1), "flat": (1,), "step": (2,)}
    takes |= {"plateau": (1,), "nonmono": (1,)}
    try:
        numbers = [float(number) for number in written]
    except ValueError:
        numbers = [math.nan]
    whole = name != "nonmono" or all(n == int(n) for n in numbers if math.isfinite(n))
    below = name not in ("slanted", "flat") or all(n < 1 for n in numbers)
    if len(numbers) not in takes.get(name, ()) or not all(0 < n < math.inf for n in numbers) or not whole or not below:
        raise OptionError(
            f"schedule {shown(spec)} is not one of: constant, cosine, flat:cut, slanted[:cut], step:γ:after, "
            "plateau:γ, nonmono:n (numbers > 0, cut < 1, n whole)"
        )
    return name, numbers


def parse_fold(spec: str) -> tuple[int, int]:
    """`3/10`: which, and of how many; 0/1 for nothing."""
    if not spec:
        return 0, 1
    k, _, n = spec.partition("/")
    if not (k.isdecimal() and n.isdecimal() and len(n) < 6 and 1 <= int(k) <= int(n) and int(n) > 1):
        raise OptionError(f"fold must be such as 3/10, the third of ten, got {shown(spec)}")
    return int(k), int(n)
