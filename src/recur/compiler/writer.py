"""Writes a program: values of expressions into places, each computed once, when first needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from recur.compiler.expressions import Expressions

FUSED = {  # an outer operation, an inner one that nothing else needs and where it stands, as one instruction
    ("sigmoid", "add", 0): "sigmoid_sum",
    ("tanh", "add", 0): "tanh_sum",
    ("add", "mul", 0): "multiply_add",
    ("add", "mul", 1): "multiply_add",
    ("sub", "mul", 0): "multiply_sub",
    ("sub", "mul", 1): "sub_multiply",
}

Slots = dict[int, tuple[str, int]]
"""Where saved values lie: (kind, index)."""


@dataclass
class Code:
    """Instructions (operation, to, operands) on places (kind, index), both by name."""

    instructions: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    temps: int = 0


class Writer:
    """One program in the making."""

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

    def forward(self, states: list[int], saved: list[int], gates: int) -> Slots:
        """The next states, and what is saved: where it was put."""
        t = self.terms
        self.count([*states, *saved, *saved])  # what is saved is read again later: never a part of an instruction
        self.write({("after", j): state for j, state in enumerate(states)})
        slots: Slots = {v: ("share", int(t[v].leaf)) for v in saved if t[v].op == "x"}
        for value in sorted((v for v in saved if v not in slots), key=lambda v: not t[v].args):
            at = self.value(value)
            free = [g for g in range(gates) if ("share", g) not in slots.values()]
            gate = self._spent_share(free, at) if t[value].args else None
            if gate is not None:  # computed straight into it
                slots[value] = "share", gate
                self._move(at, self.place(*slots[value]))
                self.known[value] = self.place(*slots[value])
                continue
            beyond = sum(kind == "saved" for kind, _ in slots.values())
            slots[value] = ("share", free[0]) if free else ("saved", beyond)
            self.emit("copy", self.place(*slots[value]), at)
        return slots

    def _spent_share(self, free: list[int], at: int) -> int | None:
        """Of these gates, one whose input share is not read any more when place `at` is written: the last read."""
        made = next(k for k, (_, operands) in enumerate(self._code) if operands[0] == at)
        read = {g: self._last_read("share", g) for g in free}
        return max((g for g in free if read[g] <= made), key=lambda g: read[g], default=None)

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
