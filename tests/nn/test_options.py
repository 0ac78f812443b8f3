"""The options of a recurrent network check themselves, and need no torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from recur.errors import OptionError
from recur.nn import Connections, Depth, Dropout, Init, Recurrent


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Dropout(-0.1), "dropout of layers must lie in 0 … 1, got -0.1"),
        (lambda: Dropout(state="0.5"), "dropout of state must lie in 0 … 1, got '0.5'"),
        (lambda: Dropout(weights=float("nan")), "dropout of weights must lie"),
        (lambda: Dropout(True), "dropout of layers must lie"),
        (lambda: Dropout(variational=1), "variational must be True or False, got 1"),
        (lambda: Connections("average"), "unknown merge 'average'"),
        (lambda: Connections(["sum"]), "unknown merge"),
        (lambda: Connections(residual="yes"), "residual must be True or False"),
        (lambda: Connections(skip=None), "skip must be True or False"),
        (lambda: Depth(input=-1), "depth of input must be a whole number ≥ 0, got -1"),
        (lambda: Depth(transition=1.0), "depth of transition must be a whole number"),
        (lambda: Depth(output=True), "depth of output must be a whole number"),
        (lambda: Init("xavier"), "unknown initialisation 'xavier'"),
        (lambda: Init("glorot:2"), "glorot takes no number"),
        (lambda: Init("identity:x"), "identity takes a number ≥ 0"),
        (lambda: Init("identity:nan"), "identity takes a number ≥ 0"),
        (lambda: Init("normal:-1"), "normal takes a number ≥ 0"),
        (lambda: Init(forget_bias="1"), "forget_bias must be a number, got '1'"),
        (lambda: Init(forget_bias=float("nan")), "forget_bias must be a number"),
        (lambda: Init(chrono=2), "chrono must be a whole number ≥ 3, got 2"),
        (lambda: Init(chrono=100, forget_bias=1.0), "do not set forget_bias, got 1"),
        (lambda: Init(state="ones"), "the initial state must be zero, learned, or random:σ"),
        (lambda: Init(state="random:x"), "the initial state must be"),
        (lambda: Init(state="random:-1"), "the initial state must be"),
        (lambda: Init(state="learned:1"), "the initial state must be"),
    ],
)
def test_a_field_out_of_range_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        make()


def test_a_number_and_a_name_are_short_for_the_options_most_used() -> None:
    net = Recurrent("lstm", 3, 4, num_layers=2, dropout=0.3, init="orthogonal")
    assert net.dropout == Dropout(layers=0.3)
    assert net.init == Init("orthogonal")
    assert Depth(np.int64(2)) == Depth(2)
    with pytest.raises(FrozenInstanceError):
        net.dropout.layers = 0.5


def test_the_initial_state_is_read_once() -> None:
    assert [(Init(state=s).learned, Init(state=s).sigma) for s in ("zero", "learned", "random:0.5")] == [
        (False, 0.0),
        (True, 0.0),
        (False, 0.5),
    ]


def test_a_configuration_can_hold_them_without_torch() -> None:
    code = "import sys; from recur.nn.options import Dropout, Init; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
