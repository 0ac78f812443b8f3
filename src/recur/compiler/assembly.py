"""From expressions to instructions: what is saved for the backward pass, where every value lives, in which order.

A saved value costs memory for every step of every sequence; one computed again costs time. Saved is what the backward
pass reads and cannot have more cheaply: states are in memory anyway, and so is what follows from them and from other
saved values by additions and products. A saved value takes the place of a gate's input share once that has been read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import NamedTuple

from recur.cells.cell import Cell
from recur.compiler.along_time import backward_along_time, forward_along_time
from recur.compiler.derivative import differentiate
from recur.compiler.expressions import COSTLY, Expressions
from recur.compiler.step import Step
from recur.compiler.writer import Code as Code
from recur.compiler.writer import Slots, Writer

PROGRAMS = ("use", "train", "back", "trace")

GIVEN = ("s", "w", "number")
"""What the backward pass has anyway, as the forward pass had it."""


@dataclass
class Assembly:
    """A cell's programs: for use, for training, back, and back with the whole gradient of every state on record."""

    use: Code
    train: Code
    back: Code
    trace: Code
    gates: int
    products: int
    states: int
    extras: int
    saved: int
    """How many saved values found no gate's place."""
    own: int
    """How many products have a gradient that is no gate's."""
    product_places: list[int]
    """For every product, the gate with the same gradient; or the number of gates plus its own."""
    reads_share: bool
    """Whether anything is saved in the gates' places at all."""
    heads: int
    """Into how many blocks W is divided."""
    outputs: list[int]
    """Which of the states are the output."""
    adds_to_first: bool
    """Whether the first state reaches the next step otherwise than through the products."""
    along_time: dict[str, Code]
    """The same programs on steps of one sequence, where the cell is affine in its states; see along_time.py."""

    def weight_names(self, count: int) -> list[str]:
        """torch's names of so many weights, in the order in which the operator takes them."""
        sides = ("ih", "hh") if self.products else ("ih",)
        plain = [f"weight_{side}" for side in sides]
        biased = [*plain, *(f"bias_{side}" for side in sides)]
        forms = [plain, biased, *([[*plain, "weight_hr"], [*biased, "weight_hr"]] if self.products else [])]
        return next(names for names in forms if len(names) == count)

    def dumps(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def loads(text: str) -> Assembly:
        fields = json.loads(text)
        along_time = {name: Code(**code) for name, code in fields["along_time"].items()}
        return Assembly(**fields | {name: Code(**fields[name]) for name in PROGRAMS} | {"along_time": along_time})


class _Gradients(NamedTuple):
    """The values of the backward pass: ∂L of everything that a step reads, given ∂L of the states it returns."""

    share: list[int]
    product: list[int]
    before: list[int]
    extra: list[int]
    state: list[int]
    """Of the states that it returns, whole."""

    @property
    def own(self) -> list[int]:
        """Those of products that are no gate's, each once."""
        return list(dict.fromkeys(value for value in self.product if value not in self.share))

    @property
    def product_places(self) -> list[int]:
        """For every product, the gate with the same gradient; or the number of gates plus its own."""
        places = {value: len(self.share) + k for k, value in enumerate(self.own)}
        return [self.share.index(value) if value in self.share else places[value] for value in self.product]


def _differentiated(cell: Cell, step: Step) -> _Gradients:
    t = step.terms
    found = differentiate(t, step.states, [t.leaf("g", j) for j in range(len(cell.states))])
    zero = t.number(0)
    counts = {role: len(cell.tuple_of(role)._fields) for role in "xhs"} | {"w": len(step.prepared)}
    of_leaves = [[found.leaves.get((role, k), zero) for k in range(count)] for role, count in counts.items()]
    share, product, before, extra = of_leaves
    return _Gradients(share, product, before, extra, found.states)


def assemble(cell: Cell, step: Step, biased: bool) -> Assembly:
    t, G = step.terms, len(cell.gates)
    forward_only = len(t.nodes)
    d = _differentiated(cell, step)
    adds_to_first = t.number_of(d.before[0]) != 0 or not cell.recurrent_gates

    carried = [j for j in range(len(d.before)) if j or adds_to_first]
    if len(d.before) > len(cell.states):  # of several predecessors: only what reaches them at all
        carried = [j for j in carried if t.number_of(d.before[j]) != 0]

    saved = _saved(t, step.states, [*d.share, *d.own, *d.before, *d.extra, *d.state], forward_only)
    use, train = Writer(t), Writer(t)
    use.forward(step.states, [], G)
    slots = train.forward(step.states, saved, G)
    beyond_gates = [place for place in slots.values() if place[0] == "saved"]
    return Assembly(
        use=use.finish(),
        train=train.finish(),
        back=_backward(step, d, slots, carried, biased),
        trace=_backward(step, d, slots, carried, biased, traced=True),
        gates=G,
        products=len(cell.recurrent_gates),
        states=len(cell.states),
        extras=len(step.prepared),
        saved=len(beyond_gates),
        own=len(d.own),
        product_places=d.product_places,
        reads_share=len(beyond_gates) < len(slots),
        heads=cell.heads if cell.recurrent_gates else 1,
        outputs=list(cell.output_states),
        adds_to_first=adds_to_first,
        along_time=_along_time(step, d, slots, biased),
    )


def _along_time(step: Step, d: _Gradients, slots: Slots, biased: bool) -> dict[str, Code]:
    """All programs, or none."""
    t = step.terms
    if d.product:
        return {}
    known = {state: ("after", j) for j, state in reversed(list(enumerate(step.states))) if t[state].op not in GIVEN}
    results = {("d_share", g): value for g, value in enumerate(d.share)}
    traced = results | {("d_state", j): value for j, value in enumerate(d.state)}
    summed = [*d.extra, *(d.share if biased else [])]
    made = {
        "use": forward_along_time(t, step.states, {}),
        "train": forward_along_time(t, step.states, slots),
        "back": backward_along_time(t, d.before, known | slots, results, summed),
        "trace": backward_along_time(t, d.before, known | slots, traced, summed),
    }
    found = {name: code for name, code in made.items() if code is not None}
    return found if len(found) == len(made) else {}


def _backward(step: Step, d: _Gradients, slots: Slots, carried: list[int], biased: bool, traced: bool = False) -> Code:
    """The program of the backward pass, which reads the states and what `slots` hold."""
    t, back = step.terms, Writer(step.terms)
    for j, state in reversed(list(enumerate(step.states))):
        if t[state].op not in GIVEN:
            back.known[state] = back.place("after", j)
    for value, place in slots.items():
        back.known[value] = back.place(*place)
    results = {("d_share", g): value for g, value in enumerate(d.share)}
    results |= {("d_product", k): value for k, value in enumerate(d.own)}
    results |= {("d_before", j): d.before[j] for j in carried}
    if traced:
        results |= {("d_state", j): value for j, value in enumerate(d.state)}
    summed = [*d.extra, *([*d.share, *d.own] if biased else [])]
    back.count([*results.values(), *summed])
    back.write(results)
    for k, value in enumerate(summed):
        back.emit("sum", back.place("sum", k), back.value(value))
    return back.finish()


def _saved(t: Expressions, states: list[int], wanted: list[int], forward_only: int) -> list[int]:
    """The values of the forward pass that the backward pass reads from memory."""
    later = [v for v in t.reached_from(wanted) if v >= forward_only]
    read = {arg for v in later for arg in t[v].args if arg < forward_only} | {v for v in wanted if v < forward_only}
    saved: list[int] = []

    def follows(value: int) -> bool:
        """Cheaply, from what is there; one costly operation is allowed right on a state, which is half the memory."""
        op, args, _ = t[value]
        if value in saved or value in states or op in GIVEN:
            return True
        if not args or (op in COSTLY and not all(arg in states for arg in args)):
            return False
        return all(follows(arg) for arg in args)

    for value in sorted(read):
        if not follows(value):
            saved.append(value)
    return saved
