"""`Recurrent`: a cell applied along sequences, in layers and directions, with dropout, residual and skip connections.

Weights carry the names of torch.nn (`weight_ih_l0`, `weight_hh_l0_reverse`, …), so that state dicts are exchangeable.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import torch
from torch import Tensor, nn
from torch.types import Device

from recur.cells import Cell, CellLike, DeepTransition, State, Tensors, make_cell
from recur.cells.cell import check_cell, check_projection
from recur.compiler.programs import find_programs
from recur.errors import BackendError, OptionError, ShapeError
from recur.nn.functional import (
    apply_mlp,
    check_init,
    check_weights_fit,
    fast_dropout,
    initialise,
    make_between_mlps,
    make_mlp,
    padding_mask,
    reset_mlp,
    sequence_dropout,
)
from recur.nn.options import Connections, Depth, Dropout, Init, check_direction, check_integer
from recur.nn.streaming import LayerStates, Stream, initial_state, one_step, restart
from recur.ops import GivenState, ScanOutput, check_backend, scan, scan_both
from recur.ops.bptt import BPTT
from recur.ops.call import check_dense
from recur.ops.trace import Trace, register_result

NetworkState = tuple[Tensors, ...]
"""States of the cells of a network: one entry per layer and direction, forward before backward."""


class RecurrentOutput(NamedTuple):
    """Result of a recurrent network. State and trace have one entry per layer and direction, forward before backward.

    >>> outputs, state, trace = recur.Recurrent("lstm", 3, 4, num_layers=2)(torch.randn(2, 5, 3))
    >>> outputs.shape, len(state), trace[0].backend
    (torch.Size([2, 5, 4]), 2, 'native')
    """

    outputs: Tensor
    state: NetworkState
    trace: tuple[Trace, ...]


register_result(RecurrentOutput)


def check_dropout(net: Recurrent) -> None:
    who, drops = type(net.cell).__name__, net.dropout
    if drops.layers and net.num_layers == 1:
        warnings.warn("dropout acts between layers, and there is one layer", stacklevel=4)
    if (drops.state or drops.weights) and not net.cell.recurrent_gates:
        raise OptionError(f"{who} has no product with W for dropout of its state or weights to act on")
    if drops.state and net.cell.own_products:
        raise OptionError(f"{who} multiplies its state inside the step too, where dropout of the state cannot act")


def check_call(net: Recurrent, x: Tensor, state: Sequence[GivenState] | None) -> None:
    who, n = type(net.cell).__name__, len(net._names)
    if not isinstance(x, Tensor) or x.is_nested or x.dim() != 3 or x.shape[-1] != net.input_size:
        got: object = tuple(check_dense(net.cell, "x", x).shape) if isinstance(x, Tensor) else type(x).__name__
        hint = "; add a time axis with x[:, None]" if isinstance(x, Tensor) and x.dim() == 2 else ""
        raise ShapeError(f"{who}: x must be (B, T, D={net.input_size}), got {got}{hint}")
    if state is not None and (not isinstance(state, tuple | list) or len(state) != n):
        got = len(state) if isinstance(state, tuple | list) else type(state).__name__
        each = f"a tuple with one entry for each of {n} layers and directions"
        raise ShapeError(f"{who}: state must be {each}, got {got}")


def check_required(cell: Cell, require: str, bias: bool) -> str:
    """Raise if a network must be compiled and its cell cannot be."""
    if require not in ("", "compiled"):
        raise OptionError(f"require must be 'compiled', or nothing; got {require!r}")
    found = find_programs(cell, bias) if require else ()
    if isinstance(found, str):
        raise BackendError(f"require='compiled', and {type(cell).__name__} cannot be compiled: {found}")
    return require


def check_compiled(cell: Cell, traces: Sequence[Trace]) -> None:
    """Raise if a call of a network that must be compiled has run on the loop."""
    for trace in traces:
        if trace.backend == "loop":
            reason = next(iter(trace.passed_over.values()), "backend='loop'")
            raise BackendError(f"require='compiled', and {type(cell).__name__} ran on the loop: {reason}")


def check_forward(net: Recurrent) -> None:
    if net.direction != "forward":
        raise OptionError(f"one step at a time needs direction='forward', this network has {net.direction!r}")


MERGE_FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "concat": lambda forward, backward: torch.cat([forward, backward], dim=-1),
    "sum": torch.add,
    "mean": lambda forward, backward: (forward + backward) / 2,
    "product": torch.mul,
}
DIRECTION_SUFFIXES = {"forward": ("",), "backward": ("_reverse",), "both": ("", "_reverse")}
"""Endings of weight names for each direction, as torch.nn has them."""


def scan_both_directions(
    net: Recurrent, layer: int, x: Tensor, states: Mapping[str, GivenState]
) -> list[ScanOutput] | None:
    """Run both directions of a layer in one launch. Return None if the call does not allow it.

    States start at those given, or at zero.
    """
    if net.direction != "both" or (net.init.state != "zero" and (net.init.learned or net.training)):
        return None
    first, second = (f"_l{layer}{suffix}" for suffix in DIRECTION_SUFFIXES["both"])
    weights, given = (net.weights(first), net.weights(second)), (states.get(first), states.get(second))
    return scan_both(net.cell, weights, x, given, net.bptt, net.backend)


def restore_network(attributes: dict[str, Any]) -> Recurrent:
    """Return a network from its pickled attributes."""
    net = Recurrent.__new__(Recurrent)
    net.__setstate__(attributes)
    return net


class Recurrent(nn.Module):
    """Recurrent network: a cell applied along sequences (B, T, D), in one or several layers.

    cell           a Cell, its name, or file.py:Class
    num_layers     number of layers; each reads the outputs of the layer below
    top            number of units of the last layer; 0 for hidden_size
    direction      forward, backward (from the end of each sequence) or both
    projection     size to which weight_hr projects the output, which W multiplies (Sak et al. 2014); 0 for none
    dropout        probability between layers, or Dropout(…)
    connections    merging of directions, residual and skip connections: Connections(…)
    depth          MLPs before, inside, between and after recurrent layers: Depth(…)
    init           initialisation scheme of the weights, or Init(…), which also sets the initial state
    bptt, backend  as in scan; the attribute `matmul_dtype` can be set later
    require        "compiled" refuses a cell or a call that would run on the loop

    The dataclasses are in recur.nn.options. Weights carry torch's names, `weight_ih_l0`, `weight_hh_l0_reverse`, so
    that state dicts are exchangeable.

    >>> net = recur.Recurrent("gru", 3, 4, num_layers=2, direction="both")
    >>> net(torch.randn(2, 5, 3), lengths=[5, 3]).outputs.shape
    torch.Size([2, 5, 8])
    """

    require: str = ""
    if TYPE_CHECKING:
        __call__: Callable[..., RecurrentOutput]

    def __init__(
        self,
        cell: CellLike,
        input_size: int,
        hidden_size: int,
        *,
        num_layers: int = 1,
        direction: str = "forward",
        bias: bool = True,
        projection: int = 0,
        top: int = 0,
        dropout: float | Dropout = 0.0,
        connections: Connections = Connections(),  # noqa: B008  # frozen
        depth: Depth = Depth(),  # noqa: B008  # frozen
        init: str | Init = "torch",
        bptt: str | BPTT = "full",
        backend: str = "auto",
        require: str = "",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size, 1)
        self.hidden_size = check_integer("hidden_size", hidden_size, 1)
        self.num_layers, self.direction, self.bias = (
            check_integer("num_layers", num_layers, 1),
            check_direction(direction),
            bias,
        )
        self.dropout, self.connections, self.depth, self.init = Dropout.of(dropout), connections, depth, Init.of(init)
        for name, given, kind in (("connections", connections, Connections), ("depth", depth, Depth)):
            if not isinstance(given, kind):
                raise OptionError(f"{name} must be a {kind.__name__}(…) of recur.nn, got {given!r}")
        self.bptt, self.backend, self.matmul_dtype = BPTT.parse(bptt), backend, ""
        check_backend(backend)
        self.cell = check_cell(make_cell(cell))
        self.projection = check_integer("projection", projection, 0)
        if projection:
            check_projection(self.cell)
        self.top = check_integer("top", top, 0)
        for units in (self.hidden_size, self.top):
            if units % self.cell.heads:
                raise OptionError(f"hidden_size {units} cannot be divided into {self.cell.heads} heads")
        if self.top and connections.residual and self.num_layers > 1:
            raise OptionError("residual connections need layers of equal width; do not set top")
        if depth.transition:
            self.cell = DeepTransition(self.cell, depth.transition)
        check_init(self.cell, self.init, bias)
        check_dropout(self)
        self.require = check_required(self.cell, require, bias)
        H, bottom = self.hidden_size, self.hidden_size if depth.input else self.input_size
        check_weights_fit(self.cell.shapes(bottom, H, bias, self.projection), self.num_layers, device, dtype)
        self._names = self._weight_names()
        self.state_widths = self.cell.widths(H, self.projection)
        both = direction == "both" and connections.merge == "concat"
        widths = [
            self.cell.output_width(self.units(layer), self.projection) * (2 if both else 1)
            for layer in range(self.num_layers)
        ]
        self.output_size = sum(widths) if connections.skip else widths[-1]
        self.input_mlp = make_mlp(self.input_size, H, depth.input, device, dtype)
        self.output_mlp = make_mlp(self.output_size, self.output_size, depth.output, device, dtype)
        self.between_mlps = make_between_mlps(widths, depth.between, device, dtype)
        for layer in range(self.num_layers):
            below = bottom if not layer else widths[layer - 1] + (bottom if connections.skip else 0)
            for suffix in self._directions(layer):
                shapes = self.cell.shapes(below, self.units(layer), bias, self.projection)
                if self.init.learned:
                    shapes |= {f"{state}0": (width,) for state, width in self._learned_states(layer)}
                for name, shape in shapes.items():
                    self.register_parameter(name + suffix, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # By its attributes, not by its class: whoever may call the class with arguments of a file, as torch.load may
        # with what it trusts, could have a cell's own file executed.
        return (restore_network, (vars(self).copy(),)) if type(self) is Recurrent else super().__reduce_ex__(protocol)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a network, including one saved before projections and reduced-precision products existed."""
        super().__setstate__(state)
        vars(self).setdefault("projection", 0)
        vars(self).setdefault("matmul_dtype", "")
        vars(self).setdefault("top", 0)
        if "between_mlps" not in self._modules:
            vars(self).setdefault("between_mlps", None)
        vars(self).setdefault("state_widths", self.cell.widths(self.hidden_size, self.projection))
        self._names = self._weight_names()

    def reset_parameters(self) -> None:
        """Initialise all weights again."""
        for suffix in self.suffixes():
            initialise(self.cell, self.weights(suffix), self.init.scheme, self.init.forget_bias, self.init.chrono)
            if self.init.learned:
                for state, _ in self._learned_states():
                    nn.init.zeros_(getattr(self, f"{state}0{suffix}"))
        reset_mlp(self.input_mlp)
        reset_mlp(self.output_mlp)
        reset_mlp(self.between_mlps)

    # Sizes and names ----------------------------------------------------------------------------------------------

    def units(self, layer: int) -> int:
        """Return the number of units of a layer."""
        return self.top or self.hidden_size if layer == self.num_layers - 1 else self.hidden_size

    def widths_of(self, layer: int) -> tuple[int, ...]:
        """Return the widths of the states of a layer."""
        return self.cell.widths(self.units(layer), self.projection) if self.top else self.state_widths

    def _directions(self, layer: int) -> list[str]:
        return [f"_l{layer}{suffix}" for suffix in DIRECTION_SUFFIXES[self.direction]]

    def suffixes(self) -> Iterator[str]:
        """Return the endings of weight names, layer by layer, forward before backward."""
        return (suffix for layer in range(self.num_layers) for suffix in self._directions(layer))

    def _weight_names(self) -> dict[str, list[tuple[str, str]]]:
        """Return, for every suffix, pairs of the name that scan uses and the name of the parameter."""
        names = self.cell.shapes(1, self.hidden_size, self.bias, self.projection)
        return {suffix: [(name, name + suffix) for name in names] for suffix in self.suffixes()}

    def weights(self, suffix: str = "_l0") -> dict[str, Tensor]:
        """Return the weights of one cell under the names that scan uses; suffix as in torch's names (`_l1_reverse`)."""
        own = self._parameters  # where nearly all are; nn.Module looks there last
        weights: dict[str, Tensor] = {}
        for name, here in self._names[suffix]:
            found = own.get(here)
            weights[name] = getattr(self, here) if found is None else found
        return weights

    def _learned_states(self, layer: int = 0) -> Iterator[tuple[str, int]]:
        """Yield the name and width of each state of a layer whose initial value can be learned."""
        for state, width in zip(self.cell.states, self.widths_of(layer), strict=True):
            if state not in self.cell.initial:
                yield state, width

    def with_learned(self, start: State, suffix: str) -> State:
        """Return the initial state of one layer and direction: learned parts from parameters, the rest from `start`."""
        learned = {state: getattr(self, f"{state}0{suffix}") for state, _ in self._learned_states()}
        named = zip(self.cell.states, start, strict=True)
        return tuple(learned[state].expand_as(part) if state in learned else part for state, part in named)

    # The pass -------------------------------------------------------------------------------------------

    def forward(
        self,
        x: Tensor,
        state: Sequence[GivenState] | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
        trace: bool = False,
        seed: int | None = None,
        first_step: int = 0,
        **inputs: Tensor,
    ) -> RecurrentOutput:
        """Return outputs (B, T, output_size), the final state and the trace of each layer and direction.

        state   state that an earlier call returned; zeros or the learned initial state if not given
        lengths, reset, trace   as in scan
        seed    in training, of the noise of a cell that has some; by default drawn from PyTorch's generator
        first_step   number of steps before this call, on which noise depends
        inputs  arguments of each step of a cell that declares `inputs`, by name: (B, T) or (B, T, H)
        """
        return self.run_layers(
            x, state, lengths=lengths, reset=reset, trace=trace, seed=seed, first_step=first_step, inputs=inputs
        )

    def run_layers(
        self,
        x: Tensor,
        state: Sequence[GivenState] | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
        trace: bool = False,
        seed: int | None = None,
        first_step: int = 0,
        inputs: Mapping[str, Tensor] | None = None,
    ) -> RecurrentOutput:
        """Compute `forward`. The layers of `recur.nn.drop_in`, whose forward has other arguments, call it too."""
        check_call(self, x, state)
        states = dict(zip(self.suffixes(), state, strict=True)) if state is not None else {}
        deepened = self.input_mlp or self.output_mlp or self.between_mlps
        padding = padding_mask(x, lengths) if lengths is not None and deepened else None
        below = bottom = apply_mlp(self.input_mlp, x, padding)
        drops = self.training and self._drops_state
        plain = lengths is None and reset is None and not (drops or trace or self.matmul_dtype or inputs)
        seeds = self._seeds(seed)
        scanned: list[ScanOutput] = []
        every = []
        for layer in range(self.num_layers):
            layer_input = self._between(below, bottom, lengths) if layer else below
            here = (plain and scan_both_directions(self, layer, layer_input, states)) or [
                scan(
                    self.cell,
                    self._dropped(self.weights(suffix)) if drops else self.weights(suffix),
                    layer_input,
                    states.get(suffix),
                    initial=self._initial_state(layer, suffix, layer_input),
                    lengths=lengths,
                    reset=reset,
                    reverse=suffix.endswith("_reverse"),
                    mask=self._mask(layer, layer_input) if drops else None,
                    bptt=self.bptt,
                    trace=trace,
                    backend=self.backend,
                    matmul_dtype=self.matmul_dtype,
                    inputs=inputs or None,
                    seed=seeds.get(suffix),
                    first_step=first_step,
                )
                for suffix in self._directions(layer)
            ]
            scanned += here
            outputs = here[0].outputs
            if self.direction == "both":
                outputs = MERGE_FUNCTIONS[self.connections.merge](outputs, here[1].outputs)
            outputs = apply_mlp(self.between(layer), outputs, padding)
            below = outputs + below if self.connections.residual and layer else outputs
            every.append(below)
        if self.require:
            check_compiled(self.cell, [one.trace for one in scanned])
        outputs = torch.cat(every, dim=-1) if self.connections.skip else below
        outputs = apply_mlp(self.output_mlp, outputs, padding)
        return RecurrentOutput(outputs, tuple(one.state for one in scanned), tuple(one.trace for one in scanned))

    def _seeds(self, seed: int | None) -> dict[str, Tensor]:
        """Return the seed of the noise of each layer and direction; none in evaluation or without noise."""
        if not self.cell.noise or not self.training:
            return {}
        suffixes = list(self.suffixes())
        if seed is None:
            return dict(zip(suffixes, torch.randint(1 << 62, (len(suffixes),)), strict=True))
        return {suffix: torch.tensor(seed + (k << 40)) for k, suffix in enumerate(suffixes)}

    def starting_state(self, x: Tensor) -> NetworkState:
        """Return the initial state of sequences whose first input is x (B, D), as a call without a state uses it."""
        check_forward(self)
        return tuple(initial_state(self, layer, x) for layer in range(self.num_layers))

    def step(
        self, x: Tensor, state: LayerStates | None = None, *, reset: Tensor | None = None
    ) -> tuple[Tensor, NetworkState]:
        """Compute one step for inference: inputs (B, D) to outputs (B, output_size) and the new state.

        reset   (B,), bool: a new sequence starts in these rows
        """
        check_forward(self)
        return one_step(self, x, state if state is None or reset is None else restart(self, x, state, reset))

    def stream(self, rows: int = 1, state: LayerStates | None = None, matmul_dtype: str | None = None) -> Stream:
        """Return a `Stream` of `rows` sequences that keeps its state; `matmul_dtype` overrides the matmul dtype, see
        scan."""
        check_forward(self)
        return Stream(self, rows, state, matmul_dtype)

    def between(self, layer: int) -> nn.Module | None:
        """Return the MLP after a layer, or None."""
        return None if self.between_mlps is None or layer == self.num_layers - 1 else self.between_mlps[layer]

    @property
    def _drops_state(self) -> bool:
        """Whether training drops states or recurrent weights."""
        return bool(self.dropout.weights or self.dropout.state)

    def _between(self, below: Tensor, bottom: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
        """Return the input of a layer above the first."""
        inputs = sequence_dropout(
            below, self.dropout.layers, training=self.training, variational=self.dropout.variational
        )
        return torch.cat([inputs, bottom], dim=-1) if self.connections.skip else inputs

    def _initial_state(self, layer: int, suffix: str, like: Tensor) -> State | None:
        if self.init.state == "zero" or not (self.init.learned or self.training):
            return None
        start = self.cell.start(like, like.shape[0], self.widths_of(layer))
        if self.init.learned:
            return self.with_learned(start, suffix)
        named = zip(self.cell.states, start, strict=True)
        return tuple(part if state in self.cell.initial else part.normal_(std=self.init.sigma) for state, part in named)

    def _dropped(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.dropout.weights:
            for name in self.cell.recurrent_matrices:
                weights[name] = fast_dropout(weights[name], self.dropout.weights)
        return weights

    def _mask(self, layer: int, like: Tensor) -> Tensor | None:
        p = self.dropout.state
        return fast_dropout(like.new_ones(like.shape[0], self.widths_of(layer)[0]), p) if p else None

    def extra_repr(self) -> str:
        words = [f"{self.cell!r}", f"{self.input_size}", f"{self.hidden_size}"]
        words += [f"projection={self.projection}"] * (self.projection > 0)
        words += [f"num_layers={self.num_layers}"] * (self.num_layers > 1)
        words += [f"top={self.top}"] * (self.top > 0)
        words += [f"direction={self.direction!r}"] * (self.direction != "forward")
        defaults = {"dropout": Dropout(), "connections": Connections(), "depth": Depth(), "init": Init()}
        words += [f"{name}={mine}" for name, usual in defaults.items() if (mine := getattr(self, name)) != usual]
        return ", ".join(words)
