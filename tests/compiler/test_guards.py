"""A compiled step is used for the values that it has read: every kind of constant is changed between calls."""

from __future__ import annotations

import collections
import enum
import functools
import math
import os
import random
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recur.cells import Cell, cell_names, make_cell
from recur.cells._cache import MAX_ENTRIES, cache_of
from recur.compiler import programs
from recur.nn import Recurrent
from recur.ops import scan
from tests.support import NATIVE_CELLS, close, needs_core, random_weights

pytestmark = needs_core

LEVEL = 0.5
TABLE: dict[str, Any] = {"scale": 0.5, "nested": [0.25, {"deep": 1.5}]}
SETTINGS = types.ModuleType("settings")
SETTINGS.rate = 0.75  # type: ignore[attr-defined]


class Mode(enum.Enum):
    PLUS = 1
    MINUS = 2


class Pair(NamedTuple):
    left: float
    right: float


class Slots:
    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value


@dataclass
class Inner:
    gain: float = 0.5
    items: list[float] = field(default_factory=lambda: [0.5, 0.25])


class Config:
    shared = 0.5

    def __init__(self) -> None:
        self.beta, self.inner, self.mode = 0.5, Inner(), Mode.PLUS
        self.pair, self.slots, self.allowed = Pair(0.5, 0.25), Slots(0.5), {1, 2}

    @property
    def doubled(self) -> float:
        return 2 * self.beta

    def scaled(self, value: Any) -> Any:
        return value * self.inner.gain


def helper(value: Any, by: float = 0.5, *, and_by: float = 0.5) -> Any:
    return value * by * and_by + LEVEL


def other_helper(value: Any, by: float = 0.5, *, and_by: float = 0.5) -> Any:
    return value * by - and_by


helpers: dict[str, Any] = {"now": helper}


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inside(value: Any) -> Any:
        return function(value) * TABLE["scale"]

    return inside


@wrapped
def decorated(value: Any) -> Any:
    return value + LEVEL


def closures() -> tuple[Callable[[Any], Any], Callable[[float], None]]:
    inside = 0.5

    def read(value: Any) -> Any:
        return value * inside

    def change(to: float) -> None:
        nonlocal inside
        inside = to

    return read, change


through_closure, change_closure = closures()
applied = functools.partial(helper, by=0.3)


class Base(Cell):
    inherited = 0.5

    @staticmethod
    def static(value: Any) -> Any:
        return value * 0.5

    @classmethod
    def of_class(cls, value: Any) -> Any:
        return value * cls.inherited

    def method(self, value: Any) -> Any:
        return value + self.own


class Everything(Base):
    """A step that reads one value of every kind."""

    gates = ("h",)
    beta = 0.5
    branch = "tanh"

    def __init__(self) -> None:
        self.own, self.config, self.names = 0.6, Config(), ["own"]

    def step(self, x: Any, h: Any, s: Any) -> Any:
        config = self.config
        value = torch.tanh(x.h + h.h) * self.beta * self.inherited + config.shared * config.doubled
        value = value * config.pair.left + config.slots.value * config.inner.items[0]
        value = self.static(value) + self.of_class(value) + self.method(config.scaled(value))
        value = value * TABLE["nested"][1]["deep"] * SETTINGS.rate + decorated(value)
        value = helpers["now"](value) + helper(value) + through_closure(value) + applied(value)
        value = value * getattr(self, self.names[0]) * getattr(self, "extra", 1.0)
        if config.mode is Mode.MINUS:
            value = -value
        if 1 in config.allowed and hasattr(config, "beta"):
            value = value + 0.1
        if self.branch == "tanh":
            value = torch.tanh(value)
        return (value * 0.2 + abs(LEVEL) * 0.1,)


CHANGES: dict[str, Callable[[Any, float], Any]] = {
    "attribute of the class": lambda cell, v: setattr(type(cell), "beta", v),
    "attribute of a base class": lambda cell, v: setattr(type(cell).__bases__[0], "inherited", v),
    "attribute of the class, hidden in the instance": lambda cell, v: setattr(cell, "beta", v),
    "attribute of the instance": lambda cell, v: setattr(cell, "own", v),
    "attribute that was not there": lambda cell, v: setattr(cell, "extra", v),
    "name of an attribute": lambda cell, v: cell.names.__setitem__(0, "own" if v > 0.5 else "beta"),
    "nested config": lambda cell, v: setattr(cell.config, "beta", v),
    "class of a nested config": lambda cell, v: setattr(type(cell.config), "shared", v),
    "dataclass in a config": lambda cell, v: setattr(cell.config.inner, "gain", v),
    "replaced dataclass": lambda cell, v: setattr(cell.config, "inner", Inner(v)),
    "list in a config": lambda cell, v: cell.config.inner.items.__setitem__(0, v),
    "named tuple": lambda cell, v: setattr(cell.config, "pair", Pair(v, v)),
    "slot": lambda cell, v: setattr(cell.config.slots, "value", v),
    "member of an enumeration": lambda cell, v: setattr(cell.config, "mode", Mode.PLUS if v > 0.5 else Mode.MINUS),
    "set": lambda cell, v: (cell.config.allowed.discard, cell.config.allowed.add)[v > 0.5](1),
    "string of a branch": lambda cell, v: setattr(type(cell), "branch", "tanh" if v > 0.5 else "none"),
    "global": lambda cell, v: globals().__setitem__("LEVEL", v),
    "dictionary": lambda cell, v: TABLE.__setitem__("scale", v),
    "nested dictionary": lambda cell, v: TABLE["nested"][1].__setitem__("deep", v),
    "attribute of a module": lambda cell, v: setattr(SETTINGS, "rate", v),
    "closure": lambda cell, v: change_closure(v),
    "default": lambda cell, v: setattr(other_helper, "__defaults__", (v,)) or setattr(helper, "__defaults__", (v,)),
    "keyword default": lambda cell, v: helper.__kwdefaults__.__setitem__("and_by", v),  # type: ignore[attr-defined]
    "function in a table": lambda cell, v: helpers.__setitem__("now", helper if v > 0.5 else other_helper),
    "global function": lambda cell, v: globals().__setitem__("helper", other_helper if v > 0.5 else HELPER),
    "code of a function": lambda cell, v: setattr(HELPER, "__code__", (CODE, other_helper.__code__)[v > 0.5]),
    "arguments of a partial": lambda cell, v: globals().__setitem__("applied", functools.partial(HELPER, by=v)),
    "method": lambda cell, v: setattr(Base, "method", lambda self, value: value - v),
    "static method": lambda cell, v: setattr(Base, "static", staticmethod(lambda value: value * v)),
    "class method": lambda cell, v: setattr(Base, "of_class", classmethod(lambda cls, value: value * v)),
    "property": lambda cell, v: setattr(Config, "doubled", property(lambda self: v)),
    "the step": lambda cell, v: setattr(type(cell), "step", STEP if v > 0.5 else lambda self, x, h, s: (x.h * v,)),
    "step of the instance": lambda cell, v: setattr(cell, "step", lambda x, h, s: (x.h * v + h.h,)),
    "a built-in function": lambda cell, v: globals().__setitem__("abs", lambda value: value + v),
    "nothing": lambda cell, v: None,
}
HELPER, CODE, STEP = helper, helper.__code__, Everything.step
OWNERS: list[Any] = [Everything, Base, Config]


@pytest.fixture(autouse=True)
def unchanged() -> Any:
    """Put everything back that a test changes."""
    yield from kept()


def kept() -> Any:
    before = [(owner, dict(vars(owner))) for owner in OWNERS]
    own = {name: globals()[name] for name in ("LEVEL", "helper", "applied")}
    table = {"scale": 0.5, "nested": [0.25, {"deep": 1.5}]}
    yield
    for owner, attributes in before:
        for name in set(vars(owner)) - set(attributes):
            delattr(owner, name)
        for name, value in attributes.items():
            if name[:2] != "__" and vars(owner)[name] is not value:
                setattr(owner, name, value)
    globals().update(own)
    globals().pop("abs", None)
    TABLE.update(table)
    SETTINGS.rate = 0.75  # type: ignore[attr-defined]
    change_closure(0.5)
    HELPER.__code__, HELPER.__defaults__, other_helper.__defaults__ = CODE, (0.5,), (0.5,)
    HELPER.__kwdefaults__, helpers["now"] = {"and_by": 0.5}, HELPER


def agree(cell: Cell, weights: dict[str, torch.Tensor], x: torch.Tensor, what: str = "") -> None:
    with torch.no_grad():
        found, expected = (scan(cell, weights, x, backend=backend) for backend in ("native", "loop"))
    close(found.outputs, expected.outputs, what)


@settings(max_examples=20)
@given(
    changes=st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.sampled_from([0.25, 0.5, 0.75, -0.0])), max_size=5)
)
def test_any_constants_that_change(changes: list[tuple[str, float]]) -> None:
    around = kept()
    next(around)
    try:
        cell, x = Everything(), torch.randn(2, 3, 4, dtype=torch.float64)
        weights = random_weights(cell, 4, 3)
        agree(cell, weights, x)
        for what, value in changes:
            CHANGES[what](cell, value)
            agree(cell, weights, x, what)
    finally:
        next(around, None)


@pytest.mark.parametrize("what", CHANGES)
def test_each_kind_of_constant_is_noticed(what: str) -> None:
    """Or the test above would not change it."""
    cell, x = Everything(), torch.randn(2, 3, 4, dtype=torch.float64)
    weights, found = random_weights(cell, 4, 3), []
    with torch.no_grad():
        for value in (0.25, 0.75):
            CHANGES[what](cell, value)
            found.append(scan(cell, weights, x, backend="native").outputs)
            agree(cell, weights, x, what)
    assert torch.equal(*found) == (what == "nothing")


def one_step(step: Any, **attributes: Any) -> Cell:
    made: Cell = type("Mine", (Cell,), {"gates": ("h",), "step": step, **attributes})()
    return made


NUMBERS = np.array([0.5])
TENSOR = torch.tensor(0.5)
CALLED = [0]


@functools.cache
def remembered() -> float:
    return LEVEL


class Counting(Cell):
    gates = ("h",)
    calls = 0

    def step(self, x: Any, h: Any, s: Any) -> Any:
        self.calls += 1
        return (x.h + h.h,)


UNGUARDABLE: dict[str, tuple[Cell, str]] = {
    "an array": (one_step(lambda self, x, h, s: (x.h * float(NUMBERS[0]),)), "a value of type ndarray"),
    "a tensor": (one_step(lambda self, x, h, s: (x.h * TENSOR.item(),)), "a value of type Tensor"),
    "the clock": (one_step(lambda self, x, h, s: (x.h * (0 * __import__("time").time() + 1),)), "__import__"),
    "chance": (one_step(lambda self, x, h, s: (x.h * (0 * random.random() + 1),)), "Random"),
    "the environment": (one_step(lambda self, x, h, s: (x.h * float(os.environ.get("X", 1)),)), "environ"),
    "a mode": (one_step(lambda self, x, h, s: (x.h * (2 if torch.is_grad_enabled() else 1),)), "is_grad_enabled"),
    "kept results": (one_step(lambda self, x, h, s: (x.h * remembered(),)), "_lru_cache_wrapper"),
    "a counter": (Counting(), "changes calls, which a compiled step cannot do"),
    "evaluated text": (one_step(lambda self, x, h, s: (x.h * eval("LEVEL"),)), "uses eval"),
    "too much": (one_step(lambda self, x, h, s: (x.h * self.many[3],), many=[0.5] * 1000), "more than 500 values"),
}


@pytest.mark.parametrize("what", UNGUARDABLE)
def test_what_cannot_be_watched_runs_on_the_loop(what: str) -> None:
    cell, reason = UNGUARDABLE[what]
    found = scan(cell, random_weights(cell, 4, 3), torch.randn(2, 3, 4, dtype=torch.float64))
    assert found.trace.backend == "loop"
    assert reason in found.trace.passed_over["native"]


@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_cells_of_the_package_are_guarded_and_compiled_once(name: str) -> None:
    cell = make_cell(name)
    text = programs.text_of(cell, True)
    entry = cache_of(cell)
    assert programs.text_of(cell, True) is text
    assert cache_of(cell) is entry
    assert any(source.endswith(".step") for source in entry.guards.sources)
    assert len(entry.guards.values) < 80, "each of them is compared before each call"


def test_values_that_change_back_are_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, compiled = Everything(), []
    assemble = programs._assemble
    monkeypatch.setattr(programs, "_assemble", lambda *given: compiled.append(1) or assemble(*given))
    for value in [0.25, 0.75] * 5 + [float("0.25"), float("0.75")]:  # equal numbers are other objects
        cell.own = value
        programs.text_of(cell, True)
    assert len(compiled) == 2
    for k in range(3 * MAX_ENTRIES):
        cell.own = float(k)
        programs.text_of(cell, True)
    assert len(cache_of(cell).others) < MAX_ENTRIES


def test_numbers_that_are_equal_and_differ() -> None:
    cell = one_step(lambda self, x, h, s: (x.h * 0 + math.copysign(1.0, self.sign),), sign=0.0)
    weights, x = random_weights(cell, 4, 3), torch.randn(2, 3, 4, dtype=torch.float64)
    for sign in (0.0, -0.0, 0.0):
        type(cell).sign = sign  # type: ignore[attr-defined]
        agree(cell, weights, x)


def test_streams_notice_too() -> None:
    cell = Everything()
    net, x = Recurrent(cell, 4, 3), torch.randn(2, 4)
    plain = Recurrent(cell, 4, 3, backend="loop")
    plain.load_state_dict(net.state_dict())
    for value in (0.5, 2.0):
        Everything.beta = value
        close(net.step(x)[0], plain.step(x)[0])


def test_all_cells_are_listed() -> None:
    assert set(NATIVE_CELLS) <= set(cell_names())


def test_what_is_missing_may_come() -> None:
    """An attribute that a step found missing, one of an enum, the class of the cell, and a container without a dict."""

    class Level(enum.Enum):
        HIGH = 1

    Level.HIGH.scale = 1.0  # type: ignore[attr-defined]

    class Missing(Cell):
        gates = ("z",)

        def step(self, x: Any, h: Any, s: Any) -> Any:
            try:
                factor = self.extra
            except AttributeError:
                factor = 1.0
            return (torch.tanh(x.z + h.z) * factor,)

    class Enumerated(Cell):
        gates = ("z",)

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (torch.tanh(x.z + h.z) * Level.HIGH.scale * self.f(),)  # type: ignore[attr-defined]

        def f(self) -> float:
            return 1.0

    class Doubled(Enumerated):
        def f(self) -> float:
            return 2.0

    class Queued(Cell):
        gates = ("z",)

        def __init__(self) -> None:
            self.queue = collections.deque([1.0])

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (torch.tanh(x.z + h.z) * sum(self.queue),)

    cells = missing, enumerated, queued = Missing(), Enumerated(), Queued()
    x = torch.randn(2, 5, 3)
    weights = random_weights(missing, 3, 4, dtype=torch.float32)

    def check() -> None:
        for cell in cells:
            found, expected = (scan(cell, weights, x, backend=backend).outputs for backend in ("auto", "loop"))
            torch.testing.assert_close(found, expected)

    check()
    missing.extra = 3.0  # type: ignore[attr-defined]
    Level.HIGH.scale = 0.5  # type: ignore[attr-defined]
    queued.queue.append(2.0)
    check()
    enumerated.__class__ = Doubled
    check()
