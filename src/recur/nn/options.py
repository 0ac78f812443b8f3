"""Options of recurrent layers as frozen dataclasses, checked on construction. Does not import torch."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import SupportsIndex

from recur.errors import OptionError, shown, unknown


def check_integer(name: str, value: object, least: int) -> int:
    """Return value as an int (Python or NumPy) if `least` ≤ value ≤ 2⁵³; else raise OptionError."""
    try:
        number = operator.index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else -1
    except TypeError:  # an array of several
        number = -1
    if number < least:
        raise OptionError(f"{name} must be a whole number ≥ {least}, got {shown(value)}")
    if number > 2**53:
        raise OptionError(f"{name} must be at most 2⁵³, got {shown(value)}")
    return number


GIB = 2**30


def check_memory(needed: float, there: float) -> None:
    """Raise OptionError if weights of `needed` bytes exceed the `there` bytes of memory."""
    if needed > there:
        raise OptionError(
            f"a network of this size has weights of {needed / GIB:,.0f} GiB, and this machine has {there / GIB:,.0f} "
            "GiB of memory; make it narrower (hidden_size, embedding_size), or use fewer layers"
        )


def check_flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise OptionError(f"{name} must be True or False, got {shown(value)}")


DIRECTIONS = ("forward", "backward", "both")
"""Reading directions: from the start, from the end of each sequence, or both with separate weights."""

MERGES = ("concat", "sum", "mean", "product")

INIT_SCHEMES = {"torch": None, "glorot": None, "orthogonal": None, "identity": 1.0, "normal": 0.01}
"""Initialisation schemes and the default number after the colon, if the scheme takes one; see recur.nn.functional."""


@dataclass(frozen=True)
class Dropout:
    """Dropout probabilities while training.

    layers       outputs of a layer, before the next layer reads them
    state        the state that W multiplies, with one mask per row of a call
    weights      W and other recurrent matrices of a cell (Merity et al. 2018)
    variational  between layers, one mask for all steps of a sequence (Gal and Ghahramani 2016); else one mask per step,
                 as in torch.nn

    >>> net = recur.Recurrent("lstm", 3, 4, num_layers=2, dropout=Dropout(layers=0.3, weights=0.5))
    >>> x = torch.randn(2, 5, 3)
    >>> torch.equal(net(x).outputs, net(x).outputs), torch.equal(net.eval()(x).outputs, net(x).outputs)
    (False, True)
    """

    layers: float = 0.0
    state: float = 0.0
    weights: float = 0.0
    variational: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "state", "weights"):
            p = getattr(self, name)
            if not is_number(p) or not 0 <= p <= 1:
                raise OptionError(f"dropout of {name} must lie in 0 … 1, got {p!r}")
            object.__setattr__(self, name, float(p))
        check_flag("variational", self.variational)

    @staticmethod
    def of(given: float | Dropout) -> Dropout:
        return given if isinstance(given, Dropout) else Dropout(layers=given)


@dataclass(frozen=True)
class Connections:
    """Connections between layers and directions.

    merge     merging of two directions: concat, sum, mean or product
    residual  each layer above the first adds its input to its output
    skip      the input reaches every layer, and every layer reaches the output (Graves 2013)

    >>> recur.Recurrent("gru", 3, 4, direction="both", connections=Connections(merge="sum")).output_size
    4
    """

    merge: str = "concat"
    residual: bool = False
    skip: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.merge, str) or self.merge not in MERGES:
            raise OptionError(unknown("merge", self.merge, MERGES))
        check_flag("residual", self.residual)
        check_flag("skip", self.skip)


@dataclass(frozen=True)
class Depth:
    """Numbers of tanh layers of the MLPs around a recurrent layer (Deep Learning, section 10.5).

    input       between input and hidden
    transition  between hidden and hidden, in each recurrent layer
    output      between hidden and output
    between     between one recurrent layer and the next, before the residual connection; without it, linear cells such
                as the LRU stay linear in depth

    >>> net = recur.Recurrent("gru", 3, 4, depth=Depth(output=1))
    >>> net(torch.randn(2, 5, 3)).outputs.shape
    torch.Size([2, 5, 4])
    """

    input: int = 0
    transition: int = 0
    output: int = 0
    between: int = 0

    def __post_init__(self) -> None:
        for name in ("input", "transition", "output", "between"):
            object.__setattr__(self, name, check_integer(f"depth of {name}", getattr(self, name), 0))


@dataclass(frozen=True)
class Init:
    """Initial values of weights and states.

    scheme       of the weights: torch, glorot, orthogonal, identity or normal; see recur.nn.functional
    forget_bias  bias of the forget gate (Jozefowicz et al. 2015)
    chrono       instead of forget_bias: biases drawn so that units remember for 1 … this many steps (Tallec and
                 Ollivier 2018)
    state        initial state: zero, random:σ (drawn while training, zero otherwise) or learned

    >>> net = recur.Recurrent("elman", 3, 4, init=Init("orthogonal"))
    >>> W = net.weight_hh_l0.detach()
    >>> torch.allclose(W @ W.T, torch.eye(4), atol=1e-5)
    True
    """

    scheme: str = "torch"
    forget_bias: float | None = None
    state: str = "zero"
    chrono: int | None = None

    def __post_init__(self) -> None:
        parse_scheme(self.scheme)
        parse_state(self.state)
        if self.forget_bias is not None and not is_number(self.forget_bias):
            raise OptionError(f"forget_bias must be a number, got {shown(self.forget_bias)}")
        check_chrono(self.chrono, self.forget_bias)

    @staticmethod
    def of(given: str | Init) -> Init:
        return given if isinstance(given, Init) else Init(given)

    @property
    def learned(self) -> bool:
        """Whether the initial state is a parameter."""
        return self.state == "learned"

    @property
    def sigma(self) -> float:
        """Standard deviation of a random initial state; 0 if it is not random."""
        return parse_state(self.state)


def check_chrono(chrono: int | None, forget_bias: float | None) -> None:
    if chrono is not None and check_integer("chrono", chrono, 3) and forget_bias is not None:
        raise OptionError(f"chrono draws the biases of forget gates: do not set forget_bias, got {forget_bias:g}")


def parse_scheme(scheme: str) -> tuple[str, float]:
    """Split a scheme such as `normal:0.01` into its name and its number."""
    name, colon, written = scheme.partition(":") if isinstance(scheme, str) else ("", "", "")
    if name not in INIT_SCHEMES:
        raise OptionError(unknown("initialisation", scheme, INIT_SCHEMES))
    default = INIT_SCHEMES[name]
    try:
        number = float(written) if colon else (default or 0.0)
        if (colon and default is None) or not 0 <= number < 1e30:
            raise ValueError
        return name, number
    except ValueError:
        takes = "takes no number" if default is None else f"takes a number ≥ 0, as in {name}:{default}"
        raise OptionError(f"initialisation {shown(scheme)}: {name} {takes}") from None


def parse_state(state: str) -> float:
    """Return σ of an initial state `random:σ`; 0 for zero and learned."""
    if state in ("zero", "learned"):
        return 0.0
    kind, _, scale = str(state).partition(":")
    try:
        sigma = float(scale) if kind == "random" else math.nan
    except ValueError:
        sigma = math.nan
    if not 0 < sigma < 1e30:
        raise OptionError(f"the initial state must be zero, learned, or random:σ with σ > 0, got {shown(state)}")
    return sigma


def check_direction(direction: str) -> str:
    if direction not in DIRECTIONS:
        raise OptionError(unknown("direction", direction, DIRECTIONS))
    return direction


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300  # 10⁴⁰⁰ is no float
