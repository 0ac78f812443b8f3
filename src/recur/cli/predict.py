"""recur predict: predictions of a trained model, line by line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from recur.cli.options import Opening, Output, ReadingOptions, open_model
from recur.cli.screen import Screen
from recur.errors import OptionError, TextError, shown
from recur.utils.files import new_figure, save_figure
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.tasks.common.predictor import Predictor

PANELS = 6
"""Maximum number of sequences in an attention figure."""

INCHES = 0.28
"""Inches per symbol."""


def in_words(attention: JsonObject) -> Iterator[str]:
    """Yield for each output symbol the source symbol with the largest attention weight."""
    for symbol, row in zip(attention["target"], attention["weights"], strict=True):
        most = max(range(len(row)), key=row.__getitem__)
        yield f"  {symbol} ← {attention['source'][most]} {row[most]:.2f}"


def draw(found: Sequence[JsonObject], path: Path) -> None:
    """Draw attention weights, one panel per sequence: output symbols downwards, source symbols across."""
    found = found[:PANELS]
    across, down = (max(len(one[side]) for one in found) for side in ("source", "target"))
    figure, axes = new_figure(
        len(found), width=max(3.0, INCHES * across + 1.5), height=len(found) * (INCHES * down + 1.2)
    )
    for axis, one in zip(axes, found, strict=True):
        axis.imshow(one["weights"], cmap="Greys", vmin=0, vmax=1)
        axis.set_xticks(range(len(one["source"])), one["source"], rotation=90)
        axis.set_yticks(range(len(one["target"])), one["target"])
        axis.xaxis.tick_top()
    save_figure(figure, path)


verb = App(
    help_epilogue="""Examples:
  recur predict runs/g2p words.txt --beam 5 --nbest 3
  echo abac | recur predict runs/g2p                  as lines come in
  recur predict runs/g2p-1 runs/g2p-2 words.txt       several models as one
  recur predict runs/g2p words.txt --attention --figure attention.png
  recur predict runs/g2p words.txt --samples 3 --temperature 0.7 --seed 1 --json
  recur predict runs/names surnames.txt --json        the probability of each class
  recur predict runs/airline airline.csv              the steps behind the last value: median, and its band
  recur predict runs/airline airline.csv --anomalies  how surprising each value is
  echo Russian | recur predict runs/names --samples 5    a conditional model: lines of a label
  echo "the sun " | recur predict runs/book            a language model: the rest of the line
  recur predict runs/chunks test.conll --nbest 3       words below each other, with or without their tags
  recur predict runs/digits digit.png more/           images, folders of them, or an .npz"""
)


@verb.default
def predict(
    *models: Path,
    beam: int | None = None,
    nbest: int | None = None,
    length_penalty: float | None = None,
    coverage: float | None = None,
    lm: Path | None = None,
    lm_weight: float | None = None,
    samples: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    attention: Annotated[bool, Parameter(negative="")] = False,
    figure: Path | None = None,
    anomalies: Annotated[bool, Parameter(negative="")] = False,
    threshold: float | None = None,
    device: str = "auto",
    threads: int = 0,
    files_read: ReadingOptions = ReadingOptions(),  # noqa: B008  frozen
    opening: Opening = Opening(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Predict each input line: `input TAB output`, and `TAB score` with several results per input.

    Parameters
    ----------
    models
        Runs, then files with one input per line; default: standard input. Several runs with equal vocabularies are an
        ensemble: the mean of probabilities (seq2seq, classify), tag scores (tag) or quantiles (forecast).
    beam
        Width of the beam search; default 1 (greedy).
    nbest
        Number of results of the beam search, best first.
    length_penalty
        Length penalty α; rank by log P / ((5 + length) / 6)^α. Default 0.
    coverage
        With attention: weight of the coverage penalty Σ log(attention per source position, at most 1). Default 0.
    lm
        CTC: n-gram model of label sequences, an ARPA file (recur ngram --token word --save).
    lm_weight
        CTC: weight of the n-gram model; default 0.5.
    samples
        Number of samples instead of a search.
    temperature
        Samples: below 1 more likely, above 1 more varied.
    top_k
        Samples: only the k most likely symbols.
    top_p
        Samples: only the most likely symbols with this total probability.
    seed
        Samples: random seed.
    attention
        Models with a source: print the source symbol that each output symbol attends to most; all weights with --json.
    figure
        Write a figure to this file (.png, .svg or .pdf): forecasts after their history, or the attention weights of the
        first six inputs.
    anomalies
        Forecasting models: instead of a forecast, print for each value of the file how unusual it is: its error one
        step ahead in standard deviations, and its p-value among the validation errors.
    threshold
        With --anomalies: p-value below which a value counts as an anomaly; default 0.01.
    device
        cpu, cuda, cuda:N or auto.
    threads
        CPU threads; 0: as many as the run was trained with.
    """
    from recur.data.text.labelled import read_standard_input
    from recur.tasks.common.metrics import format_metric, metric_label

    screen = Screen(output)
    model, files = open_runs(models, device, opening.trust, threads)
    model.read_with(**files_read.settings())
    asked: JsonObject = {
        "beam": beam,
        "nbest": nbest,
        "length_penalty": length_penalty,
        "coverage": coverage,
        "samples": samples,
        "seed": seed,
    }
    asked |= {"lm": lm, "lm_weight": lm_weight}
    asked |= {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    options: JsonObject = {name: value for name, value in asked.items() if value is not None}
    forecasts = model.task.name == "forecast"
    if forecasts and figure is not None:
        options["figure"] = figure
    if attention or (figure is not None and not forecasts):
        options["attention"] = True
    if anomalies:
        options["anomalies"] = True
    if threshold is not None:
        options["threshold"] = threshold
    looked: list[JsonObject] = []
    if nbest is not None and beam is None:
        options["beam"] = nbest
    several = (nbest or samples or 1) > 1
    found: list[JsonObject] = []
    cut, unknown = 0, Counter[str]()
    if model.takes_files and not files:
        raise OptionError(f"{model.run.path} is a run of the task {model.task.name}: name the files to predict")
    if not files and sys.stdin.isatty():
        what = "a line each" if model.takes_lines else "a table"
        screen.note(f"waiting for what to predict: type it here, {what}; Ctrl-D ends. Or name a file")
    inputs: Iterator[Iterable[str]]
    inputs = (
        read_standard_input(files_read.on_bad_rows != "error" or not model.takes_lines, files_read.encoding or "utf-8")
        if not files
        else (_lines_of(model, name, files_read) for name in files)
    )
    if model.takes_files:
        if missing := [name for name in files if not Path(name).exists()]:
            raise TextError(f"no file {str(missing[0])!r}")  # a slip of the pen, not a bad row
        inputs = iter([files])
    elif not files and not model.takes_lines:
        inputs = iter([[line for lines in inputs for line in lines]])
    labels: list[tuple[str, Any]] = []
    skip = files_read.on_bad_rows == "skip"
    header = model.header(**options)
    for lines in inputs:
        rows = iter(_rows_of(model, lines, skip))
        for row in model.predictions(lines, **options):
            if header:
                screen.write(header)
                header = ""
            known = next(rows, None)
            if known is not None:
                row.update({name: value for name, value in (("id", known.id), ("label", known.label)) if value})
                if known.label is not None and "error" not in row:
                    labels.append((known.label, row["output"]))
            if "error" in row:
                screen.write(model.write(row, row))
                if screen.json:
                    found.append(row)
                continue
            cut += bool(row.get("cut"))
            unknown.update(set(row.get("unknown", ())))
            for made in row.get("nbest", [row]):
                screen.write(model.write(row, made, made.get("score") if several else None))
            if attention:
                screen.write("\n".join(in_words(row["attention"])))
            if figure is not None and not forecasts and len(looked) < PANELS:
                looked.append(row["attention"])
            if screen.json:
                found.append(row if several else {name: value for name, value in row.items() if name != "nbest"})
        sys.stdout.flush()
        if note := model.reading.note():
            screen.note(note)
        model.new_reading()
    if looked and figure is not None:
        draw(looked, figure)
    if figure is not None and (looked or forecasts):
        screen.note(f"written to {figure}")
    if cut:
        screen.note(f"{cut} did not end by themselves and were cut; --max-length of training is the bound")
    if unknown:
        named = ", ".join(f"{shown(what)} ({n})" for what, n in unknown.most_common(10))
        screen.note(f"never seen in training, and in how many inputs: {named}{', …' * (len(unknown) > 10)}")
    scores = model.label_scores(*zip(*labels, strict=True)) if labels else {}
    if scores:
        named = ", ".join(f"{metric_label(name)} {format_metric(name, value)}" for name, value in scores.items())
        screen.note(f"compared with the {len(labels):,} labels of the table, which the model does not read: {named}")
    screen.result(
        {
            "run": [str(run.path) for run in model.runs],
            "predictions": found,
            **({"scores": scores, "labels": len(labels)} if scores else {}),
        }
    )


def no_run(named: Sequence[Path]) -> str:
    among = f" among {', '.join(map(str, named))}" if named else ""
    return f"no run{among}: expected the folder of a run, which has a manifest.json"


def open_runs(models: Sequence[Path], device: str, trust: bool, threads: int = 0) -> tuple[Predictor[Any], list[str]]:
    """Open the runs among the paths as one model; return it and the other paths."""
    from recur.runs import is_run

    runs = [path for path in models if is_run(path)]
    if not runs:
        raise OptionError(no_run(models))
    return open_model(runs, device, trust, threads), [str(path) for path in models if not is_run(path)]


def _lines_of(model: Predictor[Any], name: str, options: ReadingOptions) -> Iterable[Any]:
    """Return the inputs in a file: as the model reads it, else its lines."""
    found = model.read_inputs(name)
    return _Lines(name, model, options.on_bad_rows) if found is None else found


def _rows_of(model: Predictor[Any], lines: Iterable[Any], skip: bool) -> Iterable[Any]:
    """Return the rows of a table that have predictions; none for other inputs."""
    rows = getattr(lines, "rows", ())
    return [row for row in rows if not model.input_error(row.text)] if skip else rows


class _Lines:
    """Lines of a named file."""

    def __init__(self, name: str, model: Predictor[Any], on_bad_rows: str) -> None:
        self.name, self.model = name, model
        self.strict = model.takes_lines and on_bad_rows == "error"

    def __iter__(self) -> Iterator[str]:
        from recur.data.text.labelled import read_lines

        for number, line in enumerate(read_lines(self.name, self.model.new_reading()), start=1):
            if self.strict and not line.strip():
                raise TextError(f"{self.name}:{number}: the source is empty")
            yield line
