"""From expressions to instructions: what is kept for the way back, where every value lives, in which order.

A kept value costs memory for every step of every sequence; one computed again costs time. Kept is what the way back
reads and cannot have more cheaply: states are there anyway, and so is what follows from them and from other kept
values by additions and products. A kept value takes the place of a gate's input share once that has been read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from recur.cells.cell import Cell
from recur.program.derivative import differentiate
from recur.program.expressions import COSTLY, Expressions
from recur.program.step import Step

FUSED = {  # an outer operation, an inner one that nothing else needs and where it stands, as one instruction
    ("sigmoid", "add", 0): "sigmoid_sum",
    ("tanh", "add", 0): "tanh_sum",
    ("add", "mul", 0): "multiply_add",
    ("add", "mul", 1): "multiply_add",
    ("sub", "mul", 0): "multiply_sub",
    ("sub", "mul", 1): "sub_multiply",
}

GIVEN = ("s", "w", "number")
"""What the way back has anyway, as the way forward had it."""


@dataclass
class Code:
    """Instructions (operation, to, operands) on places (kind, index), both by name."""

    instructions: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    temps: int = 0


@dataclass
class Assembly:
    """A cell's three programs: for use, for training, and back."""

    use: Code
    train: Code
    back: Code
    gates: int
    products: int
    states: int
    extras: int
    kept: int
    """How many kept values found no gate's place."""
    own: int
    """How many products have a gradient that is no gate's."""
    product_places: list[int]
    """For every product, the gate with the same gradient; or the number of gates plus its own."""
    reads_share: bool
    """Whether anything is kept in the gates' places at all."""
    adds_to_first: bool
    """Whether the first state reaches the next step otherwise than through the products."""

    def dumps(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def loads(text: str) -> Assembly:
        fields = json.loads(text)
        return Assembly(**fields | {name: Code(**fields[name]) for name in ("use", "train", "back")})


def assemble(cell: Cell, step: Step, biased: bool) -> Assembly:
    t, G, R, J = step.terms, len(cell.gates), len(cell.recurrent_gates), len(cell.states)
    E = len(step.prepared)
    forward_only = len(t.nodes)
    arriving = [t.leaf("g", j) for j in range(J)]
    gradient = differentiate(step.terms, step.states, arriving)
    nothing = t.number(0)
    d_share = [gradient.get(("x", g), nothing) for g in range(G)]
    d_product = [gradient.get(("h", r), nothing) for r in range(R)]
    d_before = [gradient.get(("s", j), nothing) for j in range(J)]
    d_extra = [gradient.get(("w", e), nothing) for e in range(E)]
    adds_to_first = t.number_of(d_before[0]) != 0 or not R

    own: list[int] = []
    product_places = []
    for value in d_product:
        if value not in d_share and value not in own:
            own.append(value)
        product_places.append(d_share.index(value) if value in d_share else G + own.index(value))

    wanted = [*d_share, *own, *d_before, *d_extra]
    kept = _kept(t, step.states, wanted, forward_only)
    use, train, back = _Writer(t), _Writer(t), _Writer(t)
    use.forward(step.states, [], G)
    slots = train.forward(step.states, kept, G)

    for j, state in reversed(list(enumerate(step.states))):
        if t[state].op not in GIVEN:
            back.known[state] = back.place("after", j)
    for value, place in slots.items():
        back.known[value] = back.place(*place)
    results = {("d_share", g): value for g, value in enumerate(d_share)}
    results |= {("d_product", k): value for k, value in enumerate(own)}
    results |= {("d_before", j): value for j, value in enumerate(d_before) if j or adds_to_first}
    summed = [*d_extra, *([*d_share, *own] if biased else [])]
    back.count([*results.values(), *summed])
    back.write(results)
    for k, value in enumerate(summed):
        back.emit("sum", back.place("sum", k), back.value(value))

    extra_kept = [place for place in slots.values() if place[0] == "kept"]
    return Assembly(
        use=use.finish(),
        train=train.finish(),
        back=back.finish(),
        gates=G,
        products=R,
        states=J,
        extras=E,
        kept=len(extra_kept),
        own=len(own),
        product_places=product_places,
        reads_share=len(extra_kept) < len(slots),
        adds_to_first=adds_to_first,
    )


def _kept(t: Expressions, states: list[int], wanted: list[int], forward_only: int) -> list[int]:
    """The values of the way forward that the way back reads from memory."""
    later = [v for v in t.reached_from(wanted) if v >= forward_only]
    read = {arg for v in later for arg in t[v].args if arg < forward_only} | {v for v in wanted if v < forward_only}
    kept: list[int] = []

    def there(value: int) -> bool:
        return value in kept or value in states or t[value].op in GIVEN

    def follows(value: int) -> bool:
        """Cheaply, from what is there; one costly operation is allowed right on a state, which is half the memory."""
        op, args, _ = t[value]
        if there(value):
            return True
        if not args or (op in COSTLY and not all(arg in states for arg in args)):
            return False
        return all(follows(arg) for arg in args)

    for value in sorted(read):
        if not follows(value):
            kept.append(value)
    return kept


class _Writer:
    """Writes one program: values into places, each computed once, when first needed."""

    def __init__(self, terms: Expressions) -> None:
        self.terms = terms
        self.known: dict[int, int] = {}
        self._code: list[tuple[str, tuple[int, ...]]] = []
        self._places: list[tuple[str, int]] = []
        self._numbers: list[float] = []
        self._uses: dict[int, int] = {}
        self._homes: dict[int, tuple[str, int]] = {}

    def place(self, kind: str, index: int) -> int:
        if (kind, index) not in self._places:
            self._places.append((kind, index))
        return self._places.index((kind, index))

    def emit(self, op: str, *operands: int) -> None:
        self._code.append((op, operands))

    def count(self, values: Iterable[int]) -> None:
        """How often every value that is not known yet will be read: what is read once may be part of an instruction."""
        seen: set[int] = set()
        todo = list(values)
        for value in todo:
            self._uses[value] = self._uses.get(value, 0) + 1
            if value not in seen and value not in self.known:
                seen.add(value)
                todo += self.terms[value].args

    def value(self, value: int) -> int:
        """The place of a value, which is computed first if need be: where it is wanted, or into a temporary place."""
        if value in self.known:
            return self.known[value]
        op, args, leaf = self.terms[value]
        if op == "number":
            if leaf not in self._numbers:
                self._numbers.append(leaf)
            place = self.place("constant", self._numbers.index(leaf))
        elif not args:
            kind = {"x": "share", "h": "product", "s": "before", "w": "extra", "g": "d_after"}[op]
            place = self.place(kind, int(leaf))
        else:
            op, args = self._fuse(op, args)
            operands = [self.value(arg) for arg in args]
            place = self.place(*self._homes.get(value, ("temp", value)))
            self.emit(op, place, *operands)
        self.known[value] = place
        return place

    def write(self, results: Mapping[tuple[str, int], int]) -> None:
        """Have these values in these places."""
        for place, value in results.items():
            self._homes.setdefault(value, place)
        for place, value in results.items():
            target, at = self.place(*place), self.value(value)
            if at != target:
                self.emit("copy", target, at)

    def forward(self, states: list[int], kept: list[int], gates: int) -> dict[int, tuple[str, int]]:
        """The next states, and what is kept: where it was put."""
        t = self.terms
        self.count([*states, *kept, *kept])  # what is kept is read again later: never a part of an instruction
        self.write({("after", j): state for j, state in enumerate(states)})
        slots: dict[int, tuple[str, int]] = {v: ("share", int(t[v].leaf)) for v in kept if t[v].op == "x"}
        for value in sorted((v for v in kept if v not in slots), key=lambda v: not t[v].args):
            at = self.value(value)
            free = [g for g in range(gates) if ("share", g) not in slots.values()]
            if t[value].args:
                made = next(k for k, (_, operands) in enumerate(self._code) if operands[0] == at)
                read = {g: self._last_read("share", g) for g in free}
                fits = [g for g in free if read[g] <= made]
                if fits:  # straight into the place of an input share that is not read any more
                    slots[value] = "share", max(fits, key=lambda g: read[g])
                    self._move(at, self.place(*slots[value]))
                    self.known[value] = self.place(*slots[value])
                    continue
            slots[value] = ("share", free[0]) if free else ("kept", self._count(slots, "kept"))
            self.emit("copy", self.place(*slots[value]), at)
        return slots

    @staticmethod
    def _count(slots: dict[int, tuple[str, int]], kind: str) -> int:
        return sum(place[0] == kind for place in slots.values())

    def _last_read(self, kind: str, index: int) -> int:
        at = self.place(kind, index)
        return max((k for k, (_, operands) in enumerate(self._code) if at in operands[1:]), default=-1)

    def _move(self, old: int, new: int) -> None:
        """Have what was computed into one place computed into another."""
        self._code = [(op, tuple(new if p == old else p for p in operands)) for op, operands in self._code]

    def _fuse(self, op: str, args: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        for k, arg in enumerate(args):
            inner = self.terms[arg]
            name = FUSED.get((op, inner.op, k))
            if name and arg not in self.known and self._uses.get(arg) == 1 and arg not in self._homes:
                rest = tuple(other for place, other in enumerate(args) if place != k)
                return name, (*inner.args, *rest)
        return op, args

    def finish(self) -> Code:
        """Temporary places by number of a value become few, taken again once their value has been read last."""
        last = {place: k for k, (_, operands) in enumerate(self._code) for place in operands}
        free: list[int] = []
        taken: dict[int, int] = {}
        code, temps = [], 0
        for k, (op, operands) in enumerate(self._code):
            ends = {p for p in operands[1:] if self._places[p][0] == "temp" and last[p] == k}
            # Elementwise: a result may take the place of an operand that is read here for the last time.
            free += sorted((taken[p] for p in ends if p in taken), reverse=True)
            to = operands[0]
            if self._places[to][0] == "temp" and to not in taken:
                taken[to] = free.pop() if free else temps
                temps = max(temps, taken[to] + 1)
            code.append((op, operands))
        renumbered = [
            ("temp", taken.get(p, -1)) if kind == "temp" else (kind, i) for p, (kind, i) in enumerate(self._places)
        ]
        return _compact(Code(code, renumbered, self._numbers, temps))


def _compact(code: Code) -> Code:
    """Places that no instruction names fall away; equal ones become one."""
    used = sorted({code.places[p] for _, operands in code.instructions for p in operands})
    instructions = [(op, tuple(used.index(code.places[p]) for p in operands)) for op, operands in code.instructions]
    return Code(instructions, used, code.numbers, code.temps)
