"""Drop-in replacements of the recurrent layers of torch.nn: same constructor, same call, same weights.

    from recur import nn          # in place of: from torch import nn
    lstm = nn.LSTM(28, 128, num_layers=2, batch_first=True, bidirectional=True)
    lstm.load_state_dict(theirs.state_dict())

The same seed draws the same weights. All classes take the keyword `backend=` as well, as in `recur.ops`. A model saved
as a whole can be loaded with `torch.load(path, weights_only=True)`; see `recur.utils.trust`.

Mistakes raise recur's errors, not torch's. `torch.jit.script`, which PyTorch has deprecated, is not supported.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.types import Device

from recur import cells
from recur.errors import OptionError, ShapeError
from recur.nn.functional import check_weights_fit, initialise
from recur.nn.options import Dropout, check_flag, check_integer
from recur.nn.recurrent import NetworkState, Recurrent
from recur.ops import check_backend, scan

TorchState = Tensor | tuple[Tensor, ...]
"""State in the form of torch.nn: (L, B, H), or a tuple of them for an LSTM."""


class _TorchRecurrent(Recurrent):
    """`Recurrent` with the conventions of torch.nn: time-major by default, states (L, B, H), packed sequences."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        proj_size = check_integer("proj_size", proj_size, 0)
        if proj_size and not isinstance(self, LSTM):
            raise OptionError(f"{type(self).__name__}: proj_size is only for LSTM, as in torch.nn; got {proj_size}")
        if proj_size and proj_size >= hidden_size:
            raise OptionError(f"proj_size must lie in 0 … hidden_size − 1 = {hidden_size - 1}, got {proj_size}")
        super().__init__(
            self._make_cell(),
            input_size,
            hidden_size,
            num_layers=num_layers,
            bias=check_flag("bias", bias),
            projection=proj_size,
            direction="both" if check_flag("bidirectional", bidirectional) else "forward",
            dropout=Dropout(dropout, variational=False),
            backend=backend,
            device=device,
            dtype=dtype,
        )
        self.num_layers, self.proj_size = num_layers, proj_size
        self.batch_first = check_flag("batch_first", batch_first)

    def _make_cell(self) -> cells.Cell:
        raise NotImplementedError

    @property
    def bidirectional(self) -> bool:
        return self.direction == "both"

    def flatten_parameters(self) -> None:
        """Do nothing; present for code written for torch.nn."""

    @property
    def mode(self) -> str:
        cell = self.cell
        return f"RNN_{cell.activation.upper()}" if isinstance(cell, cells.Elman) else type(cell).__name__

    @property
    def all_weights(self) -> list[list[Tensor]]:
        return [list(self.weights(suffix).values()) for suffix in self.suffixes()]

    def forward(  # type: ignore[override]  # torch.nn's arguments, not those of Recurrent
        self, input: Tensor | PackedSequence, hx: TorchState | None = None
    ) -> tuple[Tensor | PackedSequence, TorchState]:
        """Return outputs and the final state in torch.nn's shapes."""
        if isinstance(input, PackedSequence):
            x, lengths = pad_packed_sequence(input, batch_first=True)
            outputs, state, _ = super().forward(x, self._from_torch(hx, len(x), True), lengths=lengths)
            return _packed_like(input, outputs, lengths), self._to_torch(state, True)
        if not isinstance(input, Tensor) or input.dim() not in (2, 3):
            got = tuple(input.shape) if isinstance(input, Tensor) else type(input).__name__
            raise ShapeError(f"{type(self).__name__}: input must be a tensor of 2-D or 3-D, got {got}")
        batched = input.dim() == 3
        x = input if batched else input[None] if self.batch_first else input[:, None]
        x = x if self.batch_first else x.transpose(0, 1)
        start = self._from_torch(hx, x.shape[0], batched)
        if x.shape[0]:
            outputs, state, _ = super().forward(x, start)
        else:
            outputs, state, _ = super().forward(
                append_zero_row(x), start and [tuple(map(append_zero_row, s)) for s in start]
            )
            outputs, state = outputs[:0], tuple(self.cell.state([part[:0] for part in s]) for s in state)
        outputs = outputs if self.batch_first else outputs.transpose(0, 1).contiguous()
        outputs = outputs if batched else outputs.squeeze(0 if self.batch_first else 1)
        return outputs, self._to_torch(state, batched)

    def _from_torch(self, hx: TorchState | None, B: int, batched: bool) -> list[cells.State] | None:
        """Convert (L, B, H) per state into one state per layer."""
        if hx is None:
            return None
        names = self.cell.states
        parts = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        L = self.num_layers * (2 if self.bidirectional else 1)
        expected = [(L, B, width) if batched else (L, width) for width in self.state_widths]
        got = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in parts]
        if got != expected:
            raise ShapeError(f"{type(self).__name__}: hx must be {len(names)} of {expected}, got {got}")
        rows = parts if batched else tuple(part.unsqueeze(1) for part in parts)
        return list(zip(*(part.unbind(0) for part in rows), strict=True))

    def _to_torch(self, state: NetworkState, batched: bool) -> TorchState:
        """Convert one state per layer into (L, B, H) per state."""
        final = [torch.stack(parts) for parts in zip(*state, strict=True)]
        parts = tuple(final if batched else [part.squeeze(1) for part in final])
        return parts if len(parts) > 1 else parts[0]


def append_zero_row(batch: Tensor) -> Tensor:
    """Append a row of zeros to an empty batch, to be removed after the scan.

    All gradients then exist and are zero, as in torch.nn.
    """
    return torch.cat([batch, batch.new_zeros(1, *batch.shape[1:])])


def _packed_like(packed: PackedSequence, outputs: Tensor, lengths: Tensor) -> PackedSequence:
    """Pack outputs (B, T, D) in the row order of a packed input."""
    order = packed.sorted_indices
    if order is not None:
        outputs, lengths = outputs[order], lengths[order.cpu()]
    data = pack_padded_sequence(outputs, lengths, batch_first=True).data
    return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


class RNN(_TorchRecurrent):
    """torch.nn.RNN with the cell `Elman`; nonlinearity is tanh, relu, or sigmoid (which torch does not have).

    >>> outputs, h = recur.nn.RNN(3, 4, nonlinearity="relu")(torch.randn(5, 2, 3))      # (T, B, D), as torch.nn
    >>> outputs.shape, h.shape
    (torch.Size([5, 2, 4]), torch.Size([1, 2, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.nonlinearity = nonlinearity  # first, for the cell is made of it
        super().__init__(input_size, hidden_size, num_layers, *args, **kwargs)

    def _make_cell(self) -> cells.Cell:
        return cells.Elman(self.nonlinearity)


class GRU(_TorchRecurrent):
    """torch.nn.GRU with the cell `GRU`.

    >>> ours, theirs = recur.nn.GRU(3, 4, batch_first=True), torch.nn.GRU(3, 4, batch_first=True)
    >>> _ = ours.load_state_dict(theirs.state_dict())
    >>> x = torch.randn(2, 5, 3)
    >>> torch.allclose(ours(x)[0], theirs(x)[0], atol=1e-6)
    True
    """

    def _make_cell(self) -> cells.Cell:
        return cells.GRU()


class LSTM(_TorchRecurrent):
    """torch.nn.LSTM with the cell `LSTM`.

    >>> outputs, (h, c) = recur.nn.LSTM(3, 4, num_layers=2, bidirectional=True)(torch.randn(5, 2, 3))
    >>> outputs.shape, c.shape
    (torch.Size([5, 2, 8]), torch.Size([4, 2, 4]))
    """

    def _make_cell(self) -> cells.Cell:
        return cells.LSTM()


class _TorchCell(nn.Module):
    """One step of a cell with the conventions of torch.nn: (B, D) or (D,) to (B, H) or (H,)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size, 1)
        self.hidden_size = check_integer("hidden_size", hidden_size, 1)
        self.bias, self.backend, self.cell = check_flag("bias", bias), backend, self._make_cell()
        check_backend(backend)
        shapes = self.cell.shapes(self.input_size, self.hidden_size)
        check_weights_fit(shapes, 1, device, dtype)
        for name, shape in shapes.items():
            wanted = bias or not name.startswith("bias")
            weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, weight)
        self.reset_parameters()

    def _make_cell(self) -> cells.Cell:
        raise NotImplementedError

    def weights(self) -> dict[str, Tensor]:
        """Return the weights under the names that scan uses."""
        named = {name: getattr(self, name) for name in self.cell.shapes(self.input_size, self.hidden_size)}
        return {name: weight for name, weight in named.items() if weight is not None}

    def reset_parameters(self) -> None:
        """Initialise all weights again."""
        initialise(self.cell, self.weights())

    def forward(self, input: Tensor, hx: TorchState | None = None) -> TorchState:
        """Return the next state: h, or (h, c) of an LSTM."""
        who, D, H = type(self).__name__, self.input_size, self.hidden_size
        if not isinstance(input, Tensor) or input.dim() not in (1, 2) or input.shape[-1] != D:
            got = tuple(input.shape) if isinstance(input, Tensor) else type(input).__name__
            raise ShapeError(f"{who}: input must be (B, D={D}) or (D={D},), got {got}")
        state = None
        if hx is not None:
            state = (hx,) if isinstance(hx, Tensor) else tuple(hx)
            expected = [(*input.shape[:-1], H)] * len(self.cell.states)
            shapes = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in state]
            if shapes != expected:
                raise ShapeError(f"{who}: hx must be {len(expected)} of {expected}, got {shapes}")
        x, state = _rows(input), state and tuple(map(_rows, state))
        if not len(x):
            x, state = append_zero_row(x), state and tuple(map(append_zero_row, state))
        final = scan(self.cell, self.weights(), x[:, None], state, backend=self.backend).state
        parts = tuple(part[: len(input)] if input.dim() == 2 else part[0] for part in final)
        return parts if len(parts) > 1 else parts[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


def _rows(given: Tensor) -> Tensor:
    return given if given.dim() == 2 else given[None]


class RNNCell(_TorchCell):
    """torch.nn.RNNCell, one step of `Elman`; nonlinearity is tanh, relu, or sigmoid (which torch does not have).

    >>> recur.nn.RNNCell(3, 4)(torch.randn(2, 3)).shape
    torch.Size([2, 4])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
    ) -> None:
        self.nonlinearity = nonlinearity  # first, for the cell is made of it
        super().__init__(input_size, hidden_size, bias, device, dtype, backend=backend)

    def _make_cell(self) -> cells.Cell:
        return cells.Elman(self.nonlinearity)

    def extra_repr(self) -> str:
        usual = self.nonlinearity == "tanh"
        return super().extra_repr() + ("" if usual else f", nonlinearity={self.nonlinearity}")


class GRUCell(_TorchCell):
    """torch.nn.GRUCell, one step of `GRU`.

    >>> cell, h = recur.nn.GRUCell(3, 4), torch.zeros(2, 4)
    >>> for x in torch.randn(5, 2, 3):
    ...     h = cell(x, h)
    >>> h.shape
    torch.Size([2, 4])
    """

    def _make_cell(self) -> cells.Cell:
        return cells.GRU()


class LSTMCell(_TorchCell):
    """torch.nn.LSTMCell, one step of `LSTM`.

    >>> h, c = recur.nn.LSTMCell(3, 4)(torch.randn(2, 3))
    >>> h.shape, c.shape
    (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    def _make_cell(self) -> cells.Cell:
        return cells.LSTM()
