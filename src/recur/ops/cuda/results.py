"""What the two passes write: tensors in packed order, by what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from recur.ops.cuda.memory import Layout


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
        self, lay: Layout, arriving: Sequence[Tensor | None], d_share: Tensor, found: Mapping[str, Tensor]
    ) -> None:
        a, outputs = lay.assembly, len(lay.assembly.outputs)
        came = [None if part is None else lay.by_step(part) for part in arriving[:outputs]]
        self.d_outputs = [came[a.outputs.index(j)] if j in a.outputs else None for j in range(a.states)]
        self.d_final = [None if part is None else part.contiguous() for part in arriving[outputs:]]
        self.d_share, self.d_own, self.d_projected = d_share, found.get("own"), found.get("projected")
        self.sums = found["sums"].zero_() if a.extras else None
        self.d_state = [found.get(f"state{j}") for j in range(a.states)]
        self.carried: Sequence[Tensor] = ()
        """(S, …) each: what reaches the states before the first step."""
