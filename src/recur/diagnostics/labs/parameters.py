"""Number of parameters of a sequence model, by the number of tokens that it spans (Deep Learning, section 10.2.3).

table      k^τ: one for each sequence of τ tokens out of k
n-grams    one probability for each n-gram that the text has, and one back-off weight for each that is a context:
           at most k^n, and at most one more of each order for each token of the text
network    the same for every τ: its weights are shared by all steps
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from recur.baselines.ngram.model import Counts, Sequences
from recur.data.text import Corpus, Vocab
from recur.diagnostics.figures import INK, canvas, legend
from recur.diagnostics.labs.truncation import Experiment
from recur.errors import OptionError
from recur.i18n import Message

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 64
"""Steps of a table, at most: its size has no meaning long before."""


class Network(NamedTuple):
    """One to compare with."""

    name: str
    size: int
    """All its parameters."""


class CountedText(NamedTuple):
    """Number of distinct n-grams of a text, by order."""

    name: str
    tokens: int
    ngrams: list[int]
    """Of each order, 1 first, as many as an n-gram model of the text keeps."""

    def of_order(self, n: int) -> int:
        """Return how many numbers a model of order n stores: probabilities up to order n, weights below it."""
        return sum(self.ngrams[:n]) + sum(self.ngrams[: n - 1])


def count_text(corpus: Corpus, vocab: Vocab, longest: int) -> CountedText:
    """Every n-gram of a text, up to a length."""
    ids = vocab.encode_corpus(corpus)
    counts = Counts.of(Sequences.of(ids, vocab.tokenizer.lines), longest, len(vocab), vocab.predictable())
    return CountedText(corpus.name, len(ids), [len(level) for level in counts.levels])


def table_size(k: int, tau: int) -> int:
    """One number for each sequence of τ tokens out of k."""
    size: int = k**tau
    return size


def parameters(k: int, network: Network, longest: int = 6, text: CountedText | None = None) -> Experiment:
    """A table over k tokens, the n-grams of a text, and a network, by how many tokens they span."""
    if k < 1:
        raise OptionError(Message("{name} must be at least {least}, got {value}", name="--k", least="1", value=k))
    if not 1 <= longest <= LONGEST:
        raise OptionError(
            Message(
                "{name} must lie in {low} … {high}, got {given}", name="--tau", low="1", high=LONGEST, given=longest
            )
        )
    steps = range(1, longest + 1)
    tables = [table_size(k, tau) for tau in steps]
    counted = [] if text is None else [text.of_order(n) for n in steps]
    # A table is outgrown somewhere, however long: of one token alone it never grows.
    beyond = next((tau for tau in itertools.count(1) if table_size(k, tau) > network.size), None) if k > 1 else None
    beyond_ngrams = next((n for n, size in zip(steps, counted, strict=False) if size > network.size), None)
    numbers = {
        "k": k,
        "network": network.name,
        "network_parameters": network.size,
        "table": tables,
        "network_smaller_than_table_from": beyond,
    }
    paragraph = Message(
        "A table over sequences of τ out of k = {k:,} tokens has k^τ numbers: {first} for one token, {last} for {tau}. "
        "{network} has {size:,} parameters for any length: it reads every step with the same weights. {comparison}",
        k=k,
        first=short(tables[0]),
        last=short(tables[-1]),
        tau=longest,
        network=network.name,
        size=network.size,
        comparison=Message("With one token there is nothing to distinguish, and the table never grows.")
        if beyond is None
        else Message("From τ = {beyond} on the network is smaller than the table.", beyond=beyond),
    )
    if text is not None:
        numbers |= {
            "text": text.name,
            "tokens": text.tokens,
            "ngrams": text.ngrams,
            "ngram_parameters": counted,
            "network_smaller_than_ngrams_from": beyond_ngrams,
        }
        paragraph = Message(
            "{paragraph} An n-gram model keeps the n-grams of its text: of the k^{tau} sequences, {text} ({tokens:,} "
            "tokens) has {ngrams:,} ({share:.2g} of them), and a model of order {tau} keeps {kept:,} numbers, "
            "probabilities and back-off weights. {comparison}",
            paragraph=paragraph,
            tau=longest,
            text=text.name,
            tokens=text.tokens,
            ngrams=text.ngrams[-1],
            share=text.ngrams[-1] / tables[-1],
            kept=counted[-1],
            comparison=Message("Up to order {tau} it is smaller than the network: the text is short.", tau=longest)
            if beyond_ngrams is None
            else Message(
                "From order {order} on the network is smaller than the n-gram model, too.", order=beyond_ngrams
            ),
        )
    return Experiment(_figure(tables, counted, network), paragraph, numbers)


def short(number: int) -> str:
    """A number that may have many digits."""
    return f"{number:,}" if number < 10**9 else f"{number:.2e}" if number < 10**300 else Message("more than 10³⁰⁰")


def _figure(tables: Sequence[int], counted: Sequence[int], network: Network) -> Figure:
    figure, (axis,) = canvas()
    steps = range(1, len(tables) + 1)
    drawable = [(tau, float(size)) for tau, size in zip(steps, tables, strict=True) if size < 10**300]
    axis.semilogy(*zip(*drawable, strict=True), "o-", ms=3, label="table, k^τ")
    if counted:
        axis.semilogy(steps, counted, "o-", ms=3, label="n-grams of the text")
    axis.axhline(network.size, color=INK, lw=1, ls="--", label=Message("network: {size:,}", size=network.size))
    axis.set(xlabel="tokens spanned, τ", ylabel="numbers", title="how many numbers a model has")
    legend(axis)
    return figure
