"""Equations cut into names, numbers and signs, each with its line and column.

Times belong to a name: h', h_t, hₜ and h^(t) are the state after the step, h_{t−1}, hₜ₋₁ and h^(t−1) the one before it.
Other subscripts are part of the name, however they are written: U_z, U_{z} and Uᵢ with a small i are names alike.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from recur.errors import CellError
from recur.i18n import Message

LONGEST = 1500
"""Characters of all equations."""

NOW, BEFORE = "t", "t-1"

FORMS = str.maketrans(
    "（）［］｛｝，；＝＋－＊／＾−–′’．", "()[]{},;=+-*/^--''."
)  # of a Chinese keyboard, of a word processor
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", "0123456789+-()aehijklmnoprstuvx", strict=True))
COMMANDS = {
    "sigma": "σ", "tanh": "tanh", "exp": "exp", "log": "log", "odot": "⊙", "circ": "∘", "times": "×", "cdot": "·",
    "sin": "sin", "cos": "cos", "sqrt": "sqrt",
}  # fmt: skip
"""Of LaTeX."""
ACCENTS = {"tilde": "\u0303", "hat": "\u0302", "bar": "\u0304"}
SIGNS = {"∘": "⊙", "*": "⊙", "×": "⊙", "@": "·", "⋅": "·", "•": "·"}
"""Other ways to write element by element, and a product with a matrix."""
NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
SUBSCRIPT = re.compile(f"[{''.join(SUBSCRIPTS)}]+")
TIME = re.compile(r"\^?\{?\(?\s*t\s*([+-]\s*1)?\s*\)?\}?|\[\s*t\s*([+-]\s*1)?\s*\]")


class EquationError(CellError):
    """Equations that cannot be read: where, and what was expected."""

    def __init__(self, line: int, column: int, reason: Message) -> None:
        self.line, self.column, self.reason = line, column, reason
        super().__init__(Message("line {line}, column {column}: {reason}", line=line, column=column, reason=reason))

    @property
    def sentence(self) -> str:
        return str(self.args[0])


class Token(NamedTuple):
    kind: str
    """name, number, sign or end (of an equation)."""
    text: str
    line: int
    column: int
    time: str = ""
    """Of a name: NOW, BEFORE, "'" for a prime, or nothing."""
    written: str = ""
    """A sign as it was typed, where that is another."""

    def refuse(self, reason: Message) -> EquationError:
        return EquationError(self.line, self.column, reason)

    @property
    def shown(self) -> Message | str:
        return Message("the end of the line") if self.kind == "end" else repr(self.written or self.text)


def tokens(text: str) -> list[Token]:
    """All tokens of all lines; each line, and each part of it before a semicolon, has its end."""
    if len(text) > LONGEST:
        raise EquationError(1, 1, Message("at most {most} characters, got {count}", most=LONGEST, count=len(text)))
    found: list[Token] = []
    for line, content in enumerate(text.splitlines(), 1):
        found += _Line(content, line).tokens()
    return found


class _Line:
    def __init__(self, text: str, line: int) -> None:
        self.text, self.line, self.at = text.translate(FORMS), line, 0

    def tokens(self) -> list[Token]:
        found = []
        while self.at < len(self.text) and self.text[self.at] != "#":
            sign = self.text[self.at]
            if sign.isspace() or sign == "$" or sign == "\u200b":
                self.at += 1
            elif sign == ";" or self.text.startswith("\\\\", self.at):
                found.append(self._token("end", sign))
                self.at += 1 + (sign == "\\")
            else:
                found.append(self._next(sign))
        return [*found, self._token("end", "")]

    def _token(self, kind: str, text: str) -> Token:
        return Token(kind, text, self.line, self.at + 1)

    def _next(self, sign: str) -> Token:
        begin = self._token("sign", SIGNS.get(sign, sign))._replace(written=sign)
        if sign == "\\":
            return self._command(begin)
        if number := NUMBER.match(self.text, self.at):
            self.at = number.end()
            return begin._replace(kind="number", text=number[0], written="")
        if sign.isalpha():
            return self._name(begin, self._letters())
        if begin.text not in "+-⊙·/^=()[],²³":
            raise begin.refuse(Message("{sign} is no sign of an equation", sign=repr(sign)))
        self.at += 1
        return begin

    def _command(self, begin: Token) -> Token:
        found = re.compile(r"\\([a-zA-Z]+)\s*").match(self.text, self.at)
        word = found[1] if found else ""
        if found and word in ACCENTS:
            self.at = found.end()
            inner = re.compile(r"\{(\w)\}|(\w)").match(self.text, self.at)
            if inner is None:
                raise begin.refuse(
                    Message("{word} goes over one letter, as in {example}", word=f"\\{word}", example=f"\\{word}{{h}}")
                )
            self.at = inner.end()
            return self._name(begin, (inner[1] or inner[2]) + ACCENTS[word])
        if found is None or word not in COMMANDS:
            raise begin.refuse(
                Message(
                    "{word} is not among the commands that are read: {known}",
                    word=f"\\{word}",
                    known=", ".join(f"\\{c}" for c in (*COMMANDS, *ACCENTS)),
                )
            )
        self.at = found.end()
        meant = COMMANDS[word]
        if meant.isalpha():
            return begin._replace(kind="name", text=meant, written="")
        return begin._replace(text=SIGNS.get(meant, meant), written=meant)

    def _letters(self) -> str:
        begin = self.at
        while self.at < len(self.text) and self._is_part(self.text[self.at]):
            self.at += 1
        return self.text[begin : self.at]

    def _is_part(self, sign: str) -> bool:
        return sign not in SUBSCRIPTS and (sign.isalpha() or sign.isdecimal() or unicodedata.combining(sign) > 0)

    def _name(self, begin: Token, base: str) -> Token:
        """The rest of a name: subscripts, times and a prime, in any order."""
        parts, time = [], ""
        while self.at < len(self.text):
            written = self._subscript(begin)
            if written is None:
                break
            for part in written.replace(" ", "").split(","):
                if part in (NOW, BEFORE, "'"):
                    if time and time != part:
                        raise begin.refuse(Message("{name} has two times", name=base))
                    time = part
                elif part.replace("-", "+").startswith("t+"):
                    raise begin.refuse(
                        Message("a step knows {now} and {before} only", now=f"{base}_t", before=f"{base}_{{t−1}}")
                    )
                elif not part or not all(self._is_part(sign) or sign == "_" for sign in part):
                    raise begin.refuse(Message("a subscript is a name, t or t−1; got {got}", got=repr(part)))
                else:
                    parts.append(part)
        name = unicodedata.normalize("NFC", "_".join([base, *parts]))
        return begin._replace(kind="name", text=name, time=time, written="")

    def _subscript(self, begin: Token) -> str | None:
        rest = self.text[self.at :]
        if rest[0] == "'":
            self.at += 1
            return "'"
        if found := SUBSCRIPT.match(rest):
            self.at += found.end()
            return "".join(SUBSCRIPTS[sign] for sign in found[0]).strip("()")
        if rest[0] in "^[" and (found := TIME.match(rest)) and found[0][0] + found[0][-1] in ("^}", "^)", "[]", "^t"):
            self.at += found.end()
            return re.sub(r"[^t1+-]", "", found[0])
        if rest[0] != "_":
            return None
        self.at += 1
        if self.at < len(self.text) and self.text[self.at] in "{(":
            close = "})"["{(".index(self.text[self.at])]
            end = self.text.find(close, self.at)
            if end < 0:
                raise begin.refuse(Message("a subscript that is not closed: {close} is missing", close=repr(close)))
            inside = self.text[self.at + 1 : end]
            self.at = end + 1
            return inside.strip("()") or "?"
        return self._letters() or "?"
