"""Programs of a cell: expressions turned into instructions that read and write operands.

**What is saved.** A saved value costs memory for every step of every sequence; a recomputed value costs time. The
forward pass saves the values that the backward pass reads and cannot recompute by additions and products from the
states, which are in memory anyway. A saved value takes over the memory of a gate's input projection after its last use.

**Time-blocked programs.** The instructions of a program run on a block of rows. Usually the rows are different
sequences at the same step. For a cell that is affine in its states, the rows can also be consecutive steps of one
sequence. Values that do not read a state need no change. A stage that carries its states becomes a group of
instructions that the backend runs together, row by row:

    scan_state    after_j, before_j, b_j            once per state; before_j of row t is after_j of row t − 1
    scan_factor   after_i, A_ij                     once per pair of states
    shift         before_j, after_j                 for a state that is not carried but whose previous value is read

In the backward pass d_before is linear in d_after for every cell. So the same instructions run from the last row to
the first: d_after holds the gradient from the outputs, and the gradient of later steps, scaled by ξ, is added to it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from recur.cells.cell import Cell
from recur.compiler.affine import AffineStage, AffineStep, affine_stages, values_of
from recur.compiler.expressions import COSTLY, Expressions, differentiate
from recur.compiler.tracing import TracedStep

FUSED = {
    ("sigmoid", "add", 0): "sigmoid_sum",
    ("tanh", "add", 0): "tanh_sum",
    ("add", "mul", 0): "multiply_add",
    ("add", "mul", 1): "multiply_add",
    ("sub", "mul", 0): "multiply_sub",
    ("sub", "mul", 1): "sub_multiply",
}
"""Fused instructions by (outer operation, inner operation, argument that the inner one is)."""

SavedSlots = dict[int, tuple[str, int]]
"""The operand (kind, index) in which each saved value is stored."""


@dataclass
class Code:
    """A program: instructions (operation, (target, *arguments)) on operands `places` (kind, index)."""

    instructions: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    temps: int = 0


class ProgramWriter:
    """Writer of one program: computes each value once, when it is first needed."""

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
        """Count the uses of every unknown value: a value that is used once may be fused into its user."""
        seen: set[int] = set()
        todo = list(values)
        for value in todo:
            self._uses[value] = self._uses.get(value, 0) + 1
            if value not in seen and value not in self.known:
                seen.add(value)
                todo += self.terms[value].args

    def value(self, value: int) -> int:
        """Return the operand that holds a value, and emit the instructions that compute it if necessary."""
        if value in self.known:
            return self.known[value]
        op, args, leaf = self.terms[value]
        if op == "custom":  # its derivative is its own, its value is that of its first argument
            self.known[value] = self.value(args[0])
            return self.known[value]
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
        """Compute values into given operands."""
        for place, value in results.items():
            self._homes.setdefault(value, place)
        for place, value in results.items():
            target, at = self.place(*place), self.value(value)
            if at != target:
                self.emit("copy", target, at)

    def forward(self, states: list[int], saved: list[int], gates: int) -> SavedSlots:
        """Compute the next states and save values; return where each saved value is stored."""
        t = self.terms
        self.count([*states, *saved, *saved])  # twice: a saved value must not be fused into its only user
        self.write({("after", j): state for j, state in enumerate(states)})
        slots: SavedSlots = {v: ("share", int(t[v].leaf)) for v in saved if t[v].op == "x"}
        for value in sorted((v for v in saved if v not in slots), key=lambda v: not t[v].args):
            at = self.value(value)
            free = [g for g in range(gates) if ("share", g) not in slots.values()]
            gate = self._spent_share(free, at) if t[value].args else None
            if gate is not None:  # computed there directly, without a copy
                slots[value] = "share", gate
                self._move(at, self.place(*slots[value]))
                self.known[value] = self.place(*slots[value])
                continue
            beyond = sum(kind == "saved" for kind, _ in slots.values())
            slots[value] = ("share", free[0]) if free else ("saved", beyond)
            self.emit("copy", self.place(*slots[value]), at)
        return slots

    def _spent_share(self, free: list[int], at: int) -> int | None:
        """Return a gate whose input projection was last read before operand `at` is written: the latest such gate."""
        made = next(k for k, (_, operands) in enumerate(self._code) if operands[0] == at)
        read = {g: self._last_read("share", g) for g in free}
        return max((g for g in free if read[g] <= made), key=lambda g: read[g], default=None)

    def _last_read(self, kind: str, index: int) -> int:
        at = self.place(kind, index)
        return max((k for k, (_, operands) in enumerate(self._code) if at in operands[1:]), default=-1)

    def _move(self, old: int, new: int) -> None:
        """Replace one operand by another in all instructions."""
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
        """Return the program, with temporaries reused after the last read of their value."""
        last = {place: k for k, (_, operands) in enumerate(self._code) for place in operands}
        free: list[int] = []
        taken: dict[int, int] = {}
        code, temps = [], 0
        for k, (op, operands) in enumerate(self._code):
            ends = {p for p in operands[1:] if self._places[p][0] == "temp" and last[p] == k}
            # Instructions are elementwise, so a result may overwrite an argument that is read here for the last time.
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
    """Drop unused operands and merge equal ones."""
    used = sorted({code.places[p] for _, operands in code.instructions for p in operands})
    instructions = [(op, tuple(used.index(code.places[p]) for p in operands)) for op, operands in code.instructions]
    return Code(instructions, used, code.numbers, code.temps)


MOST_STATES = 8
"""The largest number of states of a stage that the scan instructions support."""


def write_time_blocked_forward(given: Expressions, states: Sequence[int], slots: SavedSlots) -> Code | None:
    """Write the time-blocked forward program, which saves values in `slots`; None for a cell that is not affine."""
    affine = _stages(given, states, "s")
    if affine is None:
        return None
    w = ProgramWriter(affine.terms)
    carried = {j for stage in affine.stages if stage.carried for j in stage.states}
    for j in carried:
        if w.terms[states[j]].args:
            w.known[states[j]] = w.place("after", j)
    read_out = [states[j] for j in range(len(states)) if j not in carried]
    w.count([*_stage_values(affine, carried), *read_out, *slots, *slots])
    for stage in affine.stages:
        if stage.carried:
            _write_scan(w, stage, "scan_state", "after", "before")
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


def write_time_blocked_backward(
    given: Expressions,
    before: Sequence[int],
    known: Mapping[int, tuple[str, int]],
    results: Mapping[tuple[str, int], int],
    summed: Sequence[int],
) -> Code | None:
    """Write the time-blocked backward program; None for a cell that is not affine.

    before:  the gradients of the previous states, as functions of those of the next states
    known:   values that are in memory
    results: the values to compute, by operand
    summed:  values to sum over all rows
    """
    affine = _stages(given, before, "g")
    if affine is None:
        return None
    w = ProgramWriter(affine.terms)
    for value, place in known.items():
        w.known[value] = w.place(*place)
    moving = {j for stage in affine.stages for j in stage.states if stage.carried or _offset(w.terms, stage)}
    w.count([*_stage_values(affine, moving), *results.values(), *summed])
    for stage in affine.stages:
        if moving & set(stage.states):
            _write_scan(w, stage, "scan_back_state", "d_after", "d_before")
    w.write(results)
    for k, value in enumerate(summed):
        w.emit("sum", w.place("sum", k), w.value(value))
    return w.finish()


def _stages(given: Expressions, values: Sequence[int], role: str) -> AffineStep | None:
    names = [str(j) for j in range(len(values))]
    found = affine_stages(given, values, names, role=role)
    if isinstance(found, str) or any(len(stage.states) > MOST_STATES for stage in found.stages):
        return None
    return found


def _stage_values(affine: AffineStep, states: set[int]) -> list[int]:
    return [value for stage in affine.stages if states & set(stage.states) for value in values_of(stage)]


def _offset(terms: Expressions, stage: AffineStage) -> bool:
    return any(terms.number_of(value) != 0 for value in stage.offset)


def _write_scan(w: ProgramWriter, stage: AffineStage, op: str, to: str, carry: str) -> None:
    """Write the instructions of a stage. Their arguments are computed first, because the group must be contiguous."""
    zero = w.terms.number(0)
    factors = [[w.value(zero if value is None else value) for value in row] for row in stage.matrix]
    offset = [w.value(value) for value in stage.offset]
    for j, added in zip(stage.states, offset, strict=True):
        w.emit(op, w.place(to, j), w.place(carry, j), added, w.place("xi", 0))
    for j, row in zip(stage.states, factors, strict=True):
        for factor in row:
            w.emit("scan_factor", w.place(to, j), factor)


PROGRAMS = ("use", "train", "back", "trace")

GIVEN = ("s", "w", "number")
"""Leaves that the backward pass can read without saving them."""


@dataclass
class Assembly:
    """The programs of a cell: `use` (inference), `train`, `back` (backward) and `trace` (backward, with a record of the
    full gradient of every state)."""

    use: Code
    train: Code
    back: Code
    trace: Code
    gates: int
    products: int
    states: int
    extras: int
    saved: int
    """The number of saved values that are not stored in the memory of an input projection."""
    own: int
    """The number of recurrent projections whose gradient differs from that of every input projection."""
    product_places: list[int]
    """For every recurrent projection, the gate whose input projection has the same gradient; otherwise the number of
    gates plus an index below `own`."""
    reads_share: bool
    """Whether any value is saved in the memory of the input projections."""
    heads: int
    """The number of diagonal blocks of W."""
    outputs: list[int]
    """The states that are the output."""
    adds_to_first: bool
    """Whether the next step reads the first state other than through W."""
    along_time: dict[str, Code]
    """The time-blocked programs by name; empty if the cell is not affine in its states."""

    def weight_names(self, count: int) -> list[str]:
        """Return torch's names of `count` weights, in the order in which the operator takes them."""
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


class _BackwardValues(NamedTuple):
    """Gradients of everything that a step reads, as values."""

    share: list[int]
    product: list[int]
    before: list[int]
    extra: list[int]
    state: list[int]
    """Full gradients of the next states."""

    @property
    def own(self) -> list[int]:
        """Distinct gradients of recurrent projections that differ from those of all input projections."""
        return list(dict.fromkeys(value for value in self.product if value not in self.share))

    @property
    def product_places(self) -> list[int]:
        """Implement `Assembly.product_places`."""
        places = {value: len(self.share) + k for k, value in enumerate(self.own)}
        return [self.share.index(value) if value in self.share else places[value] for value in self.product]


def _differentiated(cell: Cell, step: TracedStep) -> _BackwardValues:
    t = step.terms
    found = differentiate(t, step.states, [t.leaf("g", j) for j in range(len(cell.states))])
    zero = t.number(0)
    counts = {role: len(cell.tuple_of(role)._fields) for role in "xhs"} | {"w": len(step.prepared)}
    of_leaves = [[found.leaves.get((role, k), zero) for k in range(count)] for role, count in counts.items()]
    share, product, before, extra = of_leaves
    return _BackwardValues(share, product, before, extra, found.states)


def assemble(cell: Cell, step: TracedStep, biased: bool) -> Assembly:
    t, G = step.terms, len(cell.gates)
    forward_only = len(t.nodes)
    d = _differentiated(cell, step)
    adds_to_first = t.number_of(d.before[0]) != 0 or not cell.recurrent_gates

    carried = [j for j in range(len(d.before)) if j or adds_to_first]
    if len(d.before) > len(cell.states):  # a step with several predecessors (grid): skip gradients that are zero
        carried = [j for j in carried if t.number_of(d.before[j]) != 0]

    saved = _saved(t, step.states, [*d.share, *d.own, *d.before, *d.extra, *d.state], forward_only)
    use, train = ProgramWriter(t), ProgramWriter(t)
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
        along_time=_time_blocked(step, d, slots, biased),
    )


def _time_blocked(step: TracedStep, d: _BackwardValues, slots: SavedSlots, biased: bool) -> dict[str, Code]:
    """Write all time-blocked programs, or none if one of them is not possible."""
    t = step.terms
    if d.product:
        return {}
    known = {state: ("after", j) for j, state in reversed(list(enumerate(step.states))) if t[state].op not in GIVEN}
    results = {("d_share", g): value for g, value in enumerate(d.share)}
    traced = results | {("d_state", j): value for j, value in enumerate(d.state)}
    summed = [*d.extra, *(d.share if biased else [])]
    made = {
        "use": write_time_blocked_forward(t, step.states, {}),
        "train": write_time_blocked_forward(t, step.states, slots),
        "back": write_time_blocked_backward(t, d.before, known | slots, results, summed),
        "trace": write_time_blocked_backward(t, d.before, known | slots, traced, summed),
    }
    found = {name: code for name, code in made.items() if code is not None}
    return found if len(found) == len(made) else {}


def _backward(
    step: TracedStep, d: _BackwardValues, slots: SavedSlots, carried: list[int], biased: bool, traced: bool = False
) -> Code:
    """Write the backward program, which reads the states and the saved values in `slots`."""
    t, back = step.terms, ProgramWriter(step.terms)
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
    """Choose the values of the forward pass that are saved for the backward pass."""
    later = [v for v in t.reached_from(wanted) if v >= forward_only]
    read = {arg for v in later for arg in t[v].args if arg < forward_only} | {v for v in wanted if v < forward_only}
    read = {t.plain(value) for value in read}
    saved: list[int] = []

    def follows(value: int) -> bool:
        """Return True if a value can be recomputed cheaply; one costly operation directly on a state is allowed."""
        value = t.plain(value)
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


@functools.lru_cache(maxsize=256)
def load_assembly(text: str) -> Assembly:
    """Return the assembly of a program text, parsed once."""
    return Assembly.loads(text)
