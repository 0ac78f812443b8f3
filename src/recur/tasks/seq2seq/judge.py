"""How good written sequences are: sequences wrong and edits a symbol; of sentences, BLEU, chrF and word errors too."""

from __future__ import annotations

from collections.abc import Sequence

from recur.data.text import Subwords, Tokenizer, Words
from recur.tasks.scores import edits_per_symbol, error_rates
from recur.tasks.seq2seq.plain import SENTENCES
from recur.tasks.translation import bleu, chrf, mteval_words
from recur.utils.types import Metrics


def judge(tokenizer: Tokenizer, references: Sequence[str], outputs: Sequence[str]) -> Metrics:
    """Of texts. Where case was dropped in training, it is dropped here too."""
    if isinstance(tokenizer, Words) and tokenizer.lower:
        references, outputs = ([text.lower() for text in side] for side in (references, outputs))
    split = tokenizer.split_lines if isinstance(tokenizer, Subwords) else lambda texts: map(tokenizer.split, texts)
    found: Metrics = error_rates(*(list(split(side)) for side in (references, outputs)))
    if tokenizer.kind in SENTENCES:
        words = ([mteval_words(text) for text in side] for side in (references, outputs))
        found["word_error_rate"] = edits_per_symbol(*words)
        found |= {"bleu": bleu(references, outputs), "chrf": chrf(references, outputs)}
    return found
