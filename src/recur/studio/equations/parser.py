"""Equations cut into names, numbers and signs, each with its line and column.

Times belong to a name: h', h_t, hₜ and h^(t) are the state after the step, h_{t−1}, hₜ₋₁ and h^(t−1) the one before it.
Other subscripts are part of the name, however they are written: U_z, U_{z} and Uᵢ with a small i are names alike.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import NamedTuple

from recur.errors import CellError
from recur.i18n import Message

MAX_CHARACTERS = 1500
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
SIGN_SYNONYMS = {"∘": "⊙", "*": "⊙", "×": "⊙", "@": "·", "⋅": "·", "•": "·"}
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


class EquationToken(NamedTuple):
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


def tokenize(text: str) -> list[EquationToken]:
    """All tokens of all lines; each line, and each part of it before a semicolon, has its end."""
    if len(text) > MAX_CHARACTERS:
        raise EquationError(
            1, 1, Message("at most {most} characters, got {count}", most=MAX_CHARACTERS, count=len(text))
        )
    found: list[EquationToken] = []
    for line, content in enumerate(text.splitlines(), 1):
        found += _LineScanner(content, line).tokens()
    return found


class _LineScanner:
    def __init__(self, text: str, line: int) -> None:
        self.text, self.line, self.at = text.translate(FORMS), line, 0

    def tokens(self) -> list[EquationToken]:
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

    def _token(self, kind: str, text: str) -> EquationToken:
        return EquationToken(kind, text, self.line, self.at + 1)

    def _next(self, sign: str) -> EquationToken:
        begin = self._token("sign", SIGN_SYNONYMS.get(sign, sign))._replace(written=sign)
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

    def _command(self, begin: EquationToken) -> EquationToken:
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
        return begin._replace(text=SIGN_SYNONYMS.get(meant, meant), written=meant)

    def _letters(self) -> str:
        begin = self.at
        while self.at < len(self.text) and self._is_part(self.text[self.at]):
            self.at += 1
        return self.text[begin : self.at]

    def _is_part(self, sign: str) -> bool:
        return sign not in SUBSCRIPTS and (sign.isalpha() or sign.isdecimal() or unicodedata.combining(sign) > 0)

    def _name(self, begin: EquationToken, base: str) -> EquationToken:
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

    def _subscript(self, begin: EquationToken) -> str | None:
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


INPUT = "x"
FUNCTION_NAMES = {
    "σ": "σ", "sigmoid": "σ", "sigm": "σ", "logistic": "σ", "tanh": "tanh", "relu": "ReLU", "ReLU": "ReLU",
    "exp": "exp", "log": "log", "ln": "log", "sqrt": "√", "softplus": "softplus", "sin": "sin", "cos": "cos",
    "abs": "abs",
}  # fmt: skip
"""As they may be written, and as they are shown."""
MAX_DEPTH = 40
MAX_EQUATIONS = 40
MAX_SIGNS = 150
"""Of one equation, names and numbers among them: products of products go as deep as they are many."""


@dataclass
class ExpressionTree:
    """Tree of an equation's right side; `op` is an operation of graph.py, or a leaf: number, name, vector."""

    op: str
    token: EquationToken
    parts: list[ExpressionTree] = field(default_factory=list)
    name: str = ""
    """Of a leaf, or of the matrix of a product."""
    time: str = ""
    number: float = 0.0
    """Of a number; the exponent of a power."""
    signs: tuple[int, ...] = ()
    """Of the parts of a sum."""


@dataclass
class Equation:
    name: str
    time: str
    token: EquationToken
    tree: ExpressionTree


def parse(text: str) -> list[Equation]:
    """All equations of a text; refused at the first place that cannot be read."""
    lines: list[list[EquationToken]] = [[]]
    for token in tokenize(text):
        lines[-1].append(token)
        if token.kind == "end":
            lines.append([])
    lines = [line for line in lines if len(line) > 1]
    if len(lines) > MAX_EQUATIONS:
        raise lines[MAX_EQUATIONS][0].refuse(Message("at most {most} equations", most=MAX_EQUATIONS))
    for line in lines:
        if len(line) > MAX_SIGNS:
            raise line[MAX_SIGNS].refuse(Message("too long for one equation; give a part of it a name"))
    known = {INPUT, *(line[0].text for line in lines if line[0].kind == "name" and line[1].text == "=")}
    return [_Parser(line, known).equation() for line in lines]


class _Parser:
    def __init__(self, line: list[EquationToken], known: set[str]) -> None:
        self.line, self.known, self.at, self.depth = line, known, 0, 0

    @property
    def token(self) -> EquationToken:
        return self.line[self.at]

    def take(self) -> EquationToken:
        self.at += 1
        return self.line[self.at - 1]

    def expect(self, sign: str) -> EquationToken:
        if self.token.kind != "sign" or self.token.text != sign:
            raise self.token.refuse(Message("{sign} expected, got {got}", sign=repr(sign), got=self.token.shown))
        return self.take()

    def equation(self) -> Equation:
        left = self.take()
        if left.kind != "name":
            raise left.refuse(Message("an equation begins with a name, as in h' = …; got {got}", got=left.shown))
        if left.text in (INPUT, *FUNCTION_NAMES):
            raise left.refuse(Message("{name} cannot be defined: it is the input, or a function", name=left.text))
        if left.time == "t-1":
            raise left.refuse(Message("the state before the step is given; define {name}_t", name=left.text))
        self.expect("=")
        tree = self.sum()
        if self.token.kind != "end":
            raise self.token.refuse(Message("a sign such as + or ⊙ expected, got {got}", got=self.token.shown))
        return Equation(left.text, left.time, left, tree)

    def sum(self) -> ExpressionTree:
        begin = self.token
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise begin.refuse(Message("too many brackets inside each other: at most {most}", most=MAX_DEPTH))
        signs, parts = [1], []
        if begin.text == "-":
            self.take()
            signs = [-1]
        parts.append(self.term())
        while self.token.kind == "sign" and self.token.text in "+-":
            signs.append(1 if self.take().text == "+" else -1)
            parts.append(self.term())
        self.depth -= 1
        return parts[0] if signs == [1] else ExpressionTree("sum", begin, parts, signs=tuple(signs))

    def term(self) -> ExpressionTree:
        left = self.product()
        while self.token.kind == "sign" and self.token.text in ("⊙", "/", "·"):
            sign = self.take()
            right = self.product()
            if sign.text == "·" and "number" not in (left.op, right.op):
                raise sign.refuse(Message("· is a product with a matrix; between two vectors write ⊙"))
            left = ExpressionTree("quotient" if sign.text == "/" else "times", sign, [left, right])
        return left

    def product(self) -> ExpressionTree:
        begin = self.token
        factor = self.factor()
        if factor.op == "matrix":
            if self.token.kind == "sign" and self.token.text == "·":
                self.take()
            if not self._begins_factor():
                raise begin.refuse(_lone(factor.name))
            return ExpressionTree("product", begin, [self.product()], factor.name)
        if not self._begins_factor():
            return factor
        if factor.op == "number":
            return ExpressionTree("times", begin, [factor, self.product()])
        raise self.token.refuse(
            Message("a sign is missing before {got}; element by element is ⊙ or *", got=self.token.shown)
        )

    def _begins_factor(self) -> bool:
        token = self.token
        return token.kind in ("name", "number") or (token.kind == "sign" and token.text in "([")

    def factor(self) -> ExpressionTree:
        part = self.part()
        while self.token.kind == "sign" and self.token.text in "^²³":
            sign = self.take()
            if part.op == "matrix":
                raise sign.refuse(_lone(part.name))
            if sign.text == "^":
                brackets = self.token.text == "("
                if brackets:
                    self.take()
                minus = self.token.text == "-" and self.take()
                number = self.take()
                if number.kind != "number":
                    raise number.refuse(Message("a number expected, got {got}", got=number.shown))
                if brackets:
                    self.expect(")")
                power = _parse_number(number) * (-1 if minus else 1)
            else:
                power = float("²³".index(sign.text) + 2)
            part = ExpressionTree("power", sign, [part], number=power)
        return part

    def part(self) -> ExpressionTree:
        token = self.take()
        if token.kind == "number":
            return ExpressionTree("number", token, number=_parse_number(token))
        if token.kind == "name":
            return self._named(token)
        if token.text == "(":
            inside = self.sum()
            self.expect(")")
            return inside
        if token.text == "[":
            parts = [self.sum()]
            while self.token.text in (",", ";"):
                self.take()
                parts.append(self.sum())
            self.expect("]")
            return ExpressionTree("beside", token, parts) if len(parts) > 1 else parts[0]
        if token.text == "-" and self.depth < MAX_DEPTH:
            self.depth += 1
            inside = self.part()
            self.depth -= 1
            return ExpressionTree("sum", token, [inside], signs=(-1,))
        raise token.refuse(Message("a name, a number or a bracket expected, got {got}", got=token.shown))

    def _named(self, token: EquationToken) -> ExpressionTree:
        name = token.text
        if name in FUNCTION_NAMES and name not in self.known:
            if self.token.text != "(":
                raise self.token.refuse(Message("{sign} expected, got {got}", sign="'('", got=self.token.shown))
            self.take()
            inside = self.sum()
            self.expect(")")
            return ExpressionTree(FUNCTION_NAMES[name], token, [inside])
        if name in self.known:
            return ExpressionTree("name", token, name=name, time=token.time)
        split = self._split(name)
        if split and (token.time or not self._begins_factor()):
            matrix, variable = split
            return ExpressionTree(
                "product", token, [ExpressionTree("name", token, name=variable, time=token.time)], matrix
            )
        if token.time:
            raise token.refuse(Message("no equation defines {name}", name=name))
        if name[0].isupper():
            return ExpressionTree("matrix", token, name=name)
        if self.token.text == "(" and self.token.kind == "sign":
            known = ", ".join(dict.fromkeys(FUNCTION_NAMES))
            raise token.refuse(Message("unknown function {name}; known: {known}", name=name, known=known))
        return ExpressionTree("vector", token, name=name)

    def _split(self, name: str) -> tuple[str, str] | None:
        """A matrix and what it multiplies, written without a space: Ux, W_zh."""
        for k in range(1, len(name)):
            matrix, variable = name[:k], name[k:]
            if variable in self.known and matrix[0].isupper() and matrix[-1] != "_":
                return matrix, variable
        return None


def _parse_number(token: EquationToken) -> float:
    value = float(token.text)
    if value > 1e100:
        raise token.refuse(Message("a number of this size is not read: {got}", got=token.text))
    return value


def _lone(name: str) -> Message:
    return Message(
        "{name} is a matrix, which stands before what it multiplies: {name} h; vectors have small letters", name=name
    )
