"""Export of trained models: `recur.export.export(model, "c", "model.h")` or `recur export RUN model.h`.

`export_step` writes one step of any `Recurrent`, with its state and a head.

builders, forecasters            a loaded run as graphs and tables (`graphs.PortableModel`), by task
step_graphs                      the step of a bare `Recurrent`, for `export_step`
graphs                           graphs of a model's forward code, traced by torch.export; 8-bit weights
lowering, operations, loop_ir    a graph as loops over buffers; C and JavaScript are printed from these loops
tokenizers                       description of a vocabulary and its tokenizer; tokenizers in C
c_header, c_graphs, c_printer    one C99 header; its fixed code is in c/*.c
html, javascript                 one HTML page; its fixed code is in page/*
onnx_model, torch_export         ONNX, torch.export and torch.nn
artifacts, escaping              comparison with PyTorch, metadata, files; strings in generated source
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recur.errors import OptionError, listed, unknown
from recur.options import flag_of
from recur.options.suggestions import unknown_option

if TYPE_CHECKING:
    from torch import nn

    from recur.export.graphs import PortableModel
    from recur.nn import Recurrent
    from recur.tasks.common.predictor import Predictor


class Target(NamedTuple):
    """Format of an export."""

    module: str
    """Module of this package."""
    function: str
    """Function `(portable, path, options)` of the module, which writes the files and returns an `ExportResult`."""
    options: tuple[str, ...] = ()
    """Names of the options that the format accepts."""


TARGETS = {
    "c": Target("c_header", "write", ("quantize", "longest", "name")),
    "onnx": Target("onnx_model", "write", ("quantize",)),
    "html": Target("html", "write", ("quantize",)),
    "torch": Target("torch_export", "write_programs"),
    "safetensors": Target("torch_export", "write_weights"),
}

BUILDERS = {
    "language": "builders.build_language_model",
    "conditional": "builders.build_decoder",
    "seq2seq": "builders.build_decoder",
    "classify": "builders.build_classifier",
    "tag": "builders.build_tagger",
    "forecast": "forecasters.build_forecaster",
    "adding": "builders.build_adder",
    "copy": "builders.build_copier",
}
"""Function of this package that turns a run of each task into a PortableModel."""

NOT_EXPORTABLE = {
    "grid": "the number of steps depends on the size of the image, so there is no fixed graph",
    "tree": "the network has the shape of each sentence's tree, so there is no fixed graph",
}
"""Tasks whose models have no fixed graph, and the reason."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of an export; each target accepts some of them."""

    quantize: bool | None = None
    """Store weights in 8 bits with one scale per row; None: the default of the target."""
    max_length: int = 1000
    """Maximum number of steps per call, where memory is allocated statically."""
    name: str = "model"
    """Prefix of all names in the file."""
    plain: bool = True
    """Include the linear models that a text classifier or a tagger is blended with; False: the network alone."""


class ExportResult(NamedTuple):
    """Result of an export."""

    paths: tuple[Path, ...]
    """Files written, the requested one first."""
    size: int
    """Total size in bytes."""
    difference: float | None
    """Largest difference from PyTorch's outputs; None if they were not compared."""
    holds: str = ""
    """One line about the content."""
    use: str = ""
    """One line of code that uses the file."""
    notes: tuple[str, ...] = ()
    """Notes for the user, one line each."""


def export(predictor: Predictor[Any], to: str, path: str | Path, **options: Any) -> ExportResult:
    """Write a trained model to a file of another format.

    options: fields of `ExportOptions`. An option that the target does not accept is refused.
    """
    given, write = _writer(to, options)
    from recur.export.artifacts import interruptible

    with interruptible():
        more = {} if given.plain or predictor.task.name not in ("classify", "tag") else {"plain": False}
        result: ExportResult = write(to_portable(predictor, **more), Path(path), given)
    return result


STEP_TARGETS = ("c", "onnx", "torch")
"""Formats of `export_step`."""


def export_step(
    network: Recurrent,
    to: str,
    path: str | Path,
    *,
    head: nn.Module | None = None,
    encoder: nn.Module | None = None,
    input_size: int | None = None,
    **options: Any,
) -> ExportResult:
    """Write one step of a network with its state: inputs (B, D) and states to outputs (B, K) and the next states.

    to          c, onnx or torch
    head        module on the outputs, such as the linear layer of a policy
    encoder     module before the network, which reads (B, input_size)
    options     fields of `ExportOptions`

    >>> net, head = recur.Recurrent("gru", 3, 8), torch.nn.Linear(8, 2)
    >>> recur.export.export_step(net, "c", "policy.h", head=head, name="policy").use
    'policy_step(&state, &work, x, output);'
    """
    if to in TARGETS and to not in STEP_TARGETS:
        raise OptionError(f"export_step writes {listed(list(STEP_TARGETS))}, got {to!r}")
    given, write = _writer(to, options)
    from recur.export.artifacts import interruptible
    from recur.export.step_graphs import build_network_step

    with interruptible():
        portable = build_network_step(network, head, encoder, input_size, Path(path).stem)
        result: ExportResult = write(portable, Path(path), given)
    return result


def _writer(to: str, options: Mapping[str, Any]) -> tuple[ExportOptions, Callable[..., ExportResult]]:
    """Return the checked options of a target and the function that writes its files."""
    if to not in TARGETS:
        raise OptionError(unknown("target", to, TARGETS))
    known = {field.name for field in fields(ExportOptions)}
    for option in options:
        if option not in known:
            raise OptionError(unknown_option(option, known))
    given = ExportOptions(**options)
    target = TARGETS[to]
    for option, value in asdict(given).items():
        if option not in (*target.options, "plain") and value != getattr(ExportOptions, option):
            raise OptionError(f"{flag_of(option)} is not for --to {to}")
    try:
        return given, getattr(importlib.import_module(f"recur.export.{target.module}"), target.function)
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnxscript", "onnxruntime"):
            raise
        raise OptionError(f"this needs {error.name}, which is not installed: pip install 'recur[export]'") from None


def to_portable(predictor: Predictor[Any], **options: Any) -> PortableModel:
    """Return the graphs and tables of a trained model, from which every target is written."""
    task = predictor.task.name
    if len(predictor.runs) > 1:
        raise OptionError(f"expected one run, got {len(predictor.runs)} ({predictor.name}): export them one by one")
    if task not in BUILDERS:
        why = NOT_EXPORTABLE.get(task, "its model has no graph yet")
        raise OptionError(
            f"runs of the task {task} cannot be exported: {why}; supported tasks: {listed(list(BUILDERS))}"
        )
    module, _, name = BUILDERS[task].partition(".")
    build = getattr(importlib.import_module(f"recur.export.{module}"), name)
    model: PortableModel = build(predictor, **options)
    return replace(model, facts=predictor.facts(), run=predictor.run)
