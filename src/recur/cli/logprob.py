"""recur logprob: log-probability of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cyclopts import App

from recur.cli.options import Opening, Output, open_model
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
  cat lines.txt | recur logprob runs/book              one text per line""",
)

SHOWN = 10
"""Positions of unknown tokens that are printed."""


class Scorer(NamedTuple):
    """Model that scores texts."""

    score: Callable[[str], Sequence[tuple[str, float | None]]]
    """Function from a text to its tokens in reading order, each with log P; None for a token that has none."""
    direction: str
    known: Container[str]
    """Tokens of the vocabulary."""


@verb.default
def logprob(
    model: Path,
    /,
    *texts: str,
    label: str | None = None,
    tokens: bool = True,
    device: str = "auto",
    threads: int = 0,
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
    threads
        CPU threads; 0: as many as the run was trained with.
    """
    screen = Screen(output)
    scorer = _scorer(model, label, device, opening.trust, threads)
    rows = []
    for text in texts or _lines():
        try:
            row = _row(text, scorer.score(text) if text.strip() or texts else [], scorer.known)
        except TextError as error:
            raise TextError(f"{text[:40]!r}: {error}") from None
        if not tokens:
            del row["each"]
        _show(screen, row)
        rows.append(row)
    if not rows:
        raise OptionError("there is no text to measure: name one, or write lines to standard input")
    named = {} if label is None else {"label": label}
    screen.result({"model": str(model), "direction": scorer.direction, **named, "texts": rows})


def _lines() -> list[str]:
    """Return the lines of standard input, blank ones included, so that answer n belongs to line n."""
    from recur.data.text.labelled import read_standard_input

    return [line for lines in read_standard_input(blank=True) for line in lines]


def _scorer(path: Path, label: str | None, device: str, trust: bool, threads: int) -> Scorer:
    """Open a run or an ARPA file."""
    if path.suffix == ".arpa":
        from recur.baselines.ngram import read_arpa

        if label is not None:
            raise OptionError(f"{path} is an n-gram model, so --label has no use")
        ngram = read_arpa(path)
        return Scorer(ngram.token_logprobs, "backward" if ngram.backward else "forward", ngram.vocab.ids)
    from recur.tasks.conditional.predictor import ConditionalWriter
    from recur.tasks.language.predictor import Language

    model = open_model([path], device, trust, threads)
    if isinstance(model, ConditionalWriter):
        if label is None:
            raise OptionError(f"which label? --label, one of: {', '.join(sorted(model.labels))}")
        chosen = label
        direction = model.task.options.direction
        return Scorer(lambda text: model.token_logprobs(text, chosen), direction, model.vocab.ids)
    if not isinstance(model, Language):
        raise OptionError(f"{path} is a run of the task {model.task.name}; log P of a text is for language models")
    if label is not None:
        raise OptionError(f"{path} was not trained with --task conditional, so --label has no use")
    return Scorer(model.token_logprobs, model.options.direction, model.vocab.ids)


def _row(text: str, each: Sequence[tuple[str, float | None]], known: Container[str]) -> JsonObject:
    scored = [logp for _, logp in each if logp is not None]
    total, count = sum(scored), len(scored)
    unknown = [k for k, (token, _) in enumerate(each, start=1) if token == "<unk>" or token not in known]
    return {
        "text": text,
        "logprob": total,
        "bits": -total / math.log(2),
        "tokens": count,
        "logprob_per_token": total / count if count else None,
        "bits_per_token": -total / math.log(2) / count if count else None,
        "perplexity": math.exp(min(-total / count, 700.0)) if count else None,
        "unknown": len(unknown),
        "unknown_at": unknown,
        "left_out": len(each) - count,
        "each": [{"token": token, "logprob": logp} for token, logp in each],
    }


def _show(screen: Screen, row: JsonObject) -> None:
    if not row["tokens"]:
        screen.show("a blank line: no token to measure")
        return
    if "each" in row:
        listed = table("", "token", "log P", "P")
        for entry in row["each"]:
            name, logp = printable(entry["token"]), entry["logprob"]
            if logp is None:
                listed.add_row(name, "–", "not in the vocabulary")
            else:  # a back-off of another program's file may be above 1
                listed.add_row(name, f"{logp:.3f}", f"{math.exp(min(logp, 700.0)):.4g}")
        screen.show(listed)
    screen.show(
        f"log P = {row['logprob']:.4f} nats, {row['bits']:.3f} bits; {row['tokens']} tokens, each "
        f"{row['logprob_per_token']:.4f} nats on average, perplexity {row['perplexity']:.3f}: {printable(row['text'])}"
    )
    if row["unknown"]:
        at = ", ".join(map(str, row["unknown_at"][:SHOWN])) + (", …" if row["unknown"] > SHOWN else "")
        scored = "left out of log P" if row["left_out"] else "scored as <unk>"
        screen.show(f"{row['unknown']} unknown ({scored}): token {at}")
