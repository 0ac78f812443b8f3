"""recur export: a trained model for another place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cyclopts import App

from recur.cli.options import Opening, Output
from recur.cli.predict import no_run
from recur.cli.screen import Screen
from recur.errors import OptionError, listed

verb = App(
    help_epilogue="""Examples:
  recur export runs/book model.h                  one C99 header: cc -O2 main.c, no library but the C one
  recur export runs/book model.h --quantize       its weights in 8 bits, a quarter of the size
  recur export runs/book page.html                a page that opens without a network, to write with the model
  recur export runs/names model.onnx              for ONNX Runtime: batch and time open, the state in and out
  recur export runs/pairs model.onnx              two files: model.encode.onnx, and model.step.onnx for each symbol
  recur export runs/book model.pt2                torch.export: opens where there is no recur
  recur export runs/book model.safetensors        weights that torch.nn.LSTM, GRU or RNN loads
  recur export runs/book --to c include/book.hpp --longest 4096 --json"""
)

ENDINGS = {".h": "c", ".onnx": "onnx", ".html": "html", ".pt2": "torch", ".safetensors": "safetensors"}
"""What a file is, if nothing is said."""


@verb.default
def export(
    run: Path,
    path: Path,
    *,
    to: str | None = None,
    quantize: bool | None = None,
    longest: int | None = None,
    name: str | None = None,
    plain: bool | None = None,
    opening: Opening = Opening(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Write a trained model to a file that needs no recur. What the file computes is compared with the model first; if
    it differs by more than rounding, nothing is kept.

    Parameters
    ----------
    run
        The folder of a run.
    path
        The file to write.
    to
        c, onnx, html, torch or safetensors; what the file's ending says, if not given.
    quantize
        Weights in 8 bits, with a scale for each row; if not given, a page has them and other files have float32.
    longest
        C: how many steps one call may read, for which memory is laid out; 1000, if not given.
    name
        C: what names in the file begin with; model, if not given.
    plain
        Classifiers of texts: without --plain the network alone, not mixed with plain models of n-grams.
    """
    from recur.export import TARGETS
    from recur.export import export as write
    from recur.runs import is_run
    from recur.tasks import open_predictor

    screen = Screen(output)
    to = to or ENDINGS.get(path.suffix.lower())
    if to is None:
        raise OptionError(
            f"{path}: its ending does not say what it shall be; name it with --to: {listed(list(TARGETS))}"
        )
    if not is_run(run):
        raise OptionError(no_run([run]))
    if path.is_dir() or not path.parent.is_dir():
        raise OptionError(f"{path} is a folder" if path.is_dir() else f"{path.parent} is no folder")
    asked: dict[str, Any] = {"quantize": quantize, "longest": longest, "name": name, "plain": plain}
    options = {option: value for option, value in asked.items() if value is not None}
    with screen.busy(f"writing {path.name}"):
        written = write(open_predictor([run], "cpu", opening.trust), to, path, **options)
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
