"""PyTorch's pointwise functions as expressions: the functions that a compiled step may use.

The names are those of functions, tensor methods and Python operators. Tensors and numbers arrive as values of the
graph; other options arrive unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from recur.compiler.expressions import OPERATIONS, Expressions

Formula = Callable[..., int]

COMPARISONS = ("less", "less_equal", "equal")


def _plain(op: str) -> Formula:
    return lambda t, *values: t(op, *values)


def _flipped(op: str) -> Formula:
    return lambda t, a, b: t(op, b, a)


def _add(t: Expressions, a: int, b: int, *, alpha: int | None = None) -> int:
    return t("add", a, b if alpha is None else t("mul", alpha, b))


def _sub(t: Expressions, a: int, b: int, *, alpha: int | None = None) -> int:
    return t("sub", a, b if alpha is None else t("mul", alpha, b))


def _unequal(t: Expressions, a: int, b: int) -> int:
    return t("sub", t.number(1), t("equal", a, b))


def _truth(t: Expressions, a: int) -> int:
    """Convert to 1 where a is not 0."""
    return a if t[a].op in COMPARISONS else _unequal(t, a, t.number(0))


def _both(t: Expressions, a: int, b: int) -> int:
    return t("mul", _truth(t, a), _truth(t, b))


def _either(t: Expressions, a: int, b: int) -> int:
    return t("maximum", _truth(t, a), _truth(t, b))


def _clamp(t: Expressions, a: int, low: int | None = None, high: int | None = None, **bounds: int | None) -> int:
    """Clamp by `select` and not by `maximum`: PyTorch passes the gradient at the bound itself."""
    low, high = bounds.get("min", low), bounds.get("max", high)
    if low is not None:
        a = t("select", t("less", a, low), low, a)
    return a if high is None else t("select", t("less", high, a), high, a)


def _hardtanh(t: Expressions, a: int, low: int | None = None, high: int | None = None, **bounds: int | None) -> int:
    low, high = bounds.get("min_val", low), bounds.get("max_val", high)
    return _clamp_strictly(t, a, t.number(-1) if low is None else low, t.number(1) if high is None else high)


def _clamp_strictly(t: Expressions, a: int, low: int, high: int) -> int:
    """Clamp with gradient 0 at the bound, as hardtanh and relu6 do."""
    return t("select", t("less_equal", a, low), low, t("select", t("less_equal", high, a), high, a))


def _power(t: Expressions, a: int, exponent: int) -> int:
    """Write whole and half powers up to 8 as products and a square root."""
    power = t.number_of(exponent)
    if power is None or not (2 * power).is_integer() or abs(power) > 8:
        return t("pow", a, exponent)
    whole, half = divmod(abs(power), 1)
    value = t("sqrt", a) if half else t.number(1)
    for _ in range(int(whole)):
        value = t("mul", value, a)
    return value if power >= 0 else t("div", t.number(1), value)


def _softplus(t: Expressions, a: int, beta: int | None = None, threshold: int | None = None) -> int:
    scaled = a if beta is None else t("mul", beta, a)
    straight = t("less", t.number(20) if threshold is None else threshold, scaled)
    smooth = t("log1p", t("exp", t("select", straight, t.number(0), scaled)))  # bounded: exp = ∞ gives a gradient 0 · ∞
    smooth = smooth if beta is None else t("div", smooth, beta)
    return t("select", straight, a, smooth)


def _log_sigmoid(t: Expressions, a: int) -> int:
    """Return min(a, 0) − log(1 + e^−|a|), written so that the gradient at 0 is ½."""
    negative = t("less", a, t.number(0))
    below = t("select", negative, a, t.number(0))
    return t("sub", below, t("log1p", t("exp", t("select", negative, a, t("neg", a)))))


def _elu(t: Expressions, a: int, alpha: int | None = None, inplace: bool = False, scale: float = 1.0) -> int:
    curve = t("expm1", t("select", t("less", t.number(0), a), t.number(0), a))  # bounded: no gradient 0 · ∞
    curve = curve if alpha is None else t("mul", alpha, curve)
    return t("mul", t.number(scale), t("select", t("less", t.number(0), a), a, curve))


def _selu(t: Expressions, a: int, inplace: bool = False) -> int:
    return _elu(t, a, t.number(1.6732632423543772), scale=1.0507009873554805)


def _leaky_relu(t: Expressions, a: int, negative_slope: int | None = None, inplace: bool = False) -> int:
    slope = t.number(0.01) if negative_slope is None else negative_slope
    return t("select", t("less", t.number(0), a), a, t("mul", slope, a))


def _gelu(t: Expressions, a: int, approximate: str = "none") -> int:
    if approximate == "tanh":
        cube = t("mul", t("mul", a, a), a)
        inner = t("mul", t.number(math.sqrt(2 / math.pi)), t("add", a, t("mul", t.number(0.044715), cube)))
        curve = t("tanh", inner)
    else:
        curve = t("erf", t("mul", a, t.number(math.sqrt(0.5))))
    return t("mul", t("mul", t.number(0.5), a), t("add", t.number(1), curve))


def _silu(t: Expressions, a: int, inplace: bool = False) -> int:
    return t("mul", a, t("sigmoid", a))


def _mish(t: Expressions, a: int, inplace: bool = False) -> int:
    return t("mul", a, t("tanh", _softplus(t, a)))


def _hardsigmoid(t: Expressions, a: int, inplace: bool = False) -> int:
    """Return min(max(a + 3, 0), 6) / 6. Its slope is that of PyTorch, which rounds 1/6 to float32 for every dtype."""
    three = t.number(3)
    value = t("div", t("minimum", t("maximum", t("add", a, three), t.number(0)), t.number(6)), t.number(6))
    inside = t("mul", t("less", t.number(-3), a), t("less", a, three))
    return t("custom", value, a, t("mul", inside, t.number(0.1666666716337204)))


def _ceil(t: Expressions, a: int) -> int:
    return t("neg", t("floor", t("neg", a)))


def _trunc(t: Expressions, a: int) -> int:
    return t("select", t("less", a, t.number(0)), _ceil(t, a), t("floor", a))


def _round(t: Expressions, a: int, *, decimals: int | None = None) -> int:
    places = 0 if decimals is None else t.number_of(decimals)
    if not places:
        return t("round", a)
    scale = t.number(10.0 ** abs(places))
    first, last = ("mul", "div") if places > 0 else ("div", "mul")
    return t(last, t("round", t(first, a, scale)), scale)


def _softsign(t: Expressions, a: int) -> int:
    return t("div", a, t("add", t.number(1), t("abs", a)))


def _lerp(t: Expressions, a: int, b: int, weight: int) -> int:
    return t("add", a, t("mul", weight, t("sub", b, a)))


def _addcmul(t: Expressions, a: int, b: int, c: int, *, value: int | None = None) -> int:
    product = t("mul", b, c)
    return t("add", a, product if value is None else t("mul", value, product))


def _addcdiv(t: Expressions, a: int, b: int, c: int, *, value: int | None = None) -> int:
    ratio = t("div", b, c)
    return t("add", a, ratio if value is None else t("mul", value, ratio))


def _like(number: float) -> Formula:
    return lambda t, _a: t.number(number)


FORMULAS: dict[str, Formula] = {
    **{op: _plain(op) for op in OPERATIONS if not op.startswith(("d_", "less", "equal", "select", "custom"))},
    "add": _add,
    "sub": _sub,
    "subtract": _sub,
    "rsub": _flipped("sub"),
    "multiply": _plain("mul"),
    "truediv": _plain("div"),
    "true_divide": _plain("div"),
    "divide": _plain("div"),
    "negative": _plain("neg"),
    "absolute": _plain("abs"),
    "sgn": _plain("sign"),
    "special_expit": _plain("sigmoid"),
    "relu": lambda t, a, inplace=False: t("relu", a),
    "reciprocal": lambda t, a: t("div", t.number(1), a),
    "rsqrt": lambda t, a: t("div", t.number(1), t("sqrt", a)),
    "square": lambda t, a: t("mul", a, a),
    "pow": _power,
    "mod": _plain("remainder"),
    "arctan": _plain("atan"),
    "round": _round,
    "ceil": _ceil,
    "trunc": _trunc,
    "fix": _trunc,
    "frac": lambda t, a: t("sub", a, _trunc(t, a)),
    "lt": _plain("less"),
    "le": _plain("less_equal"),
    "gt": _flipped("less"),
    "ge": _flipped("less_equal"),
    "eq": _plain("equal"),
    "ne": _unequal,
    "logical_not": lambda t, a: t("equal", a, t.number(0)),
    "invert": lambda t, a: t("equal", a, t.number(0)),
    "logical_and": _both,
    "and_": _both,
    "logical_or": _either,
    "or_": _either,
    "where": _plain("select"),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": lambda t, a, low: _clamp(t, a, low),
    "clamp_max": lambda t, a, high: _clamp(t, a, None, high),
    "hardtanh": _hardtanh,
    "relu6": lambda t, a, inplace=False: _clamp_strictly(t, a, t.number(0), t.number(6)),
    "softplus": _softplus,
    "log_sigmoid": _log_sigmoid,
    "elu": _elu,
    "selu": _selu,
    "leaky_relu": _leaky_relu,
    "gelu": _gelu,
    "silu": _silu,
    "mish": _mish,
    "hardsigmoid": _hardsigmoid,
    "softsign": _softsign,
    "lerp": _lerp,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "detach": lambda t, a: t("custom", a),
    "custom_slope": lambda t, y, a, d: t("custom", y, a, d),
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "clone": lambda t, a: a,
}
