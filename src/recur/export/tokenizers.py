"""Description of a vocabulary and its tokenizer, from which the C and JavaScript tokenizers are printed.

C and JavaScript each implement the algorithms (characters, words, lines, space-separated symbols, subwords). All facts
that these algorithms read come from one `TokenizerSpec`, so that a sentencepiece model is parsed and checked once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from recur.data.text import SPECIALS, Subwords, Vocab
from recur.data.text.tokenizers import Words
from recur.errors import OptionError
from recur.utils.types import JsonObject

ALGORITHMS = {1: "unigram", 2: "bpe"}
"""Algorithms of sentencepiece by their number in a model file; 1 is the default of the file format."""

NORMAL, BYTE = 1, 6
"""Types of pieces in a model file: text, and one byte of UTF-8."""


class SubwordPieces(NamedTuple):
    """Pieces of a sentencepiece model."""

    algorithm: str
    """unigram or bpe."""
    scores: list[float]
    """Score of every piece, by token id."""
    plain: list[int]
    """Ids of the pieces that a text is split into: no bytes, no special tokens."""
    byte_ids: list[int]
    """Ids of the pieces `<0x00>` … `<0xFF>`, for characters that no piece spells; empty if one is missing."""


@dataclass(frozen=True)
class TokenizerSpec:
    """Vocabulary and tokenizer as plain data."""

    kind: str
    """char, word, line, space or subword."""
    tokens: tuple[str, ...]
    """Tokens by id; the first four are the special ones."""
    lower: bool = False
    """Words are converted to lower case."""
    punctuation: bool = False
    """Punctuation marks and Chinese characters are tokens of their own."""
    pieces: SubwordPieces | None = None

    def to_json(self) -> JsonObject:
        """Return the object that page/tokens.js and page/subwords.js read."""
        about: JsonObject = {"kind": self.kind, "lower": self.lower, "punctuation": self.punctuation}
        if self.pieces is not None:
            about |= {"model": self.pieces.algorithm, "scores": self.pieces.scores, "plain": self.pieces.plain}
        return {"tokenizer": about, "tokens": list(self.tokens)}


def describe_vocabulary(vocab: Vocab) -> TokenizerSpec:
    """Return a vocabulary and its tokenizer as plain data."""
    tokenizer, tokens = vocab.tokenizer, tuple(vocab.tokens)
    if isinstance(tokenizer, Words):
        return TokenizerSpec(tokenizer.kind, tokens, tokenizer.lower, tokenizer.punctuation)
    pieces = read_pieces(tokenizer.model, tokens) if isinstance(tokenizer, Subwords) else None
    return TokenizerSpec(tokenizer.kind, tokens, pieces=pieces)


def read_pieces(model: bytes, tokens: tuple[str, ...]) -> SubwordPieces:
    """Read a sentencepiece model file; a model that changes the text before it splits it is refused."""
    scores, kinds, algorithm, unchanged = list[float](), list[int](), 1, True
    for field, value in _fields(model):
        if field == 1 and isinstance(value, bytes):
            piece = dict(_fields(value))
            scores.append(float(piece.get(2, 0.0)))
            kinds.append(int(piece.get(3, NORMAL)))
        elif field == 2 and isinstance(value, bytes):
            algorithm = int(dict(_fields(value)).get(3, 1))
        elif field == 3 and isinstance(value, bytes):
            rules = dict(_fields(value))  # 2: normalization map, 3: add a space, 4: drop double spaces, 5: mark spaces
            unchanged = not rules.get(2) and not rules.get(3, 1) and not rules.get(4, 1) and bool(rules.get(5, 1))
    if algorithm not in ALGORITHMS or not unchanged:
        raise OptionError(
            "this sentencepiece model cannot be exported: expected unigram or bpe without text normalization, "
            "as recur trains them"
        )
    plain = [k for k, kind in enumerate(kinds) if kind == NORMAL and k >= len(SPECIALS)]
    named = {tokens[k]: k for k, kind in enumerate(kinds) if kind == BYTE}
    byte_ids = [named[name] for byte in range(256) if (name := f"<0x{byte:02X}>") in named]
    return SubwordPieces(ALGORITHMS[algorithm], scores, plain, byte_ids if len(byte_ids) == 256 else [])


def _fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield the field numbers and values of a protocol buffer message: integers, float32 and length-delimited bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        found = shift = 0
        while True:
            byte = message[at]
            at += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    while at < len(message):
        tag = varint()
        wire = tag & 7
        if wire == 0:
            yield tag >> 3, varint()
        elif wire == 5:
            yield tag >> 3, struct.unpack_from("<f", message, at)[0]
            at += 4
        else:
            length = 8 if wire == 1 else varint()
            yield tag >> 3, message[at : at + length]
            at += length
