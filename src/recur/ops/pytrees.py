"""What a scan returns, as PyTorch takes it apart: results pass through transforms, compiling and exporting, and a saved
program finds the classes of its results again in another process that has imported recur.nn or recur.nn.Recurrent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils._pytree import _register_namedtuple, register_pytree_node

from recur.cells import cell_names, make_cell
from recur.errors import OptionError
from recur.ops.trace import Trace

PLAIN = None, (0, 0), None, 1, False, False
"""What a trace that records nothing knows of the order of steps."""


def register_result(cls: type[tuple[Any, ...]]) -> None:
    """A named tuple is taken apart by itself; under a name it can be saved too."""
    _register_namedtuple(cls, serialized_type_name=f"recur.{cls.__name__}")


def _flatten(trace: Trace) -> tuple[list[object], tuple[object, ...]]:
    """What was recorded, and what was not made of tensors."""
    how = trace.backend, trace.passed_over, trace.recorded
    if not trace.wanted:
        return [], how
    order = trace._cell, trace._batch, trace._packing, trace._copies, trace._turned, trace._pass is not None
    return [trace._inputs, trace._states, trace._gradients, trace._slopes, trace._factors], (*how, *order)


def _unflatten(recorded: Iterable[Any], context: tuple[Any, ...]) -> Trace:
    trace = Trace.__new__(Trace)
    found = tuple(recorded) or (None, {}, {}, {}, {})
    trace._inputs, trace._states, trace._gradients, trace._slopes, trace._factors = found
    trace.backend, trace.passed_over, trace.recorded, *order = context
    trace._cell, trace._batch, trace._packing, trace._copies, trace._turned, passed = order or PLAIN
    trace._pass = -1 if passed else None
    return trace


def _dumped(context: tuple[object, ...]) -> list[object]:
    if len(context) > 3:
        raise OptionError("a trace that records gradients cannot be saved with a program; export with trace=False")
    return list(context)


register_pytree_node(
    Trace,
    _flatten,
    _unflatten,
    serialized_type_name="recur.Trace",
    to_dumpable_context=_dumped,
    from_dumpable_context=tuple,
)
for name in cell_names():
    make_cell(name).tuple_of("s")  # registered when it is made
