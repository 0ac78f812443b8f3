"""Vocabularies and tokenizers in C: UTF-8 text to numbers and back, as recur.text has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from recur.errors import OptionError
from recur.export.c_characters import bit, characters
from recur.export.c_tokenizers import (
    BEHIND_MARKS,
    CHARACTERS,
    DECODE,
    DECODED,
    ENCODE,
    FIND_LOWER,
    LINES,
    MARKED,
    NEWLINE,
    PIECES,
    TABLE,
    TOKEN_TEXT,
    WORDS,
)
from recur.export.c_weights import array as array_of
from recur.text import EOS, Vocab
from recur.text.subwords import Subwords
from recur.text.tokens import Characters, Lines, Spaced, Words

LONGEST_LINE = 4096
"""Bytes of a line that are cut into pieces at once."""


class Texts:
    """The vocabularies of a model, and what they need of characters."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.asked: set[str] = set()
        self.lower = False
        self.parts: list[str] = []

    def array(self, declared: str, numbers: Sequence[float], dtype: torch.dtype = torch.int64) -> str:
        return array_of(declared, torch.tensor(list(numbers), dtype=dtype), self.prefix)

    def table(self, name: str, vocab: Sequence[str]) -> None:
        """Tokens by number, and numbers by token."""
        spelled = [token.encode() for token in vocab]
        at = [0]
        for token in spelled:
            at.append(at[-1] + len(token))
        order = sorted(range(len(spelled)), key=spelled.__getitem__)
        self.parts.append(self.array(f"unsigned char @_{name}_bytes", list(b"".join(spelled))))
        self.parts.append(self.array(f"int32_t @_{name}_at", at))
        self.parts.append(self.array(f"int32_t @_{name}_sorted", order))
        self.parts.append(TABLE % {"v": name, "n": len(spelled)})

    def encoder(self, name: str, vocab: Vocab) -> None:
        """The table of a vocabulary, and the function that cuts texts."""
        self.table(name, vocab.tokens)
        tokenizer = vocab.tokenizer
        find = f"@_find_{name}(text + at, end - at)"
        if isinstance(tokenizer, Words) and tokenizer.lower:
            self.lower = True
            size = 8 + 8 * (1 + max(len(token) for token in vocab.tokens))
            self.parts.append(FIND_LOWER % {"v": name, "size": size})
            find = f"@_find_lower_{name}(text + at, end - at)"
        if isinstance(tokenizer, Characters):
            body = CHARACTERS % {"v": name}
        elif isinstance(tokenizer, Words) and tokenizer.punctuation:
            self.asked |= {"word", "mark", "han"}
            bits = {kind: bit(kind) for kind in ("word", "mark", "han")}
            self.parts.append(BEHIND_MARKS % bits)
            body = MARKED % {"v": name, "find": find, "eos": EOS, "letter": bits["word"] | bits["mark"], **bits}
        elif isinstance(tokenizer, Words):
            body = WORDS % {"find": find, "newline": NEWLINE % EOS, "reserved": "id == 1 || id == 2"}
        elif isinstance(tokenizer, Lines):
            body = LINES % {"v": name}
        elif isinstance(tokenizer, Spaced):
            body = WORDS % {"find": find, "newline": "", "reserved": "id < 4"}
        else:
            body = self._pieces(name, vocab, tokenizer)
        self.parts.append(ENCODE % {"v": name, "body": body})

    def _pieces(self, name: str, vocab: Vocab, tokenizer: Subwords) -> str:
        processor = tokenizer._processor()
        ask = processor  # which has no types
        scores, least, bytes_ = list[float](), 0.0, dict[int, int]()
        for k, token in enumerate(vocab.tokens):
            if ask.is_control(k) or ask.is_unknown(k) or ask.is_unused(k):  # type: ignore[attr-defined]
                scores.append(1e30)
            elif ask.is_byte(k):  # type: ignore[attr-defined]
                scores.append(1e30)
                bytes_[int(token[3:5], 16)] = k
            else:
                scores.append(float(ask.get_score(k)))  # type: ignore[attr-defined]
                least = min(least, scores[-1])
        if len(bytes_) != 256:
            raise OptionError("subwords without a piece for every byte are not written in C")
        self.parts.append(self.array(f"float @_{name}_score", scores, torch.float32))
        self.parts.append(self.array(f"int32_t @_{name}_byte", [bytes_[k] for k in range(256)]))
        size = 4 + max(len(token.encode()) for token in vocab.tokens)
        room = (
            f"    float best[{LONGEST_LINE + 1}];\n    int32_t from[{LONGEST_LINE + 1}], piece[{LONGEST_LINE + 1}];\n"
        )
        settings = {"v": name, "longest": LONGEST_LINE - 4, "size": size, "unknown": f"({least - 10:.9g}f)", "eos": EOS}
        return room + PIECES % settings

    def text(self) -> Iterator[str]:
        if any("@_character(" in part for part in self.parts) or self.asked or self.lower:
            yield from characters(self.asked, self.lower, self.array)
        yield from self.parts


def decoder(texts: Texts, name: str, vocab: Vocab) -> None:
    """The function that writes what a model has written, of a vocabulary whose table is there."""
    kind = {"line": "space"}.get(vocab.tokenizer.kind, vocab.tokenizer.kind)
    texts.parts.append(TOKEN_TEXT % {"v": name})
    texts.parts.append(DECODED % (DECODE[kind].replace("%(eos)d", str(EOS))))
