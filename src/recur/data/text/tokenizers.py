"""Tokenizers: characters, words, subwords, lines and space-separated symbols; special tokens and Unicode helpers."""

from __future__ import annotations

import base64
import functools
import importlib.util
import io
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import numpy as np

from recur.data.text.stream import Ids
from recur.errors import OptionError, RecurError, TextError, shown, unknown
from recur.utils.files import memory, memory_taken
from recur.utils.limits import LINE, MARKS, PIECES_BYTES, check_count

SPECIALS = ("<unk>", "<pad>", "<bos>", "<eos>")
UNK, PAD, BOS, EOS = range(4)


CASINGS = ("lower", "title", "upper", "mixed", "digits", "number", "digit inside", "sign", "other")
"""Casings of words: `number` is digits with signs, as in 1,000.5; `other` is letters without case."""


def casing_of(word: str) -> int:
    """Return the index of a word's casing in CASINGS."""
    return CASINGS.index(_casing(word))


def _casing(word: str) -> str:
    letters = [c for c in word if c.isalpha()]
    if any(map(str.isdigit, word)):
        return "digit inside" if letters else "digits" if word.isdigit() else "number"
    if not letters:
        return "sign"
    if word.islower():
        return "lower"
    if word.isupper():
        return "upper" if len(letters) > 1 else "title"
    if letters[0].isupper() and "".join(letters[1:]).islower():
        return "title"
    return "mixed" if any(c.isupper() for c in letters) else "other"


STRIDE = 32

_PERHAPS = re.compile(f"[\u0300-\U0010ffff]{{{MARKS // STRIDE}}}")
"""Range that contains all combining marks; searching for the exact set takes ten times as long."""


def joins_before(c: str) -> bool:
    """Return True if a code point belongs to the one before it: an accent, vowel sign, joiner or final of Hangul."""
    return unicodedata.category(c).startswith("M") or c in "\u200c\u200d" or "\u1160" <= c <= "\u11ff"


@functools.cache
def _marks() -> str:
    """Return all combining marks as the inside of a character class."""
    found = [c for c in (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0)) if joins_before(chr(c))]
    return "".join(map(chr, found))


def too_many_marks(text: str) -> bool:
    """Return True if more than MARKS combining marks follow each other. A sample of the text is searched first."""
    if len(text) <= MARKS or text.isascii() or not _PERHAPS.search(some := text[::STRIDE]):
        return False
    if not re.search(f"[{_marks()}]{{{MARKS // STRIDE}}}", some):
        return False
    return re.search(f"[{_marks()}]{{{MARKS + 1}}}", text) is not None


def composed(text: str, where: str) -> str:
    """Return a text in Unicode's composed form (NFC), and refuse one whose normalisation would take quadratic time.

    This is the only function of the package that normalises text of any length.
    """
    if text.isascii():
        return text
    if too_many_marks(text):
        raise TextError(f"{where} is not text: it has more than {MARKS} accents or other marks in a row")
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def without_leading_marks(text: str) -> str:
    """Return a text from its first base letter on; a text generated backwards may start with marks."""
    return text[next((k for k, c in enumerate(text) if not joins_before(c)), len(text)) :]


def between_spaces(lines: Iterable[str]) -> bool:
    """Return True if lines are symbols separated by spaces, as in `t͡ʃ a n d`.

    Nine in ten symbols have 1 to 3 letters, and nine in ten longer lines have a space. A letter is counted without its
    marks (ʰ, ː, a tie), and a syllable of Hangul by its letters. Fewer than half of the words of English or German text
    are that short; Chinese without spaces has none between symbols.
    """
    rows = [line.split() for line in lines if line.strip()]
    symbols = [_letters(symbol) for row in rows for symbol in row]
    long = [row for row in rows if len(row) > 1 or _letters(row[0]) > 3]
    spaced = sum(len(row) > 1 for row in long)
    short = sum(letters <= 3 for letters in symbols)
    return spaced > 0 and spaced >= 0.9 * len(long) and short >= 0.9 * len(symbols)


def _letters(symbol: str) -> int:
    if len(symbol) > 100:  # no symbol
        return len(symbol)
    marks = ("Mn", "Mc", "Me", "Lm", "Sk")
    return sum(unicodedata.category(c) not in marks for c in unicodedata.normalize("NFD", symbol))


MEMORY = memory() / 2
"""Largest memory in bytes of the examples of a file: a line of four characters takes three hundred."""

LINES = 1 << 29
"""Largest number of characters of a file of examples, which are all in memory."""

T = TypeVar("T")


def whole_words(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the same text in pieces that end behind white space. A word is held in memory, so it has a limit."""
    held: list[str] = []
    length = 0
    for piece in pieces:
        last = piece.rsplit(None, 1)[-1:]  # the last word, and what stands behind it
        cut = len(piece) - (len(last[0]) if last and not piece[-1].isspace() else 0)
        if cut:
            yield "".join([*held, piece[:cut]])
            held, length = [], 0
        if cut < len(piece):
            held.append(piece[cut:])
            length += len(piece) - cut
            check_count("a word", "characters", length, LINE, "put white space between words, or use --token char")
    if held:
        yield "".join(held)


def whole_lines(pieces: Iterable[str], name: str) -> Iterator[str]:
    """Yield the lines of a text in pieces, without line ends; raise if they would not fit into memory."""
    held: list[str] = []
    read, before = 0, memory_taken()
    for piece in pieces:
        read += len(piece)
        if read > LINES:
            raise TextError(f"{name} has more than {LINES:,} characters, too many for a file that is read whole")
        first, *rest = piece.split("\n")
        held.append(first)
        longest = max(sum(map(len, held)), max(map(len, rest), default=0))
        check_count(f"{name}: a line", "characters", longest, LINE, "put one example on a line")
        for k, line in enumerate(rest):
            if not k % 100_000 and memory_taken() - before > MEMORY:
                raise TextError(f"{name} takes more than half of this machine's memory; take fewer lines of it")
            yield "".join(held)
            held = [line]
    if last := "".join(held):
        yield last


def short_lines(pieces: Iterable[str], longest: int = 2000) -> Iterator[str]:
    """Split long lines, at white space if possible: sentencepiece silently skips long lines."""
    for piece in whole_words(pieces):
        for line in piece.split("\n"):
            while len(line) > longest:
                cut = line.rfind(" ", 1, longest)
                cut = cut if cut > 0 else longest
                yield line[:cut]
                line = line[cut:]
            if line:
                yield line


def between(items: Sequence[T], separator: T) -> Iterator[T]:
    """Return the items with a separator between them."""
    for k, item in enumerate(items):
        if k:
            yield separator
        yield item


class _SplitTokenizer:
    """Base class of tokenizers that encode a text by splitting it."""

    def split(self, text: str) -> list[str]:
        raise NotImplementedError

    def count(self, pieces: Iterable[str]) -> Counter[str]:
        """Count the tokens of all pieces, none of which splits a word."""
        counts: Counter[str] = Counter()
        for piece in whole_words(pieces):
            counts.update(self.split(piece))
        return counts

    def encoder(self, ids: dict[str, int]) -> Callable[[str], Ids]:
        """Return a function from texts to ids, with UNK for unknown tokens."""

        def encode(text: str) -> Ids:
            tokens = self.split(text)
            return np.fromiter(map(ids.get, tokens, itertools.repeat(UNK)), np.int32, len(tokens))

        return encode

    def options(self) -> dict[str, Any]:
        """Return the arguments with which `make_tokenizer` creates an equal tokenizer."""
        return {}


@dataclass(frozen=True)
class Subwords(_SplitTokenizer):
    r"""Subword tokenizer of sentencepiece, stored as the bytes of its model; lines end in <eos>.

    >>> vocab = recur.data.text.fit_vocab(recur.data.text.Corpus.of("book.txt"), "subword", pieces=300)
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

    def _processor(self) -> Any:
        return _opened(self.model)

    def pieces(self) -> list[str]:
        processor = self._processor()
        try:
            return [processor.id_to_piece(k) for k in range(processor.get_piece_size())]
        except UnicodeDecodeError:
            raise TextError("the sentencepiece model is damaged: a piece is not UTF-8") from None

    def split(self, text: str) -> list[str]:
        lines = self._processor().encode_as_pieces(text.split("\n"))
        return list(itertools.chain.from_iterable(between(lines, ["<eos>"])))

    def split_lines(self, lines: Sequence[str]) -> list[list[str]]:
        """Split many lines, each without line ends, in one call."""
        found: list[list[str]] = self._processor().encode_as_pieces(list(lines))
        return found

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
def _opened(model: bytes) -> Any:
    """Return the sentencepiece processor of a model, cached: opening takes as long as splitting hundreds of lines."""
    spm = _sentencepiece()
    check_count("a sentencepiece model", "bytes", len(model), PIECES_BYTES, "train one with fewer pieces")
    try:
        processor = spm.SentencePieceProcessor(model_proto=model, num_threads=1)
        if not model or not processor.get_piece_size():
            raise RuntimeError("it has no pieces")
    except Exception as error:  # whatever sentencepiece makes of bytes that are no model of its own
        raise TextError(f"the sentencepiece model is damaged: {_first_line(error)}") from None
    return processor


def _sentencepiece() -> ModuleType:
    try:
        import sentencepiece
    except ImportError:
        raise RecurError("sentencepiece is not installed: pip install 'recur[subword]'") from None
    return sentencepiece


def has_subwords() -> bool:
    """Return True if sentencepiece is installed."""
    return importlib.util.find_spec("sentencepiece") is not None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


_CODE_POINTS = 0x110000


@dataclass(frozen=True)
class Characters:
    """Tokenizer in which every code point is a token.

    >>> list(recur.data.text.Characters().split("词元 a"))
    ['词', '元', ' ', 'a']
    """

    kind: ClassVar[str] = "char"
    lines: ClassVar[bool] = False
    """Whether lines are separate sequences that end in <eos>."""

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
class Words(_SplitTokenizer):
    r"""Tokenizer of words separated by white space, with <eos> at line ends.

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

    def options(self) -> dict[str, bool]:
        return {"punctuation": self.punctuation, "lower": self.lower}


_PLAIN = re.compile(r"\n|\S+")
# A line's end has its token; a <bos> or <pad> that stands in a text is none of ours.
_RESERVED = {"\n": "<eos>", "<bos>": "<unk>", "<pad>": "<unk>"}


@functools.cache
def _marked() -> re.Pattern[str]:
    """Return the pattern of words with inner apostrophes and hyphens, single Han or Kana characters, and other
    signs."""
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
class Spaced(_SplitTokenizer):
    """Tokenizer of symbols separated by spaces: `p h o n e s`."""

    kind: ClassVar[str] = "space"
    lines: ClassVar[bool] = False

    def split(self, text: str) -> list[str]:
        return ["<unk>" if token in SPECIALS else token for token in text.split()]

    def join(self, tokens: Iterable[str]) -> str:
        return " ".join(tokens)


@dataclass(frozen=True)
class Lines(Spaced):
    r"""Tokenizer in which a line is one token.

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
    """Return a tokenizer from its `kind` and `options()`; subwords also need their model."""
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
