"""recur ngram: train an n-gram model and evaluate it on a text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import App, Parameter

from recur.cli.options import Common, TextOptions
from recur.cli.screen import Screen, facts
from recur.errors import OptionError, TextError

if TYPE_CHECKING:
    from recur.baselines.ngram import Evaluation, NGram
    from recur.data.text import Corpus


verb = App(
    help_epilogue="""Examples:
  recur ngram                                       the language reference, its characters
  recur ngram train.txt --token word --order 5 --eval test.txt --json
  recur ngram train.txt --token word --order 3 --smoothing laplace --epsilon 1 --epsilon 0.5 --epsilon 0.1
  recur ngram book.txt --order 8 --sample 300 --seed 1
  cat *.txt | recur ngram - --token word --save model.arpa"""
)


@verb.default
def ngram(
    *sources: str,
    order: int = 5,
    smoothing: Literal["kneser-ney", "laplace", "add-k"] = "kneser-ney",
    epsilon: list[float] | None = None,
    k: Annotated[float, Parameter(name="--k")] = 1.0,
    eval: list[str] | None = None,
    sample: int = 0,
    prompt: str = "",
    temperature: float = 1.0,
    direction: Literal["forward", "backward"] | None = None,
    save: Path | None = None,
    load: Path | None = None,
    text: TextOptions = TextOptions(),  # noqa: B008  frozen
    common: Common = Common(),  # noqa: B008
) -> None:
    """Train an n-gram model and evaluate its perplexity.

    Without --eval the text is split by position, 90/5/5: the model is trained on the first part and evaluated on the
    second.

    Parameters
    ----------
    sources
        Files, folders, - for standard input, pydoc (the default) or stdlib.
    order
        Order n.
    smoothing
        kneser-ney (interpolated, modified), laplace (recursion with ε₁, ε₂, …) or add-k.
    epsilon
        Laplace: one ε for all orders, or one per order.
    k
        Add-k: the number added to every count.
    eval
        Evaluate on this text instead of a held-out part.
    sample
        Generate this many tokens.
    prompt
        Start of the sample; with --direction backward its end.
    temperature
        Samples: below 1 more likely, above 1 more varied.
    direction
        Reading direction: forward, or backward (the probability of a token given the tokens after it).
    save
        Write the model as an ARPA file.
    load
        Read the model from an ARPA file instead of counting.
    """
    from recur.data.text import Corpus

    screen = Screen(common)
    if sample < 0:
        raise OptionError(f"--sample must not be negative, got {sample}")
    if not 0 < temperature < float("inf"):
        raise OptionError(f"--temperature must be above 0, got {temperature}")
    begun = time.perf_counter()
    notes: dict[str, object] = {}
    if load is not None:
        if sources:
            raise OptionError("give texts to count or --load a model, not both")
        if direction is not None:
            raise OptionError(f"--direction is for counting: {load} says which way it reads")
        model, trained_on = _loaded(load, text), str(load)
        held_out = Corpus.of(*eval) if eval else None
    else:
        corpus = Corpus.of(*(sources or ["pydoc"]))
        trained_on = corpus.name
        train, held_out = (corpus, Corpus.of(*eval)) if eval else corpus.split()[:2]
        model = _fitted(screen, train, text, order, smoothing, epsilon or [1.0], k, direction == "backward")
        notes = {"text": str(train.notes)}
    for remark in model.notes:
        screen.note(remark)
    measured = None if held_out is None else _measured(screen, model, held_out)
    if save is not None:
        from recur.baselines.ngram import write_arpa

        with screen.busy("writing"):
            write_arpa(model, save)
        screen.note(f"written to {save}")
    written = model.sample(sample, common.seed, prompt, temperature) if sample else None
    seconds = time.perf_counter() - begun
    _show(screen, model, measured, written, seconds)
    screen.result(
        {
            "trained_on": trained_on,
            "order": model.order,
            "smoothing": model.smoothing,
            "direction": "backward" if model.backward else "forward",
            "vocabulary": len(model.vocab),
            "ngrams": len(model),
            "notes": list(model.notes),
            **notes,
            **(measured.content() if measured is not None else {}),
            **({"sample": written} if written is not None else {}),
            "seconds": round(seconds, 3),
        }
    )


class Measured(NamedTuple):
    """How well a text was predicted."""

    name: str
    notes: str
    found: Evaluation
    unknown: list[str]
    """The most frequent tokens that the vocabulary does not have."""

    def content(self) -> dict[str, object]:
        content = {"evaluated_on": self.name, "evaluated_text": self.notes, **self.found._asdict()}
        return content | {"unknown": self.unknown} if self.unknown else content


def _loaded(path: Path, text: TextOptions) -> NGram:
    from recur.baselines.ngram import read_arpa
    from recur.data.text import Characters, Words

    if text.token == "subword":
        raise OptionError("an ARPA file does not hold the pieces of subwords; load one of char or word")
    model = read_arpa(path, Characters() if text.token == "char" else Words(text.punctuation, text.lower))
    long = next((t for t in model.vocab.tokens[4:] if len(t) > 1), None) if text.token == "char" else None
    if long is not None:
        raise OptionError(f"{path} is a model of words, such as {long!r}; read it with --token word")
    return model


def _fitted(
    screen: Screen,
    train: Corpus,
    text: TextOptions,
    order: int,
    smoothing: str,
    epsilon: list[float],
    k: float,
    backward: bool,
) -> NGram:
    from recur.baselines.ngram import fit

    learning = "learning pieces" if text.token == "subword" else "counting tokens"
    with screen.busy(learning), screen.reading(train, "reading", train.characters) as tracked:
        vocab = text.vocab(tracked)
    screen.note(f"{train.name}: {train.characters:,} characters ({train.notes})")
    with screen.busy("counting and estimating"), screen.reading(train, "encoding", train.characters) as tracked:
        return fit(tracked, vocab, order, smoothing, epsilon, k, backward)


def _measured(screen: Screen, model: NGram, text: Corpus) -> Measured:
    if not text.characters:
        raise TextError(f"{text.name} is too short for evaluation: give a longer text, or another one with --eval")
    with screen.reading(text, "measuring", text.characters) as tracked:
        found = model.evaluate(tracked)
    unknown = model.vocab.unknown_tokens(text.text()).most_common(10) if found.oov else []
    return Measured(text.name, str(text.notes), found, [token for token, _ in unknown])


def _show(screen: Screen, model: NGram, measured: Measured | None, written: str | None, seconds: float) -> None:
    rows = {"model": f"{model.order}-gram, {model.smoothing}{', read from the end' if model.backward else ''}"}
    rows["size"] = f"{len(model):,} n-grams over {len(model.vocab):,} tokens"
    if measured is not None:
        found = measured.found
        rows["measured on"] = f"{measured.name}, {found.tokens:,} tokens, {found.oov:,} unknown"
        rows["perplexity"] = f"{found.perplexity:,.2f}"
        rows["bits/char"] = f"{found.bits_per_character:.3f}"
    rows["seconds"] = f"{seconds:.2f}"
    screen.show(facts("", rows))
    if measured is not None and measured.found.impossible:
        screen.show(f"perplexity is infinite because of {measured.found.impossible}: it has probability 0")
    if measured is not None and measured.unknown:
        screen.show(f"unknown, most frequent first: {' '.join(map(repr, measured.unknown))}")
    if written is not None:
        screen.write("\n" + written)
