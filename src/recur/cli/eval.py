"""recur eval: trained models, and n-grams, measured on a text or a table."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from recur.cli.options import Output
from recur.cli.screen import Screen, facts, table
from recur.errors import OptionError

if TYPE_CHECKING:
    from rich.table import Table

    from recur.text import Corpus
    from recur.train.run import Run

verb = App(
    help_epilogue="""Examples:
  recur eval runs/book                        on the part of its text held out for testing
  recur eval runs/book runs/other test.txt --json
  recur eval runs/book model.arpa test.txt    an n-gram beside it
  recur eval runs/g2p test.tsv --beam 5 --json
  recur eval runs/g2p-1 runs/g2p-2 test.tsv --ensemble
  recur eval runs/names test.tsv              beside the most frequent class, and n-grams by class
  recur eval runs/airline --figure airline.png"""
)


@verb.default
def eval(
    models: list[Path],
    /,
    *,
    device: str = "cpu",
    ngrams: bool = True,
    beam: int | None = None,
    length_penalty: float | None = None,
    ensemble: Annotated[bool, Parameter(negative="")] = False,
    figure: Path | None = None,
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Measure trained models: language models on a text, the state carried through all of it and every token counted;
    others on a table of what they learned from.

    Parameters
    ----------
    models
        Runs and ARPA files; what is neither is the text to measure on. Without one, each run's own test part.
    device
        cpu, cuda or auto.
    ngrams
        Language models: fit the best n-gram on each run's training text and measure it too.
    beam
        Models that write: width of the beam search; 1, if not given.
    length_penalty
        Models that write: rank by log P / ((5 + length) / 6)^this.
    ensemble
        Measure the runs as one model, by the mean of their probabilities.
    figure
        Forecasts: draw them with their bands to this file (.png, .svg or .pdf).
    """
    from recur.text import Corpus
    from recur.train.run import Run
    from recur.train.tasks.language import LanguageTask

    screen = Screen(output)
    runs = [Run.open(path) for path in models if (path / "config.toml").exists()]
    arpas = [path for path in models if path.suffix == ".arpa"]
    texts = [str(path) for path in models if not (path / "config.toml").exists() and path.suffix != ".arpa"]
    asked = {"beam": beam, "length_penalty": length_penalty, "figure": figure}
    options = {name: value for name, value in asked.items() if value is not None}
    tables = [run for run in runs if not isinstance(run.task, LanguageTask)]
    if tables and (arpas or len(tables) < len(runs)):
        raise OptionError(f"{tables[0].path} learned from a table and others from a text: measure them one by one")
    if runs and (tables or ensemble or options):
        _measure_tables(screen, [runs] if ensemble else [[run] for run in runs], texts or None, device, options)
        return
    if not runs and not arpas:
        raise OptionError(f"no run among {', '.join(map(str, models))}: a run is a folder with a config.toml")
    if arpas and not texts:
        raise OptionError("an ARPA file has no text of its own: name one to measure on")
    given = Corpus.of(*texts) if texts else None
    rows: list[dict[str, Any]] = []
    for run in runs:
        rows += _measure_run(screen, run, given, device, ngrams)
    rows += [_measure_arpa(path, given) for path in arpas if given is not None]
    shown = table("", "model", "perplexity", "bits/char", "tokens", "unknown", "tokens/s")
    for row in rows:
        bits, rate = f"{row['bits_per_character']:.3f}", f"{row['tokens_per_second']:,.0f}"
        shown.add_row(row["model"], f"{row['perplexity']:,.3f}", bits, f"{row['tokens']:,}", f"{row['oov']:,}", rate)
    screen.show(shown)
    screen.result({"models": rows})


def _measure_tables(
    screen: Screen, models: list[list[Run]], texts: list[str] | None, device: str, options: dict[str, Any]
) -> None:
    """Runs of tasks that learn from tables, each list of them as one model, under the names of all."""
    rows = []
    for runs in models:
        opened = runs[0].task.open(runs[0], device, runs[1:])
        with screen.busy(f"measuring {runs[0].path}"):
            rows.append({**opened.evaluate(texts, **options), "model": " + ".join(str(run.path) for run in runs)})
        _show_table(screen, rows[-1])
    screen.result({**(rows[0] if len(rows) == 1 else {}), "models": rows})


def _show_table(screen: Screen, row: dict[str, Any]) -> None:
    """Figures, a line each; what stands beside them, and the confusion matrix, as tables."""
    beside, confusion, classes = (row.get(name, []) for name in ("beside", "confusion", "classes"))
    plain = {name: value for name, value in row.items() if name not in ("beside", "confusion", "classes")}
    screen.show(facts("", {name.replace("_", " "): _said(value) for name, value in plain.items()}))
    if beside:
        columns = [name for name, value in beside[0].items() if isinstance(value, float)]
        shown = table("", "beside others", *(name.replace("_", " ") for name in columns))
        for entry in (row, *beside):
            shown.add_row(entry["model"], *(_said(entry[name]) for name in columns))
        screen.show("", shown)
    if confusion:
        screen.show("", _confusion(screen, classes, confusion))


def _confusion(screen: Screen, classes: list[str], counts: list[list[int]]) -> Table:
    """The matrix, its columns by name or else by number; where neither fits the screen, the largest of its mistakes."""
    numbers = [str(k) for k in range(1, len(classes) + 1)]
    numbered = [f"{k} {name}" for k, name in zip(numbers, classes, strict=True)]
    for rows, columns, gap in ((classes, [name[:8] for name in classes], 2), (numbered, numbers, 1)):
        shown = table("", "is, given as", *columns)
        shown.padding = (0, 0, 0, gap)
        for name, row in zip(rows, counts, strict=True):
            shown.add_row(name, *(str(n) if n else "·" for n in row))
        unbounded = screen.out.options.update(width=sys.maxsize)
        if screen.out.measure(shown, options=unbounded).maximum <= screen.out.width:
            return shown
    mistakes = [(n, i, j) for i, row in enumerate(counts) for j, n in enumerate(row) if n and i != j]
    shown = table("", "is, given as (all of it: --json)", "")
    for n, i, j in sorted(mistakes, key=lambda mistake: -mistake[0])[:20]:
        shown.add_row(f"{classes[i]}, {classes[j]}", str(n))
    return shown


def _said(value: Any) -> str:
    if isinstance(value, list):
        return "  ".join(_said(item) for item in value)
    return f"{value:,.3f}" if isinstance(value, float) else str(value)


def _measure_run(screen: Screen, run: Run, given: Corpus | None, device: str, ngrams: bool) -> list[dict[str, Any]]:
    from recur.train.baseline import best_ngram
    from recur.train.data import corpora
    from recur.train.tasks.language import Language

    train, valid, test = corpora(run.config)
    text = given or test
    model = Language(run, device)
    with screen.reading(text, f"measuring {run.path}", text.characters) as heard:
        row = model.measure(text, heard.heard)
    if not ngrams:
        return [row]
    ngram, _ = best_ngram(run.vocab, train, valid)
    return [row, _ngram_row(f"{ngram.order}-gram of the same text", ngram, text)]


def _measure_arpa(path: Path, text: Corpus) -> dict[str, Any]:
    from recur.ngram import read_arpa

    return _ngram_row(str(path), read_arpa(path), text)


def _ngram_row(name: str, model: Any, text: Corpus) -> dict[str, Any]:
    begun = time.perf_counter()
    found = model.evaluate(text)
    rate = found.tokens / (time.perf_counter() - begun)
    return {"model": name, **found._asdict(), "tokens_per_second": rate}
