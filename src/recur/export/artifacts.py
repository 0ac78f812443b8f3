"""Files of an export: comparison with PyTorch, metadata, file names, and writing that Ctrl-C cannot leave half done.

A model with several graphs becomes several files: `model.onnx` is the pass over whole sequences, or the only graph;
`model.step.onnx`, `model.encode.onnx` and others are written next to it.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch import Tensor

from recur.errors import RecurError
from recur.export.escaping import json_text, unicode_text
from recur.export.graphs import Graph, PortableModel, example_tensor
from recur.utils.files import write_atomically
from recur.utils.types import JsonObject

TEST_SHAPES = (
    {"B": 1, "T": 1, "S": 1, "N": 1},
    {"B": 3, "T": 1, "S": 2, "N": 5},
    {"B": 1, "T": 13, "S": 7, "N": 1},
    {"B": 5, "T": 4, "S": 3, "N": 2},
)
"""Shapes at which outputs are compared: size 1, odd sizes, and mixtures of both."""

TOLERANCE = 1e-4
"""Largest difference allowed. Rounding of float32 over a few steps is about 1e-6; a wrong sign is about 0.1."""


GraphRunner: TypeAlias = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""Function that runs a graph in some runtime."""


def largest_difference(graph: Graph, run: GraphRunner, positive: bool = False) -> float:
    """Return the largest difference between a graph in PyTorch and `run` on the same inputs, at four shapes. It is
    absolute for numbers up to 1 and relative above."""
    largest = 0.0
    for k, sizes in enumerate(TEST_SHAPES):
        given = example_inputs(graph, sizes, 100 * k, positive)
        expected = graph(*given)
        with torch.no_grad():
            found = run(given)
        for value, ours, theirs in zip(graph.outputs, expected, found, strict=True):
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                what = f"expected {tuple(ours.shape)} {ours.dtype}, got {tuple(theirs.shape)} {theirs.dtype}"
                raise RecurError(f"{value.name} has the wrong type: {what}; no file was written")
            largest = max(largest, relative_difference(ours, theirs))
    return largest


def example_inputs(graph: Graph, sizes: Mapping[str, int], seed: int, positive: bool) -> list[Tensor]:
    """Return random inputs of a graph at these sizes, or at the smallest sizes that it accepts.

    positive: draw numbers above zero.
    """
    sizes = {letter: max(size, graph.least.get(letter, 1)) for letter, size in sizes.items()}
    given = [example_tensor(value, sizes, seed + k) for k, value in enumerate(graph.inputs)]
    return [part.abs() + 0.5 if positive and part.is_floating_point() else part for part in given]


def run_in_pytorch(graph: Graph) -> GraphRunner:
    """Return the graph itself as a runner for `largest_difference`."""
    return lambda given: graph(*given)


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference of two tensors: absolute for numbers up to 1, relative above."""
    ours, theirs = ours.double(), theirs.double()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    found = torch.where(same, 0.0, (ours - theirs).abs() / ours.abs().clamp_min(1.0))
    return float(found.nan_to_num(torch.inf, torch.inf).max()) if found.numel() else 0.0


def check_difference(difference: float, what: str) -> float:
    if difference > TOLERANCE:
        raise RecurError(
            f"{what} differs from PyTorch by {difference:.1e}, more than {TOLERANCE:g}: no file was written"
        )
    return difference


def graphs_to_write(portable: PortableModel) -> dict[str, Graph]:
    """Return the graphs to write; the step is left out where the pass over sequences already takes and returns the
    state."""
    whole = portable.graphs.get("sequence")
    return {name: graph for name, graph in portable.graphs.items() if name != "step" or not (whole and whole.carried)}


def graph_path(path: Path, name: str, graphs: Collection[str]) -> Path:
    """Return the path of one graph's file."""
    return path if len(graphs) == 1 or name == "sequence" else path.with_suffix(f".{name}{path.suffix}")


def value_names(graph: Graph) -> tuple[list[str], list[str]]:
    """Return the names of a graph's inputs and outputs in a file. A carried state goes in as `h_0` and comes out as
    `next_h_0`; no name is a prefix of another, because some runtimes match names by prefix."""
    inputs = [value.name for value in graph.inputs]
    outputs = [f"next_{value.name}" if value.name in graph.carried else value.name for value in graph.outputs]
    found = [*inputs, *outputs]
    for k, name in enumerate(found):
        while any(other.startswith(name) for j, other in enumerate(found) if j != k):
            name += "_"
        found[k] = name
    return found[: len(inputs)], found[len(inputs) :]


def signature(graph: Graph) -> str:
    """step(token, h_0) → logits, next_h_0"""
    inputs, outputs = value_names(graph)
    return f"{graph.name}({', '.join(inputs)}) → {', '.join(outputs)}"


def metadata(portable: PortableModel, graph: Graph) -> dict[str, str]:
    """Return the metadata of a file, as JSON except for plain words.

    vocabulary, labels    tokens and classes
    carried, start        which input of the next call each carried output is, and its value at the first call
    settings, step        horizon, season and special tokens; what one step of T reads
    """
    inputs, outputs = value_names(graph)
    own = dict(zip([value.name for value in graph.inputs], inputs, strict=True))
    into = dict(zip([value.name for value in graph.outputs], outputs, strict=True))
    found = {
        "task": portable.task,
        "kind": portable.kind,
        "run": unicode_text(Path(portable.name).name),
        "graph": graph.name,
        "inputs": json_text(dict(zip(inputs, (value.shape for value in graph.inputs), strict=True))),
        "outputs": json_text(dict(zip(outputs, (value.shape for value in graph.outputs), strict=True))),
        "settings": json_text(portable.settings),
        "step": json_text(_step_unit(portable)),
    }
    if graph.carried:
        start = {own[name]: _start_numbers(portable.start[name]) for name in graph.carried if name in portable.start}
        found |= {"carried": json_text({into[name]: own[name] for name in graph.carried}), "start": json_text(start)}
    if portable.labels:
        found["labels"] = json_text(portable.labels)
    for name, vocab in portable.vocabs.items():
        found["vocabulary" if name == "vocab" else f"vocabulary.{name}"] = unicode_text(vocab.to_json())
    return found | {f"table.{name}": json_text(table.tolist()) for name, table in portable.tables.items()}


def _step_unit(portable: PortableModel) -> JsonObject:
    """Return how much one step reads: one character, word or subword, or some rows of numbers."""
    # Only a writer names a vocabulary in `target`: of a table it is a column, which may be called anything.
    vocab = portable.vocabs.get(str(portable.settings["target"]) if portable.kind == "writer" else "vocab")
    if vocab is not None:
        return {"size": 1, "of": vocab.tokenizer.kind}
    return {"size": portable.settings.get("stack", 1), "of": "row"}


def _start_numbers(part: Tensor) -> Any:
    """Return the carried state at the start, for one row; a single number if all are equal."""
    values = [value if math.isfinite(value) else str(value) for value in part.flatten().tolist()]  # JSON has no −inf
    return values[0] if all(value == values[0] for value in values) else values


_interrupted = threading.Event()


@contextmanager
def interruptible() -> Iterator[None]:
    """Leave the block with KeyboardInterrupt if Ctrl-C was pressed in it, whatever became of the first exception.

    torch may lose an interrupt: it can arrive in a weak-reference callback, where Python prints the exception and
    drops it, or during torch's bookkeeping, whose cleanup then fails with another error. Signals reach only the main
    thread; in any other thread the block runs unchanged.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    hook = sys.unraisablehook

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            previous(number, frame)
        except KeyboardInterrupt:
            _interrupted.set()
            raise

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        if not (_interrupted.is_set() and issubclass(unraisable.exc_type, KeyboardInterrupt)):
            hook(unraisable)

    _interrupted.clear()
    signal.signal(signal.SIGINT, handle)
    sys.unraisablehook = report
    try:
        yield
        _raise_if_interrupted()
    except Exception:
        _raise_if_interrupted()
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
        sys.unraisablehook = hook
        _interrupted.clear()


def _raise_if_interrupted() -> None:
    if _interrupted.is_set():
        raise KeyboardInterrupt from None


def keep_files(files: Mapping[Path, bytes]) -> None:
    """Write the files of an export, unless Ctrl-C was pressed."""
    _raise_if_interrupted()
    for path, content in files.items():
        write_atomically(path, content)
