"""What is recorded of a backward pass: ‖∂L/∂s_t‖ for every step, without another pass; and the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from recur.errors import OptionError
from recur.scan.packing import Packing


class Trace:
    """Which backend ran and, after a backward pass, the norms of the states' gradients in the last one.

    ∂L/∂s_t is the whole gradient of the state after step t: from its own output and from all later steps.
    """

    def __init__(self, states: Sequence[str], x: Tensor, steps: int, packing: Packing | None) -> None:
        self.backend = ""
        self._pass: int | None = None
        self._batch = x.shape[:2]
        self._packing = packing
        self._norms = {name: x.new_zeros(steps) for name in states}
        self._inputs = x.detach() if states else None
        self._states: dict[str, list[Tensor]] = {name: [] for name in states}

    @property
    def inputs(self) -> Tensor:
        """(B, T, D): what the cell was given."""
        if self._inputs is None:
            raise OptionError("inputs were not recorded; call with trace=True")
        return self._inputs

    @property
    def states(self) -> dict[str, Tensor]:
        """For each state by name, its values after every step, (B, T, H); recorded in the forward pass by `loop`."""
        if not all(self._states.values()) or not self._states:
            raise OptionError("no states were recorded; call with trace=True and backend='loop'")
        return {name: self._unpacked(torch.cat(parts)) for name, parts in self._states.items()}

    @property
    def norms(self) -> dict[str, Tensor]:
        """For each state by name, ‖∂L/∂s_t‖ of every sequence and step, (B, T); zero where there was no gradient."""
        if not self._norms:
            raise OptionError("no gradient norms were asked for; call with trace=True")
        if self._pass is None:
            raise OptionError("there was no backward pass yet; call .backward() on the loss first")
        return {name: self._unpacked(norms[:, None])[..., 0] for name, norms in self._norms.items()}

    @property
    def total(self) -> Tensor:
        """(T,): the norm over the whole batch and all states, step by step."""
        return torch.stack(list(self.norms.values())).square().sum(dim=(0, 1)).sqrt()

    def _unpacked(self, packed: Tensor) -> Tensor:
        """(N, …) in packed order as (B, T, …)."""
        B, T = self._batch
        return packed.view(T, B, -1).transpose(0, 1) if self._packing is None else self._packing.unpack(packed)

    # What the scan calls ---------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        return bool(self._norms)

    def record(self, states: Sequence[Tensor], names: Sequence[str], first: int) -> list[Tensor]:
        """Record the gradients of one step's states, whose rows stand from `first` on in packed order."""
        recorded = []
        for name, state in zip(names, states, strict=True):
            self._states[name].append(state.detach())
            state = state.view_as(state)  # a node of its own, even if a step returns its argument
            if state.requires_grad:
                state.register_hook(self._hook(name, first))
            recorded.append(state)
        return recorded

    def record_pass(self, norms: Sequence[Tensor], batch_major: bool) -> None:
        """The norms of a whole backward pass at once, state by state."""
        self._begin(torch._C._current_graph_task_id())
        for saved, found in zip(self._norms.values(), norms, strict=True):
            saved.copy_(found.view(self._batch).t().reshape(-1) if batch_major else found)

    def _begin(self, current: int) -> None:
        """A new pass starts from nothing: it may not reach all that the one before it reached."""
        if current != self._pass:
            self._pass = current
            for norms in self._norms.values():
                norms.zero_()

    def _hook(self, name: str, first: int) -> Callable[[Tensor], None]:
        def record(grad: Tensor) -> None:
            self._begin(torch._C._current_graph_task_id())
            norm = torch.linalg.vector_norm(grad.detach(), dim=-1)
            self._norms[name][first : first + len(norm)] = norm

        return record
