"""From tokens to trees, by recursive descent.

    equation   name = sum
    sum        [−] term, then + or − and another, …
    term       product, then ⊙ / · and another, …          ⊙ is written * ∘ × too; element by element
    product    a matrix before what it multiplies, W h; a number before what it scales, 2 h; or a factor
    factor     part, part ^ number, part²
    part       number, name, function(sum), (sum), [sum, sum], −part

A name with a capital that no equation defines is a matrix, any other one a vector of weights. So Ux_t, which books
write, can be told from a name of two letters: x is known, and U is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recur.i18n import Message
from recur.studio.equations.tokens import Token, tokens

INPUT = "x"
FUNCTIONS = {
    "σ": "σ", "sigmoid": "σ", "sigm": "σ", "logistic": "σ", "tanh": "tanh", "relu": "ReLU", "ReLU": "ReLU",
    "exp": "exp", "log": "log", "ln": "log", "sqrt": "√", "softplus": "softplus", "sin": "sin", "cos": "cos",
    "abs": "abs",
}  # fmt: skip
"""As they may be written, and as they are shown."""
DEEPEST = 40
EQUATIONS = 40
SIGNS = 150
"""Of one equation, names and numbers among them: products of products go as deep as they are many."""


@dataclass
class Tree:
    """What an equation's right side is made of; `op` is an operation of graph.py, or a leaf: number, name, vector."""

    op: str
    token: Token
    parts: list[Tree] = field(default_factory=list)
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
    token: Token
    tree: Tree


def parse(text: str) -> list[Equation]:
    """All equations of a text; refused at the first place that cannot be read."""
    lines: list[list[Token]] = [[]]
    for token in tokens(text):
        lines[-1].append(token)
        if token.kind == "end":
            lines.append([])
    lines = [line for line in lines if len(line) > 1]
    if len(lines) > EQUATIONS:
        raise lines[EQUATIONS][0].refuse(Message("at most {most} equations", most=EQUATIONS))
    for line in lines:
        if len(line) > SIGNS:
            raise line[SIGNS].refuse(Message("too long for one equation; give a part of it a name"))
    known = {INPUT, *(line[0].text for line in lines if line[0].kind == "name" and line[1].text == "=")}
    return [_Parser(line, known).equation() for line in lines]


class _Parser:
    def __init__(self, line: list[Token], known: set[str]) -> None:
        self.line, self.known, self.at, self.depth = line, known, 0, 0

    @property
    def token(self) -> Token:
        return self.line[self.at]

    def take(self) -> Token:
        self.at += 1
        return self.line[self.at - 1]

    def expect(self, sign: str) -> Token:
        if self.token.kind != "sign" or self.token.text != sign:
            raise self.token.refuse(Message("{sign} expected, got {got}", sign=repr(sign), got=self.token.shown))
        return self.take()

    def equation(self) -> Equation:
        left = self.take()
        if left.kind != "name":
            raise left.refuse(Message("an equation begins with a name, as in h' = …; got {got}", got=left.shown))
        if left.text in (INPUT, *FUNCTIONS):
            raise left.refuse(Message("{name} cannot be defined: it is the input, or a function", name=left.text))
        if left.time == "t-1":
            raise left.refuse(Message("the state before the step is given; define {name}_t", name=left.text))
        self.expect("=")
        tree = self.sum()
        if self.token.kind != "end":
            raise self.token.refuse(Message("a sign such as + or ⊙ expected, got {got}", got=self.token.shown))
        return Equation(left.text, left.time, left, tree)

    def sum(self) -> Tree:
        begin = self.token
        self.depth += 1
        if self.depth > DEEPEST:
            raise begin.refuse(Message("too many brackets inside each other: at most {most}", most=DEEPEST))
        signs, parts = [1], []
        if begin.text == "-":
            self.take()
            signs = [-1]
        parts.append(self.term())
        while self.token.kind == "sign" and self.token.text in "+-":
            signs.append(1 if self.take().text == "+" else -1)
            parts.append(self.term())
        self.depth -= 1
        return parts[0] if signs == [1] else Tree("sum", begin, parts, signs=tuple(signs))

    def term(self) -> Tree:
        left = self.product()
        while self.token.kind == "sign" and self.token.text in ("⊙", "/", "·"):
            sign = self.take()
            right = self.product()
            if sign.text == "·" and "number" not in (left.op, right.op):
                raise sign.refuse(Message("· is a product with a matrix; between two vectors write ⊙"))
            left = Tree("quotient" if sign.text == "/" else "times", sign, [left, right])
        return left

    def product(self) -> Tree:
        begin = self.token
        factor = self.factor()
        if factor.op == "matrix":
            if self.token.kind == "sign" and self.token.text == "·":
                self.take()
            if not self._begins_factor():
                raise begin.refuse(_lone(factor.name))
            return Tree("product", begin, [self.product()], factor.name)
        if not self._begins_factor():
            return factor
        if factor.op == "number":
            return Tree("times", begin, [factor, self.product()])
        raise self.token.refuse(
            Message("a sign is missing before {got}; element by element is ⊙ or *", got=self.token.shown)
        )

    def _begins_factor(self) -> bool:
        token = self.token
        return token.kind in ("name", "number") or (token.kind == "sign" and token.text in "([")

    def factor(self) -> Tree:
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
                power = _number(number) * (-1 if minus else 1)
            else:
                power = float("²³".index(sign.text) + 2)
            part = Tree("power", sign, [part], number=power)
        return part

    def part(self) -> Tree:
        token = self.take()
        if token.kind == "number":
            return Tree("number", token, number=_number(token))
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
            return Tree("beside", token, parts) if len(parts) > 1 else parts[0]
        if token.text == "-" and self.depth < DEEPEST:
            self.depth += 1
            inside = self.part()
            self.depth -= 1
            return Tree("sum", token, [inside], signs=(-1,))
        raise token.refuse(Message("a name, a number or a bracket expected, got {got}", got=token.shown))

    def _named(self, token: Token) -> Tree:
        name = token.text
        if name in FUNCTIONS and name not in self.known:
            if self.token.text != "(":
                raise self.token.refuse(Message("{sign} expected, got {got}", sign="'('", got=self.token.shown))
            self.take()
            inside = self.sum()
            self.expect(")")
            return Tree(FUNCTIONS[name], token, [inside])
        if name in self.known:
            return Tree("name", token, name=name, time=token.time)
        split = self._split(name)
        if split and (token.time or not self._begins_factor()):
            matrix, variable = split
            return Tree("product", token, [Tree("name", token, name=variable, time=token.time)], matrix)
        if token.time:
            raise token.refuse(Message("no equation defines {name}", name=name))
        if name[0].isupper():
            return Tree("matrix", token, name=name)
        if self.token.text == "(" and self.token.kind == "sign":
            known = ", ".join(dict.fromkeys(FUNCTIONS))
            raise token.refuse(Message("unknown function {name}; known: {known}", name=name, known=known))
        return Tree("vector", token, name=name)

    def _split(self, name: str) -> tuple[str, str] | None:
        """A matrix and what it multiplies, written without a space: Ux, W_zh."""
        for k in range(1, len(name)):
            matrix, variable = name[:k], name[k:]
            if variable in self.known and matrix[0].isupper() and matrix[-1] != "_":
                return matrix, variable
        return None


def _number(token: Token) -> float:
    value = float(token.text)
    if value > 1e100:
        raise token.refuse(Message("a number of this size is not read: {got}", got=token.text))
    return value


def _lone(name: str) -> Message:
    return Message(
        "{name} is a matrix, which stands before what it multiplies: {name} h; vectors have small letters", name=name
    )
