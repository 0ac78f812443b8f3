"""recur stats: what a text is made of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import App

from recur.cli.options import Common, TextOptions
from recur.cli.screen import Screen, printable, table

if TYPE_CHECKING:
    from recur.ngram.statistics import Statistics


verb = App(
    help_epilogue="""Examples:
  recur stats                                       the language reference
  recur stats book.txt --no-stop-words --top 50
  recur stats book.txt --figure zipf.png --figure zipf.svg
  recur stats corpus/ --token char --json"""
)


@verb.default
def stats(
    sources: list[str] | None = None,
    /,
    *,
    token: Literal["char", "word"] = "word",
    punctuation: bool = True,
    lower: bool = True,
    top: int = 20,
    stop_words: bool = True,
    figure: list[Path] | None = None,
    common: Common = Common(),  # noqa: B008  frozen
) -> None:
    """Frequencies, stop words, Zipf's law, coverage, and how much of what comes is new.

    The text is split by position, 90/5/5: all is counted on the first part, and what is new measured on the second.

    Parameters
    ----------
    sources
        Files, folders, - for standard input, pydoc (the default) or stdlib.
    token
        What a token is.
    punctuation
        Split punctuation off words, and Chinese characters from each other; it is not counted as words.
    lower
        Drop case.
    top
        How many of the most frequent to list.
    stop_words
        List stop words too.
    figure
        Draw counts against ranks, on logarithmic axes, to this file (.png, .svg or .pdf).
    """
    from recur.ngram.statistics import describe
    from recur.ngram.statistics import figure as draw
    from recur.text import Corpus

    screen = Screen(common)
    corpus = Corpus.of(*(sources or ["pydoc"]))
    train, held_out, _ = corpus.split()
    options = TextOptions(token=token, punctuation=punctuation, lower=lower)
    with screen.reading(train, "reading", train.characters) as tracked:
        vocab = options.vocab(tracked)
    screen.note(f"{corpus.name}: {train.characters:,} of {corpus.characters:,} characters counted ({train.notes})")
    with screen.busy("counting"), screen.reading(train, "reading again", train.characters) as tracked:
        found = describe(tracked, held_out if held_out.characters else None, vocab, top, stop_words)
    for path in figure or []:
        draw(found, str(path), corpus.name)
        screen.note(f"drawn to {path}")
    _show(screen, found)
    screen.result(_content(corpus.name, found) | {"notes": str(train.notes)})


def _content(name: str, found: Statistics) -> dict[str, object]:
    return {
        "text": name,
        "characters": found.characters,
        "tokens": found.tokens,
        "types": found.types,
        "stop_word_share": found.stop_share,
        "top": [{"token": token, "count": count} for token, count in found.top],
        "zipf": [
            {"order": z.order, "alpha": z.alpha, "r_squared": z.r_squared, "types": z.types, "once": z.once}
            for z in found.zipf
        ],
        "coverage": found.coverage,
        "novel": found.novel,
    }


def _show(screen: Screen, found: Statistics) -> None:
    screen.show(f"{found.tokens:,} tokens, {found.types:,} types; {found.stop_share:.1%} of tokens are stop words", "")

    most = table("most frequent", "token", "count", "share")
    for token, count in found.top:
        most.add_row(printable(token), f"{count:,}", f"{count / found.tokens:.2%}")
    screen.show(most, "")

    zipf = table("Zipf: log n_i = c − α log i", "n-grams of", "α", "R²", "types", "seen once")
    for z in found.zipf:
        once = f"{z.once / z.types:.1%}" if z.types else "–"
        zipf.add_row(str(z.order), f"{z.alpha:.3f}", f"{z.r_squared:.3f}", f"{z.types:,}", once)
    screen.show(zipf, "")

    covered = table("coverage", "of all tokens", "most frequent types needed")
    for share, types in found.coverage.items():
        covered.add_row(f"{share:.0%}", f"{types:,}")
    screen.show(covered, "")

    if found.novel:
        new = table("held-out n-grams never seen in training", "n", "new")
        for n, share in found.novel.items():
            new.add_row(str(n), f"{share:.1%}")
        screen.show(new)
