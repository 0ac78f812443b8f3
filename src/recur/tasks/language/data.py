"""From options to ids: the text read, split, its vocabulary fitted on the training part, and encoded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recur.errors import TextError
from recur.tasks.language.options import LanguageOptions
from recur.text import BOS, EOS, Corpus, Stream, Vocab, encoded, fit_vocab
from recur.text.tokens import Ids

IN_MEMORY = 50_000_000
"""Texts of more characters are encoded to disk and mapped."""


@dataclass(frozen=True)
class LanguageData:
    vocab: Vocab
    train: Ids
    valid: Ids
    train_text: Corpus
    valid_text: Corpus

    @property
    def vocabs(self) -> dict[str, Vocab]:
        return {"vocab": self.vocab}


def corpora(options: LanguageOptions) -> tuple[Corpus, Corpus, Corpus]:
    """The three parts; those given as files leave the rest to training."""
    whole = Corpus.of(*options.texts)
    if options.valid and options.test:
        return whole, Corpus.of(*options.valid), Corpus.of(*options.test)
    train, valid, test = whole.split(*((0.95, 0.05) if options.valid or options.test else (0.9, 0.05)))
    if options.valid:
        return train, Corpus.of(*options.valid), valid
    if options.test:
        return train, valid, Corpus.of(*options.test)
    return train, valid, test


def load_data(options: LanguageOptions, vocab: Vocab | None = None) -> LanguageData:
    train, valid, _ = corpora(options)
    if vocab is None:
        vocab = fit_vocab(train, options.token, **options.vocab_options())
    data = LanguageData(vocab, ids_of(train, vocab), ids_of(valid, vocab), train, valid)
    if len(data.train) < 2:
        raise TextError(f"{train.name} has {len(data.train)} tokens: too few to learn from")
    if not len(data.valid):
        raise TextError(f"{valid.name} is too short to hold a part out; give more text, or another with --valid")
    return data


def ids_of(corpus: Corpus, vocab: Vocab) -> Ids:
    if corpus.characters > IN_MEMORY:
        return encoded(corpus, vocab)
    return vocab.encode_corpus(corpus).astype(np.int32)


def first_input(vocab: Vocab) -> int:
    """What stands before a text: the end of a line."""
    return EOS if vocab.tokenizer.lines else vocab.ids.get("\n", BOS)


def place_of(text: Corpus, tokens: int) -> int:
    """Which token of the whole text a part of so many begins with, if tokens before it are as long as those in it."""
    return round(text.begin * tokens / text.characters) if text.begin else 0


def make_stream(options: LanguageOptions, batch: int, data: LanguageData) -> Stream:
    """Batches of the training text; a text too short for them gets fewer lanes and a shorter window, unless strict."""
    tokens, window = len(data.train), options.window
    if not options.strict:
        batch = max(1, min(batch, (tokens - 1) // 2))
        window = max(1, min(window, (tokens - 1) // batch))
    elif tokens < batch * window + 1:
        raise TextError(
            f"the text has {tokens} tokens, and {batch} lanes of one window of {window} need {batch * window + 1}; "
            "lower --batch or --window, or leave --strict away"
        )
    return Stream(data.train, batch, window, options.partition, options.seed, options.jitter)
