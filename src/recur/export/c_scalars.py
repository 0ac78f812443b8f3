"""Operations on single numbers in C: of expressions, and of a cell's program."""

from __future__ import annotations

import math

from recur.export.lowered_values import Kind

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "divide": "/", "rest": "%", "and": "&&", "or": "||",
    "equal": "==", "unequal": "!=", "less": "<", "less_equal": "<=",
}  # fmt: skip
OWN = ("tanh", "sigmoid", "exp", "relu", "sign", "maximum", "minimum", "remainder")
"""Functions of the prelude; the others are those of math.h."""
LIBRARY = {"log": "log", "log1p": "log1p", "expm1": "expm1", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "erf": "erf",
           "abs": "fabs", "pow": "pow"}  # fmt: skip

STEP = {
    "copy": "{0}", "neg": "-{0}", "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}",
    "multiply_add": "{0} * {1} + {2}", "multiply_sub": "{0} * {1} - {2}", "sub_multiply": "{2} - {0} * {1}",
    "less": "{0} < {1} ? 1.0f : 0.0f", "less_equal": "{0} <= {1} ? 1.0f : 0.0f", "equal": "{0} == {1} ? 1.0f : 0.0f",
    "select": "{0} != 0.0f ? {1} : {2}", "sigmoid_sum": "sigmoid({0} + {1})", "tanh_sum": "tanh({0} + {1})",
}  # fmt: skip
"""Instructions of a cell's program; those that are missing are functions of their name."""


def number(value: float, kind: Kind) -> str:
    if kind in ("int", "bool"):
        return str(int(value))
    if math.isnan(value):
        return "(float)NAN" if kind == "float" else "(double)NAN"
    if math.isinf(value):
        return f"({'-' if value < 0 else ''}{'(float)' if kind == 'float' else '(double)'}INFINITY)"
    text = f"{value:.9g}" if kind == "float" else repr(float(value))
    text = text if any(c in text for c in ".en") else f"{text}.0"
    text += "f" if kind == "float" else ""
    return f"({text})" if value < 0 or text.startswith("-") else text
