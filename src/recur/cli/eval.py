"""recur eval: trained models, and n-grams, measured on a text or a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from recur.cli.options import Output
from recur.cli.results import show_models, show_texts
from recur.cli.screen import Screen
from recur.errors import OptionError
from recur.typedefs import JsonObject

if TYPE_CHECKING:
    from recur.tasks.contract import Predictor

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
    device: str = "auto",
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
        Runs and ARPA files; what is neither is what to measure on. Without it, each run's own test part.
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
    from recur.run import is_run
    from recur.tasks import open_predictor

    screen = Screen(output)
    runs = [path for path in models if is_run(path)]
    arpas = [path for path in models if path.suffix == ".arpa"]
    texts = [str(path) for path in models if path not in runs and path not in arpas]
    if not runs and not arpas:
        raise OptionError(f"no run among {', '.join(map(str, models))}: a run is a folder with a config.toml")
    if arpas and not texts:
        raise OptionError("an ARPA file has no text of its own: name one to measure on")
    asked = {"beam": beam, "length_penalty": length_penalty, "figure": figure}
    options = {name: value for name, value in asked.items() if value is not None}
    groups = [runs] if ensemble and runs else [[run] for run in runs]
    predictors = [open_predictor(group, device) for group in groups]
    if len({predictor.task.on_text for predictor in predictors}) > 1:
        raise OptionError("some of these runs learned from texts and others from tables: measure them one by one")
    if predictors and not predictors[0].task.on_text:
        if arpas:
            raise OptionError(f"{predictors[0].run.path} learned from a table, and an ARPA file measures texts")
        rows = [_measure(screen, predictor, texts, options) for predictor in predictors]
        show_models(screen, rows)
        screen.result({**(rows[0] if len(rows) == 1 else {}), "models": rows})
        return
    rows = [row for predictor in predictors for row in _measure_text(screen, predictor, texts, ngrams, options)]
    rows += [_measure_arpa(path, texts) for path in arpas]
    show_texts(screen, rows)
    screen.result({"models": rows})


def _measure(screen: Screen, predictor: Predictor[Any], texts: list[str], options: JsonObject) -> JsonObject:
    with screen.busy(f"measuring {predictor.name}"):
        return predictor.evaluate(texts or None, **options)


def _measure_text(
    screen: Screen, predictor: Predictor[Any], texts: list[str], ngrams: bool, options: JsonObject
) -> list[JsonObject]:
    """A language model's row, and the n-gram's below it."""
    with screen.counting(f"measuring {predictor.name}") as progress:
        row = predictor.evaluate(texts or None, ngrams=ngrams, progress=progress, **options)
    return [row, *row.pop("beside", ())]


def _measure_arpa(path: Path, texts: list[str]) -> JsonObject:
    from recur.ngram import read_arpa
    from recur.tasks.language.baseline import ngram_row
    from recur.text import Corpus

    return ngram_row(str(path), read_arpa(path), Corpus.of(*texts))
