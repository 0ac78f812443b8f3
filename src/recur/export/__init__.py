"""Trained models for other places: `recur.export.export(model, "c", "model.h")`, `recur export RUN --to c model.h`.

    graphs.py       what is exported: graphs of a model's own forward code, and the tables around them
    portable.py     from a loaded run to those, by task: writing.py, reading.py, forecasting.py, numbers.py
    lowering.py     from a graph to loops over buffers, which C and JavaScript are printed from

A target is a module with `TAKES`, the options that it has a use for, and `write(portable, path, options) -> Written`.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recur.errors import OptionError, unknown

if TYPE_CHECKING:
    from recur.tasks.predictor import Predictor

TARGETS = {
    "c": "recur.export.c",
    "onnx": "recur.export.onnx_file",
    "html": "recur.export.html",
    "torch": "recur.export.pt2",
    "safetensors": "recur.export.weights",
}
"""By name: the modules that write them."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a file is written; a target takes some of these."""

    quantize: bool | None = None
    """Weights in 8 bits, with a scale for each row; if not given, as the target has it."""
    longest: int = 1000
    """Steps that one call may read at most, where memory is laid out beforehand."""
    name: str = "model"
    """What names in the file begin with."""
    plain: bool = True
    """Also the plain models of n-grams that a classifier is mixed with; without them it is the network alone."""


class Written(NamedTuple):
    """What became of an export."""

    paths: tuple[Path, ...]
    """The files: the one that was asked for first."""
    size: int
    """Bytes, in all."""
    difference: float | None
    """The largest between its numbers and PyTorch's, where they were compared."""
    holds: str = ""
    """What is in it, in a line."""
    use: str = ""
    """What to do with it, in a line."""
    notes: tuple[str, ...] = ()
    """What is worth saying of it, a line each."""


def export(predictor: Predictor[Any], to: str, path: str | Path, **options: Any) -> Written:
    """Write a trained model to a file of another kind. Options are those of `Options`; a target refuses what it has no
    use for."""
    if to not in TARGETS:
        raise OptionError(unknown("target", to, TARGETS))
    known = {field.name for field in fields(Options)}
    for option in options:
        if option not in known:
            raise OptionError(unknown("option", option, known))
    given = Options(**options)
    target = importlib.import_module(TARGETS[to])
    for option, value in asdict(given).items():
        if option not in target.TAKES and option != "plain" and value != getattr(Options, option):
            raise OptionError(f"--{option} is not for --to {to}")
    from recur.export.portable import portable

    more = {} if given.plain or predictor.task.name != "classify" else {"plain": False}
    written: Written = target.write(portable(predictor, **more), Path(path), given)
    return written
