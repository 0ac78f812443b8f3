"""What the two passes write: tensors in packed order, by what they are."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from recur.cuda.memory import Layout


class Results:
    """Outputs, final states and what is saved: a forward pass writes them, a backward pass reads them."""

    def __init__(
        self, lay: Layout, outputs: Sequence[Tensor], finals: Sequence[Tensor], saved: Sequence[Tensor]
    ) -> None:
        named = dict(zip(lay.saved, saved, strict=True)) if saved else {}
        self.finals = finals
        self.share: Tensor | None = named.get("share")
        self.tape: Tensor | None = named.get("tape")
        self.first = outputs[0]
        """The first state after every step, where it is an output; with a projection what is made of states[0]."""
        self.states: list[Tensor | None] = [
            named.get(source) if isinstance(source, str) else outputs[source] for source in lay.sources
        ]
        """After every step what the program returns, (N, H) each; None where it is not kept."""


class Gradients:
    """What arrives at a backward pass, and memory for what it finds."""

    def __init__(
        self, lay: Layout, like: Tensor, arriving: Sequence[Tensor | None], share: Tensor | None, traced: bool
    ):
        """`share`: memory for the gradient of U x + b, if there is some that may be overwritten."""
        a, outputs = lay.assembly, len(lay.assembly.outputs)
        came = [None if part is None else lay.by_step(part) for part in arriving[:outputs]]
        self.d_outputs = [came[a.outputs.index(j)] if j in a.outputs else None for j in range(a.states)]
        self.d_final = [None if part is None else part.contiguous() for part in arriving[outputs:]]
        self.d_share = like.new_empty(lay.N, a.gates * lay.H) if share is None else share
        self.d_own = like.new_empty(lay.N, a.own * lay.H) if a.own else None
        self.sums = like.new_empty(lay.S, a.extras * lay.H, dtype=lay.real).zero_() if a.extras else None
        self.d_projected = like.new_empty(lay.N, lay.P) if lay.P else None
        self.d_state: list[Tensor | None] = [None] * a.states
        if traced:
            self.d_state = [like.new_empty(lay.N, lay.H) for _ in range(a.states)]
        self.carried: Sequence[Tensor] = ()
        """(S, …) each: what reaches the states before the first step."""
