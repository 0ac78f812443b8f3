"""Steps that are lists of stages: matrix products, reductions over units, and pointwise programs between them.

A step that is not pointwise is traced like any other (see tracing.py), into a graph that also has products with weights
and reductions. A reduction has the width of its argument: every unit of a group holds the result, so the matrix of a
sum is symmetric, and its derivative is the same sum of the gradient. A product with M has the derivative Mᵀ. So the
backward pass is a step of the same kind, and one scheduler writes both passes:

    level of a value     0 for what is in memory; one more for a product or a reduction of a value of a level
    pointwise values     are computed at the level of their first use, together with all others of that level
    a · Mᵀ + b           is one stage: the product is added onto b

A value that a product, a reduction or a later level reads is stored between the stages.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from recur.cells.cell import Cell
from recur.compiler.assembly import ProgramWriter
from recur.compiler.expressions import COSTLY, DERIVATIVES, LEAVES, Expressions, Node, differentiate

Size = str | int
"""H, D or a number."""

REDUCTIONS = ("total", "mean", "largest")
BARRIERS = ("product", "product_t", *REDUCTIONS)
"""Operations that read all units of their argument. The leaf of a product is its matrix, of a reduction the groups."""


class Matrix(NamedTuple):
    """A matrix that a step multiplies by: a weight, or one gate's block of weight_hh."""

    name: str
    block: int
    rows: Size
    columns: Size


class StageTerms(Expressions):
    """Graph of expressions with products and reductions."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[tuple[str, int], Size] = {}
        """The widths of leaves, H if not given."""
        self.matrices: list[Matrix] = []

    def product(self, a: int, matrix: int, transposed: bool = False) -> int:
        """Return a · Mᵀ, or a · M if transposed."""
        if self.number_of(a) == 0:
            return a
        return self._make(Node("product_t" if transposed else "product", (a,), matrix))

    def reduce(self, op: str, a: int, groups: int = 1) -> int:
        return a if self.number_of(a) == 0 else self._make(Node(op, (a,), groups))

    def width(self, value: int) -> Size | None:
        """Return the width of a value, None for a number."""
        op, args, leaf = self[value]
        if op == "number":
            return None
        if op in ("product", "product_t"):
            matrix = self.matrices[int(leaf)]
            return matrix.rows if op == "product" else matrix.columns
        if not args:
            return self.sizes.get((op, int(leaf)), "H")
        return next((width for arg in args if (width := self.width(arg)) is not None), None)

    def evaluate(
        self,
        values: Iterable[int],
        leaves: Mapping[tuple[str, int], Tensor],
        known: dict[int, Tensor] | None = None,
        matrices: Sequence[Tensor] = (),
    ) -> list[Tensor]:
        values = list(values)
        known = {} if known is None else known
        for value in self.reached_from(values, known):
            op, args, leaf = self[value]
            if op in BARRIERS:
                a = known[args[0]]
                if op in ("product", "product_t"):
                    M = matrices[int(leaf)]
                    known[value] = a @ (M.mT if op == "product" else M)
                else:
                    by_group = a.unflatten(-1, (int(leaf), -1))
                    reduced = {"total": by_group.sum, "mean": by_group.mean, "largest": by_group.amax}[op](-1, True)
                    known[value] = reduced.expand_as(by_group).flatten(-2)
            else:
                super().evaluate([value], leaves, known)
        return [known[value] for value in values]


def _of_product(t: StageTerms, g: int, y: int, a: int) -> list[int]:
    op, _, matrix = t[y]
    return [t.product(g, int(matrix), transposed=op == "product")]


def _of_reduction(t: StageTerms, g: int, y: int, a: int) -> list[int]:
    op, _, groups = t[y]
    if op != "largest":
        return [t.reduce(op, g, int(groups))]
    wins = t("equal", a, y)  # equal units share the gradient, as in torch.amax
    share = t("div", t.reduce("total", g, int(groups)), t.reduce("total", wins, int(groups)))
    return [t("mul", wins, share)]


for _op in BARRIERS:
    DERIVATIVES[_op] = _of_product if _op.startswith("product") else _of_reduction


class StagedStep(NamedTuple):
    """A step as a graph, before it is scheduled."""

    terms: StageTerms
    states: list[int]
    weights: Expressions
    """Expressions of the vectors that the step reads: functions of rows of the extra weights."""
    prepared: list[int]
    """Values of `weights`, the leaves `w` of `terms`."""
    rows: list[tuple[str, int | None]]
    """The leaves `w` of `weights`: a weight, or a row of it."""


class Ref(NamedTuple):
    """Where a value is in memory: what it belongs to, its index there, and its width."""

    kind: str
    at: int
    size: Size = "H"


@dataclass
class Stage:
    """One stage. Values are indices into the list of the program."""

    kind: str
    to: int = 0
    a: int = -1
    onto: int = -1
    matrix: int = 0
    groups: int = 1
    size: Size = "H"
    code: dict[str, Any] = field(default_factory=dict)


@dataclass
class StageProgram:
    """The stages of one pass, and the values that they read and write."""

    values: list[tuple[str, int, Size]] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    matrices: list[tuple[int, bool]] = field(default_factory=list)
    """The matrices of its products, and whether they are transposed."""


class WeightGradient(NamedTuple):
    """The gradient of a matrix is the sum over all rows of dyᵀ a, or of aᵀ dy if transposed."""

    matrix: int
    transposed: bool
    a: Ref
    dy: Ref


@dataclass
class StagedPrograms:
    """Both passes of a cell."""

    forward: StageProgram
    backward: StageProgram
    trace: StageProgram
    """The backward pass that also writes the full gradient of every state."""
    saved: list[Size]
    recorded: list[Size]
    gradients: list[WeightGradient]
    matrices: list[Matrix]
    vectors: list[Size]
    inputs: list[Size]
    states: list[Size]
    gates: int
    masked: bool

    def dumps(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


@functools.lru_cache(maxsize=256)
def load_stages(text: str) -> StagedPrograms:
    """Return the programs of a text, parsed once."""
    found = json.loads(text)
    for name in ("forward", "backward", "trace"):
        program = found[name]
        stages = [Stage(**stage) for stage in program["stages"]]
        values = [tuple(value) for value in program["values"]]
        found[name] = StageProgram(values, stages, [tuple(m) for m in program["matrices"]])
    found["gradients"] = [WeightGradient(m, flag, Ref(*a), Ref(*dy)) for m, flag, a, dy in found["gradients"]]
    found["matrices"] = [Matrix(*matrix) for matrix in found["matrices"]]
    return StagedPrograms(**found)


def products_in_sequence(text: str) -> int:
    """Return how many products of a step wait for each other in the forward pass."""
    program = load_stages(text).forward
    depth: dict[int, int] = {}
    for stage in program.stages:
        if stage.kind == "pointwise":
            kinds = stage.code["places"]
            here = {k: depth.get(at, 0) for k, (kind, at) in enumerate(kinds) if kind == "value"}
            for _, (to, *read) in stage.code["instructions"]:
                here[to] = max((here.get(place, 0) for place in read), default=0)
                if kinds[to][0] == "value":
                    depth[kinds[to][1]] = here[to]
        else:
            onto = depth.get(stage.onto, 0)
            depth[stage.to] = max(depth.get(stage.a, 0) + (stage.kind == "product"), onto)
    return max(depth.values(), default=0)


class _Scheduler:
    """Writer of the stages of one pass."""

    def __init__(self, t: StageTerms, known: Mapping[int, Ref]) -> None:
        self.t, self.program = t, StageProgram()
        self._places: dict[Ref, int] = {}
        self._at = {value: self._place(ref) for value, ref in known.items()}

    def _place(self, ref: Ref) -> int:
        if ref not in self._places:
            self._places[ref] = len(self.program.values)
            self.program.values.append((ref.kind, ref.at, ref.size))
        return self._places[ref]

    def run(self, results: Sequence[tuple[int, Ref]], sums: Sequence[tuple[int, Ref]]) -> StageProgram:
        """Schedule the computation of results and of sums over all rows."""
        t, known = self.t, dict(self._at)
        wanted = [value for value, _ in (*results, *sums)]
        needed = [v for v in t.reached_from(wanted, known) if t[v].op != "number"]
        uses: dict[int, int] = {}
        for v in [*wanted, *(arg for user in needed for arg in t[user].args)]:
            uses[v] = uses.get(v, 0) + 1
        fused = self._fused(needed, uses, set(wanted))
        inside = {product for product, _ in fused.values()}
        needed = [v for v in needed if v not in inside]

        def reads(v: int) -> tuple[int, ...]:
            if v in fused:
                product, onto = fused[v]
                return (*t[product].args, onto)
            return t[v].args

        def is_barrier(v: int) -> bool:
            return v in fused or t[v].op in BARRIERS

        level: dict[int, int] = {}
        for v in needed:
            level[v] = max((level.get(arg, 0) for arg in reads(v)), default=0) + is_barrier(v)
        users: dict[int, list[int]] = {}
        for v in needed:
            for arg in reads(v):
                users.setdefault(arg, []).append(v)
        for v in reversed(needed):  # a pointwise value is computed where it is first read
            if not is_barrier(v) and v in users:
                level[v] = min(level[u] - is_barrier(u) for u in users[v])
        stored = set(wanted)
        for v in needed:
            stored |= {a for a in reads(v) if is_barrier(v) or level.get(a, 0) < level[v]}
        homes: dict[int, list[int]] = {}
        for value, ref in results:
            homes.setdefault(value, []).append(self._place(ref))
        temps = 0

        def home(v: int) -> int:
            nonlocal temps
            if v not in self._at:
                if v in homes:
                    self._at[v] = homes[v][0]
                else:
                    self._at[v] = self._place(Ref("temp", temps, t.width(v) or "H"))
                    temps += 1
            return self._at[v]

        last = max(level.values(), default=0)
        sums_at: dict[int, list[tuple[int, int]]] = {}
        for value, ref in sums:
            sums_at.setdefault(level.get(value, 0), []).append((value, self._place(ref)))
        copies_at: dict[int, list[tuple[int, int]]] = {}
        for value, places in homes.items():
            if value in known or t[value].op == "number":
                copies_at.setdefault(0, []).extend((value, place) for place in places)
            elif len(places) > 1:
                copies_at.setdefault(level[value], []).extend((value, place) for place in places[1:])
        for at in range(last + 1):
            for v in needed:
                if is_barrier(v) and level[v] == at:
                    self._barrier(v, fused, home)
            targets = [v for v in needed if not is_barrier(v) and level[v] == at and v in stored]
            self._pointwise(targets, copies_at.get(at, []), sums_at.get(at, []), home)
        return self.program

    def _fused(self, needed: list[int], uses: dict[int, int], wanted: set[int]) -> dict[int, tuple[int, int]]:
        """Return the additions that a product does itself: the product, and what it is added onto."""
        t, found, taken = self.t, dict[int, tuple[int, int]](), set[int]()
        for v in needed:
            if t[v].op != "add":
                continue
            for product, onto in (t[v].args, t[v].args[::-1]):
                single = t[product].op in BARRIERS[:2] and uses[product] == 1 and product not in wanted
                if single and product not in self._at and product not in taken and t[onto].op != "number":
                    found[v] = product, onto
                    taken.add(product)
                    break
        return found

    def _barrier(self, v: int, fused: dict[int, tuple[int, int]], home: Any) -> None:
        t = self.t
        node, onto = t[v], -1
        if v in fused:
            node, onto = t[fused[v][0]], home(fused[v][1])
        stage = Stage(node.op, a=home(node.args[0]), onto=onto)
        if node.op.startswith("product"):
            key = int(node.leaf), node.op == "product_t"
            if key not in self.program.matrices:
                self.program.matrices.append(key)
            stage.kind, stage.matrix = "product", self.program.matrices.index(key)
        else:
            stage.groups = int(node.leaf)
        stage.to = home(v)
        self.program.stages.append(stage)

    def _pointwise(
        self, targets: list[int], copies: list[tuple[int, int]], sums: list[tuple[int, int]], home: Any
    ) -> None:
        """Write one program for each width."""
        t, values = self.t, self.program.values
        jobs = [(v, None) for v in targets] + [(v, place) for v, place in copies]
        sizes: dict[Size, None] = {}
        for v, place in jobs:
            sizes[values[place][2] if place is not None else t.width(v) or "H"] = None
        for _, place in sums:
            sizes[values[place][2]] = None
        for size in sizes:
            writer = ProgramWriter(t)
            for value, place in self._at.items():
                writer.known[value] = writer.place("value", place)
            here = [(v, place) for v, place in jobs if (values[place][2] if place is not None else t.width(v)) == size]
            added = [(v, place) for v, place in sums if values[place][2] == size]
            writer.count([v for v, _ in here] + [v for v, _ in added])
            writer.write({("value", home(v) if place is None else place): v for v, place in here})
            for v, place in added:
                writer.emit("sum", writer.place("value", place), writer.value(v))
            self.program.stages.append(Stage("pointwise", size=size, code=asdict(writer.finish())))


def _saved(t: StageTerms, states: Sequence[int], wanted: Sequence[int], forward_only: int, kept: set[int]) -> list[int]:
    """Choose the values of the forward pass that are saved: those that the backward pass cannot recompute cheaply."""
    later = [v for v in t.reached_from(wanted) if v >= forward_only]
    read = {arg for v in later for arg in t[v].args if arg < forward_only} | {v for v in wanted if v < forward_only}
    saved = set(kept)

    read = {t.plain(value) for value in read}

    def follows(value: int) -> bool:
        value = t.plain(value)
        op, args, _ = t[value]
        if value in saved or value in states or op in LEAVES:
            return True
        if op in BARRIERS or (op in COSTLY and not all(arg in states for arg in args)):
            return False
        return all(follows(arg) for arg in args)

    for value in sorted(read):
        if not follows(value):
            saved.add(value)
    return sorted(saved)


def schedule_step(
    step: StagedStep, cell: Cell, sizes: Sequence[Size], widths: Sequence[Size], masked: bool
) -> StagedPrograms:
    """Write the programs of both passes.

    sizes   widths of the values of each step that are no gates: inputs and noise
    widths  widths of the states
    """
    t, states, gates = step.terms, step.states, len(cell.gates)
    inputs = gates + len(sizes)  # the mask, if there is one, follows them

    def leaf_refs() -> dict[int, Ref]:
        refs: dict[int, Ref] = {}
        for value, (op, args, leaf) in enumerate(t.nodes):
            k = int(leaf) if op != "number" else 0
            if op == "x":
                refs[value] = Ref("mask", 0)
                if k < inputs:
                    refs[value] = Ref("share", k) if k < gates else Ref("input", k - gates, sizes[k - gates])
            elif op == "s":
                refs[value] = Ref("before", k, widths[k])
            elif op == "w":
                refs[value] = Ref("vector", k, t.sizes.get(("w", k), "H"))
            elif op == "g" and not args:
                refs[value] = Ref("carried", k, widths[k])
        return refs

    forward_only = len(t.nodes)
    found = differentiate(t, states, [t.leaf("g", j) for j in range(len(states))])
    zero = t.number(0)
    products = [v for v in t.reached_from(states) if t[v].op in ("product", "product_t") and v in found.values]
    in_memory = {v for v in range(forward_only) if t[v].op in LEAVES} | set(states)
    factors = {t[y].args[0] for y in products}
    d_x = [found.leaves.get(("x", k), zero) for k in range(inputs)]
    d_s = [found.leaves.get(("s", j), zero) for j in range(len(states))]
    d_w = [found.leaves.get(("w", k), zero) for k in range(len(step.prepared))]
    d_y = [found.values[y] for y in products]
    wanted = [*d_x, *d_s, *d_w, *d_y]
    saved = [v for v in _saved(t, states, wanted, forward_only, factors - in_memory) if v not in in_memory]

    refs = leaf_refs()
    forward_known = {value: ref for value, ref in refs.items() if ref.kind != "carried"}
    tape = {v: Ref("saved", k, t.width(v) or "H") for k, v in enumerate(saved)}
    after = [(state, Ref("after", j, widths[j])) for j, state in enumerate(states)]
    forward = _Scheduler(t, forward_known).run([*after, *tape.items()], [])

    known = dict(refs) | tape
    for state, ref in reversed(after):
        if t[state].op not in LEAVES:
            known[state] = ref
    results: list[tuple[int, Ref]] = []
    if not cell.multiplies_inside:
        results += [(d, Ref("d_share", g)) for g, d in enumerate(d_x[:gates])]
    results += [(d, Ref("d_input", k, sizes[k])) for k, d in enumerate(d_x[gates:])]
    results += [(d, Ref("next", j, widths[j])) for j, d in enumerate(d_s)]
    recorded: list[Size] = []
    at = {value: ref for value, ref in reversed(results) if ref.kind.startswith("d_") and value != zero}
    gradients = []
    for y, dy in zip(products, d_y, strict=True):
        if dy not in at:
            at[dy] = Ref("record", len(recorded), t.width(y) or "H")
            recorded.append(at[dy].size)
            results.append((dy, at[dy]))
        a = t[y].args[0]
        home = tape.get(a) or known[a]
        gradients.append(WeightGradient(int(t[y].leaf), t[y].op == "product_t", home, at[dy]))
    sums = [(d, Ref("sum", k, t.sizes.get(("w", k), "H"))) for k, d in enumerate(d_w) if d != zero]
    backward = _Scheduler(t, known).run(results, sums)
    d_states = [(d, Ref("d_state", j, widths[j])) for j, d in enumerate(found.states)]
    trace = _Scheduler(t, known).run([*results, *d_states], sums)
    vectors = [t.sizes.get(("w", k), "H") for k in range(len(step.prepared))]
    return StagedPrograms(
        forward, backward, trace, [ref.size for ref in tape.values()], recorded, gradients, t.matrices, vectors,
        list(sizes), list(widths), gates, masked,
    )  # fmt: skip


def stage_sizes(cell: Cell) -> list[Size]:
    """Return the widths of the values of each step that are no gates. A single number is expanded to all units."""
    sizes: list[Size] = ["H" if size == 1 else size for size in cell.call_inputs.values()]
    return sizes + ["H"] * len(cell.noise)
