"""Subwords: pieces that sentencepiece learns from a text; any string can be written with them."""

from __future__ import annotations

import base64
import functools
import importlib.util
import io
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar, Protocol

import numpy as np

from recur.errors import RecurError, TextError
from recur.text.arrays import Ids
from recur.text.cutting import between, count_tokens, short_lines
from recur.text.specials import BOS, EOS, PAD, UNK


class Processor(Protocol):
    """What is used of sentencepiece's, which has no types."""

    def get_piece_size(self) -> int: ...
    def id_to_piece(self, k: int) -> str: ...
    def encode_as_pieces(self, lines: list[str]) -> list[list[str]]: ...
    def encode_as_ids(self, lines: list[str]) -> list[list[int]]: ...
    def decode(self, pieces: list[str]) -> str: ...


@dataclass(frozen=True)
class Subwords:
    r"""Pieces of a sentencepiece model, kept as its bytes; lines end in <eos>.

    >>> vocab = recur.text.fit_vocab(recur.text.Corpus.of("book.txt"), "subword", pieces=300)
    >>> vocab.decode(vocab.encode("the word\n"))
    'the word\n'
    """

    model: bytes

    kind: ClassVar[str] = "subword"
    lines: ClassVar[bool] = True

    @staticmethod
    def train(pieces: Iterable[str], size: int, model_type: str = "unigram") -> Subwords:
        spm = _sentencepiece()
        written = io.BytesIO()
        try:
            spm.SentencePieceTrainer.train(
                sentence_iterator=short_lines(pieces),
                max_sentence_length=1 << 16,
                model_writer=written,
                vocab_size=size,
                model_type=model_type,
                character_coverage=0.9999,
                byte_fallback=True,  # any string can be written, so nothing is unknown
                normalization_rule_name="identity",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                hard_vocab_limit=False,
                unk_id=UNK,
                pad_id=PAD,
                bos_id=BOS,
                eos_id=EOS,
                pad_piece="<pad>",
                bos_piece="<bos>",
                eos_piece="<eos>",
                num_threads=1,  # more would make its result depend on the machine
                minloglevel=2,
            )
        except (RuntimeError, OSError) as error:
            raise TextError(f"sentencepiece cannot learn {size} pieces from this text: {_first_line(error)}") from None
        return Subwords(written.getvalue())

    def _processor(self) -> Processor:
        return _opened(self.model)

    def pieces(self) -> list[str]:
        processor = self._processor()
        try:
            return [processor.id_to_piece(k) for k in range(processor.get_piece_size())]
        except UnicodeDecodeError:
            raise TextError("a model of sentencepiece is damaged: a piece is not UTF-8") from None

    def split(self, text: str) -> list[str]:
        lines = self._processor().encode_as_pieces(text.split("\n"))
        return list(itertools.chain.from_iterable(between(lines, ["<eos>"])))

    def split_lines(self, lines: Sequence[str]) -> list[list[str]]:
        """Of lines without ends inside, each by itself."""
        return self._processor().encode_as_pieces(list(lines))

    def encode_lines(self, lines: Sequence[str]) -> list[Ids]:
        "".join(lines).encode()  # half a character is no text, and sentencepiece would say so in words of its own
        return [np.array(ids, np.int32) for ids in self._processor().encode_as_ids(list(lines))]

    def join(self, tokens: Iterable[str]) -> str:
        processor = self._processor()
        lines: list[list[str]] = [[]]
        for token in tokens:
            if token == "<eos>":
                lines.append([])
            else:
                lines[-1].append(token)
        return "\n".join(processor.decode(line) if line else "" for line in lines)

    def count(self, pieces: Iterable[str]) -> Counter[str]:
        return count_tokens(self.split, pieces)

    def encoder(self, ids: dict[str, int]) -> Callable[[str], Ids]:
        processor = self._processor()

        def encode(text: str) -> Ids:
            text.encode()
            lines = processor.encode_as_ids(text.split("\n"))
            return np.array(list(itertools.chain.from_iterable(between(lines, [EOS]))), np.int32)

        return encode

    def options(self) -> dict[str, str]:
        return {"model": base64.b64encode(self.model).decode()}


@functools.lru_cache(maxsize=16)
def _opened(model: bytes) -> Processor:
    """A model is opened once: that takes as long as cutting hundreds of lines."""
    spm = _sentencepiece()
    try:
        processor: Processor = spm.SentencePieceProcessor(model_proto=model, num_threads=1)
        if not model or not processor.get_piece_size():
            raise RuntimeError("it has no pieces")
    except Exception as error:  # whatever sentencepiece makes of bytes that are no model of its own
        raise TextError(f"a model of sentencepiece is damaged: {_first_line(error)}") from None
    return processor


def _sentencepiece() -> ModuleType:
    try:
        import sentencepiece
    except ImportError:
        raise RecurError("subwords need sentencepiece: pip install 'recur[subword]'") from None
    return sentencepiece


def has_subwords() -> bool:
    """Whether they can be learned here."""
    return importlib.util.find_spec("sentencepiece") is not None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
