"""recur eval: trained models, and n-grams, measured on a text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from recur.cli.options import Output
from recur.cli.screen import Screen, table
from recur.errors import OptionError

if TYPE_CHECKING:
    from recur.text import Corpus
    from recur.train.run import Run

verb = App(
    help_epilogue="""Examples:
  recur eval runs/book                        on the part of its text held out for testing
  recur eval runs/book runs/other test.txt --json
  recur eval runs/book model.arpa test.txt    an n-gram beside it"""
)


@verb.default
def eval(
    models: list[Path],
    /,
    *,
    device: str = "cpu",
    ngrams: bool = True,
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Measure trained models on a text, the state carried through all of it, every token counted.

    Parameters
    ----------
    models
        Runs and ARPA files; what is neither is the text to measure on. Without one, each run's own test part.
    device
        cpu, cuda or auto.
    ngrams
        Fit the best n-gram on each run's training text and measure it too.
    """
    from recur.text import Corpus
    from recur.train.run import Run

    screen = Screen(output)
    runs = [Run.open(path) for path in models if (path / "config.toml").exists()]
    arpas = [path for path in models if path.suffix == ".arpa"]
    texts = [str(path) for path in models if not (path / "config.toml").exists() and path.suffix != ".arpa"]
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
