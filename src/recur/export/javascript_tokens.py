"""A vocabulary as tokens.js and subwords.js read it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from recur.data.text import SPECIALS, Subwords, Vocab
from recur.errors import OptionError
from recur.utils.types import JsonObject

MODELS = {1: "unigram", 2: "bpe"}
"""Of sentencepiece, by their numbers in its files; 1 if there is none."""


def vocab_table(vocab: Vocab) -> JsonObject:
    """The tokens by their ids, and how a text is cut into them."""
    tokenizer = vocab.tokenizer
    about = _pieces(tokenizer.model) if isinstance(tokenizer, Subwords) else tokenizer.options()
    return {"tokenizer": {"kind": tokenizer.kind, **about}, "tokens": list(vocab.tokens)}


def _pieces(model: bytes) -> JsonObject:
    """The scores of a sentencepiece model, and which of its pieces a text is cut into: those of its kind NORMAL."""
    scores, plain, kind, rules = [], [], 1, True
    for field, value in _fields(model):
        if field == 1 and isinstance(value, bytes):
            piece = dict(_fields(value))
            scores.append(float(piece.get(2, 0.0)))
            if piece.get(3, 1) == 1:
                plain.append(len(scores) - 1)
        elif field == 2 and isinstance(value, bytes):
            kind = int(dict(_fields(value)).get(3, 1))
        elif field == 3 and isinstance(value, bytes):
            normal = dict(_fields(value))  # what it does to a text first: add a space, drop doubled ones, mark them
            rules = not normal.get(2) and not normal.get(3, 1) and not normal.get(4, 1) and bool(normal.get(5, 1))
    if kind not in MODELS or not rules:
        raise OptionError("a page cuts subwords as recur learns them; this sentencepiece model has other rules")
    return {"model": MODELS[kind], "scores": scores, "plain": [k for k in plain if k >= len(SPECIALS)]}


def _fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Numbers and values of a protocol buffer's fields: whole numbers, float32 and what has a length."""
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
