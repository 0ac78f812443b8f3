"""The contract of a cell: the equations of one step, and nothing else.

A cell names its gates and its states and writes one step over them:

    x.g   input projection of gate g,       U_g x_t + b_g          one matmul for the whole sequence
    x.dt  an argument of each step, if the cell declares `inputs`; x.raw is x_t itself; x.eps noise, with `noise`
    h.g   recurrent projection of gate g,   W_g h_{t−1} + b_hg     the only matmul inside the loop
    s.c   the previous state c
    w.p   an extra weight of the cell, if it declares `extras`

U is weight_ih and W is weight_hh of torch.nn. `step` returns the next states in the order of `states`. W multiplies the
first state, which is also the output unless `outputs` names others. A step is *pointwise* if unit k of the result
depends only on unit k of the arguments. A pointwise cell runs on every backend. Any other step in PyTorch is a cell
too: with `pointwise = False` it runs on the loop.

A cell with options is a dataclass: `@dataclass class Elman(Cell): activation: str = "tanh"`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import linear

from recur.cells._cache import is_checked, mark_checked
from recur.cells.contract import GATE_WEIGHTS as GATE_WEIGHTS
from recur.cells.contract import check_attribute, check_class, check_names, noise_mean
from recur.cells.tensors import NoSuchNameError, named_tuple
from recur.cells.tensors import Tensors as Tensors
from recur.errors import CellError, ShapeError

Weights = Mapping[str, Tensor]
State = tuple[Tensor, ...]
"""A cell's states, (B, H) each, in the order of `Cell.states`. As `Tensors` they have their names too."""


class Cell:
    """One recurrence. Subclass it, name `gates` and `states`, write `step`.

    >>> class Half(recur.Cell):
    ...     gates = ("h",)
    ...     def step(self, x, h, s):
    ...         return (0.5 * s.h + 0.5 * torch.tanh(x.h + h.h),)
    >>> recur.Recurrent(Half(), 3, 8)(torch.randn(2, 5, 3)).outputs.shape
    torch.Size([2, 5, 8])
    """

    name: ClassVar[str] = ""
    """The name in the registry and on the command line; empty for a cell that is not registered."""

    gates: tuple[str, ...] = ()
    """The blocks of U, in torch's order. Weight shapes, initialisation and labels follow from them."""

    state_gates: tuple[str, ...] | None = None
    """The blocks of W, all gates by default. `()` is a cell without a recurrent projection."""

    states: tuple[str, ...] = ("h",)
    """The names of the carried states; the first is the output, and W multiplies it in the next step."""

    outputs: tuple[str, ...] = ()
    """The states that form the output, concatenated; the first state by default."""

    initial: Mapping[str, float] = {}
    """States with a fixed initial value, for example `{"m": -inf}`; they are never random, learned or conditioned."""

    heads: int = 1
    """The number of diagonal blocks of W: each multiplies H/heads units and has (H/heads)² weights per gate."""

    extras: Mapping[str, tuple[str | int, ...]] = {}
    """Extra weights by name and shape: `("H",)` is a vector over units, `("H", "H")` a matrix (not pointwise)."""

    pointwise: bool = True
    """Whether unit k of the result of the step depends only on unit k of its arguments."""

    forget_gate: str | None = None
    """The gate that keeps the old state when it is near 1: a forget bias is added to it."""

    input_gate: str | None = None
    """The gate that lets new values in when it is near 1: in addition to a forget gate, or instead of one in a cell
    that keeps its state by 1 minus this gate."""

    inputs: ClassVar[Mapping[str, int | str]] = {}
    """Arguments of each step by name and size, not multiplied by U: `{"dt": 1}` is x.dt in the step and dt=… in a call.
    One number is the same for all units; "H" is one for each unit. `{"raw": "D"}` is the input x_t itself, x.raw, which
    a step may multiply by an extra weight; it is not given in a call."""

    noise: Mapping[str, str] = {}
    """Random numbers of each step and unit by name and distribution: `{"eps": "normal"}`, `uniform` (0 … 1) or
    `bernoulli:p`. They depend on the seed, the row, the step and the unit only; without a seed (evaluation) they are
    their mean. x.training is 1 with a seed, else 0."""

    exact_gradient: bool = True
    """Whether the derivative of a step is that of its values: not with spike, custom or detach."""

    own_products: bool = False
    """Whether the step multiplies a state by an extra matrix, to which a mask on the recurrent state does not apply."""

    sizes: ClassVar[tuple[str, ...]] = ("H", "D")
    """The names of sizes that the shapes of `extras` may use."""

    step: Callable[..., Any]
    """`step(self, x, h, s)`, or `step(self, x, h, s, w)` for a cell with extras."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_class(cls)

    def __setattr__(self, name: str, value: object) -> None:
        check_attribute(self, name, value)
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # mypy would take every attribute to exist

        def __getattr__(self, name: str) -> object:
            if name == "training":
                who = type(self).__name__
                raise NoSuchNameError(f"{who} has no `training`: a cell is the same in training and inference")
            found = getattr(super(), "__getattr__", None)  # of nn.Module, for a cell that is one too
            if found is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            return found(name)

    def __repr__(self) -> str:  # a dataclass writes its own, with the options
        return f"{type(self).__name__}()"

    # Methods that a cell may override --------------------------------------------------------------------

    def multiplied(self, x: Tensors, s: Tensors, w: Tensors) -> Tensor:
        """Return what W multiplies, (…, H): the previous first state. A deep transition applies its layers here."""
        return s[0]

    def multiplied_input(self, x: Tensors, s: Tensors, w: Tensors) -> Tensor:
        """Return the factor of U, (…, D): by default x_t itself, in one product for the whole sequence.

        A cell that overrides this declares `inputs = {"raw": "D"}`, and U is multiplied inside the loop. x has the
        inputs of the step only, such as x.raw.
        """
        return x.raw

    def init_extras(self, weights: Weights) -> None:
        """Initialise the extra weights in place: uniform in ±1/√H by default, as torch does.

        weights: all weights, those of the gates already initialised. A cell may also change these, for example if its
        paper starts the bias of a gate elsewhere.
        """
        for name in self.extras:
            bound = weights[name].shape[-1] ** -0.5
            torch.nn.init.uniform_(weights[name], -bound, bound)

    @property
    def call_inputs(self) -> Mapping[str, int | str]:
        """The arguments of each step, by name and size."""
        return self.inputs

    @property
    def step_inputs(self) -> tuple[str, ...]:
        """The names of what a step reads as x besides its gates."""
        return (*self.call_inputs, *self.noise, *(("training",) if self.noise else ()))

    # Interface for backends and layers -------------------------------------------------------------------

    @property
    def recurrent_gates(self) -> tuple[str, ...]:
        return self.gates if self.state_gates is None else self.state_gates

    @property
    def output_states(self) -> tuple[int, ...]:
        """The indices of the states that form the output."""
        return tuple(self.states.index(name) for name in self.outputs) if self.outputs else (0,)

    @property
    def arguments(self) -> str:
        """The arguments of `step`, as its author writes them."""
        return "x, h, s, w" if self.extras else "x, h, s"

    def units(self, rows: int) -> int:
        """Return H for weight_ih with this number of rows."""
        H, rest = divmod(rows, len(self.gates))
        if rest or not H:
            raise ShapeError(
                f"{type(self).__name__}: weight_ih must have H rows for each of {len(self.gates)} gates, got {rows}"
            )
        return H

    def split(self, share: Tensor) -> Sequence[Tensor]:
        """Split the input projection of all gates, as `step` reads it."""
        return share.chunk(len(self.gates), dim=-1)

    def blocks(self, rows: Tensor) -> Sequence[Tensor]:
        """Split the rows of weight_ih or bias_ih by gate."""
        return rows.chunk(len(self.gates))

    def shapes(self, D: int, H: int, bias: bool = True, projection: int = 0) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of all weights for D inputs and H units, by torch's names without the layer.

        With a projection, weight_hr (projection, H) multiplies the first state of every step before it is returned and
        carried.
        """
        G, R, P = len(self.gates), len(self.recurrent_gates), projection or H
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (G * H, D), "weight_hh": (R * H, P // self.heads)}
        if bias:
            shapes |= {"bias_ih": (G * H,), "bias_hh": (R * H,)}
        if not R:
            shapes = {name: shape for name, shape in shapes.items() if not name.endswith("hh")}
        if projection:
            shapes["weight_hr"] = (projection, H)
        sizes = {"H": H, "D": D}
        return shapes | {
            name: tuple(sizes[size] if isinstance(size, str) else size for size in shape)
            for name, shape in self.extras.items()
        }

    def widths(self, H: int, projection: int = 0) -> tuple[int, ...]:
        """Return the widths of the states."""
        return (projection or H, *[H] * (len(self.states) - 1))

    def output_width(self, H: int, projection: int = 0) -> int:
        return sum(self.widths(H, projection)[k] for k in self.output_states)

    def start(self, like: Tensor, rows: int, widths: Sequence[int]) -> State:
        """Return the default initial states, (rows, width) each: zero, or the values of `initial`."""
        numbers = [self.initial.get(name, 0.0) for name in self.states]
        return tuple(like.new_full((rows, width), number) for number, width in zip(numbers, widths, strict=True))

    def product(self, multiplied: Tensor, weights: Weights) -> Tensor:
        """Return the recurrent projection W m + b_h of all gates, concatenated, (…, R·H)."""
        W, b_h = weights["weight_hh"], weights.get("bias_hh")
        if self.heads == 1:
            return linear(multiplied, W, b_h)
        by_head = multiplied.unflatten(-1, (self.heads, -1))
        blocks = W.unflatten(0, (len(self.recurrent_gates), self.heads, -1))  # (R, heads, H/heads, H/heads)
        product = torch.einsum("...nk,rnuk->...rnu", by_head, blocks).flatten(-3)
        return product if b_h is None else product + b_h

    def dense(self, W: Tensor) -> Tensor:
        """Return W as a dense matrix with zeros outside the blocks of its heads, (R·H, H)."""
        if self.heads == 1:
            return W
        blocks = W.unflatten(0, (len(self.recurrent_gates), self.heads, -1))  # (R, heads, H/heads, H/heads)
        own = torch.eye(self.heads, dtype=torch.bool, device=W.device)[:, None, :, None]
        return torch.where(own, blocks[:, :, :, None], W.new_zeros(())).flatten(3).flatten(0, 2)

    def projected(self, states: Sequence[Tensor], weights: Weights) -> Sequence[Tensor]:
        """Return the carried states: those of a step, the first one multiplied by weight_hr if there is one."""
        if "weight_hr" not in weights:
            return states
        return [linear(states[0], weights["weight_hr"]), *states[1:]]

    def output(self, states: Sequence[Tensor]) -> Tensor:
        """Return the output, (…, H), from the states."""
        which = self.output_states
        return states[which[0]] if len(which) == 1 else torch.cat([states[k] for k in which], dim=-1)

    @property
    def recurrent_matrices(self) -> tuple[str, ...]:
        """The names of the matrices that multiply a state: W, and square extra weights."""
        square = tuple(name for name, shape in self.extras.items() if tuple(shape) == ("H", "H"))
        return ("weight_hh", *square) if self.recurrent_gates else square

    @property
    def multiplies_inside(self) -> bool:
        """Whether U is multiplied inside the loop."""
        return type(self).multiplied_input is not Cell.multiplied_input

    def own_inputs(self, x: Tensor, units: int) -> tuple[Tensor, ...]:
        """Return what a step reads besides its gates where a call gives nothing else, for inputs x (…, D).

        x.raw is x itself, other inputs are 1, noise is its mean.
        """
        shape = (*x.shape[:-1], units)
        found = [x if name == "raw" else x.new_ones(shape) for name in self.call_inputs]
        found += [x.new_full(shape, noise_mean(spec)) for spec in self.noise.values()]
        return (*found, x.new_zeros(shape)) if self.noise else tuple(found)

    def step_arguments(
        self, x: Tensor, s: Tensors, weights: Weights, own: Sequence[Tensor] | None = None
    ) -> tuple[Tensors, Tensors, Tensors, Tensors]:
        """Return the arguments of a step, x, h, s and w, from inputs x (…, D) and states; own as in `own_inputs`."""
        w = self.tuple_of("w")._make(weights[name] for name in self.extras)
        if own is None:
            own = self.own_inputs(x, s[-1].shape[-1]) if self.call_inputs or self.noise else ()
        factor = self.multiplied_input(self.tuple_of("i")._make(own), s, w) if self.multiplies_inside else x
        shares = self.split(linear(factor, weights["weight_ih"], weights.get("bias_ih")))
        of_x, h = self.tuple_of("x")._make((*shares, *own)), self.tuple_of("h")
        if not self.recurrent_gates:
            return of_x, h._make(()), s, w
        product = self.product(self.multiplied(of_x, s, w), weights)
        return of_x, h._make(product.chunk(len(self.recurrent_gates), dim=-1)), s, w

    def advance(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> Sequence[Tensor]:
        """Run one step, with or without extra weights."""
        after: Sequence[Tensor] = self.step(x, h, s, w) if self.extras else self.step(x, h, s)
        return after

    def state(self, parts: Sequence[Tensor]) -> Tensors:
        """Return the states as a named tuple with fields such as `.h` and `.c`."""
        return named_tuple(type(self).__name__, "s", self.states)._make(parts)

    def tuple_of(self, role: str) -> type[Tensors]:
        """Return the named tuple class of one argument of `step`: x, h, s or w."""
        gates = (*self.gates, *self.step_inputs) if self.call_inputs or self.noise else self.gates
        fields = {"x": gates, "h": self.recurrent_gates, "s": self.states, "w": tuple(self.extras)}
        if role == "i":  # what a step reads as x besides its gates
            return named_tuple(type(self).__name__, role, self.step_inputs)
        return named_tuple(type(self).__name__, role, fields[role])


def check_cell(cell: object) -> Cell:
    """Raise if an object is not a complete cell; called before a scan and when a layer is created."""
    if not isinstance(cell, Cell):
        raise CellError(f"a scan carries a Cell, got {cell!r}; make one with make_cell('lstm')")
    if is_checked(id(cell)):  # once is enough: the check takes longer than a scan of a few steps
        return cell
    who = type(cell).__name__
    arguments = cell.arguments
    step = getattr(cell, "step", None)
    if not callable(step):
        raise CellError(f"{who} has no step; write step(self, {arguments}) -> ({', '.join(cell.states)},)")
    if not cell.gates:
        raise CellError(f"{who}.gates is empty; a step sees its input through at least one gate")
    check_names(cell)
    if cell.recurrent_gates and 0 not in cell.output_states:
        raise CellError(f"{who}.outputs must hold {cell.states[0]}, which W multiplies")
    if not isinstance(cell.heads, int) or cell.heads < 1:
        raise CellError(f"{who}.heads must be a whole number ≥ 1, got {cell.heads!r}")
    try:
        inspect.signature(step).bind(*arguments.split(", "))
    except TypeError:
        has = "extras" if cell.extras else "no extras"
        raise CellError(f"{who} has {has}, so its step takes (self, {arguments})") from None
    if cell.multiplies_inside and cell.call_inputs.get("raw") != "D":
        raise CellError(f"{who}.multiplied_input is multiplied by U inside the loop; declare inputs = {{'raw': 'D'}}")
    for role in "xhswi":
        cell.tuple_of(role)  # made now: torch.compile could not
    mark_checked(cell)
    return cell


def check_projection(cell: Cell) -> None:
    """Raise if a cell cannot be projected: its step reads the first state other than through W h."""
    if is_checked(id(cell), projectable=True):
        return
    H, P = 3, 2
    shapes = cell.shapes(1, H, projection=P)
    w = cell.tuple_of("w")._make(torch.empty(shapes[name], device="meta") for name in cell.extras)
    x = cell.tuple_of("x")._make(torch.empty(1, H, device="meta") for _ in (*cell.gates, *cell.step_inputs))
    h = cell.tuple_of("h")._make(torch.empty(1, H, device="meta") for _ in cell.recurrent_gates)
    s = cell.state([torch.empty(1, width, device="meta") for width in cell.widths(H, P)])
    own = cell.outputs or cell.call_inputs or cell.noise
    plain = cell.recurrent_gates and not own and cell.heads == 1 and type(cell).multiplied is Cell.multiplied
    try:
        fits = plain and all(part.shape == (1, H) for part in cell.advance(x, h, s, w))
    except (RuntimeError, ValueError):
        fits = False
    if not fits:
        raise CellError(f"{type(cell).__name__} cannot be projected: its step needs its output itself, not only W h")
    mark_checked(cell, projectable=True)
