"""Programs that take many steps of one sequence at a time, for cells that are affine in their states.

A program's instructions run on a block of rows. Elsewhere these are different sequences at one step; here they are
consecutive steps of one. What does not read the states needs nothing else. A stage that carries its states becomes a
group of instructions, which the core takes together, from row to row:

    scan_state    after_j, before_j, b_j            once for each state of the stage; before_j: its first row is given,
    scan_factor   after_i, A_ij                     for each pair of them          the next ones are after_j
    shift         before_j, after_j                 for a state that is read out, and whose past is read

On the way back d_before is linear in d_after, whatever the cell is, so the same holds from the last row to the first:
the gradient that arrives from outside is in d_after, and that of later steps, scaled by ξ, is added to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recur.compiler.affine import Affine, Stage, affine_stages, values_of
from recur.compiler.expressions import Expressions
from recur.compiler.writer import Code, Slots, Writer

MOST_STATES = 8
"""Of a stage: as many as the core's instructions take. Each reads a factor for every pair of them."""


def forward_along_time(given: Expressions, states: Sequence[int], slots: Slots) -> Code | None:
    """The next states, and what is saved where `slots` say; None for a cell that is not affine."""
    affine = _stages(given, states, "s")
    if affine is None:
        return None
    w = Writer(affine.terms)
    carried = {j for stage in affine.stages if stage.carried for j in stage.states}
    for j in carried:
        if w.terms[states[j]].args:
            w.known[states[j]] = w.place("after", j)
    read_out = [states[j] for j in range(len(states)) if j not in carried]
    w.count([*_values(affine, carried), *read_out, *slots, *slots])
    for stage in affine.stages:
        if stage.carried:
            _scan(w, stage, "scan_state", "after", "before")
            continue
        (j,) = stage.states
        w.write({("after", j): states[j]})
        if j in affine.before:
            w.emit("shift", w.place("before", j), w.place("after", j))
    for value, place in slots.items():
        at = w.value(value)
        if at != w.place(*place):
            w.emit("copy", w.place(*place), at)
    return w.finish()


def backward_along_time(
    given: Expressions,
    before: Sequence[int],
    known: Mapping[int, tuple[str, int]],
    results: Mapping[tuple[str, int], int],
    summed: Sequence[int],
) -> Code | None:
    """`results` and sums, given the gradients `before` a step as functions of those after it."""
    affine = _stages(given, before, "g")
    if affine is None:
        return None
    w = Writer(affine.terms)
    for value, place in known.items():
        w.known[value] = w.place(*place)
    moving = {j for stage in affine.stages for j in stage.states if stage.carried or _offset(w.terms, stage)}
    w.count([*_values(affine, moving), *results.values(), *summed])
    for stage in affine.stages:
        if moving & set(stage.states):
            _scan(w, stage, "scan_back_state", "d_after", "d_before")
    w.write(results)
    for k, value in enumerate(summed):
        w.emit("sum", w.place("sum", k), w.value(value))
    return w.finish()


def _stages(given: Expressions, values: Sequence[int], role: str) -> Affine | None:
    names = [str(j) for j in range(len(values))]
    found = affine_stages(given, values, names, role=role)
    if isinstance(found, str) or any(len(stage.states) > MOST_STATES for stage in found.stages):
        return None
    return found


def _values(affine: Affine, states: set[int]) -> list[int]:
    return [value for stage in affine.stages if states & set(stage.states) for value in values_of(stage)]


def _offset(terms: Expressions, stage: Stage) -> bool:
    return any(terms.number_of(value) != 0 for value in stage.offset)


def _scan(w: Writer, stage: Stage, op: str, to: str, carry: str) -> None:
    """The group of a stage. Its operands are computed first: nothing may stand between its instructions."""
    zero = w.terms.number(0)
    factors = [[w.value(zero if value is None else value) for value in row] for row in stage.matrix]
    offset = [w.value(value) for value in stage.offset]
    for j, added in zip(stage.states, offset, strict=True):
        w.emit(op, w.place(to, j), w.place(carry, j), added, w.place("xi", 0))
    for j, row in zip(stage.states, factors, strict=True):
        for factor in row:
            w.emit("scan_factor", w.place(to, j), factor)
