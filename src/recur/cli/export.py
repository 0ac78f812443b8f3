"""recur export: export of a trained model to C, ONNX, HTML, torch.export or torch.nn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cyclopts import App

from recur.cli.options import OpeningTexts, Output
from recur.cli.predict import no_run
from recur.cli.screen import Screen
from recur.errors import OptionError, listed

verb = App(
    help_epilogue="""Examples:
  recur export runs/book model.h                  one C99 header, no library but libm
  recur export runs/book model.h --quantize       8-bit weights, a quarter of the size
  recur export runs/book page.html                a page that works offline
  recur export runs/names model.onnx              ONNX Runtime: dynamic batch and time, explicit state
  recur export runs/pairs model.onnx              two files: model.encode.onnx and model.step.onnx
  recur export runs/book model.pt2                torch.export: loads without recur
  recur export runs/book model.safetensors        state dict of torch.nn.LSTM, GRU or RNN
  recur export runs/book --to c include/book.hpp --max-length 4096 --json"""
)

ENDINGS = {".h": "c", ".onnx": "onnx", ".html": "html", ".pt2": "torch", ".safetensors": "safetensors"}
"""Target by file extension."""


@verb.default
def export(
    run: Path,
    path: Path,
    *,
    to: str | None = None,
    quantize: bool | None = None,
    max_length: int | None = None,
    name: str | None = None,
    plain: bool | None = None,
    opening: OpeningTexts = OpeningTexts(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Export a trained model to a file that does not need recur. The outputs of the file are compared with PyTorch;
    nothing is written if they differ by more than rounding.

    Parameters
    ----------
    run
        Run folder.
    path
        File to write.
    to
        c, onnx, html, torch or safetensors; default: by the file extension.
    quantize
        8-bit weights with one scale per row; default: yes for html, no for other targets.
    max_length
        C: maximum number of steps per call, for static memory; default 1000.
    name
        C: prefix of all names; default model.
    plain
        Text classifiers and taggers: --no-plain exports the network without the linear model of the blend.
    """
    from recur.export import TARGETS
    from recur.export import export as write
    from recur.runs import is_run
    from recur.tasks import open_predictor

    screen = Screen(output)
    to = to or ENDINGS.get(path.suffix.lower())
    if to is None:
        raise OptionError(f"{path}: unknown file extension; choose the format with --to: {listed(list(TARGETS))}")
    if not is_run(run):
        raise OptionError(no_run([run]))
    if path.is_dir() or not path.parent.is_dir():
        raise OptionError(f"{path} is a folder" if path.is_dir() else f"{path.parent} is no folder")
    asked: dict[str, Any] = {"quantize": quantize, "max_length": max_length, "name": name, "plain": plain}
    options = {option: value for option, value in asked.items() if value is not None}
    with screen.busy(f"writing {path.name}"):
        model = open_predictor([run], "cpu", opening.trust)
        model.changed_text, model.allow_path = opening.changed_text, opening.allow_path
        written = write(model, to, path, **options)
    difference = "not compared" if written.difference is None else f"{written.difference:.1e}"
    said = {
        "files": ", ".join(map(str, written.paths)),
        "size": f"{written.size:,} bytes",
        "largest difference": difference,
        "holds": written.holds,
        "use": written.use,
    }
    screen.show(*(f"{what:<{len('largest difference')}}  {line}" for what, line in said.items() if line))
    for note in written.notes:
        screen.note(note)
    screen.result({"run": str(run), "to": to, **written._asdict(), "paths": [str(file) for file in written.paths]})
