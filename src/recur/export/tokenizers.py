"""Description of a vocabulary and its tokenizer, from which the C and JavaScript tokenizers are printed.

C and JavaScript each implement the algorithms (characters, words, lines, space-separated symbols, subwords). All facts
that these algorithms read come from one `TokenizerSpec`, so that a sentencepiece model is parsed and checked once.
"""

from __future__ import annotations

import functools
import itertools
import re
import struct
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from recur.data.text import EOS, SPECIALS, Subwords, Vocab
from recur.data.text.tokenizers import Words
from recur.errors import OptionError
from recur.export.c_graphs import c_array, c_sections
from recur.export.escaping import c_bytes
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


# C ----------------------------------------------------------------------------------------------------------------

HAN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
JOINERS = "\u200c\u200d"

CHARACTER_TESTS: dict[str, Callable[[str], bool]] = {
    "word": lambda c: c.isalnum() or c == "_",
    "mark": lambda c: (0x300 <= ord(c) < 0x20000 and unicodedata.category(c)[0] == "M") or c in JOINERS,
    "han": lambda c: bool(HAN.match(c)),
    "alpha": str.isalpha,
    "digit": str.isdigit,
    "upper": str.isupper,
    "lower": str.islower,
    "title": lambda c: unicodedata.category(c) == "Lt",
}
"""Properties of a character, one bit each. White space is tested without a table."""

FLAG_BITS = {name: 1 << k for k, name in enumerate(CHARACTER_TESTS)}


@functools.cache
def _flag_ranges(names: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Return the first code points of ranges with equal flags, and the flags."""
    starts, values = list[int](), list[int]()
    bits = [(FLAG_BITS[name], CHARACTER_TESTS[name]) for name in names]
    for code in range(sys.maxunicode + 1):
        c = chr(code)
        value = sum(bit for bit, test in bits if test(c))
        if not values or values[-1] != value:
            starts.append(code)
            values.append(value)
    return starts, values


@functools.cache
def _lowercase_ranges() -> list[tuple[int, int, int, int]]:
    """Return ranges (first, last, step, offset) of characters with a lower case of one character."""
    runs: list[tuple[int, int, int, int]] = []
    for code in range(sys.maxunicode + 1):
        lower = chr(code).lower()
        if len(lower) != 1 or ord(lower) == code:
            continue
        by = ord(lower) - code
        if runs:
            first, last, step, before = runs[-1]
            apart = code - last
            if before == by and apart <= 2 and (first == last or step == apart):
                runs[-1] = (first, code, apart, by)
                continue
        runs.append((code, code, 1, by))
    return runs


LONGEST_LINE = 4096
"""Maximum number of bytes that are split into subwords at once."""


class VocabularyPrinter:
    """Tables and functions of a model's vocabularies in C: UTF-8 text to token ids and back, as in recur.data.text."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.flags: set[str] = set()
        """Properties of characters that the printed code tests; the tables contain only these."""
        self.lower = False
        """Whether the printed code converts to lower case."""
        self.parts: list[str] = []

    def code(self, section: str, **fields: object) -> str:
        """Return a section of c/tokenizers.c with its fields filled in."""
        text = c_sections("tokenizers")[section]
        self.flags |= {name for name in FLAG_BITS if f"%({name})d" in text}
        self.lower |= "@_lower(" in text
        return text % (FLAG_BITS | fields)

    def array(self, declared: str, numbers: Sequence[float], dtype: torch.dtype = torch.int64) -> str:
        return c_array(declared, torch.tensor(list(numbers), dtype=dtype), self.prefix)

    def strings(self, name: str, strings: Sequence[bytes]) -> None:
        """Print strings as one array of bytes and an array of offsets."""
        self.parts.append(self.array(f"unsigned char @_{name}_bytes", list(b"".join(strings))))
        self.parts.append(self.array(f"int32_t @_{name}_at", [*itertools.accumulate(map(len, strings), initial=0)]))

    def table(self, name: str, vocab: Sequence[str]) -> None:
        """Print the tokens by id, and the sorted ids for the search of a token."""
        spelled = [c_bytes(token) for token in vocab]
        self.strings(name, spelled)
        order = sorted(range(len(spelled)), key=spelled.__getitem__)
        self.parts.append(self.array(f"int32_t @_{name}_sorted", order))
        self.parts.append(self.code("find_token", v=name, n=len(spelled)))

    def encoder(self, name: str, vocab: Vocab) -> None:
        """Print the table of a vocabulary and the function that encodes a text."""
        spec = describe_vocabulary(vocab)
        self.table(name, spec.tokens)
        find = f"@_find_{name}(text + at, end - at)"
        if spec.lower:
            size = 8 + 8 * (1 + max(len(token) for token in spec.tokens))
            self.parts.append(self.code("find_lowercase_token", v=name, size=size))
            find = f"@_find_lower_{name}(text + at, end - at)"
        if spec.kind == "word" and spec.punctuation:
            self.parts.append(self.code("skip_marks"))
            letter = FLAG_BITS["word"] | FLAG_BITS["mark"]
            body = self.code("encode_punctuated", v=name, find=find, eos=EOS, letter=letter)
        elif spec.kind == "word":
            newline = self.code("encode_newline", eos=EOS)
            body = self.code("encode_words", find=find, newline=newline, reserved="id == 1 || id == 2")
        elif spec.kind == "space":
            body = self.code("encode_words", find=find, newline="", reserved="id < 4")
        elif spec.pieces is not None:
            body = self._subwords(name, spec.tokens, spec.pieces)
        else:
            body = self.code({"char": "encode_characters", "line": "encode_lines"}[spec.kind], v=name)
        self.parts.append(self.code("encode_text", v=name, body=body))

    def _subwords(self, name: str, tokens: Sequence[str], pieces: SubwordPieces) -> str:
        """Print the tables of a sentencepiece model; return the body of its encoder."""
        if pieces.algorithm != "unigram" or not pieces.byte_ids:
            raise OptionError(
                f"only unigram subwords with byte fallback are written in C, this model has {pieces.algorithm} pieces"
                f"{'' if pieces.byte_ids else ' without byte fallback'}"
            )
        plain = set(pieces.plain)
        # 1e30 marks pieces that the encoder must not choose; it tests for scores below 1e29.
        scores = [score if k in plain else 1e30 for k, score in enumerate(pieces.scores)]
        lowest = min(0.0, *(pieces.scores[k] for k in pieces.plain))
        self.parts.append(self.array(f"float @_{name}_score", scores, torch.float32))
        self.parts.append(self.array(f"int32_t @_{name}_byte", pieces.byte_ids))
        size = 4 + max(len(c_bytes(token)) for token in tokens)
        # sentencepiece scores an unknown character 10 below the lowest score of a piece.
        unknown = f"({lowest - 10:.9g}f)"
        lengths = {"room": LONGEST_LINE + 1, "longest": LONGEST_LINE - 4, "size": size}
        return self.code("encode_subwords", v=name, unknown=unknown, eos=EOS, **lengths)

    def decoder(self, name: str, vocab: Vocab) -> None:
        """Print the function that converts a token id to text; the table of the vocabulary must exist."""
        kind = "space" if vocab.tokenizer.kind == "line" else vocab.tokenizer.kind
        self.parts.append(self.code("token_text", v=name))
        self.parts.append(self.code("decode_token", body=self.code(f"decode_{kind}", eos=EOS)))

    def text(self) -> Iterator[str]:
        """Yield the functions and tables of characters that the printed code needs, and the printed code."""
        if any("@_character(" in part for part in self.parts) or self.flags or self.lower:
            yield self.code("utf8")
        if self.lower:
            yield self.code("write_character")
            runs = _lowercase_ranges()
            for name, numbers in zip(("from", "to", "step", "by"), zip(*runs, strict=True), strict=True):
                yield self.array(f"{'int32_t' if name == 'by' else 'uint32_t'} @_lower_{name}", numbers)
            yield self.code("lowercase", count=len(runs))
        if self.flags:
            starts, values = _flag_ranges(tuple(name for name in FLAG_BITS if name in self.flags))
            yield self.array("uint32_t @_flag_from", starts)
            yield self.array("unsigned char @_flag", values)
            yield self.code("find_flags", count=len(starts))
        yield from self.parts
