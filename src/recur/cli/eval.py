"""recur eval: evaluation of trained models and n-grams on a text or a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from recur.cli.display import show_models, show_texts, show_verdict
from recur.cli.options import OpeningTexts, Output, ReadingOptions, open_model
from recur.cli.predict import no_run
from recur.cli.screen import Screen
from recur.errors import OptionError
from recur.options import NonNegative, checked
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.tasks.common.predictor import Predictor

verb = App(
    help_epilogue="""Examples:
  recur eval runs/book                        on the part of its text held out for testing
  recur eval runs/book runs/other test.txt --json
  recur eval runs/book model.arpa test.txt    an n-gram beside it
  recur eval runs/g2p test.tsv --beam 5 --json
  recur eval runs/g2p-1 runs/g2p-2 test.tsv --ensemble
  recur eval runs/names test.tsv              beside the most frequent class, and n-grams by class
  recur eval runs/airline --figure airline.png
  recur eval runs/book --cache 2000 --dynamic going on learning from what it reads, shown apart
  recur eval runs/book --weights int8         and refuse, where perplexity rises by more than 1 %"""
)


@verb.default
def eval(
    *models: Path,
    device: str = "auto",
    threads: int = 0,
    ngrams: bool = True,
    beam: int | None = None,
    length_penalty: float | None = None,
    coverage: float | None = None,
    lm: Path | None = None,
    lm_weight: float | None = None,
    cache: int | None = None,
    dynamic: Annotated[bool, Parameter(negative="")] = False,
    precision: Literal["float32", "tf32", "bfloat16", "float16"] | None = None,
    ensemble: Annotated[bool, Parameter(negative="")] = False,
    figure: Path | None = None,
    weights: Literal["float32", "bfloat16", "int8"] = "float32",
    max_change: float = 1.0,
    files_read: ReadingOptions = ReadingOptions(),  # noqa: B008  frozen
    opening: OpeningTexts = OpeningTexts(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Evaluate trained models: a language model on a text, with the state carried through all of it; other models on a
    file of examples.

    Parameters
    ----------
    models
        Runs and ARPA files, then the files to evaluate on. Without files: the test set of each run.
    device
        cpu, cuda, cuda:N or auto.
    threads
        CPU threads; 0: as many as the run was trained with.
    ngrams
        Language models: also evaluate the best n-gram of each run's training text.
    beam
        Sequence models: width of the beam search; default 1.
    length_penalty
        Sequence models: length penalty α; rank by log P / ((5 + length) / 6)^α.
    coverage
        Sequence models with attention: weight of the coverage penalty Σ log(attention per source position, at most 1).
    lm
        CTC: n-gram model of label sequences, an ARPA file (recur ngram --token word --save).
    lm_weight
        CTC: weight of the n-gram model; default 0.5.
    cache
        Language models: also evaluate with a continuous cache of this many tokens, tuned on the validation set.
    dynamic
        Language models: also evaluate with dynamic evaluation, tuned on the validation set.
    precision
        Precision of matrix products; default: float32, tf32 on a GPU.
    ensemble
        Evaluate the runs as one ensemble: the mean of their probabilities.
    figure
        Forecasts: write a figure with the prediction intervals to this file (.png, .svg or .pdf).
    weights
        Also evaluate with recurrent weights of fewer bits, as in `recur sample --weights`.
    max_change
        Largest accepted increase of perplexity with these weights, in per cent.
    """
    from recur.runs import is_run

    screen = Screen(output)
    checked("max_change", max_change, NonNegative)
    runs = [path for path in models if is_run(path)]
    arpas = [path for path in models if path.suffix == ".arpa"]
    texts = [str(path) for path in models if path not in runs and path not in arpas]
    if not runs and not arpas:
        raise OptionError(no_run(models))
    if arpas and not texts:
        raise OptionError("an ARPA file has no text of its own: name a text to evaluate on")
    asked: JsonObject = {"beam": beam, "length_penalty": length_penalty, "coverage": coverage}
    asked |= {"lm": lm, "lm_weight": lm_weight, "figure": figure, "cache": cache, "dynamic": dynamic or None}
    options = {name: value for name, value in asked.items() if value is not None}
    groups = [runs] if ensemble and runs else [[run] for run in runs]
    predictors = [open_model(group, device, opening.trust, threads) for group in groups]
    for predictor in predictors:
        predictor.changed_text, predictor.allow_path = opening.changed_text, opening.allow_path
        predictor.use_precision(precision)
        predictor.read_with(**files_read.settings())
    if len({predictor.task.on_text for predictor in predictors}) > 1:
        raise OptionError("some of these runs were trained on texts and others on tables: evaluate them one by one")
    if predictors and not predictors[0].task.on_text:
        if arpas:
            raise OptionError(f"{predictors[0].run.path} was trained on a table, and an ARPA file evaluates texts")
        rows = [_measure(screen, predictor, texts, options) for predictor in predictors]
        fewer = [
            _in_fewer_bits(screen, weights, predictor, row, lambda: _measure(screen, predictor, texts, options))  # noqa: B023
            for predictor, row in zip(predictors, rows, strict=True)
            if weights != "float32"
        ]
        show_models(screen, [*rows, *fewer])
        _refuse_change(fewer, max_change)
        rows += fewer
        screen.result({**(rows[0] if len(rows) == 1 else {}), "models": rows})
        return
    rows, fewer = [], []
    for predictor in predictors:
        measured = _measure_text(screen, predictor, texts, ngrams, options)
        if weights != "float32":
            row = _in_fewer_bits(
                screen,
                weights,
                predictor,
                measured[0],
                lambda: _measure_text(screen, predictor, texts, False, options)[0],  # noqa: B023  called at once
            )
            fewer.append(row)
            measured.insert(1, row)
        rows += measured
    rows += [_measure_arpa(path, texts) for path in arpas]
    show_texts(screen, rows)
    for row in rows:
        show_verdict(screen, row.get("verdict") or [])
    _refuse_change(fewer, max_change)
    screen.result({"models": rows})


def _in_fewer_bits(
    screen: Screen, weights: str, predictor: Predictor[Any], plain: JsonObject, measure: Callable[[], JsonObject]
) -> JsonObject:
    """Evaluate a model again with quantized weights; return its row with the change of perplexity in per cent."""
    if "perplexity" not in plain:
        raise OptionError(f"--weights bounds a change of perplexity, and {predictor.name} has none")
    predictor.use_products(weights)
    row = measure()
    row["model"], row["weights"] = f"{predictor.name}, {weights}", weights
    row["perplexity_change"] = 100 * (row["perplexity"] / plain["perplexity"] - 1)
    screen.note(f"{weights} weights change the perplexity of {predictor.name} by {row['perplexity_change']:+.3f} %")
    return row


def _refuse_change(fewer: Sequence[JsonObject], max_change: float) -> None:
    for row in fewer:
        if not row["perplexity_change"] <= max_change:
            change = row["perplexity_change"]
            raise OptionError(
                f"{row['model']}: perplexity rises by {change:.3g} %, more than the {max_change:g} % of --max-change"
            )


def _measure(screen: Screen, predictor: Predictor[Any], texts: list[str], options: JsonObject) -> JsonObject:
    from recur.tasks.common.verdict import verdict_json

    with screen.busy(f"measuring {predictor.name}"):
        row = predictor.evaluate(texts or None, **options)
    if note := predictor.reading.note():
        screen.note(note)
    return row | verdict_json(predictor, row)


def _measure_text(
    screen: Screen, predictor: Predictor[Any], texts: list[str], ngrams: bool, options: JsonObject
) -> list[JsonObject]:
    """Return the row of a language model and the rows of its n-gram baselines."""
    from recur.tasks.common.verdict import verdict_json

    with screen.counting(f"measuring {predictor.name}") as progress:
        row = predictor.evaluate(texts or None, ngrams=ngrams, progress=progress, **options)
    row |= verdict_json(predictor, row)
    beside = row.pop("beside", ())
    if ngrams and not beside:
        screen.note(f"no n-gram baseline: the training text of {predictor.name} is missing or has changed")
    return [row, *beside]


def _measure_arpa(path: Path, texts: list[str]) -> JsonObject:
    from recur.baselines.ngram import read_arpa
    from recur.baselines.text_ngrams import evaluate_ngram
    from recur.data.text import Corpus

    return evaluate_ngram(str(path), read_arpa(path), Corpus.of(*texts))
