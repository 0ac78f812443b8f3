"""Record of a scan: the backend that ran and, after a backward pass, ∂L/∂s_t of every step and the terms of ∂L/∂W."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recur.cells import Cell, Tensors, cell_names, make_cell
from recur.compat import backward_pass_id, register_namedtuple, register_pytree_node, transforms_active
from recur.errors import OptionError
from recur.ops.packing import Packing


class Trace:
    """The backend that ran and, after a backward pass with trace=True, the gradients of every step.

    ∂L/∂s_t is the full gradient of the state after step t: through its own output, through other states of the same
    step, and through all later steps. The gradient of a matrix is a sum over the steps,

        ∂L/∂W = Σ_t δ_t m_tᵀ        with δ_t the gradient of W m_t, and m_t what W multiplies at step t, h_{t−1}

    Each term, for each sequence, has the norm ‖δ_t‖ ‖m_t‖.

    >>> found = recur.Recurrent("elman", 3, 4)(torch.randn(2, 5, 3), trace=True)
    >>> found.outputs[:, -1].sum().backward()
    >>> found.trace[0].total.shape                      # ‖∂L/∂s_t‖ of every step
    torch.Size([5])
    """

    backend: str = ""
    """The name of the backend that ran."""
    recorded: bool = False
    """Whether a backward pass was itself differentiated (`create_graph=True`), for which the loop replaces the kernel.
    The recorded gradients are then those of that pass; a pass for second derivatives splits its gradient between both.
    """

    describe: Callable[[], str] | None = None
    """Returns a description of the kernels; set by a backend that has a choice."""
    _pass: int | None = None
    _batch: tuple[int, ...] = 0, 0
    _packing: Packing | None = None
    _copies: int = 1
    _turned: bool = False
    _differentiates: bool = False
    _inputs: Tensor | None = None

    def __init__(
        self, cell: Cell | None, x: Tensor, packing: Packing | None, copies: int = 1, turned: bool = False
    ) -> None:
        self.passed_over: dict[str, str] = {}
        """Why `auto` rejected the backends that it tries first, by name."""
        self._cell = cell
        self._states: dict[str, list[Tensor]] = {}
        # The following tensors are (N, …), in packed order.
        self._gradients: dict[str, Tensor] = {}
        self._slopes: dict[str, Tensor] = {}
        self._factors: dict[str, list[Tensor]] = {}
        if cell is not None:
            self._batch, self._packing, self._copies, self._turned = tuple(x.shape[:2]), packing, copies, turned
            self._inputs, self._states = x.detach(), {name: [] for name in cell.states}

    def __repr__(self) -> str:
        words = [f"backend={self.backend!r}"]
        words += [f"not {name}: {reason}" for name, reason in self.passed_over.items()]
        words += ["records gradients" if self._pass is None else "has gradients"] * self.wanted
        return f"Trace({'; '.join(words)})"

    @property
    def kernels(self) -> str:
        """The kernels that the backend used, where it has a choice, and why not others."""
        return "" if self.describe is None else self.describe()

    @property
    def inputs(self) -> Tensor:
        """(B, T, D): the inputs of the cell."""
        if self._inputs is None:
            raise OptionError("inputs were not recorded; call with trace=True")
        return self._inputs[..., : self._rows, :, :]

    @property
    def states(self) -> dict[str, Tensor]:
        """The values of each state after every step, (B, T, H), by name; recorded by backend `loop` only."""
        if not all(self._states.values()) or not self._states:
            raise OptionError("no states were recorded; call with trace=True and backend='loop'")
        return {name: self._joined(parts) for name, parts in self._states.items()}

    @property
    def gradients(self) -> dict[str, Tensor]:
        """∂L/∂s_t of each state, (B, T, H), by name; zero where there is no gradient."""
        return {name: self._summed(found) for name, found in self._recorded(self._gradients).items()}

    @property
    def norms(self) -> dict[str, Tensor]:
        """‖∂L/∂s_t‖ of each state, (B, T), by name; zero where there is no gradient."""
        return {name: torch.linalg.vector_norm(found, dim=-1) for name, found in self.gradients.items()}

    @property
    def total(self) -> Tensor:
        """(T,): the norm of ∂L/∂s_t over the whole batch and all states."""
        return torch.stack(list(self.norms.values())).square().sum(dim=(0, -2)).sqrt()

    @property
    def terms(self) -> dict[str, Tensor]:
        """The norm of every term of the gradients of U (weight_ih) and W (weight_hh), (B, T), by name."""
        found = {}
        for name in self._recorded(self._slopes):
            slope, factor = self._term(name)
            found[name] = (slope.square().sum((-3, -1)) * factor.square().sum(-1)).sum(-1).sqrt()
        return found

    def term_products(self, name: str, together: bool = False) -> Tensor:
        """Return the inner products ⟨G_s, G_t⟩ of all terms G_t = δ_t m_tᵀ of a gradient, (B, T, T), float64.

        Their sums are squared norms of parts of the gradient: ‖Σ_t G_t‖², or ‖G_k + … + G_l‖² for steps k to l.
        together: the rows have equal inputs and different losses; return (1, T, T), for the sum of all losses.
        """
        if name not in self._recorded(self._slopes):
            raise OptionError(f"no terms of {name!r} were recorded; known: {', '.join(self._slopes)}")
        slope, factor = (part.double() for part in self._term(name))
        if together:
            slope, factor = slope.sum(0, keepdim=True), factor[:1]
        slopes = torch.einsum("...srnu,...trnu->...nst", slope, slope)
        return (slopes * torch.einsum("...snk,...tnk->...nst", factor, factor)).sum(-3)

    def dominant(self, name: str = "weight_hh") -> Tensor:
        """Return the step with the largest term of a gradient, for every sequence, (B,)."""
        return self.terms[name].argmax(dim=-1)

    @property
    def cell(self) -> Cell:
        if self._cell is None:
            raise OptionError("no gradients were asked for; call with trace=True")
        return self._cell

    @property
    def _rows(self) -> int:
        """The number of rows of the caller's batch, without copies."""
        return self._batch[0] // self._copies

    def _term(self, name: str) -> tuple[Tensor, Tensor]:
        """Return δ (B, T, R, heads, …) and m (B, T, heads, …) of a matrix."""
        slopes, heads = self._slopes[name], self.cell.heads if name == "weight_hh" else 1
        slope = self._summed(slopes).unflatten(-1, (-1, heads, slopes.shape[-1] // self._blocks(name) // heads))
        return slope, self._joined(self._factors[name]).unflatten(-1, (heads, -1))

    def _blocks(self, name: str) -> int:
        """Return the number of blocks by gate; 1 for U, whose gates may have different widths."""
        return 1 if name == "weight_ih" else len(self.cell.recurrent_gates)

    def _recorded(self, found: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self._cell is None:
            raise OptionError("no gradients were asked for; call with trace=True")
        if self._pass is None:
            raise OptionError("there was no backward pass yet; call .backward() on the loss first")
        return found

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Join values of single steps to (B, T, …); copies of a row have equal values."""
        return self._unpacked(torch.cat(list(parts), dim=-2))[..., : self._rows, :, :]

    def _summed(self, packed: Tensor) -> Tensor:
        """Unpack gradients to (B, T, …), summed over the copies of a row that sliding truncation made."""
        unpacked = self._unpacked(packed)
        return unpacked if self._copies == 1 else unpacked.unflatten(-3, (self._copies, -1)).sum(-4)

    def _unpacked(self, packed: Tensor) -> Tensor:
        """Unpack (N, …) to (B, T, …), after the dimensions that a vmap has added."""
        if packed.dim() > 2:
            unpacked: Tensor = torch.vmap(self._unpacked)(packed)
            return unpacked
        if self._packing is not None:
            return self._packing.unpack(packed)
        B, T = self._batch
        steps = packed.view(T, B, -1).transpose(0, 1)
        return steps.flip(1) if self._turned else steps

    # Recording, called by backends ----------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        return self._cell is not None

    def record_states(self, states: Sequence[Tensor], before: Sequence[Tensor], first: int) -> list[Tensor]:
        """Record the states of one step and their gradients. first: the first row of the step in packed order."""
        recorded = []
        for name, state in zip(self.cell.states, states, strict=True):
            self._states[name].append(state.detach())
            if state.grad_fn is None or any(state is part for part in before):
                state = state.view_as(state)  # its own autograd node, where a step returns its argument
            recorded.append(self._hooked(state, self._gradients, name, first))
        return recorded

    def record_term(self, name: str, product: Tensor, factor: Tensor, first: int = 0) -> Tensor:
        """Record the factor that a matrix multiplies, and the gradient of the product; rows as in `record_states`."""
        if not first:
            self._factors[name] = []
        self._factors[name].append(factor.detach())
        if name == "weight_ih":
            self._differentiates = product.requires_grad and not transforms_active()
        elif self._differentiates and not product.requires_grad:
            product = product.detach().requires_grad_()  # at the first step, if neither W nor the state requires one
        return self._hooked(product, self._slopes, name, first)

    def record_gradient(self, name: str, value: Tensor) -> Tensor:
        """Record the gradient of a value (N, H), all steps at once, as that of a state."""
        return self._hooked(value.view_as(value), self._gradients, name, 0)

    def record_pass(self, gradients: Mapping[str, Tensor], slopes: Mapping[str, Tensor]) -> None:
        """Record all gradients of a backward pass, in packed order."""
        if self.recorded:
            return
        self._pass = backward_pass_id()
        self._gradients, self._slopes = dict(gradients), dict(slopes)

    def take(self, other: Trace) -> None:
        """Take over what another trace recorded of a backward pass by the loop."""
        self.recorded = True
        self._pass, self._factors = other._pass, other._factors
        self._gradients, self._slopes = other._gradients, other._slopes

    def record_factors(self, factors: Mapping[str, Tensor]) -> None:
        self._factors = {name: [factor.detach()] for name, factor in factors.items()}

    def _hooked(self, value: Tensor, into: dict[str, Tensor], name: str, first: int) -> Tensor:
        steps = len(self._packing.flat) if self._packing is not None else self._batch[0] * self._batch[1]
        if name not in into:
            into[name] = value.new_zeros(steps, value.shape[-1])
        if value.requires_grad:
            value.register_hook(self._hook(into, name, first))
        return value

    def _hook(self, into: dict[str, Tensor], name: str, first: int) -> Callable[[Tensor | None], None]:
        def record(grad: Tensor | None) -> None:
            self._begin(backward_pass_id())
            if grad is not None:  # None if nothing downstream has a gradient
                into[name][first : first + len(grad)] = grad.detach()

        return record

    def _begin(self, current: int) -> None:
        """Clear the record at the start of a backward pass, which may reach fewer steps than the last one."""
        if current != self._pass:
            self._pass = current
            for found in (*self._gradients.values(), *self._slopes.values()):
                found.zero_()


def register_result(cls: type[tuple[Any, ...]]) -> None:
    """Register a named tuple of results, so that an exported program that returns it can be saved and loaded."""
    register_namedtuple(cls, f"recur.{cls.__name__}")


class ScanOutput(NamedTuple):
    """Result of a scan.

    >>> net = recur.Recurrent("lstm", 3, 4)
    >>> found = recur.ops.scan(net.cell, net.weights(), torch.randn(2, 5, 3))
    >>> found.outputs.shape, found.state._fields, found.trace.backend
    (torch.Size([2, 5, 4]), ('h', 'c'), 'native')
    """

    outputs: Tensor
    """(B, T, H): the output after every step (the first state, unless the cell names others); zero after the end of a
    row."""
    state: Tensors
    """The state after the last step of each row, a named tuple of (B, H)."""
    trace: Trace
    """Which backend ran and, after a backward pass with trace=True, the gradients of every step."""


register_result(ScanOutput)


NOTHING_RECORDED = None, (0, 0), None, 1, False, False
"""The order of steps that a trace without recording knows."""


def _flatten(trace: Trace) -> tuple[list[object], tuple[object, ...]]:
    """Split a trace into its tensors and everything else, for torch's pytrees."""
    how = trace.backend, trace.passed_over, trace.recorded
    if not trace.wanted:
        return [], how
    order = trace._cell, trace._batch, trace._packing, trace._copies, trace._turned, trace._pass is not None
    return [trace._inputs, trace._states, trace._gradients, trace._slopes, trace._factors], (*how, *order)


def _unflatten(recorded: Iterable[Any], context: tuple[Any, ...]) -> Trace:
    trace = Trace.__new__(Trace)
    found = tuple(recorded) or (None, {}, {}, {}, {})
    trace._inputs, trace._states, trace._gradients, trace._slopes, trace._factors = found
    trace.backend, trace.passed_over, trace.recorded, *order = context
    trace._cell, trace._batch, trace._packing, trace._copies, trace._turned, passed = order or NOTHING_RECORDED
    trace._pass = -1 if passed else None
    return trace


def _dumped(context: tuple[object, ...]) -> list[object]:
    if len(context) > 3:
        raise OptionError("a trace that records gradients cannot be saved with a program; export with trace=False")
    return list(context)


register_pytree_node(
    Trace,
    _flatten,
    _unflatten,
    serialized_type_name="recur.Trace",
    to_dumpable_context=_dumped,
    from_dumpable_context=tuple,
)
for _name in cell_names():
    make_cell(_name).tuple_of("s")  # registered when made: a saved program finds the classes of its states again
