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

from recur.compiler.assembly import PROGRAMS, Assembly, Code, load_assembly

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
    "atan": "atan_of({0})",
    "floor": "floor_of({0})",
    "round": "round_of({0})",
    "pow": "pow_of({0}, {1})",
    "remainder": "remainder_of({0}, {1})",
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
"""C++ expression of each operation. `sum` adds to its target."""

FORWARD_PARAMETERS = ("share", "product", "before", "extra", "after", "saved")
BACKWARD_PARAMETERS = (
    "share", "saved", "before", "after", "extra", "d_after", "d_share", "d_product", "d_before", "d_state", "sum",
)  # fmt: skip
"""Parameters of the generated functions: one array for each kind of operand."""

FORWARD_MAP_PARAMETERS = ("share", "extra", "after", "matrix", "offset")
BACKWARD_MAP_PARAMETERS = ("share", "saved", "before", "after", "extra", "d_after", "matrix", "offset")
SCANS = ("scan_state", "scan_back_state")


def read_indices(code: Code, kind: str) -> list[int]:
    """Return the indices of operands of a kind that a program reads before it writes them."""
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
    """Print a constant exactly."""
    if math.isnan(value):
        return "real(NAN)"
    if math.isinf(value):
        return "real(INFINITY)" if value > 0 else "real(-INFINITY)"
    return f"real({value!r})"


def print_function(name: str, code: Code, kinds: tuple[str, ...], sums: int | None = None) -> str:
    """Print the function of a program. `sums`: print only the first so many sums."""
    return _print_function(name, code, kinds, _print_instructions(code, len(code.instructions), sums))


def _print_instructions(code: Code, count: int, sums: int | None = None) -> list[str]:
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
    """Return the states that a program over time scans if the step is one affine map of them; otherwise an empty list.

    The step is one affine map if all its scans form one group and it reads no other state of the previous step.
    """
    scans = [k for k, (op, _) in enumerate(code.instructions) if op in SCANS]
    side_by_side = all(later == k + 1 for k, later in pairwise(scans))
    if not side_by_side or any(op == "shift" for op, _ in code.instructions):
        return []
    return [code.places[code.instructions[k][1][0]][1] for k in scans]


def print_affine_map(name: str, code: Code, kinds: tuple[str, ...]) -> str:
    """Print a function that computes A, row by row, and b of the affine step s' = A s + b.

    It consists of the instructions before the scan and the operands of the scan.
    """
    states = len(affine_states(code))
    first = next(k for k, (op, _) in enumerate(code.instructions) if op in SCANS)
    group = [operands for _, operands in code.instructions[first : first + states * (1 + states)]]
    lines = [f"offset[{k}] = {_print_operand(code, operands[2])};" for k, operands in enumerate(group[:states])]
    lines += [f"matrix[{k}] = {_print_operand(code, operands[1])};" for k, operands in enumerate(group[states:])]
    return _print_function(name, code, kinds, _print_instructions(code, first) + lines)


KERNELS = Path(__file__).parent / "kernels"
DTYPE_CODES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
"""Values of NUM in prelude.cu."""


@functools.cache
def _read_kernel_file(name: str) -> str:
    return (KERNELS / f"{name}.cu").read_text()


def format_bits(indices: Sequence[int]) -> str:
    return hex(sum(1 << k for k in indices))


def definitions(a: Assembly) -> dict[str, str | int]:
    """Return the macros that describe a cell to the kernels."""
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
    """Print the four functions of a cell. Gradients of biases are left out: reduce.cu sums them later."""
    made = [print_function(f"{name}_step", getattr(a, name), FORWARD_PARAMETERS) for name in PROGRAMS[:2]]
    made += [
        print_function(f"{name}_step", getattr(a, name), BACKWARD_PARAMETERS, sums=a.extras) for name in PROGRAMS[2:]
    ]
    return "\n\n".join(made)


def print_affine_maps(a: Assembly) -> str:
    """Print the affine map of a step for the forward and the backward pass, where it exists."""
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
    """Return the complete source of kernels for a cell.

    Args:
        bodies: names of files in kernels/, or "affine_maps".
        options: further macros and their values.
    """
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
"""Integers, then pointers. `*` stands for one pointer per state, `+` for one per extra weight and one more."""


class ArgStruct:
    """Struct type of kernel arguments for a cell with a number of states and extra weights, and the offsets of its
    fields.
    """

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
    """Argument struct of a kernel. Tensors whose addresses it holds must outlive the launch."""

    def __init__(self, a: Assembly, which: bool | Fields, **numbers: int) -> None:
        """Create the struct. `which`: True for backward, False for forward, or the fields of another kernel."""
        fields = which if isinstance(which, tuple) else BACKWARD_FIELDS if which else FORWARD_FIELDS
        self._form = arg_struct(fields, a.states, a.extras)
        self.struct = self._form.struct(**numbers)
        self._pointers: ctypes.Array[c_uint64] = self.struct.pointers

    def put(self, **given: Tensor | Sequence[Tensor | None] | None) -> KernelArguments:
        """Set pointers; None is a null pointer."""
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
        """Return the offset of a field in bytes."""
        if name in self._form.pointers:
            return int(type(self.struct).pointers.offset) + 8 * self._form.pointers[name]
        return int(getattr(type(self.struct), name).offset)


NULL = -1
"""Index of a null pointer: the last of a call's addresses."""


class ArgTemplate:
    """Argument struct in which only the addresses are missing; a call turns them into the bytes of the struct."""

    def __init__(self, a: Assembly, fields: Fields, places: Mapping[str, int | Sequence[int]], **numbers: int) -> None:
        """Create the template. `places`: index of each pointer among a call's addresses; other pointers are null."""
        made = arg_struct(fields, a.states, a.extras)
        chosen = [NULL] * made.count
        for name, at in places.items():
            first = made.pointers[name]
            for k, place in enumerate([at] if isinstance(at, int) else at):
                chosen[first + k] = place
        begin = made.struct.pointers.offset
        self.numbers = bytes(made.struct(**numbers))[:begin]
        self.chosen = chosen
        """Index into a call's addresses for each pointer."""
        self._pack = struct.Struct(f"{begin}s{made.count}Q").pack
        self._choose = operator.itemgetter(*chosen)
        self.struct = made.struct

    def __call__(self, addresses: Sequence[int]) -> bytes:
        """Return the bytes of the struct. The last address must be 0."""
        return self._pack(self.numbers, *self._choose(addresses))

    def aligned(self, addresses: Sequence[int], to: int) -> bool:
        """Return True if all addresses are multiples of a power of two."""
        return not functools.reduce(operator.or_, self._choose(addresses)) & (to - 1)
