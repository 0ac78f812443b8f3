"""From a configuration to ids: the text read, split, its vocabulary fitted on the training part, and encoded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recur.errors import TextError
from recur.text import BOS, EOS, Corpus, Stream, Vocab, encoded, fit_vocab
from recur.text.tokens import Ids
from recur.train.config import Config

IN_MEMORY = 50_000_000
"""Texts of more characters are encoded to disk and mapped."""

VOCAB_OPTIONS = ("token", "punctuation", "lower", "min_freq", "max_size", "pieces")
"""What a configuration says about tokens."""


@dataclass(frozen=True)
class Data:
    vocab: Vocab
    train: Ids
    valid: Ids
    train_text: Corpus
    valid_text: Corpus

    @property
    def vocabs(self) -> dict[str, Vocab]:
        return {"vocab": self.vocab}


def corpora(config: Config) -> tuple[Corpus, Corpus, Corpus]:
    """The three parts; those given as files leave the rest to training."""
    whole = Corpus.of(*config.texts)
    if config.valid and config.test:
        return whole, Corpus.of(config.valid), Corpus.of(config.test)
    train, valid, test = whole.split(*((0.95, 0.05) if config.valid or config.test else (0.9, 0.05)))
    if config.valid:
        return train, Corpus.of(config.valid), valid
    if config.test:
        return train, valid, Corpus.of(config.test)
    return train, valid, test


def load_data(config: Config, vocab: Vocab | None = None) -> Data:
    train, valid, _ = corpora(config)
    if vocab is None:
        vocab = fit_vocab(train, **{name: getattr(config, name) for name in VOCAB_OPTIONS})
    data = Data(vocab, ids_of(train, vocab), ids_of(valid, vocab), train, valid)
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


def make_stream(config: Config, data: Data) -> Stream:
    """Batches of the training text; a text too short for them gets fewer lanes and a shorter window, unless strict."""
    tokens, batch, window = len(data.train), config.batch, config.window
    if not config.strict:
        batch = max(1, min(batch, (tokens - 1) // 2))
        window = max(1, min(window, (tokens - 1) // batch))
    elif tokens < batch * window + 1:
        raise TextError(
            f"the text has {tokens} tokens, and {batch} lanes of one window of {window} need {batch * window + 1}; "
            "lower --batch or --window, or leave --strict away"
        )
    return Stream(data.train, batch, window, config.partition, config.seed, config.jitter)
