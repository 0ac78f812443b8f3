"""From text to tokens and back.

    char      every character (code point, composed): a CJK character is one, and no surrogate is ever cut
    word      what stands between white space; the end of a line is <eos>
              punctuation=True   punctuation marks are tokens too, and each Chinese or Japanese character is one
              lower=True         case is dropped
    space     what stands between spaces, and nothing else: no end of a line, no case to drop
    line      a whole line, such as a label
    subword   sentencepiece, trained on the text; any string can be written with its pieces

Characters come back exactly, and so do subwords, but for U+2581, their own sign for a space; words come back with
single spaces.
"""

from __future__ import annotations

import base64
import functools
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recur.data.text.arrays import Ids as Ids
from recur.data.text.cutting import count_tokens
from recur.data.text.specials import SPECIALS as SPECIALS
from recur.data.text.specials import UNK
from recur.data.text.subwords import Subwords
from recur.errors import OptionError, shown, unknown

_CODE_POINTS = 0x110000


@dataclass(frozen=True)
class Characters:
    """Every code point a token.

    >>> list(recur.data.text.Characters().split("词元 a"))
    ['词', '元', ' ', 'a']
    """

    kind: ClassVar[str] = "char"
    lines: ClassVar[bool] = False
    """Whether lines are sequences of their own, ended by <eos>."""

    def split(self, text: str) -> list[str]:
        return list(text)

    def join(self, tokens: Iterable[str]) -> str:
        return "".join(tokens)

    def count(self, pieces: Iterable[str]) -> Counter[str]:
        counts = np.zeros(_CODE_POINTS, np.int64)
        for piece in pieces:
            found = np.bincount(_code_points(piece))
            counts[: len(found)] += found
        return Counter({chr(c): int(counts[c]) for c in np.nonzero(counts)[0]})

    def encoder(self, ids: dict[str, int]) -> Callable[[str], Ids]:
        table = np.zeros(_CODE_POINTS, np.int32)
        for token, k in ids.items():
            if len(token) == 1:
                table[ord(token)] = k
        return lambda text: table[_code_points(text)]

    def options(self) -> dict[str, bool]:
        return {}


def _code_points(text: str) -> Ids:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


@dataclass(frozen=True)
class Words:
    r"""What stands between white space, and <eos> for the end of a line.

    >>> list(recur.data.text.Words(lower=True).split("The cat\nsat\n"))
    ['the', 'cat', '<eos>', 'sat', '<eos>']
    """

    punctuation: bool = False
    lower: bool = False

    kind: ClassVar[str] = "word"
    lines: ClassVar[bool] = True

    def split(self, text: str) -> list[str]:
        if self.lower:
            text = text.lower()
        found = (_marked() if self.punctuation else _PLAIN).findall(text)
        return [_RESERVED.get(token, token) for token in found]

    def join(self, tokens: Iterable[str]) -> str:
        text = " ".join("\n" if token == "<eos>" else token for token in tokens)
        return text.replace(" \n ", "\n").replace("\n ", "\n").replace(" \n", "\n")

    def count(self, pieces: Iterable[str]) -> Counter[str]:
        return count_tokens(self.split, pieces)

    def encoder(self, ids: dict[str, int]) -> Callable[[str], Ids]:
        get = ids.get

        def encode(text: str) -> Ids:
            tokens = self.split(text)
            return np.fromiter(map(get, tokens, itertools.repeat(UNK)), np.int32, len(tokens))

        return encode

    def options(self) -> dict[str, bool]:
        return {"punctuation": self.punctuation, "lower": self.lower}


_PLAIN = re.compile(r"\n|\S+")
# A line's end has its token; a <bos> or <pad> that stands in a text is none of ours.
_RESERVED = {"\n": "<eos>", "<bos>": "<unk>", "<pad>": "<unk>"}


@functools.cache
def _marked() -> re.Pattern[str]:
    """Words with their marks, inner apostrophes and hyphens; a Han or Kana character; any other sign with its marks."""
    han = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    # re knows no class of marks: Hindi's vowel signs, Hebrew's points, and what joins Persian letters and emoji.
    marks = "".join(re.escape(chr(c)) for c in range(0x300, 0x20000) if unicodedata.category(chr(c))[0] == "M")
    marks += "\u200c\u200d"
    letter = rf"[^\W{han}{marks}][{marks}]*"
    sign = rf"[^\w\s{marks}][{marks}]*"
    return re.compile(
        rf"\n|<(?:unk|pad|bos|eos)>|[{han}][{marks}]*|(?:{letter})+(?:['’\-](?:{letter})+)*"
        rf"|{sign}(?:(?<=\u200d){sign})*|[{marks}]+"
    )


@dataclass(frozen=True)
class Spaced:
    """What stands between spaces: `p h o n e s`."""

    kind: ClassVar[str] = "space"
    lines: ClassVar[bool] = False

    def split(self, text: str) -> list[str]:
        return ["<unk>" if token in SPECIALS else token for token in text.split()]

    def join(self, tokens: Iterable[str]) -> str:
        return " ".join(tokens)

    def count(self, pieces: Iterable[str]) -> Counter[str]:
        return count_tokens(self.split, pieces)

    def encoder(self, ids: dict[str, int]) -> Callable[[str], Ids]:
        return lambda text: np.array([ids.get(token, UNK) for token in self.split(text)], np.int32)

    def options(self) -> dict[str, bool]:
        return {}


@dataclass(frozen=True)
class Lines(Spaced):
    r"""A line is one token.

    >>> list(recur.data.text.Lines().split("one line\nanother"))
    ['one line', 'another']
    """

    kind: ClassVar[str] = "line"

    def split(self, text: str) -> list[str]:
        return ["<unk>" if line in SPECIALS else line for line in text.split("\n")]

    def join(self, tokens: Iterable[str]) -> str:
        return "\n".join(tokens)


Tokenizer = Characters | Words | Subwords | Spaced | Lines


def make_tokenizer(kind: str, **options: str | bool) -> Tokenizer:
    """From a tokenizer's `kind` and `options()`; one of subwords needs its model."""
    if kind == "char":
        return Characters()
    if kind == "word":
        if not all(isinstance(value, bool) for value in options.values()):
            raise OptionError(f"options of words are true or false, got {shown(options)}")
        return Words(**options)  # type: ignore[arg-type]
    if kind in ("space", "line"):
        return Spaced() if kind == "space" else Lines()
    if kind == "subword":
        return Subwords(base64.b64decode(str(options["model"]), validate=True))
    raise OptionError(unknown("token", kind, ["char", "word", "subword", "space", "line"]))
