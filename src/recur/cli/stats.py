"""recur stats: statistics of a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from recur.cli.options import Common, TextOptions
from recur.cli.screen import Screen, printable, table

if TYPE_CHECKING:
    from recur.baselines.ngram.statistics import Statistics


verb = App(
    help_epilogue="""Examples:
  recur stats                                       the language reference
  recur stats book.txt --no-stop-words --top 50
  recur stats book.txt --figure zipf.png --figure zipf.svg
  recur stats book.txt --all --across-lines         every token, n-grams from line to line
  recur stats corpus/ --token char --json"""
)


@verb.default
def stats(
    *sources: str,
    token: Literal["char", "word"] = "word",
    punctuation: bool = True,
    lower: bool = True,
    top: int = 20,
    stop_words: bool = True,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    across_lines: Annotated[bool, Parameter(negative="")] = False,
    figure: list[Path] | None = None,
    common: Common = Common(),  # noqa: B008  frozen
) -> None:
    """Token frequencies, stop words, Zipf's law, coverage, and the share of new n-grams.

    The text is split by position, 90/5/5, as for training: the first part is counted, new n-grams are measured on
    the second. With --all there is no second part. N-grams of words end with their line, those of characters do not.

    Parameters
    ----------
    sources
        Files, folders, - for standard input, pydoc (the default) or stdlib.
    token
        Token.
    punctuation
        Punctuation marks and Chinese characters are separate tokens; they are not counted as words.
    lower
        Convert to lower case.
    top
        Number of most frequent tokens to list.
    stop_words
        List stop words too.
    everything
        Count all of the text; nothing is held out, and new n-grams are not measured.
    across_lines
        Count n-grams of words across line ends.
    figure
        Write a plot of counts against ranks on logarithmic axes to this file (.png, .svg or .pdf).
    """
    from recur.baselines.ngram.statistics import describe
    from recur.baselines.ngram.statistics import figure as draw
    from recur.data.text import Corpus

    screen = Screen(common)
    corpus = Corpus.of(*(sources or ["pydoc"]))
    parts = corpus.split()
    train, held_out = (corpus, None) if everything else parts[:2]
    options = TextOptions(token=token, punctuation=punctuation, lower=lower)
    with screen.reading(train, "reading", train.characters) as tracked:
        vocab = options.vocab(tracked)
    screen.note(f"{corpus.name}: {train.characters:,} of {corpus.characters:,} characters counted ({train.notes})")
    with screen.busy("counting"), screen.reading(train, "reading again", train.characters) as tracked:
        held = held_out if held_out is not None and held_out.characters else None
        found = describe(tracked, held, vocab, top, stop_words, across_lines)
    for path in figure or []:
        draw(found, str(path), corpus.name)
        screen.note(f"drawn to {path}")
    counted = "all of the text" if everything else "the first 90 % of the text (--all counts all of it)"
    crosses = across_lines or not vocab.tokenizer.lines
    ends = "from line to line" if crosses else "within lines (--across-lines lets them go on)"
    screen.show(f"counted: {counted}; n-grams {ends}")
    _show(screen, found)
    content = {"counted_share": train.characters / corpus.characters, "across_lines": crosses}
    screen.result(_content(corpus.name, found) | content | {"notes": str(train.notes)})


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
