"""Drop-in for torch.nn's cells, one step a call: RNNCell, GRUCell and LSTMCell; see `nn.py`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.types import Device

from recur import cells
from recur.errors import ShapeError
from recur.nn.checks import flag, whole
from recur.nn.drop_in import TorchState, a_row_more
from recur.nn.init import check_weights_fit, initialise
from recur.ops import check_backend, scan


class _CellAsTorch(nn.Module):
    """torch.nn's conventions around one step of a scan: (B, D) or (D,) in, (B, H) or (H,) out."""

    def __init__(
        self,
        cell: cells.Cell,
        input_size: int,
        hidden_size: int,
        bias: bool,
        device: Device,
        dtype: torch.dtype | None,
        backend: str,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size = whole("input_size", input_size, 1), whole("hidden_size", hidden_size, 1)
        self.bias, self.backend, self.cell = flag("bias", bias), backend, cell
        check_backend(backend)
        check_weights_fit(cell.shapes(self.input_size, self.hidden_size), 1, device, dtype)
        for name, shape in cell.shapes(self.input_size, self.hidden_size).items():
            wanted = bias or not name.startswith("bias")
            weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, weight)
        self.reset_parameters()

    def weights(self) -> dict[str, Tensor]:
        """As scan takes them."""
        named = {name: getattr(self, name) for name in self.cell.shapes(self.input_size, self.hidden_size)}
        return {name: weight for name, weight in named.items() if weight is not None}

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        initialise(self.cell, self.weights())

    def forward(self, input: Tensor, hx: TorchState | None = None) -> TorchState:
        """The next state: h, or (h, c) of an LSTM."""
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
            x, state = a_row_more(x), state and tuple(map(a_row_more, state))
        final = scan(self.cell, self.weights(), x[:, None], state, backend=self.backend).state
        parts = tuple(part[: len(input)] if input.dim() == 2 else part[0] for part in final)
        return parts if len(parts) > 1 else parts[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


def _rows(given: Tensor) -> Tensor:
    return given if given.dim() == 2 else given[None]


class RNNCell(_CellAsTorch):
    """torch.nn.RNNCell, one step of `Elman`; nonlinearity is tanh, relu, or sigmoid, which torch does not have.

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
        super().__init__(cells.Elman(nonlinearity), input_size, hidden_size, bias, device, dtype, backend)
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        usual = self.nonlinearity == "tanh"
        return super().extra_repr() + ("" if usual else f", nonlinearity={self.nonlinearity}")


class GRUCell(_CellAsTorch):
    """torch.nn.GRUCell, one step of `GRU`.

    >>> cell, h = recur.nn.GRUCell(3, 4), torch.zeros(2, 4)
    >>> for x in torch.randn(5, 2, 3):
    ...     h = cell(x, h)
    >>> h.shape
    torch.Size([2, 4])
    """

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
        super().__init__(cells.GRU(), input_size, hidden_size, bias, device, dtype, backend)


class LSTMCell(_CellAsTorch):
    """torch.nn.LSTMCell, one step of `LSTM`.

    >>> h, c = recur.nn.LSTMCell(3, 4)(torch.randn(2, 3))
    >>> h.shape, c.shape
    (torch.Size([2, 4]), torch.Size([2, 4]))
    """

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
        super().__init__(cells.LSTM(), input_size, hidden_size, bias, device, dtype, backend)
