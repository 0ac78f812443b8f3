"""Steps that are affine in their states, s' = A s + b, where A and b do not depend on s.

A composition of affine maps is affine, so the steps of such a cell can be combined in any order, and a sequence can be
split into blocks that run at the same time. The states of a cell form *stages*. A stage holds states that read each
other's previous value:

    a stage whose states read their own past         s'_i = Σ_j A_ij ⊙ s_j + b_i      carried from step to step
    a stage of one state that does not               s'   = b                          computed step by step

A and b are pointwise in the input, the weights and the states of earlier stages, before and after the step. In an SRU,
c is the first kind and h = r ⊙ g(c') + (1 − r) ⊙ x the second. The two parts of a rotated complex state, as in an LRU,
form one stage of two states.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recur.compiler.expressions import Expressions

Range = tuple[float, float]
"""The lowest and the highest possible value."""


def range_of(terms: Expressions, value: int, own: Sequence[Range] = ()) -> Range:
    """Return bounds of a value that hold for every value of the leaves.

    own: the ranges of the leaves of role `w`; all other leaves are unbounded.
    """
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
            # `a if b < a else c`: the branch is taken only where a exceeds b, so b bounds it. softplus needs this.
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
        case "div", [(a, b), (c, d)] if 0 < c == d < math.inf:
            return a / c, b / c
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
        case "custom", [(low, high), *_]:
            return low, high
        case "atan", [(low, high)]:
            return math.atan(low), math.atan(high)
        case (("floor" | "round"), [(low, high)]):
            return _whole(low, math.floor), _whole(high, math.floor if op == "floor" else math.ceil)
        case "remainder", [_, (low, high)] if low > 0:
            return 0.0, high
        case (("sigmoid" | "less" | "less_equal" | "equal"), _):
            return 0.0, 1.0
        case (("tanh" | "sin" | "cos" | "erf" | "sign"), _):
            return -1.0, 1.0
    return -math.inf, math.inf


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _whole(value: float, rounded: Callable[[float], int]) -> float:
    return float(rounded(value)) if math.isfinite(value) else value


Sums = dict[int, int]
"""An affine form: for each state its factor, and at CONSTANT the added term."""

CONSTANT = -1


@dataclass(frozen=True)
class AffineStage:
    """States that read each other's previous value, with their A and b."""

    states: tuple[int, ...]
    matrix: tuple[tuple[int | None, ...], ...]
    """A: one value per pair of states, row by row; None is zero."""
    offset: tuple[int, ...]
    """b: one value per state."""
    bounded: bool
    """Whether products of several A stay bounded: the stage has one state, and |A| ≤ 1 for all inputs."""

    @property
    def carried(self) -> bool:
        return any(value is not None for row in self.matrix for value in row)


@dataclass(frozen=True)
class AffineStep:
    """A step as a sequence of stages; a stage may read the results of earlier ones."""

    terms: Expressions
    """The expressions of the step, with unchanged indices, and the coefficients."""
    stages: tuple[AffineStage, ...]
    before: frozenset[int]
    """States whose previous value is read by the coefficients of a stage."""


def affine_stages(
    given: Expressions, states: Sequence[int], names: Sequence[str], own: Sequence[Range] = (), role: str = "s"
) -> AffineStep | str:
    """Split a step into stages, or return the reason why it is not affine.

    states: the next states, as values of `given`
    own:    the ranges of the leaves `w`
    role:   the leaves in which the step must be affine: `s`, or `g` for the backward pass
    """
    terms = copy.deepcopy(given)
    if any(terms[value].op == "h" for value in terms.reached_from(states)):
        return "its step reads a product of W and the state, which mixes units"
    reads = [
        {int(terms[value].leaf) for value in terms.reached_from([state]) if terms[value].op == role} for state in states
    ]
    if any(j >= len(states) for read in reads for j in read):
        return "its step reads other states than it returns"
    stages: list[AffineStage] = []
    for group in _groups(reads):
        forms = [_AffineForms(terms, role, group)(states[i]) for i in group]
        for i, form in zip(group, forms, strict=True):
            if form is None:
                return f"its state {names[i]} is not affine in {', '.join(names[j] for j in group)}"
        rows = [{key: part for key, part in (form or {}).items() if terms.number_of(part) != 0} for form in forms]
        matrix = tuple(tuple(row.get(j) for j in group) for row in rows)
        offset = tuple(row.get(CONSTANT, terms.number(0)) for row in rows)
        bounded = len(group) == 1 and all(_within_one(terms, value, own) for value in matrix[0])
        stages.append(AffineStage(tuple(group), matrix, offset, bounded))
    return AffineStep(terms, tuple(stages), _before(terms, role, states, stages))


def _groups(reads: Sequence[set[int]]) -> list[list[int]]:
    """Group states that depend on each other's past, ordered so that each group follows the groups it reads."""
    reach = [set(read) for read in reads]
    for _ in reads:
        for i, reached in enumerate(reach):
            reach[i] = reached.union(*(reach[j] for j in reached))
    groups: list[list[int]] = []
    left = list(range(len(reads)))
    while left:
        # Take the first state that depends only on its own group and on earlier groups. One always exists.
        for i in left:
            group = [j for j in left if j == i or (j in reach[i] and i in reach[j])]
            if all(j in group or j not in left for j in reach[i]):
                break
        groups.append(group)
        left = [j for j in left if j not in group]
    return groups


class _AffineForms:
    """Conversion of values to affine forms in the states of a group; None for a value that is not affine."""

    def __init__(self, terms: Expressions, role: str, group: Sequence[int]) -> None:
        self.t, self.role, self.group = terms, role, group
        self.known: dict[int, Sums | None] = {}

    def __call__(self, value: int) -> Sums | None:
        if value not in self.known:
            self.known[value] = self._form(value)
        return self.known[value]

    def _form(self, value: int) -> Sums | None:
        t = self.t
        op, args, leaf = t[value]
        if op == self.role and int(leaf) in self.group:
            return {int(leaf): t.number(1)}
        forms = [self(arg) for arg in args]
        if all(form is not None and set(form) <= {CONSTANT} for form in forms):
            return {CONSTANT: value}
        match op, forms:
            case "neg", [dict() as a]:
                return {key: t("neg", part) for key, part in a.items()}
            case (("add" | "sub"), [dict() as a, dict() as b]):
                zero = t.number(0)
                return {key: t(op, a.get(key, zero), b.get(key, zero)) for key in {**a, **b}}
            case "mul", [dict() as a, dict() as b] if set(a) <= {CONSTANT} or set(b) <= {CONSTANT}:
                (free, of) = (args[0], b) if set(a) <= {CONSTANT} else (args[1], a)
                return {key: t("mul", free, part) for key, part in of.items()}
            case (("d_sigmoid" | "d_tanh"), [dict() as a, dict() as b]) if set(b) <= {CONSTANT}:
                return {key: t(op, part, args[1]) for key, part in a.items()}
            case "div", [dict() as a, dict() as b] if set(b) <= {CONSTANT}:
                return {key: t("div", part, args[1]) for key, part in a.items()}
            case "select", [dict() as which, dict() as a, dict() as b] if set(which) <= {CONSTANT}:
                zero = t.number(0)
                return {key: t("select", args[0], a.get(key, zero), b.get(key, zero)) for key in {**a, **b}}
        return None


def _before(terms: Expressions, role: str, states: Sequence[int], stages: Sequence[AffineStage]) -> frozenset[int]:
    """Return the states whose previous value the coefficients read."""
    known: dict[int, None] = {}
    found: set[int] = set()
    for stage in stages:
        for value in terms.reached_from(values_of(stage), known):
            if terms[value].op == role:
                found.add(int(terms[value].leaf))
        known |= dict.fromkeys(states[i] for i in stage.states if terms[states[i]].args)
    return frozenset(found)


def values_of(stage: AffineStage) -> list[int]:
    """Return all values that a stage is computed from."""
    return [*(value for row in stage.matrix for value in row if value is not None), *stage.offset]


def _within_one(terms: Expressions, value: int | None, own: Sequence[Range]) -> bool:
    low, high = (0.0, 0.0) if value is None else range_of(terms, value, own)
    return low >= -1 and high <= 1
