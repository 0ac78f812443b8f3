"""The products that follow the steps back: the gradients of x, U and W, of those of U x and W h."""

from __future__ import annotations

from typing import NamedTuple

from recur.ops.cuda.blas import Product, Side
from recur.ops.cuda.launches import Multiplication, Where
from recur.ops.cuda.memory import Layout
from recur.ops.cuda.scratch import Places, product


class Asked(NamedTuple):
    """What a backward pass is asked for."""

    arriving: tuple[bool, ...]
    """Which of the outputs and final states have a gradient."""
    for_data: bool
    for_state: bool
    traced: bool
    overwrite: bool
    """Whether memory of what was saved may be used again."""


class Piece(NamedTuple):
    """Gradients of W h that lie side by side: those of products `product` to `product + many − 1`."""

    product: int
    many: int
    own: bool
    """Whether they lie among the gradients that a product has for itself, or among the gates'."""
    place: int


def pieces_of(lay: Layout) -> list[Piece]:
    """Product after product; those that lie side by side together."""
    a = lay.assembly
    found, places, k = list[Piece](), a.product_places, 0
    while k < a.products:
        many = 1
        while k + many < a.products and places[k + many] == places[k] + many and places[k + many] != a.gates:
            many += 1
        own = places[k] >= a.gates
        found.append(Piece(k, many, own, places[k] - a.gates if own else places[k]))
        k += many
    return found


def states_of(lay: Layout, places: Places) -> list[int]:
    """Where each state after every step lies."""
    return [places[f"saved {source}" if isinstance(source, str) else f"output{source}"] for source in lay.sources]


def first_state(lay: Layout, places: Places) -> int:
    """What W multiplies lies there, of every step."""
    return places["output0"] if lay.P or 0 in lay.assembly.outputs else states_of(lay, places)[0]


class After:
    """`reverse`: of a scan from the end, which adds its gradient of x to that of another. `carries`: whether kernels
    leave out what reaches the initial state through W."""

    def __init__(
        self, lay: Layout, asked: Asked, places: Places, d_share: int, tf32: bool, reverse: bool, carries: bool
    ) -> None:
        self.pieces = pieces_of(lay)
        self.plain = lay.uniform and not lay.of.masked
        """Whether what W multiplied at every step is the output of the step before."""
        self.carries = carries and asked.for_state and self.plain and not lay.of.weighted and lay.assembly.heads == 1
        """Whether a product adds what reaches the initial state through W; else operations of PyTorch do."""
        self._lay, self._places, self._d_share, self._tf32, self._reverse = lay, places, d_share, tf32, reverse
        self.all = [Multiplication(*one) for one in self._of_inputs(asked.for_data)]
        for piece in self.pieces:
            self.all += [Multiplication(*one) for one in self._of_state(piece)]

    def _of_inputs(self, for_data: bool) -> list[tuple[Product, Where, Where, Where]]:
        """Of x and U, and of a projection."""
        lay, places = self._lay, self._places
        H, N, D, P = lay.H, lay.N, lay.D, lay.P
        G, d, made = lay.assembly.gates * H, (self._d_share, 0), []
        if for_data:
            of_data = product(lay, (N, D, G), Side(G), Side(D), D, self._tf32, self._reverse)
            made.append((of_data, d, (places["weight_ih"], 0), (places["d_data"], 0)))
        of_U = product(lay, (G, D, N), Side(G, True), Side(D), D, self._tf32)
        made.append((of_U, d, (places["data"], 0), (places["d_weight_ih"], 0)))
        if P:
            of_R = product(lay, (P, H, N), Side(P, True), Side(H), H, self._tf32)
            unprojected = states_of(lay, places)[0], 0
            made.append((of_R, (places["d_projected"], 0), unprojected, (places["d_weight_hr"], 0)))
        return made

    def _of_state(self, piece: Piece) -> list[tuple[Product, Where, Where, Where]]:
        """Of the rows of W that make these products, and of the initial state."""
        lay, places, item = self._lay, self._places, self._lay.of.dtype.itemsize
        a, H, N, S = lay.assembly, lay.H, lay.N, lay.S
        source, pitch = (places["d_own"], a.own * H) if piece.own else (self._d_share, a.gates * H)
        width, rows, made = lay.P or H, piece.many * H, []
        begin, into = piece.place * H * item, (places["d_weight_hh"], piece.product * H * width * item)

        def of_W(inner: int, adds: bool = False) -> Product:  # noqa: N802
            return product(lay, (rows, width, inner), Side(pitch, True), Side(width), width, self._tf32, adds)

        if not self.plain:
            return [(of_W(N), (source, begin), (places["before"], 0), into)]
        # The gradient of a step meets the state that the step before it left: one step earlier in memory, or later.
        one_step, others = S * pitch * item, (N - S) * pitch * item
        first_step = begin + (others if self._reverse else 0)
        if lay.steps > 1:
            later = begin + (0 if self._reverse else one_step)
            states = first_state(lay, places), S * width * item if self._reverse else 0
            made.append((of_W(N - S), (source, later), states, into))
        if lay.of.states:
            made.append((of_W(S, lay.steps > 1), (source, first_step), (places["initial0"], 0), into))
        if self.carries:
            back = product(lay, (S, H, rows), Side(pitch), Side(H), H, self._tf32, True, lay.real)
            weights = places["weight_hh"], piece.product * H * H * item
            made.append((back, (source, first_step), weights, (places["d_carry0"], 0)))
        return made
