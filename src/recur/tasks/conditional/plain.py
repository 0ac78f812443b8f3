"""Lines of a label without a network: n-grams of all lines, and n-grams of each label's own mixed with them.

    P(token | label) = λ P_label(token | n − 1 before) + (1 − λ) P_all(token | n − 1 before)

Order and λ are those that predict the validation lines best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from recur.baselines import ngram
from recur.baselines.ngram import NGram
from recur.data.text import Pair, Tokenizer
from recur.data.text.stream import Floats
from recur.i18n import Message
from recur.tasks.language.baseline import best_ngram
from recur.tasks.tokens import spaced, spaced_vocab

SHARES = (0.3, 0.5, 0.7, 0.9)

Measure = Callable[[Sequence[Pair]], float]
"""From lines with labels to their perplexity, ends included."""


def plain_models(
    train: Sequence[Pair], valid: Sequence[Pair], tokenizer: Tokenizer, backward: bool
) -> dict[str, Measure]:
    """By name, each with how it is measured."""

    def text(pairs: Sequence[Pair]) -> str:
        return "".join(f"{spaced(tokenizer, pair.target)}\n" for pair in pairs)

    vocab = spaced_vocab(spaced(tokenizer, pair.target) for pair in train)
    every, _ = best_ngram(vocab, text(train), text(valid), backward)
    of_label: dict[str, NGram] = {
        label: ngram.fit(text([pair for pair in train if pair.source == label]), vocab, every.order, backward=backward)
        for label in sorted({pair.source for pair in train})
    }

    def logprobs(pairs: Sequence[Pair], share: float) -> Floats:
        found = []
        for label in sorted({pair.source for pair in pairs}):
            ids = vocab.encode(text([pair for pair in pairs if pair.source == label]))
            both = every.logprobs(ids)
            if label in of_label:
                own = of_label[label].logprobs(ids)
                both = np.logaddexp(math.log(share) + own, math.log(1 - share) + both)
            found.append(both)
        return np.concatenate(found)

    def perplexity(pairs: Sequence[Pair], share: float) -> float:
        return float(np.exp(-logprobs(pairs, share).mean()))

    share = min(SHARES, key=lambda share: perplexity(valid, share))
    return {
        Message("{n}-gram without labels", n=every.order): lambda pairs: every.evaluate(text(pairs)).perplexity,
        Message("{n}-grams by label", n=every.order): lambda pairs: perplexity(pairs, share),
    }
