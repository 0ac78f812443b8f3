"""Generation of CUDA C++ sources: a cell's program as a function, the kernel around it, and the kernel's arguments.

A program works on the numbers of one unit of one row, in registers. Every kind of operand is an array: a kernel loads
the entries that `read_indices` returns, calls the function, and stores those that `written_indices` returns. The text
is plain C++ on `real`, so that any compiler can check it: tests compile it for the CPU with twins of prelude.cu.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import struct
from collections.abc import Mapping, Sequence
from ctypes import Structure, c_int, c_uint64
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from recur.compiler.assembly import PROGRAMS, Assembly, Code

OPERATIONS = {
    "copy": "{0}",
    "neg": "-{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "multiply_add": "{0} * {1} + {2}",
    "multiply_sub": "{0} * {1} - {2}",
    "sub_multiply": "{2} - {0} * {1}",
    "relu": "{0} < real(0) ? real(0) : {0}",
    "sigmoid": "sigmoid_of({0})",
    "sigmoid_sum": "sigmoid_of({0} + {1})",
    "tanh": "tanh_of({0})",
    "tanh_sum": "tanh_of({0} + {1})",
    "d_sigmoid": "{0} * {1} * (real(1) - {1})",
    "d_tanh": "{0} * (real(1) - {1} * {1})",
    "exp": "exp_of({0})",
    "log": "log_of({0})",
    "log1p": "log1p_of({0})",
    "expm1": "expm1_of({0})",
    "sqrt": "sqrt_of({0})",
    "sin": "sin_of({0})",
    "cos": "cos_of({0})",
    "erf": "erf_of({0})",
    "abs": "{0} < real(0) ? -{0} : {0}",
    "sign": "{0} > real(0) ? real(1) : {0} < real(0) ? real(-1) : {0} == {0} ? real(0) : {0}",
    "less": "{0} < {1} ? real(1) : real(0)",
    "less_equal": "{0} <= {1} ? real(1) : real(0)",
    "equal": "{0} == {1} ? real(1) : real(0)",
    "select": "{0} != real(0) ? {1} : {2}",
    "minimum": "{0} != {0} ? {0} : {1} != {1} ? {1} : {0} < {1} ? {0} : {1}",
    "maximum": "{0} != {0} ? {0} : {1} != {1} ? {1} : {0} > {1} ? {0} : {1}",
    "sum": "{to} + {0}",
}
"""As the core's interpreter has them; `sum` adds to what its place holds."""

FORWARD_PARAMETERS = ("share", "product", "before", "extra", "after", "saved")
BACKWARD_PARAMETERS = (
    "share",
    "saved",
    "before",
    "after",
    "extra",
    "d_after",
    "d_share",
    "d_product",
    "d_before",
    "d_state",
    "sum",
)
"""The arguments of a function, in this order: one array for each kind of place."""

FORWARD_MAP_PARAMETERS = ("share", "extra", "after", "matrix", "offset")
BACKWARD_MAP_PARAMETERS = ("share", "saved", "before", "after", "extra", "d_after", "matrix", "offset")
SCANS = ("scan_state", "scan_back_state")


def read_indices(code: Code, kind: str) -> list[int]:
    """Which places of a kind a program reads before it has written them itself."""
    found: set[int] = set()
    written: set[int] = set()
    for op, (to, *operands) in code.instructions:
        found |= {p for p in (*operands, *([to] if op == "sum" else ())) if p not in written}
        written.add(to)
    return sorted(code.places[p][1] for p in found if code.places[p][0] == kind)


def written_indices(code: Code, kind: str) -> list[int]:
    found = {operands[0] for _, operands in code.instructions}
    return sorted(code.places[p][1] for p in found if code.places[p][0] == kind)


def format_constant(value: float) -> str:
    """A constant, to the last bit."""
    if math.isnan(value):
        return "real(NAN)"
    if math.isinf(value):
        return "real(INFINITY)" if value > 0 else "real(-INFINITY)"
    return f"real({value!r})"


def print_function(name: str, code: Code, kinds: tuple[str, ...], sums: int | None = None) -> str:
    """The function of a program. `sums`: only so many of what it sums up are wanted."""
    return _print_function(name, code, kinds, _print_instructions(code, len(code.instructions), sums))


def _print_instructions(code: Code, count: int, sums: int | None = None) -> list[str]:
    """The first instructions of a program."""
    lines = []
    for op, (to, *operands) in code.instructions[:count]:
        if op == "sum" and sums is not None and code.places[to][1] >= sums:
            continue
        value = OPERATIONS[op].format(*(_print_operand(code, p) for p in operands), to=_print_operand(code, to))
        lines.append(f"{_print_operand(code, to)} = {value};")
    return lines


def _print_operand(code: Code, p: int) -> str:
    kind, index = code.places[p]
    if kind == "constant":
        return format_constant(code.numbers[index])
    return f"t{index}" if kind == "temp" else f"{kind}[{index}]"


def _print_function(name: str, code: Code, kinds: tuple[str, ...], lines: list[str]) -> str:
    arguments = ", ".join(f"real* {kind}" for kind in kinds)
    temps = [f"real {', '.join(f't{k}' for k in range(code.temps))};"] if code.temps else []
    return "\n".join([f"FUNCTION void {name}({arguments}) {{", *(f"    {line}" for line in [*temps, *lines]), "}"])


def affine_states(code: Code) -> list[int]:
    """The states that a program along time carries, if they are one stage and no other state's past is read; or none.

    Only then is a step one affine map: what else follows from it has to wait for nothing.
    """
    scans = [k for k, (op, _) in enumerate(code.instructions) if op in SCANS]
    side_by_side = all(later == k + 1 for k, later in pairwise(scans))
    if not side_by_side or any(op == "shift" for op, _ in code.instructions):
        return []
    return [code.places[code.instructions[k][1][0]][1] for k in scans]


def print_affine_map(name: str, code: Code, kinds: tuple[str, ...]) -> str:
    """A step of one stage as a function that finds its A, row by row, and b: s' = A s + b.

    Of a program along time that is what stands before its scan, and the scan's operands.
    """
    states = len(affine_states(code))
    first = next(k for k, (op, _) in enumerate(code.instructions) if op in SCANS)
    group = [operands for _, operands in code.instructions[first : first + states * (1 + states)]]
    lines = [f"offset[{k}] = {_print_operand(code, operands[2])};" for k, operands in enumerate(group[:states])]
    lines += [f"matrix[{k}] = {_print_operand(code, operands[1])};" for k, operands in enumerate(group[states:])]
    return _print_function(name, code, kinds, _print_instructions(code, first) + lines)


KERNELS = Path(__file__).parent / "kernels"
DTYPE_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
"""As prelude.cu has them."""


@functools.lru_cache(maxsize=256)
def load_assembly(text: str) -> Assembly:
    """A cell's programs, from their text."""
    return Assembly.loads(text)


@functools.cache
def _read_kernel_file(name: str) -> str:
    return (KERNELS / f"{name}.cu").read_text()


def format_bits(indices: Sequence[int]) -> str:
    return hex(sum(1 << k for k in indices))


def definitions(a: Assembly) -> dict[str, str | int]:
    """The numbers of a cell, as the kernels' texts call them."""
    places = "".join(f"(r) == {r} ? {place} : " for r, place in enumerate(a.product_places)) + "0"
    outputs = "".join(f"(j) == {j} ? {k} : " for k, j in enumerate(a.outputs)) + "-1"
    return {
        "GATES": a.gates,
        "PRODUCTS": a.products,
        "STATES": a.states,
        "EXTRAS": a.extras,
        "SAVED": a.saved,
        "OWN": a.own,
        "PRODUCT_PLACE(r)": f"({places})",
        "OUTPUTS": len(a.outputs),
        "OUTPUT_PLACE(j)": f"({outputs})",
        "USE_READS_SHARE": format_bits(read_indices(a.use, "share")),
        "TRAIN_READS_SHARE": format_bits(read_indices(a.train, "share")),
        "TRAIN_WRITES_SHARE": format_bits(written_indices(a.train, "share")),
        "BACK_READS_GIVEN": format_bits(
            sorted(set(read_indices(a.trace, "share")) - set(written_indices(a.train, "share")))
        ),
        "BACK_READS_SHARE": format_bits(sorted({*read_indices(a.back, "share"), *read_indices(a.trace, "share")})),
        "BACK_READS_BEFORE": format_bits(sorted({*read_indices(a.back, "before"), *read_indices(a.trace, "before")})),
        "BACK_READS_AFTER": format_bits(sorted({*read_indices(a.back, "after"), *read_indices(a.trace, "after")})),
    }


def print_programs(a: Assembly) -> str:
    """The four functions of a cell. Biases' gradients are sums over a matrix, which is there afterwards."""
    made = [print_function(f"{name}_step", getattr(a, name), FORWARD_PARAMETERS) for name in PROGRAMS[:2]]
    made += [
        print_function(f"{name}_step", getattr(a, name), BACKWARD_PARAMETERS, sums=a.extras) for name in PROGRAMS[2:]
    ]
    return "\n\n".join(made)


def print_affine_maps(a: Assembly) -> str:
    """A step as an affine map, on the way and on the way back, where it is one: its states, and its function."""
    made: list[str] = []
    for name, which, kinds in (
        ("forward", "use", FORWARD_MAP_PARAMETERS),
        ("backward", "back", BACKWARD_MAP_PARAMETERS),
    ):
        states = affine_states(a.along_time[which]) if a.along_time else []
        chosen = "".join(f"(i) == {i} ? {j} : " for i, j in enumerate(states)) + "0"
        made.append(f"#define {name.upper()}_STAGE {len(states)}\n#define {name.upper()}_STATE(i) ({chosen})")
        if states:
            made.append(print_affine_map(f"{name}_map", a.along_time[which], kinds))
    return "\n\n".join(made)


@functools.lru_cache(maxsize=1024)
def kernel_source(
    cell: str, dtype: torch.dtype, bodies: tuple[str, ...], options: tuple[tuple[str, int], ...] = ()
) -> str:
    """A cell's kernels in one text. `bodies`: files of kernels/, or "maps"; `options`: what they are built with."""
    a = load_assembly(cell)
    fast = dtype in (torch.bfloat16, torch.float16)
    defined = {"NUM": DTYPE_CODES[dtype], "FAST": int(fast), **definitions(a), **dict(options)}
    head = "\n".join(f"#define {name} {value}" for name, value in defined.items())
    parts = [
        head,
        _read_kernel_file("prelude"),
        _read_kernel_file("arguments"),
        print_programs(a),
        *(print_affine_maps(a) if name == "affine_maps" else _read_kernel_file(name) for name in bodies),
    ]
    return "\n\n".join(parts)


Fields = tuple[tuple[str], tuple[str, ...]]

FORWARD_FIELDS: Fields = (
    ("steps S H step rows reversed",),
    ("offset length share tape", "state* final_state* initial*", "bias input_bias", "extra+", "mask W exchange arrived",
     "carry*", "product"),
)  # fmt: skip
BACKWARD_FIELDS: Fields = (
    ("steps S H step rows later reversed",),
    ("offset length share tape", "state* initial*", "extra+", "mask W input_bias", "d_outputs* d_final*",
     "xi d_share d_own", "d_state*", "sums", "carry*", "exchange arrived product"),
)  # fmt: skip
STREAM_FIELDS: Fields = (
    ("n slots D H x_pitch out_pitch",),
    ("index x U W bias_ih bias_hh", "extra+", "v parity tickets", "state*", "out"),
)  # fmt: skip
PACK_FIELDS: Fields = (("H inner width transposed words",), ("W", "packed zeros"))
REDUCE_FIELDS: Fields = (("H S N splits",), ("d_share d_own sums partial tickets d_bias_ih d_bias_hh", "d_extra+"))
"""Whole numbers, then pointers: with * one for each state, with + for each weight of the cell's own, and one more."""


class ArgStruct:
    """Where everything stands, for a cell with so many states and weights of its own."""

    def __init__(self, fields: Fields, states: int, extras: int) -> None:
        (names,), pointers = fields
        numbers, self.pointers, count = names.split(), dict[str, int](), 0
        for name in " ".join(pointers).split():
            self.pointers[name.rstrip("*+")] = count
            count += states if name.endswith("*") else extras + 1 if name.endswith("+") else 1
        self.count = count
        made = [*((name, c_int) for name in numbers), ("pointers", c_uint64 * count)]
        self.struct: type[Structure] = type("KernelArguments", (Structure,), {"_fields_": made})


arg_struct = functools.cache(ArgStruct)


class KernelArguments:
    """A struct to be filled; tensors whose addresses it has must outlive its launch."""

    def __init__(self, a: Assembly, which: bool | Fields, **numbers: int) -> None:
        """`which`: those of a pass, whether back; or of another kernel."""
        fields = which if isinstance(which, tuple) else BACKWARD_FIELDS if which else FORWARD_FIELDS
        self._form = arg_struct(fields, a.states, a.extras)
        self.struct = self._form.struct(**numbers)
        self._pointers: ctypes.Array[c_uint64] = self.struct.pointers

    def put(self, **given: Tensor | Sequence[Tensor | None] | None) -> KernelArguments:
        """Addresses; None is null."""
        pointers, places = self._pointers, self._form.pointers
        for name, value in given.items():
            at = places[name]
            if value is None:
                pointers[at] = 0
            elif isinstance(value, Tensor):
                pointers[at] = value.data_ptr()
            else:
                for k, part in enumerate(value):
                    pointers[at + k] = 0 if part is None else part.data_ptr()
        return self

    def number(self, name: str, value: int) -> None:
        setattr(self.struct, name, value)

    def at(self, name: str) -> int:
        """Where a number or a pointer stands, in bytes."""
        if name in self._form.pointers:
            return int(type(self.struct).pointers.offset) + 8 * self._form.pointers[name]
        return int(getattr(type(self.struct), name).offset)


NULL = -1
"""Where an address stands that is none: the last of a call's addresses."""


class ArgTemplate:
    """A struct of which all but the addresses is known: from those of a call to its bytes."""

    def __init__(self, a: Assembly, fields: Fields, places: Mapping[str, int | Sequence[int]], **numbers: int) -> None:
        """`places`: where among a call's addresses each pointer's stands; all others are null."""
        made = arg_struct(fields, a.states, a.extras)
        chosen = [NULL] * made.count
        for name, at in places.items():
            first = made.pointers[name]
            for k, place in enumerate([at] if isinstance(at, int) else at):
                chosen[first + k] = place
        begin = made.struct.pointers.offset
        self.numbers = bytes(made.struct(**numbers))[:begin]
        self.chosen = chosen
        """Which of a call's addresses each pointer is."""
        self._pack = struct.Struct(f"{begin}s{made.count}Q").pack
        self._choose = operator.itemgetter(*chosen)
        self.struct = made.struct

    def __call__(self, addresses: Sequence[int]) -> bytes:
        """`addresses`: the last of them is 0."""
        return self._pack(self.numbers, *self._choose(addresses))

    def aligned(self, addresses: Sequence[int], to: int) -> bool:
        """Whether all of them are multiples of so many bytes, a power of two."""
        return not functools.reduce(operator.or_, self._choose(addresses)) & (to - 1)
