"""Recurrent: cells composed into a network, deep and in both directions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recur.bptt import BPTT
from recur.cells import Cell, DeepTransition, make_cell
from recur.cells.cell import check_cell
from recur.errors import OptionError, ShapeError, unknown
from recur.layers.checks import parse_initial, whole
from recur.layers.dropout import drop, drop_steps
from recur.layers.init import check_init, initialise
from recur.layers.streaming import Stream, one_step
from recur.scan import Trace, check_backend, scan

MERGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "concat": lambda forward, backward: torch.cat([forward, backward], dim=-1),
    "sum": torch.add,
    "mean": lambda forward, backward: (forward + backward) / 2,
    "product": torch.mul,
}


class Recurred(NamedTuple):
    """What a recurrent network returns. States and traces: layer by layer, forward before backward."""

    outputs: Tensor
    state: tuple[Any, ...]
    trace: tuple[Trace, ...]


class Recurrent(nn.Module):
    """A cell, carried along sequences (B, T, D), in layers.

    cell              a Cell, its name, or file.py:Class
    layers            how many; each reads the outputs of the one below
    bidirectional     a second pass from the end of each sequence, and how the two halves `merge`:
                      concat, sum, mean or product
    dropout           between layers; `variational` keeps one mask for the whole sequence (Gal and Ghahramani 2016),
                      else a mask for each step, as torch.nn has it
    recurrent_dropout on what U multiplies, one mask for each row of a call
    weight_drop       on the entries of U and of a cell's own recurrent matrices (Merity et al. 2018)
    residual          each layer above the first adds its input to its output
    skip              the input reaches every layer, and every layer reaches the output (Graves 2013)
    input_depth       layers of an MLP between input and hidden
    transition_depth  layers of an MLP between hidden and hidden, in each recurrent layer
    output_depth      layers of an MLP between hidden and output (Deep Learning, section 10.5, for all three)
    initial           where sequences start: zero, random:σ (drawn while training, zero otherwise), or learned
    init              how weights start; see recur.layers.init, for forget_bias too
    bptt, backend     as in scan

    Weights carry torch's names, `weight_ih_l0`, `weight_hh_l0_reverse`, so that state dicts can be exchanged.
    """

    def __init__(
        self,
        cell: str | Cell | type[Cell],
        input_size: int,
        hidden_size: int,
        *,
        layers: int = 1,
        bidirectional: bool = False,
        merge: str = "concat",
        bias: bool = True,
        dropout: float = 0.0,
        variational: bool = True,
        recurrent_dropout: float = 0.0,
        weight_drop: float = 0.0,
        residual: bool = False,
        skip: bool = False,
        input_depth: int = 0,
        transition_depth: int = 0,
        output_depth: int = 0,
        initial: str = "zero",
        init: str = "torch",
        forget_bias: float | None = None,
        bptt: str | BPTT = "full",
        backend: str = "auto",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        input_size, hidden_size = whole("input_size", input_size, 1), whole("hidden_size", hidden_size, 1)
        layers = whole("layers", layers, 1)
        input_depth, output_depth = whole("input_depth", input_depth, 0), whole("output_depth", output_depth, 0)
        transition_depth = whole("transition_depth", transition_depth, 0)
        drops = {"dropout": dropout, "recurrent_dropout": recurrent_dropout, "weight_drop": weight_drop}
        for name, p in drops.items():
            if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
                raise OptionError(f"{name} must lie in 0 … 1, got {p!r}")
        if not isinstance(merge, str) or merge not in MERGES:
            raise OptionError(unknown("merge", merge, MERGES))
        if dropout and layers == 1:
            warnings.warn("dropout acts between layers, and there is one layer", stacklevel=2)
        check_backend(backend)

        self.cell = check_cell(make_cell(cell))
        if transition_depth:
            self.cell = DeepTransition(self.cell, transition_depth)
        who = type(self.cell).__name__
        if (recurrent_dropout or weight_drop) and not self.cell.recurrent_gates:
            raise OptionError(f"{who} has no product with U for recurrent_dropout or weight_drop to act on")
        if recurrent_dropout and self.cell.own_products:
            raise OptionError(f"{who} multiplies its state inside the step too, where recurrent_dropout does not reach")
        check_init(self.cell, init, forget_bias, bias)
        self.input_size, self.hidden_size, self.layers = input_size, hidden_size, layers
        self.bidirectional, self.merge, self.bias = bidirectional, merge, bias
        self.dropout, self.variational = float(dropout), variational
        self.recurrent_dropout, self.weight_drop = float(recurrent_dropout), float(weight_drop)
        self.residual, self.skip = residual, skip
        self.initial, self._initial_scale = parse_initial(initial)
        self.init, self.forget_bias = init, forget_bias
        self.bptt, self.backend = BPTT.parse(bptt), backend

        self._names = tuple(self.cell.shapes(1, 1, bias))
        where = {"device": device, "dtype": dtype}
        width = hidden_size * (2 if bidirectional and merge == "concat" else 1)
        self.output_size = width * layers if skip else width
        bottom = hidden_size if input_depth else input_size
        self.input_mlp = _mlp(input_size, hidden_size, input_depth, where)
        self.output_mlp = _mlp(self.output_size, self.output_size, output_depth, where)
        for layer in range(layers):
            below = bottom if not layer else width + (bottom if skip else 0)
            for suffix in self._directions(layer):
                shapes = self.cell.shapes(below, hidden_size, bias)
                if self.initial == "learned":
                    shapes |= {f"{state}0": (hidden_size,) for state in self.cell.states}
                for name, shape in shapes.items():
                    self.register_parameter(name + suffix, nn.Parameter(torch.empty(shape, **where)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights of the cells anew."""
        for suffix in self.suffixes():
            initialise(self.cell, self.weights(suffix), self.init, self.forget_bias)
            if self.initial == "learned":
                for start in self._learned(suffix):
                    nn.init.zeros_(start)
        for mlp in (self.input_mlp, self.output_mlp):
            for layer in mlp or ():
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)
                    nn.init.zeros_(layer.bias)

    # Names ----------------------------------------------------------------------------------------------

    def _directions(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def suffixes(self) -> Iterator[str]:
        """What the names of weights end in, layer by layer, forward before backward."""
        for layer in range(self.layers):
            yield from self._directions(layer)

    def weights(self, suffix: str = "_l0") -> dict[str, Tensor]:
        """One cell's weights, as scan takes them; suffix as in torch's names, such as `_l1_reverse`."""
        return {name: getattr(self, name + suffix) for name in self._names}

    def _learned(self, suffix: str) -> tuple[Tensor, ...]:
        return tuple(getattr(self, f"{state}0{suffix}") for state in self.cell.states)

    # The pass -------------------------------------------------------------------------------------------

    def forward(
        self,
        x: Tensor,
        state: Sequence[Any] | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
        trace: bool = False,
    ) -> Recurred:
        """Outputs (B, T, output_size), the state of each layer and direction, and their traces.

        `state` is what an earlier call returned; `lengths`, `reset` and `trace` are as in scan.
        """
        suffixes = list(self.suffixes())
        if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != self.input_size:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            hint = "; add a time axis with x[:, None]" if isinstance(x, Tensor) and x.dim() == 2 else ""
            raise ShapeError(f"{type(self.cell).__name__}: x must be (B, T, D={self.input_size}), got {got}{hint}")
        if state is not None and (not isinstance(state, tuple | list) or len(state) != len(suffixes)):
            expected = f"a tuple with one entry for each of {len(suffixes)} layers and directions"
            came = len(state) if isinstance(state, tuple | list) else type(state).__name__
            raise ShapeError(f"{type(self.cell).__name__}: state must be {expected}, got {came}")
        states = dict(zip(suffixes, state, strict=True)) if state is not None else {}
        behind = None  # which steps lie behind a row's length
        if lengths is not None and (self.input_mlp or self.output_mlp):
            ends = torch.as_tensor(lengths, device=x.device)
            behind = (torch.arange(x.shape[1], device=x.device) >= ends[:, None])[..., None]
        bottom = self._through(self.input_mlp, x, behind)
        finals, traces, every = [], [], []
        below = bottom
        for layer in range(self.layers):
            inputs = below
            if layer:
                inputs = drop_steps(inputs, self.dropout, training=self.training, variational=self.variational)
                if self.skip:
                    inputs = torch.cat([inputs, bottom], dim=-1)
            halves = []
            for suffix in self._directions(layer):
                out, final, seen = scan(
                    self.cell,
                    self._dropped(self.weights(suffix)),
                    inputs,
                    states.get(suffix),
                    initial=self._initial_state(suffix, inputs),
                    lengths=lengths,
                    reset=reset,
                    reverse=suffix.endswith("_reverse"),
                    mask=self._mask(inputs),
                    bptt=self.bptt,
                    trace=trace,
                    backend=self.backend,
                )
                halves.append(out)
                finals.append(final)
                traces.append(seen)
            out = MERGES[self.merge](*halves) if self.bidirectional else halves[0]
            below = out + below if self.residual and layer else out
            every.append(below)
        outputs = torch.cat(every, dim=-1) if self.skip else below
        outputs = self._through(self.output_mlp, outputs, behind)
        return Recurred(outputs, tuple(finals), tuple(traces))

    def step(self, x: Tensor, state: Sequence[Any] | None = None) -> tuple[Tensor, tuple[Any, ...]]:
        """One step for use, not for training: (B, D) in, (B, output_size) and the state out."""
        return one_step(self, x, state)

    def stream(self, rows: int = 1, state: Sequence[Any] | None = None) -> Stream:
        """The network as a stream for `rows` sequences side by side, which keeps its state between steps."""
        return Stream(self, rows, state)

    @staticmethod
    def _through(mlp: nn.Sequential | None, x: Tensor, behind: Tensor | None) -> Tensor:
        """An MLP, if there is one; what lies behind a length neither enters it nor comes out."""
        if mlp is None:
            return x
        if behind is None:
            return mlp(x)  # type: ignore[no-any-return]
        return mlp(x.masked_fill(behind, 0)).masked_fill(behind, 0)  # type: ignore[no-any-return]

    def _initial_state(self, suffix: str, like: Tensor) -> tuple[Tensor, ...] | None:
        if self.initial == "learned":
            return self._learned(suffix)
        if self.initial == "random" and self.training:
            shape = (like.shape[0], self.hidden_size)
            return tuple(like.new_empty(shape).normal_(std=self._initial_scale) for _ in self.cell.states)
        return None

    def _dropped(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.weight_drop and self.training:
            for name in self.cell.recurrent_matrices:
                weights[name] = drop(weights[name], self.weight_drop)
        return weights

    def _mask(self, like: Tensor) -> Tensor | None:
        if not (self.recurrent_dropout and self.training):
            return None
        return drop(like.new_ones(like.shape[0], self.hidden_size), self.recurrent_dropout)

    def extra_repr(self) -> str:
        said = [f"{self.cell!r}", f"{self.input_size}", f"{self.hidden_size}"]
        said += [f"layers={self.layers}"] * (self.layers > 1)
        said += [f"bidirectional, merge={self.merge}"] * self.bidirectional
        return ", ".join(said)


def _mlp(width: int, out: int, depth: int, where: dict[str, Any]) -> nn.Sequential | None:
    if not depth:
        return None
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, out, **where), nn.Tanh()]
        width = out
    return nn.Sequential(*layers)
