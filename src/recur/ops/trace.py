"""What is recorded of a backward pass: ∂L/∂s_t for every step, and the terms of ∂L/∂W, without another pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from recur.cells import Cell, cell_names, make_cell
from recur.compat import backward_pass_id, register_namedtuple, register_pytree_node, transforms_active
from recur.errors import OptionError
from recur.ops.packing import Packing


class Trace:
    """Which backend ran and, after a backward pass, what the last one carried.

    ∂L/∂s_t is the whole gradient of the state after step t: from its own output, from the other states of its step
    that are made of it, and from all later steps. The gradient of a matrix is a sum over the steps,

        ∂L/∂W = Σ_t δ_t m_tᵀ        with δ_t the gradient of W m_t, and m_t what W multiplies at step t, h_{t−1}

    of which each term, for each sequence, has the norm ‖δ_t‖ ‖m_t‖.

    >>> found = recur.Recurrent("elman", 3, 4)(torch.randn(2, 5, 3), trace=True)
    >>> found.outputs[:, -1].sum().backward()
    >>> found.trace[0].total.shape                      # ‖∂L/∂s_t‖ of every step
    torch.Size([5])
    """

    backend: str = ""
    """The one that ran."""
    recorded: bool = False
    """Whether a backward pass was itself recorded (`create_graph=True`): there the loop took the kernel's place.
    What is below is then of that pass: one that goes on to second derivatives divides its gradient between both."""

    _way: Callable[[], str] | None = None
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
        """Why `auto` did not take the backends that it tries before that one, by name."""
        self._cell = cell
        self._states: dict[str, list[Tensor]] = {}
        # All that follows is (N, …), in packed order.
        self._gradients: dict[str, Tensor] = {}
        self._slopes: dict[str, Tensor] = {}
        self._factors: dict[str, list[Tensor]] = {}
        if cell is not None:
            self._batch, self._packing, self._copies, self._turned = tuple(x.shape[:2]), packing, copies, turned
            self._inputs, self._states = x.detach(), {name: [] for name in cell.states}

    @property
    def way(self) -> str:
        """How the backend carried the steps, where it has several ways, and why not by another."""
        return "" if self._way is None else self._way()

    @property
    def inputs(self) -> Tensor:
        """(B, T, D): what the cell was given."""
        if self._inputs is None:
            raise OptionError("inputs were not recorded; call with trace=True")
        return self._inputs[..., : self._rows, :, :]

    @property
    def states(self) -> dict[str, Tensor]:
        """For each state by name, its values after every step, (B, T, H); recorded in the forward pass by `loop`."""
        if not all(self._states.values()) or not self._states:
            raise OptionError("no states were recorded; call with trace=True and backend='loop'")
        return {name: self._joined(parts) for name, parts in self._states.items()}

    @property
    def gradients(self) -> dict[str, Tensor]:
        """For each state by name, ∂L/∂s_t of every sequence and step, (B, T, H); zero where there was none."""
        return {name: self._summed(found) for name, found in self._recorded(self._gradients).items()}

    @property
    def norms(self) -> dict[str, Tensor]:
        """For each state by name, ‖∂L/∂s_t‖ of every sequence and step, (B, T); zero where there was no gradient."""
        return {name: torch.linalg.vector_norm(found, dim=-1) for name, found in self.gradients.items()}

    @property
    def total(self) -> Tensor:
        """(T,): the norm over the whole batch and all states, step by step."""
        return torch.stack(list(self.norms.values())).square().sum(dim=(0, -2)).sqrt()

    @property
    def terms(self) -> dict[str, Tensor]:
        """For U (weight_ih) and W (weight_hh), the norm of every sequence's and step's term of its gradient, (B, T)."""
        found = {}
        for name in self._recorded(self._slopes):
            slope, factor = self._term(name)
            found[name] = (slope.square().sum((-3, -1)) * factor.square().sum(-1)).sum(-1).sqrt()
        return found

    def term_products(self, name: str, together: bool = False) -> Tensor:
        """(B, T, T), float64: the inner products ⟨G_s, G_t⟩ of every two terms G_t = δ_t m_tᵀ of a matrix's gradient.

        Sums of them are squared norms of parts of the gradient: of all, ‖Σ_t G_t‖²; of steps k to l, ‖G_k + … + G_l‖².
        `together`, of rows that read the same and differ in their loss: (1, T, T), of the terms of all losses' sum.
        """
        if name not in self._recorded(self._slopes):
            raise OptionError(f"no terms of {name!r} were recorded; known: {', '.join(self._slopes)}")
        slope, factor = (part.double() for part in self._term(name))
        if together:
            slope, factor = slope.sum(0, keepdim=True), factor[:1]
        slopes = torch.einsum("...srnu,...trnu->...nst", slope, slope)
        return (slopes * torch.einsum("...snk,...tnk->...nst", factor, factor)).sum(-3)

    def dominant(self, name: str = "weight_hh") -> Tensor:
        """(B,): for every sequence, the step whose term of a matrix's gradient is the largest."""
        return self.terms[name].argmax(dim=-1)

    @property
    def cell(self) -> Cell:
        if self._cell is None:
            raise OptionError("no gradients were asked for; call with trace=True")
        return self._cell

    @property
    def _rows(self) -> int:
        """How many the caller gave: before copies of them were made."""
        return self._batch[0] // self._copies

    def _term(self, name: str) -> tuple[Tensor, Tensor]:
        """δ (B, T, R, heads, …) and m (B, T, heads, …) of a matrix."""
        slopes, heads = self._slopes[name], self.cell.heads if name == "weight_hh" else 1
        slope = self._summed(slopes).unflatten(-1, (-1, heads, slopes.shape[-1] // self._blocks(name) // heads))
        return slope, self._joined(self._factors[name]).unflatten(-1, (heads, -1))

    def _blocks(self, name: str) -> int:
        return len(self.cell.gates if name == "weight_ih" else self.cell.recurrent_gates)

    def _recorded(self, found: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self._cell is None:
            raise OptionError("no gradients were asked for; call with trace=True")
        if self._pass is None:
            raise OptionError("there was no backward pass yet; call .backward() on the loss first")
        return found

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        """(B, T, …), of values step by step, which copies of a row have in common."""
        return self._unpacked(torch.cat(list(parts), dim=-2))[..., : self._rows, :, :]

    def _summed(self, packed: Tensor) -> Tensor:
        """(B, T, …): where sliding truncation took copies of a row, their gradients are one sequence's."""
        unpacked = self._unpacked(packed)
        return unpacked if self._copies == 1 else unpacked.unflatten(-3, (self._copies, -1)).sum(-4)

    def _unpacked(self, packed: Tensor) -> Tensor:
        """(N, …) in packed order as (B, T, …), behind the dimensions that a vmap has added."""
        if packed.dim() > 2:
            unpacked: Tensor = torch.vmap(self._unpacked)(packed)
            return unpacked
        if self._packing is not None:
            return self._packing.unpack(packed)
        B, T = self._batch
        steps = packed.view(T, B, -1).transpose(0, 1)
        return steps.flip(1) if self._turned else steps

    # What the scan calls ---------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        return self._cell is not None

    def say_way(self, way: Callable[[], str]) -> None:
        self._way = way

    def record_states(self, states: Sequence[Tensor], before: Sequence[Tensor], first: int) -> list[Tensor]:
        """Record one step's states and their gradients; their rows stand from `first` on in packed order."""
        recorded = []
        for name, state in zip(self.cell.states, states, strict=True):
            self._states[name].append(state.detach())
            if state.grad_fn is None or any(state is part for part in before):
                state = state.view_as(state)  # a node of its own, where a step returns its argument
            recorded.append(self._hooked(state, self._gradients, name, first))
        return recorded

    def record_term(self, name: str, product: Tensor, factor: Tensor, first: int = 0) -> Tensor:
        """Record what a matrix multiplies, and the gradient of the product; rows as in `record_states`."""
        if not first:
            self._factors[name] = []
        self._factors[name].append(factor.detach())
        if name == "weight_ih":
            self._differentiates = product.requires_grad and not transforms_active()
        elif self._differentiates and not product.requires_grad:
            product = product.detach().requires_grad_()  # at the first step, where neither W nor its state wants one
        return self._hooked(product, self._slopes, name, first)

    def record_gradient(self, name: str, value: Tensor) -> Tensor:
        """Record the gradient of a value as that of a state, of all steps at once, (N, H)."""
        return self._hooked(value.view_as(value), self._gradients, name, 0)

    def record_pass(self, gradients: Mapping[str, Tensor], slopes: Mapping[str, Tensor]) -> None:
        """All of a backward pass at once, in packed order."""
        if self.recorded:
            return
        self._pass = backward_pass_id()
        self._gradients, self._slopes = dict(gradients), dict(slopes)

    def take(self, other: Trace) -> None:
        """What another trace recorded of a pass by the loop."""
        self.recorded = True
        self._pass, self._gradients, self._slopes, self._factors = (
            other._pass,
            other._gradients,
            other._slopes,
            other._factors,
        )

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
            if grad is not None:  # which it is where nothing downstream has a gradient
                into[name][first : first + len(grad)] = grad.detach()

        return record

    def _begin(self, current: int) -> None:
        """A new pass starts from nothing: it may not reach all that the one before it reached."""
        if current != self._pass:
            self._pass = current
            for found in (*self._gradients.values(), *self._slopes.values()):
                found.zero_()


def register_result(cls: type[tuple[Any, ...]]) -> None:
    """Register a named tuple of results, so that an exported program that returns it can be saved and loaded."""
    register_namedtuple(cls, f"recur.{cls.__name__}")


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
