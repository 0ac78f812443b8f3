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
import io
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from recur.errors import OptionError, RecurError, TextError, unknown
from recur.text.cutting import between, counted, short_lines

SPECIALS = ("<unk>", "<pad>", "<bos>", "<eos>")
UNK, PAD, BOS, EOS = range(4)

Ids = np.ndarray[Any, np.dtype[Any]]

_CODE_POINTS = 0x110000


@dataclass(frozen=True)
class Characters:
    """Every code point a token."""

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

    def options(self) -> dict[str, Any]:
        return {}


def _code_points(text: str) -> Ids:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


@dataclass(frozen=True)
class Words:
    """What stands between white space, and <eos> for the end of a line."""

    punctuation: bool = False
    lower: bool = False

    kind: ClassVar[str] = "word"
    lines: ClassVar[bool] = True

    def split(self, text: str) -> list[str]:
        if self.lower:
            text = text.lower()
        found = (_marked() if self.punctuation else _PLAIN).findall(text)
        return [_SPOKEN.get(token, token) for token in found]

    def join(self, tokens: Iterable[str]) -> str:
        text = " ".join("\n" if token == "<eos>" else token for token in tokens)
        return text.replace(" \n ", "\n").replace("\n ", "\n").replace(" \n", "\n")

    def count(self, pieces: Iterable[str]) -> Counter[str]:
        return counted(self.split, pieces)

    def encoder(self, ids: dict[str, int]) -> Callable[[str], Ids]:
        get = ids.get

        def encode(text: str) -> Ids:
            tokens = self.split(text)
            return np.fromiter(map(get, tokens, itertools.repeat(UNK)), np.int32, len(tokens))

        return encode

    def options(self) -> dict[str, Any]:
        return {"punctuation": self.punctuation, "lower": self.lower}


_PLAIN = re.compile(r"\n|\S+")
# A line's end has its token; a text that says <bos> or <pad> itself means none of ours.
_SPOKEN = {"\n": "<eos>", "<bos>": "<unk>", "<pad>": "<unk>"}


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
class Subwords:
    """Pieces of a sentencepiece model, kept as its bytes; lines end in <eos>."""

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

    def _processor(self) -> Any:
        return _sentencepiece().SentencePieceProcessor(model_proto=self.model)

    def pieces(self) -> list[str]:
        processor = self._processor()
        return [processor.id_to_piece(k) for k in range(processor.get_piece_size())]

    def split(self, text: str) -> list[str]:
        processor = self._processor()
        lines = [processor.encode(line, out_type=str) for line in text.split("\n")]
        return list(itertools.chain.from_iterable(between(lines, ["<eos>"])))

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
        return counted(self.split, pieces)

    def encoder(self, ids: dict[str, int]) -> Callable[[str], Ids]:
        processor = self._processor()

        def encode(text: str) -> Ids:
            lines = processor.encode(text.split("\n"))
            return np.array(list(itertools.chain.from_iterable(between(lines, [EOS]))), np.int32)

        return encode

    def options(self) -> dict[str, Any]:
        return {"model": base64.b64encode(self.model).decode()}


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
        return counted(self.split, pieces)

    def encoder(self, ids: dict[str, int]) -> Callable[[str], Ids]:
        return lambda text: np.array([ids.get(token, UNK) for token in self.split(text)], np.int32)

    def options(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Lines(Spaced):
    """A line is one token."""

    kind: ClassVar[str] = "line"

    def split(self, text: str) -> list[str]:
        return ["<unk>" if line in SPECIALS else line for line in text.split("\n")]

    def join(self, tokens: Iterable[str]) -> str:
        return "\n".join(tokens)


Tokenizer = Characters | Words | Subwords | Spaced | Lines


def make_tokenizer(kind: str, **options: Any) -> Tokenizer:
    """From what `kind` and `options()` said; a subword tokenizer needs its model."""
    if kind == "char":
        return Characters()
    if kind == "word":
        return Words(**options)
    if kind in ("space", "line"):
        return Spaced() if kind == "space" else Lines()
    if kind == "subword":
        return Subwords(base64.b64decode(options["model"], validate=True))
    raise OptionError(unknown("token", kind, ["char", "word", "subword", "space", "line"]))


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise RecurError("subwords need sentencepiece: pip install 'recur[subword]'") from None
    return sentencepiece


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
