"""recur logprob: log-probability of a text."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from recur.cli.options import Opening, Output
from recur.cli.screen import Screen, printable, table
from recur.errors import OptionError, TextError

if TYPE_CHECKING:
    from recur.utils.types import JsonObject

verb = App(
    name="logprob",
    help_epilogue="""Examples:
  recur logprob runs/book "the cat sat" "cat the sat"
  recur logprob model.arpa "the cat sat" --json
  recur logprob runs/names Papadopoulos --label Greek
  cat lines.txt | recur logprob runs/book              each line a text of its own""",
)

Measure = Callable[[str], list[tuple[str, float]]]
"""Function from a text to its tokens in reading order, each with its log-probability."""


@verb.default
def logprob(
    model: Path,
    /,
    *texts: str,
    label: str | None = None,
    tokens: bool = True,
    device: str = "auto",
    opening: Opening = Opening(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Log-probability of texts in nats and bits, token by token.

    A text is preceded by a line end; for a model trained with --direction backward it is followed by one, and tokens
    are listed from last to first. Word n-grams and conditional models score whole lines with their ends.

    Parameters
    ----------
    model
        Run of a language model or a conditional model, or an ARPA file.
    texts
        Texts; default: each line of standard input.
    label
        Conditional models: label of the lines.
    tokens
        List every token; --no-tokens prints only the sums.
    device
        cpu, cuda, cuda:N or auto.
    """
    screen = Screen(output)
    measure, direction = _measure(model, label, device, opening.trust)
    rows = []
    for text in texts or _lines():
        try:
            row = _row(text, measure(text) if text.strip() or texts else [])
        except TextError as error:
            raise TextError(f"{text[:40]!r}: {error}") from None
        if not tokens:
            del row["each"]
        _show(screen, row)
        rows.append(row)
    if not rows:
        raise OptionError("there is no text to measure: name one, or write lines to standard input")
    named = {} if label is None else {"label": label}
    screen.result({"model": str(model), "direction": direction, **named, "texts": rows})


def _lines() -> list[str]:
    """Return the lines of standard input, blank ones included, so that answer n belongs to line n."""
    from recur.data.text.labelled import read_standard_input

    return [line for lines in read_standard_input(blank=True) for line in lines]


def _measure(path: Path, label: str | None, device: str, trust: bool) -> tuple[Measure, str]:
    """Return the function that scores a text, and the reading direction."""
    if path.suffix == ".arpa":
        from recur.baselines.ngram import read_arpa

        if label is not None:
            raise OptionError(f"{path} is an n-gram model, so --label has no use")
        ngram = read_arpa(path)
        return ngram.token_logprobs, "backward" if ngram.backward else "forward"
    from recur.tasks import open_predictor
    from recur.tasks.conditional.predictor import ConditionalWriter
    from recur.tasks.language.predictor import Language

    model = open_predictor([path], device, trust)
    if isinstance(model, ConditionalWriter):
        if label is None:
            raise OptionError(f"which label? --label, one of: {', '.join(sorted(model.labels))}")
        chosen = label
        return lambda text: model.token_logprobs(text, chosen), model.task.options.direction
    if not isinstance(model, Language):
        raise OptionError(f"{path} is a run of the task {model.task.name}; log P of a text is for language models")
    if label is not None:
        raise OptionError(f"{path} was not trained with --task conditional, so --label has no use")
    return model.token_logprobs, model.options.direction


def _row(text: str, each: list[tuple[str, float]]) -> JsonObject:
    total = sum(logp for _, logp in each)
    return {
        "text": text,
        "logprob": total,
        "bits": -total / math.log(2),
        "tokens": len(each),
        "logprob_per_token": total / len(each) if each else None,
        "bits_per_token": -total / math.log(2) / len(each) if each else None,
        "perplexity": math.exp(min(-total / len(each), 700.0)) if each else None,
        "unknown": sum(token == "<unk>" for token, _ in each),
        "each": [{"token": token, "logprob": logp} for token, logp in each],
    }


def _show(screen: Screen, row: JsonObject) -> None:
    if not row["tokens"]:
        screen.show("a blank line: no token to measure")
        return
    if "each" in row:
        listed = table("", "token", "log P", "P")
        for entry in row["each"]:
            p = math.exp(min(entry["logprob"], 700.0))  # a back-off of another program's file may be above 1
            listed.add_row(printable(entry["token"]), f"{entry['logprob']:.3f}", f"{p:.4g}")
        screen.show(listed)
    unknown = f", {row['unknown']} unknown" if row["unknown"] else ""
    screen.show(
        f"log P = {row['logprob']:.4f} nats, {row['bits']:.3f} bits; {row['tokens']} tokens{unknown}, each "
        f"{row['logprob_per_token']:.4f} nats on average, perplexity {row['perplexity']:.3f}: {printable(row['text'])}"
    )
