"""Language model data: corpora, splits, ids, and windows of a text on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.data.reading import Reading
from recur.data.text import BOS, EOS, Batch, Corpus, Stream, Vocab, encoded, fit_vocab
from recur.data.text.stream import Ids, ProcessShard
from recur.errors import TextError
from recur.i18n import Message
from recur.tasks.common.splits import reading_of
from recur.tasks.language.options import LanguageOptions

IN_MEMORY = 50_000_000
"""Texts of more characters are encoded to disk and mapped."""


FEWEST = 16
"""Least number of tokens to learn from: fewer have no two windows to compare."""

HELD = 10_000_000
"""Characters that are held out at most, to measure on and to test on: of a text of 200 million, a twentieth each."""


@dataclass(frozen=True)
class LanguageData:
    vocab: Vocab
    train: Ids
    """In the order of reading, as is the next."""
    valid: Ids
    train_text: Corpus
    valid_text: Corpus
    unseen: tuple[int, int] = (0, 0)
    """Number of symbols of both texts that the vocabulary cannot write, which are left out."""

    @property
    def vocabs(self) -> dict[str, Vocab]:
        return {"vocab": self.vocab}


def corpora(options: LanguageOptions, reading: Reading | None = None) -> tuple[Corpus, Corpus, Corpus]:
    """Return the training, validation and test texts; without files of their own, the last two are held out."""
    reading = reading or reading_of(options)
    whole = Corpus.of(*options.texts, reading=reading)
    if options.valid and options.test:
        return whole, Corpus.of(*options.valid, reading=reading), Corpus.of(*options.test, reading=reading)
    usual = min(0.05, HELD / max(whole.characters, 1))
    held_valid, held_test = (
        usual if share is None else share for share in (options.valid_fraction, options.test_fraction)
    )
    if options.valid:
        train, test, _ = whole.split(1 - held_test, held_test)
        return train, Corpus.of(*options.valid, reading=reading), test
    if options.test:
        train, valid, _ = whole.split(1 - held_valid, held_valid)
        return train, valid, Corpus.of(*options.test, reading=reading)
    return whole.split(1 - held_valid - held_test, held_valid)


def valid_text(options: LanguageOptions) -> Corpus:
    """Return the validation text; the training text is read only if the validation text is held out of it."""
    return Corpus.of(*options.valid, reading=reading_of(options)) if options.valid else corpora(options)[1]


def test_text(options: LanguageOptions) -> Corpus:
    """Return the test text; the training text is read only if the test text is held out of it."""
    return Corpus.of(*options.test, reading=reading_of(options)) if options.test else corpora(options)[2]


def load_data(options: LanguageOptions, vocab: Vocab | None = None, reading: Reading | None = None) -> LanguageData:
    train, valid, _ = corpora(options, reading)
    fitted = vocab is None
    if vocab is None:
        vocab = fit_vocab(train, options.token, **options.vocab_options())
    whole = ids_of(train, vocab), np.asarray(ids_of(valid, vocab))
    ids = [whole[0] if fitted else vocab.without_unseen(whole[0]), vocab.without_unseen(whole[1])]
    lost = len(whole[0]) - len(ids[0]), len(whole[1]) - len(ids[1])
    held = in_reading_order(ids[1], options)
    data = LanguageData(vocab, in_reading_order(ids[0], options), held, train, valid, lost)
    if len(data.train) < FEWEST:
        raise TextError(
            Message(
                "{name} has {n} tokens to learn from, and a language model needs at least {fewest}: give more text",
                name=train.name,
                n=len(data.train),
                fewest=FEWEST,
            )
        )
    if not len(data.valid):
        raise TextError(f"{valid.name} is too short to hold a part out; give more text, or another with --valid")
    return data


def ids_of(corpus: Corpus, vocab: Vocab) -> Ids:
    if corpus.characters > IN_MEMORY or len(corpus.known) > 1:
        return encoded(corpus, vocab)
    return vocab.encode_corpus(corpus).astype(np.int32)


def in_reading_order(ids: Ids, options: LanguageOptions) -> Ids:
    """Return ids in the order in which the network reads them: reversed for a backward model."""
    return ids[::-1] if options.direction == "backward" else ids


def first_input(vocab: Vocab) -> int:
    """Return the id that is read first: the line end, or <bos> for a text of one line.

    Batches of such a text begin with <bos>, so that it is trained.
    """
    end = EOS if vocab.tokenizer.lines else vocab.ids.get("\n", BOS)
    return end if vocab.counts[end] > 1 else BOS  # the end of the last line is never read in training


def place_of(text: Corpus, tokens: int, options: LanguageOptions) -> int:
    """Which token of the whole text a part of so many begins with, if tokens before it are as long as those in it.

    Read from the end, every part is the first to be read.
    """
    if options.direction == "backward" or not text.begin:
        return 0
    return round(text.begin * tokens / text.characters)


def make_stream(options: LanguageOptions, batch: int, data: LanguageData) -> Stream:
    """Return the batches of the training text; a short text gets fewer lanes and a shorter window, unless strict."""
    tokens, window = len(data.train), options.window
    if not options.strict:
        batch = max(1, min(batch, (tokens - 1) // 2))
        window = max(1, min(window, (tokens - 1) // batch))
    elif tokens < batch * window + 1:
        raise TextError(
            f"the text has {tokens} tokens, and {batch} lanes of one window of {window} need {batch * window + 1}; "
            "lower --batch-size or --window, or leave --strict away"
        )
    first = BOS if first_input(data.vocab) == BOS else None
    return Stream(data.train, batch, window, options.partition, options.seed, options.jitter, first=first)


SHARE = 8
"""A text that takes more than one part in so many of a GPU's memory stays outside."""


class DeviceText:
    """Ids of a text on a device. It compares equal only to itself, because CUDA graphs read it at its address."""

    def __init__(self, ids: Tensor, first: int | None = None) -> None:
        self.ids, self.first = ids, first


class TextWindow(NamedTuple):
    """Batch of rows of a text."""

    text: DeviceText
    at: Tensor
    """(B,): where each row begins."""
    steps: int
    fresh: bool
    """The rows do not continue those of the batch before."""

    def cut(self) -> tuple[Tensor, Tensor]:
        """Return x and y, (B, T) each."""
        device = self.text.ids.device
        index = self.at.to(device, non_blocking=True)[:, None] + torch.arange(self.steps + 1, device=device)
        rows = self.text.ids[index].long()
        if self.fresh and self.text.first is not None:
            rows[:, 0] = self.text.first
        return rows[:, :-1], rows[:, 1:]


class TextWindows:
    """Batches of a stream, as windows of a text on the device."""

    def __init__(self, stream: Stream, device: torch.device) -> None:
        self.stream = stream
        self.text = DeviceText(torch.from_numpy(np.array(stream.ids, np.int32)).to(device), stream.first)

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[TextWindow]:
        for starts, steps, fresh in self.stream.places(epoch, skip):
            yield TextWindow(self.text, torch.from_numpy(starts.astype(np.int64)), steps, fresh)

    def shared(self, share: ProcessShard) -> Stream:
        """Of several processes each has a device of its own, and reads its lanes from the text where it lies."""
        return self.stream.shared(share)

    def __len__(self) -> int:
        return len(self.stream)


def has_room(stream: Stream, device: torch.device) -> bool:
    return 4 * len(stream.ids) * SHARE < torch.cuda.get_device_properties(device).total_memory


def cut_windows(batch: Batch | TextWindow, device: torch.device) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Return x and y of a batch, the start of its rows, and whether the state is reset."""
    if isinstance(batch, TextWindow):
        return *batch.cut(), batch.at.to(device), batch.fresh
    x, y, at = (torch.from_numpy(part).to(device, non_blocking=True) for part in (batch.x, batch.y, batch.at))
    return x, y, at, bool(batch.fresh.all())
