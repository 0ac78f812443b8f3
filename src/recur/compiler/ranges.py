"""Between which numbers a value of an expression lies, whatever its leaves are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recur.compiler.expressions import Expressions

Range = tuple[float, float]


def range_of(terms: Expressions, value: int, own: Sequence[Range] = ()) -> Range:
    """Between which numbers a value lies whatever the leaves are, those of role `w` in the ranges `own`."""
    known: dict[int, Range] = {}
    for part in terms.reached_from([value]):
        op, args, leaf = terms[part]
        if op == "number":
            known[part] = leaf, leaf
        elif op == "w" and own:
            known[part] = own[int(leaf)]
        else:
            known[part] = _range(op, [known[arg] for arg in args])
        if op == "select" and terms[args[0]].op == "less" and args[1] in terms[args[0]].args:
            # One of the two that are compared, where it is the larger or the smaller: as softplus takes what is large.
            small, large = terms[args[0]].args
            low, high = known[args[1]]
            chosen = (max(low, known[small][0]), high) if args[1] == large else (low, min(high, known[large][1]))
            known[part] = min(chosen[0], known[args[2]][0]), max(chosen[1], known[args[2]][1])
    return known[value]


def _range(op: str, args: Sequence[Range]) -> Range:
    match op, args:
        case "neg", [(low, high)]:
            return -high, -low
        case "add", [(a, b), (c, d)]:
            return a + c, b + d
        case "sub", [(a, b), (c, d)]:
            return a - d, b - c
        case "mul", [(a, b), (c, d)]:
            corners = [0.0 if p == 0 or q == 0 else p * q for p in (a, b) for q in (c, d)]  # 0 · ∞: the 0 is exact
            return min(corners), max(corners)
        case "exp", [(low, high)]:
            return _exp(low), _exp(high)
        case "log1p", [(low, high)] if low >= 0:
            return math.log1p(low), math.log1p(high)
        case "sqrt", [(low, high)] if low >= 0:
            return math.sqrt(low), math.sqrt(high)
        case "relu", [(low, high)]:
            return max(low, 0.0), max(high, 0.0)
        case "abs", [(low, high)]:
            return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        case "minimum", [(a, b), (c, d)]:
            return min(a, c), min(b, d)
        case "maximum", [(a, b), (c, d)]:
            return max(a, c), max(b, d)
        case "select", [_, (a, b), (c, d)]:
            return min(a, c), max(b, d)
        case (("sigmoid" | "less" | "less_equal" | "equal"), _):
            return 0.0, 1.0
        case (("tanh" | "sin" | "cos" | "erf" | "sign"), _):
            return -1.0, 1.0
    return -math.inf, math.inf


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
