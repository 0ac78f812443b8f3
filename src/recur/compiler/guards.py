"""Guards of a compiled step: every value that tracing has read, so that a program is used for these values only.

A program contains the numbers that its step read: attributes of the cell and of its class, attributes of objects in
them, globals, closures, default arguments, and the functions that the step called. `watched_calls` records which Python
functions ran while the step was traced. `find_guards` then follows the names in their code from the cell to the values,
and returns a guard for each place where one was found. A value that can change unnoticed (an array, a generator, the
clock), or a function that is reached in an unknown way, raises `UnguardableError`: such a step runs on the loop.

Modules that no program is expected to change are not watched: torch, NumPy, the standard library, recur itself. Cells
that come with recur are watched as those of users are.
"""

from __future__ import annotations

import dis
import enum
import functools
import gc
import importlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.cells._cache import Guards
from recur.cells.cell import Cell

MAX_VALUES = 500
"""The largest number of values that the guards of one step watch."""

CONSTANT_PACKAGES = {"torch", "numpy", "recur", "functorch", "sympy", "mpmath", "optree", "typing_extensions"} | (
    sys.stdlib_module_names - {"__main__", "os", "random", "time"}
)
"""Packages whose functions and attributes are taken for constants."""
CONTRACT_MODULES = ("recur.cells.cell", "recur.cells.tensors", "recur.cells.contract", "recur.cells._cache")

CONTRACT = frozenset(
    name
    for name, value in vars(Cell).items()
    if name[0] != "_" and not (callable(value) or isinstance(value, property))
) - {"name", "forget_gate", "input_gate"} | {"step"}
"""Attributes of a cell that compiling reads besides the step."""

UNKNOWN_EFFECTS = {
    "eval",
    "exec",
    "globals",
    "locals",
    "input",
    "open",
    "__import__",
    "id",
    "AttributeError",
    "NameError",
}
"""Built-in functions whose results are not known beforehand, and errors whose handlers read what is missing."""
UNKNOWN_STATE = {
    "is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "get_default_dtype", "get_default_device",
    "is_compiling", "initial_seed", "get_rng_state", "get_num_threads", "environ",
}  # fmt: skip
"""Attributes and functions that read what no guard watches."""
DYNAMIC = {"getattr", "hasattr", "vars", "dir", "attrgetter", "methodcaller", "__dict__", "__getattribute__"}
"""Functions and attributes that read attributes whose names are not in the code."""

CONSTRUCTORS = {"__init__", "__post_init__", "__new__", "__set_name__"}
IMMUTABLE = (
    bool, int, float, complex, str, bytes, type(None), type(...), range, slice, torch.dtype, torch.device, torch.Size,
    np.generic, types.CodeType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.GenericAlias, types.UnionType,
)  # fmt: skip
PLAIN_BASES = (object, list, dict, tuple, set, frozenset, int, float, complex, str, bytes, types.SimpleNamespace)
"""Built-in classes whose instances have no other contents than those that are watched."""


class UnguardableError(Exception):
    """A step that reads a value whose changes cannot be noticed."""


def _is_constant(module: object) -> bool:
    """Return True if the functions of a module are taken for constants."""
    if not isinstance(module, str):
        return False
    if module.startswith("namedtuple_"):  # where the constructor of a named tuple is made
        return True
    if module.startswith("recur.cells."):
        return module in CONTRACT_MODULES
    return module.partition(".")[0] in CONSTANT_PACKAGES


class Calls:
    """The functions that ran while a step was traced."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        """The code of functions outside of constant modules."""
        self.dynamic = False
        """Whether they called Python functions of the standard library, which may read any attribute."""

    def record(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        module = frame.f_globals.get("__name__")
        if not _is_constant(module):
            self.codes.add(frame.f_code)
        elif frame.f_back is not None and frame.f_back.f_code in self.codes:
            self.dynamic |= str(module).partition(".")[0] in sys.stdlib_module_names


@contextmanager
def watched_calls() -> Iterator[Calls]:
    """Record the functions that run in this thread."""
    calls, before, collects = Calls(), sys.getprofile(), gc.isenabled()
    gc.disable()  # a collection would run finalizers and callbacks that have nothing to do with the step
    sys.setprofile(calls.record)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()


def find_guards(cell: Cell, calls: Calls) -> Guards:
    """Return the guards of all values that a step reads by the functions that ran.

    Raise UnguardableError if a value cannot be watched.
    """
    return _Search(cell, calls).run()


GLOBAL_READS = ("LOAD_GLOBAL", "LOAD_NAME")
ATTRIBUTE_READS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")


def _names_in(code: CodeType, operations: Sequence[str]) -> set[str]:
    """Return the names that the instructions of these kinds have."""
    return {i.argval for i in dis.get_instructions(code) if i.opname in operations}


def _nested(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of the functions and comprehensions inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _check_effects(code: CodeType) -> None:
    """Raise if a function changes what outlives it: a compiled program would not do that."""
    fresh = code.co_name in CONSTRUCTORS or code.co_varnames[:1] == ("ctx",)  # of a new object, of an autograd function
    for instruction in dis.get_instructions(code):
        name, op = instruction.argval, instruction.opname
        outside = op in ("STORE_GLOBAL", "DELETE_GLOBAL") or (op == "STORE_DEREF" and name in code.co_freevars)
        if outside or (op in ("STORE_ATTR", "DELETE_ATTR") and not fresh):
            raise UnguardableError(f"{code.co_qualname} changes {name}, which a compiled step cannot do")


class _Search:
    """Search for the values that a step reads, from its cell on, by the names in the code of the functions that ran."""

    def __init__(self, cell: Cell, calls: Calls) -> None:
        self.cell, self.codes, self.dynamic = cell, calls.codes, calls.dynamic
        self.attributes: set[str] = set()
        """Names of attributes in the code."""
        for code in self.codes:
            names, read = _names_in(code, ATTRIBUTE_READS), _names_in(code, GLOBAL_READS)
            for name in sorted((read & UNKNOWN_EFFECTS) | ((read | names) & UNKNOWN_STATE)):
                raise UnguardableError(f"{code.co_qualname} uses {name}, whose result may change unnoticed")
            _check_effects(code)
            self.dynamic |= bool((read | names) & DYNAMIC)
            self.attributes |= names
        self.guards = Guards()
        self.seen: dict[tuple[int, bool], object] = {(id(part), True): part for part in (Cell.extras, Cell.initial)}
        """Visited values, which are kept so that no other one gets their identity."""
        self.reached: set[CodeType] = set()

    def run(self) -> Guards:
        self._watch("type(cell)", type(self.cell))
        self._visit_attributes(self.cell, "cell", CONTRACT)
        lost = self.codes.difference(*(set(_nested(code)) for code in self.reached))
        if lost:
            name = min(code.co_qualname for code in lost)
            raise UnguardableError(f"it calls {name} in a way in which a change of that function would not be noticed")
        for part in (*self.guards.values, *self.guards.owners.values()):
            if part is self.cell or getattr(part, "__self__", None) is self.cell:
                raise UnguardableError("it reads a reference to its own cell")
        return self.guards

    def _watch(self, source: str, value: object) -> None:
        if len(self.guards.values) >= MAX_VALUES:
            raise UnguardableError(f"it reads more than {MAX_VALUES} values")
        self.guards.watch(source, value)

    def _watch_entries(self, owner: Mapping[Any, Any], names: Iterable[str]) -> None:
        """Watch entries of a dictionary whose keys are names, and what is inside them."""
        for name in names:
            self._watch(f"{self.guards.owner(owner)}[{name!r}]", owner[name])
            self._visit(owner[name])

    def _watch_all(self, owner: Any, items: Iterable[tuple[str, Any]]) -> None:
        """Watch the number of items of a container, and the items, each with the Python expression of its index."""
        name = self.guards.owner(owner)
        self._watch(f"len({name})", len(owner))
        for index, item in items:
            self._watch(f"{name}[{index}]", item)
            self._visit(item)

    def _visit(self, value: Any) -> None:
        """Watch what is inside a value. The value itself is watched where it was found."""
        if (id(value), True) in self.seen:
            return
        if isinstance(value, enum.Enum):
            self.seen[id(value), True] = value
            self._watch_entries(vars(value), sorted((self.attributes | {"_value_"}) & vars(value).keys()))
            return
        if isinstance(value, IMMUTABLE) and type(value).__module__ in ("builtins", "torch", "numpy", "types"):
            return
        if type(value).__name__ == "_tuplegetter":  # a field of a named tuple class
            return
        self.seen[id(value), True] = value
        match value:
            case Tensor() | np.ndarray():
                raise UnguardableError(f"it reads {_kind(value)}, whose numbers may change unnoticed")
            case type():
                self._visit_class(value, data=True)
            case ModuleType():
                if not _is_constant(value.__name__):
                    self._watch_entries(vars(value), sorted(self.attributes & vars(value).keys()))
            case FunctionType():
                self._visit_function(value)
            case types.MethodType() | types.BuiltinFunctionType():
                self._visit_method(value)
            case functools.partial():
                self._visit_all((value.func, value.args, value.keywords))
            case staticmethod() | classmethod():
                self._visit(value.__func__)
            case property():
                self._visit(value.fget)
            case functools.cached_property():
                self._visit(value.func)
            case list():
                self._watch_all(value, ((str(k), item) for k, item in enumerate(value)))
            case dict() | types.MappingProxyType():
                self._watch_all(value, ((self.guards.owner(key), item) for key, item in value.items()))
            case set():
                self._watch(f"frozenset({self.guards.owner(value)})", frozenset(value))
                self._visit_all(value)
            case tuple() | frozenset():
                self._visit_all(value)
        if type(value).__module__ not in ("builtins", "types", "functools") or isinstance(value, types.SimpleNamespace):
            if not isinstance(value, type):
                self._visit_instance(value)
        elif type(value).__name__ in ("_lru_cache_wrapper", "generator", "cell", "bytearray", "memoryview"):
            raise UnguardableError(f"it uses {_kind(value)}, whose results may change unnoticed")

    def _visit_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self._visit(value)

    def _visit_method(self, method: types.MethodType | types.BuiltinFunctionType) -> None:
        owner: Any = method.__self__
        if isinstance(method, types.MethodType):
            self._visit(method.__func__)
        if owner is None or isinstance(owner, ModuleType | type):
            module = getattr(owner, "__module__", None) or getattr(method, "__module__", None)
            module = module or getattr(owner, "__name__", "builtins")
            if isinstance(method, types.BuiltinFunctionType) and not _is_constant(module):
                raise UnguardableError(f"it calls {module}.{method.__name__}, whose result may change unnoticed")
        if owner is not self.cell:
            self._visit(owner)

    def _visit_function(self, function: FunctionType) -> None:
        contents = [cell for cell in function.__closure__ or () if _is_assigned(cell)]
        if _is_constant(function.__globals__.get("__name__")):  # perhaps a decorator around another function
            self._visit_all(cell.cell_contents for cell in contents if callable(cell.cell_contents))
            return
        if function.__code__ not in self.codes:
            return  # it did not run, and what made the step pass it by is watched
        self.reached.add(function.__code__)
        name = self.guards.owner(function)
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            self._watch(f"{name}.{part}", getattr(function, part))
            self._visit(getattr(function, part))
        for cell in contents:
            self._watch(f"{self.guards.owner(cell)}.cell_contents", cell.cell_contents)
            self._visit(cell.cell_contents)
        names: set[str] = set()
        for code in _nested(function.__code__):
            names |= _names_in(code, GLOBAL_READS)
            for instruction in dis.get_instructions(code):
                if instruction.opname == "IMPORT_NAME":
                    self._visit(importlib.import_module(instruction.argval))
        own = function.__globals__
        self._watch_entries(own, sorted(names & own.keys()))
        for built_in in sorted(names - own.keys()):
            self._watch(f"{built_in!r} in {self.guards.owner(own)}", False)

    def _visit_class(self, cls: type, data: bool) -> None:
        """Watch the attributes of a class: functions that ran, and with `data` all that the code has names for."""
        if (id(cls), data) in self.seen and not data:
            return
        self.seen[id(cls), data] = cls
        for owner in cls.__mro__:
            if owner is Cell or _is_constant(owner.__module__):
                continue
            for name, value in vars(owner).items():
                if self._is_read(name, value, data):
                    if isinstance(value, FunctionType | property):  # these a class returns as they are
                        self._watch(f"{self.guards.owner(cls)}.{name}", getattr(cls, name))
                        self._visit(getattr(cls, name))
                    else:
                        self._watch_entries(vars(owner), [name])
                    self._visit(value)
            if self.dynamic:
                self._watch(f"len({self.guards.owner(vars(owner))})", len(vars(owner)))

    def _is_read(self, name: str, value: object, data: bool) -> bool:
        function: Any = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
        if getattr(inspect.unwrap(function), "__code__", None) in self.codes:
            return True
        named = name in self.attributes or (self.dynamic and not name.startswith("__"))
        return named and (data or hasattr(type(value), "__get__"))

    def _visit_instance(self, value: Any) -> None:
        """Watch the attributes of an object."""
        for cls in type(value).__mro__:
            module = sys.modules.get(cls.__module__)
            compiled = str(getattr(module, "__file__", "")).endswith((".so", ".pyd"))
            if cls not in PLAIN_BASES and (compiled or cls.__module__ in sys.builtin_module_names):
                raise UnguardableError(f"it reads {_kind(value)}, whose changes cannot be noticed")
        if _is_constant(type(value).__module__) and not hasattr(value, "__dict__"):  # such as a deque
            raise UnguardableError(f"it reads {_kind(value)}, whose changes cannot be noticed")
        if _is_constant(type(value).__module__):  # its own code is not known, and may read all that it has
            self._watch_all(vars(value), ((repr(name), part) for name, part in vars(value).items()))
        else:
            self._visit_attributes(value, self.guards.owner(value), frozenset())

    def _visit_attributes(self, value: Any, source: str, names: frozenset[str]) -> None:
        """Watch the attributes of an object that the code has names for."""
        cls, own = type(value), getattr(value, "__dict__", {})
        self._visit_class(cls, data=False)
        missing = object()
        for name in sorted(self.attributes | names | (own.keys() if self.dynamic else set())):
            found = inspect.getattr_static(cls, name, missing)
            slot = isinstance(found, types.MemberDescriptorType) and hasattr(value, name)
            if name in own or slot or (found is not missing and not hasattr(type(found), "__get__")):
                self._watch(f"{source}.{name}", getattr(value, name))
                self._visit(getattr(value, name))
            elif found is not missing and hasattr(value, "__dict__"):  # an attribute of the instance would hide it
                self._watch(f"{name!r} in {source}.__dict__", False)
        if self.dynamic and hasattr(value, "__dict__"):
            self._watch(f"len({source}.__dict__)", len(own))


def _kind(value: object) -> str:
    return f"a value of type {type(value).__qualname__}"


def _is_assigned(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
