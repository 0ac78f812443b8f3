"""Drop-in replacements of the recurrent layers of torch.nn: subclasses that compute with `recur.ops.scan`.

    from recur import nn          # in place of: from torch import nn
    lstm = nn.LSTM(28, 128, num_layers=2, batch_first=True, bidirectional=True)
    lstm.load_state_dict(theirs.state_dict())

Constructor, weights, state dict, `repr`, pickling and the other attributes are those of torch.nn, so isinstance and
subclasses of these classes work; the same seed draws the same weights and, on the CPU, the same dropout masks. All
classes take the keyword `backend=` as well, as in `recur.ops`. Layers are also a `recur.Recurrent`, which gives them
`stream()`, and diagnostics and export find them. Mistakes raise recur's errors, not torch's.

`torch.jit`, tensorboard's `add_graph` and `torch.onnx.export` record torch's own layer with the same weights, so that
what they save runs without recur; `torch.fx` records a call of the module. torch.compile ends its graph at a recurrent
layer of torch.nn, and so at these; with `torch._dynamo.config.allow_rnn` it compiles them. A model saved whole can be
loaded with `torch.load(path, weights_only=True)`; see `recur.utils.trust`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.types import Device

from recur import cells
from recur.compat import in_transform, is_eager, records_for_others, rnn_kernels, skip_when_compiling
from recur.errors import OptionError, ShapeError
from recur.nn.functional import check_weights_fit, fast_dropout
from recur.nn.options import Connections, Depth, Dropout, Init, check_flag, check_integer
from recur.nn.recurrent import NetworkState, Recurrent
from recur.ops import check_backend, scan
from recur.ops.bptt import BPTT

TorchState: TypeAlias = Tensor | tuple[Tensor, ...]
"""State in the form of torch.nn: (L, B, H), or a tuple of them for an LSTM."""
TorchForward: TypeAlias = Callable[..., Any]
"""The forward method of a class of torch.nn."""


class _TorchLayer:
    """First base of a layer: constructor and call. The class of torch.nn comes second, `_RecurrentLayer` last."""

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
        **options: Any,
    ) -> None:
        who, cell = type(self).__name__, self._make_cell(**options)
        check_backend(backend)
        D, H, L = (
            check_integer(name, value, 1)
            for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers))
        )
        P = check_integer("proj_size", proj_size, 0)
        for name, flag in (("bias", bias), ("batch_first", batch_first), ("bidirectional", bidirectional)):
            check_flag(name, flag)
        Dropout(dropout)
        if P and not isinstance(self, nn.LSTM):
            raise OptionError(f"{who}: proj_size is only for LSTM, as in torch.nn; got {P}")
        if P >= H:
            raise OptionError(f"proj_size must lie in 0 … hidden_size − 1 = {H - 1}, got {P}")
        check_weights_fit(cell.shapes(D, H, bias, P), L, device, dtype)
        options |= {"proj_size": P} if P else {}
        if options.get("nonlinearity") == "sigmoid":
            options["nonlinearity"] = "tanh"  # for the constructor of torch; RNN sets its own name afterwards
        super().__init__(  # type: ignore[call-arg]  # of the class of torch.nn
            D, H, num_layers=L, bias=bias, batch_first=batch_first, dropout=dropout, bidirectional=bidirectional,
            device=device, dtype=dtype, **options,
        )  # fmt: skip
        self._finish(cell, backend)

    @skip_when_compiling
    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return outputs and the final state in torch.nn's shapes."""
        return self._run(input, hx, super().forward)  # type: ignore[misc]  # of the class of torch.nn

    if TYPE_CHECKING:
        _make_cell: Callable[..., cells.Cell]
        _finish: Callable[[cells.Cell, str], None]
        _run: Callable[..., Any]


class _RecurrentLayer(Recurrent):
    """Last base of a layer: `Recurrent` on the weights and attributes of a class of torch.nn.

    What `Recurrent` has in addition is constant here, or read from the attributes of torch.nn.
    """

    connections, depth, init, bptt = Connections(), Depth(), Init(), BPTT.parse("full")
    input_mlp = output_mlp = between_mlps = None
    matmul_dtype, top, require = "", 0, ""

    def __init__(self) -> None:
        nn.Module.__init__(self)  # called by the class of torch.nn, which creates the weights

    def _finish(self, cell: cells.Cell, backend: str) -> None:
        self.cell, self.backend = cell, backend
        self.state_widths = cell.widths(self.hidden_size, self.projection)
        self.output_size = self.state_widths[0] * (2 if self.bidirectional else 1)
        self._names = self._weight_names()

    @property
    def direction(self) -> str:  # type: ignore[override]
        return "both" if self.bidirectional else "forward"

    @property
    def projection(self) -> int:  # type: ignore[override]
        P: int = self.proj_size  # type: ignore[assignment]  # an attribute of torch.nn
        return P

    @property
    def _drops_state(self) -> bool:
        return False

    def flatten_parameters(self) -> None:
        """Do nothing: the kernels take weights wherever they are."""

    def _between(self, below: Tensor, bottom: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
        """Apply dropout with torch's draws: one per step that exists, step by step."""
        p: float = self.dropout  # type: ignore[assignment]  # that of torch.nn, a number
        if not (self.training and p):
            return below
        if below.device.type != "cpu":  # cuDNN has draws of its own
            return fast_dropout(below, p)
        B, T, D = below.shape
        if lengths is None:
            return below * dropout(below.new_ones(T, B, D), p).transpose(0, 1)
        packed = pack_padded_sequence(below.new_ones(B, T, D), torch.as_tensor(lengths), batch_first=True)
        drawn = PackedSequence(dropout(packed.data, p), packed.batch_sizes)
        return below * pad_packed_sequence(drawn, batch_first=True)[0]

    def _run(self, input: Any, hx: TorchState | None, torch_forward: TorchForward) -> Any:
        """Return outputs and the final state in torch.nn's shapes."""
        if isinstance(input, Proxy):
            return _call_module(self, input, hx)
        if records_for_others() and self.mode != SIGMOID_MODE:
            return torch_forward(input, hx)
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        if not isinstance(input, Tensor) or input.dim() not in (2, 3):
            got = tuple(input.shape) if isinstance(input, Tensor) else type(input).__name__
            raise ShapeError(f"{type(self).__name__}: input must be a tensor of 2-D or 3-D, got {got}")
        batched = input.dim() == 3
        x = input if batched else input[None] if self.batch_first else input[:, None]
        x = x if self.batch_first else x.transpose(0, 1)
        start = self._from_torch(hx, x.shape[0], batched)
        if not x.shape[0] or self._is_one_small_step(x):
            return torch_forward(input, hx)
        outputs, state, _ = self.run_layers(x, start)
        outputs, state = self._with_torch_dtype(input, outputs, state)
        outputs = outputs if self.batch_first else outputs.transpose(0, 1).contiguous()
        outputs = outputs if batched else outputs.squeeze(0 if self.batch_first else 1)
        return outputs, self._to_torch(state, batched)

    def _with_torch_dtype(self, x: Tensor, outputs: Tensor, state: NetworkState) -> tuple[Tensor, NetworkState]:
        """Convert results of a GRU on the CPU to the dtype of its input: there, torch's GRU has it under autocast."""
        if outputs.dtype == x.dtype or self.mode != "GRU" or x.device.type != "cpu":
            return outputs, state
        return outputs.to(x.dtype), tuple(self.cell.state([part.to(x.dtype) for part in layer]) for layer in state)

    def _is_one_small_step(self, x: Tensor) -> bool:
        """Return True for one step without gradients, on which the C++ core would spend more time than torch."""
        if x.shape[1] != 1 or x.shape[0] >= LEAST_ROWS or self.mode not in ("GRU", "RNN_TANH", "RNN_RELU"):
            return False
        return self.backend == "auto" and x.device.type == "cpu" and is_eager(x) and not torch.is_grad_enabled()

    def _run_packed(self, packed: PackedSequence, hx: TorchState | None) -> tuple[PackedSequence, TorchState]:
        """Run packed sequences, in the order of the pack: the longest first."""
        sizes, order, back = packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        x, lengths = pad_packed_sequence(PackedSequence(packed.data, sizes), batch_first=True)
        start = self._from_torch(hx, len(x), True)
        if start is not None and order is not None:
            start = [tuple(part[order] for part in layer) for layer in start]
        outputs, state, _ = self.run_layers(x, start, lengths=lengths)
        outputs, state = self._with_torch_dtype(x, outputs, state)
        if back is not None:
            state = tuple(self.cell.state([part[back] for part in layer]) for layer in state)
        data = pack_padded_sequence(outputs, lengths, batch_first=True).data
        return PackedSequence(data, sizes, order, back), self._to_torch(state, True)

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

    def __prepare_scriptable__(self) -> nn.Module:
        """Return torch's own layer with the same weights, for torch.jit.script."""
        return _torch_twin(self)


TORCH_CLASSES = (nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.GRUCell, nn.LSTMCell)


def _call_module(module: object, input: Proxy, *args: object) -> Proxy:
    """Record a call of the module in a graph of torch.fx, as torch.fx does for modules of torch.nn."""
    path = input.tracer.path_of_module(module)  # type: ignore[attr-defined]
    return input.tracer.create_proxy("call_module", path, (input, *args), {})


def _torch_twin(module: nn.Module) -> nn.Module:
    """Return a module of the class of torch.nn with the same attributes and weights."""
    if vars(module).get("nonlinearity") == "sigmoid":
        raise OptionError(
            f"torch.nn has no {type(module).__name__} with nonlinearity='sigmoid' to script; use tanh or relu"
        )
    theirs = next(base for base in type(module).__mro__ if base in TORCH_CLASSES)
    twin = theirs.__new__(theirs)
    kept = {name: value for name, value in vars(module).items() if name not in EXTRA_ATTRIBUTES}
    vars(twin).update(kept)
    return twin


SIGMOID_MODE = "RNN_SIGMOID"
EXTRA_ATTRIBUTES = ("cell", "backend", "state_widths", "output_size", "_names")
"""The attributes of our modules that those of torch.nn do not have."""


class RNN(_TorchLayer, nn.RNN, _RecurrentLayer):  # type: ignore[misc]
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
        super().__init__(input_size, hidden_size, num_layers, *args, nonlinearity=nonlinearity, **kwargs)
        self.nonlinearity, self.mode = nonlinearity, f"RNN_{nonlinearity.upper()}"

    def _make_cell(self, nonlinearity: str) -> cells.Cell:
        return cells.Elman(nonlinearity)


class GRU(_TorchLayer, nn.GRU, _RecurrentLayer):  # type: ignore[misc]
    """torch.nn.GRU with the cell `GRU`.

    >>> ours, theirs = recur.nn.GRU(3, 4, batch_first=True), torch.nn.GRU(3, 4, batch_first=True)
    >>> _ = ours.load_state_dict(theirs.state_dict())
    >>> x = torch.randn(2, 5, 3)
    >>> torch.allclose(ours(x)[0], theirs(x)[0], atol=1e-6)
    True
    """

    def _make_cell(self) -> cells.Cell:
        return cells.GRU()


class LSTM(_TorchLayer, nn.LSTM, _RecurrentLayer):  # type: ignore[misc]
    """torch.nn.LSTM with the cell `LSTM`.

    >>> outputs, (h, c) = recur.nn.LSTM(3, 4, num_layers=2, bidirectional=True)(torch.randn(5, 2, 3))
    >>> outputs.shape, c.shape
    (torch.Size([5, 2, 8]), torch.Size([4, 2, 4]))
    """

    def _make_cell(self) -> cells.Cell:
        return cells.LSTM()


class _TorchCell:
    """First base of a cell: constructor and call, one step of (B, D) or (D,) to (B, H) or (H,)."""

    kernel: Callable[..., Any] | None
    """The function of torch that computes the step; None if torch has none."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        cell = self._make_cell(**options)
        check_backend(backend)
        D, H = check_integer("input_size", input_size, 1), check_integer("hidden_size", hidden_size, 1)
        check_weights_fit(cell.shapes(D, H, check_flag("bias", bias)), 1, device, dtype)
        super().__init__(D, H, bias=bias, device=device, dtype=dtype, **options)  # type: ignore[call-arg]
        self.cell, self.backend = cell, backend

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the next state: h, or (h, c) of an LSTM."""
        if isinstance(input, Proxy):
            return _call_module(self, input, hx)
        if self.kernel is not None and records_for_others():
            return super().forward(input, hx)  # type: ignore[misc]
        state = self._checked_state(input, hx)
        if self.backend == "auto" and not self._prefers_native(input):
            own = self._parameters
            try:
                if hx is None or input.dim() == 1:
                    return super().forward(input, hx)  # type: ignore[misc]
                assert self.kernel is not None  # else the core is preferred
                return self.kernel(input, hx, own["weight_ih"], own["weight_hh"], own["bias_ih"], own["bias_hh"])
            except KeyError:  # a weight that is computed, not a parameter
                return super().forward(input, hx)  # type: ignore[misc]
            except RuntimeError:  # of tensors that do not fit together, which scan explains
                pass
        weights = {name: weight for name in CELL_WEIGHTS if (weight := getattr(self, name)) is not None}
        x = input if input.dim() == 2 else input[None]
        state = state if state is None or input.dim() == 2 else tuple(part[None] for part in state)
        final = scan(self.cell, weights, x[:, None], state, backend=self.backend).state
        parts = tuple(final if input.dim() == 2 else (part[0] for part in final))
        return parts if len(parts) > 1 else parts[0]

    def _checked_state(self, input: object, hx: TorchState | None) -> tuple[Tensor, ...] | None:
        """Return the states as a tuple; raise a ShapeError if a shape is wrong."""
        shape: Sequence[int] = input.shape if isinstance(input, Tensor) else ()
        if len(shape) not in (1, 2) or shape[-1] != self.input_size:
            who, D = type(self).__name__, self.input_size
            got = tuple(shape) if isinstance(input, Tensor) else type(input).__name__
            raise ShapeError(f"{who}: input must be (B, D={D}) or (D={D},), got {got}")
        if hx is None:
            return None
        state = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        expected, count = (*shape[:-1], self.hidden_size), len(self.cell.states)
        if len(state) != count or any(not isinstance(part, Tensor) or part.shape != expected for part in state):
            found = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in state]
            raise ShapeError(f"{type(self).__name__}: hx must be {count} of {[expected] * count}, got {found}")
        return state

    def _prefers_native(self, x: Tensor) -> bool:
        """Return True if the C++ core is faster than torch's kernel.

        It packs the weights at every call. Only a batch of many rows repays this, and less so if the weights are larger
        than the cache.
        """
        if self.kernel is None:
            return True
        width, rows = self.hidden_size * len(self.cell.gates), len(x) if x.dim() == 2 else 1
        if rows < LEAST_ROWS or width < LEAST_WIDTH:
            return False
        weights = width * (self.input_size + self.hidden_size)
        if weights > (4 << 20 if rows >= 4 * LEAST_ROWS and torch.is_grad_enabled() else 1 << 20):
            return False
        return x.device.type == "cpu" and is_eager(x) and not in_transform() and not torch.is_autocast_enabled("cpu")

    def __prepare_scriptable__(self) -> nn.Module:
        """Return torch's own cell with the same weights, for torch.jit.script."""
        return _torch_twin(self)  # type: ignore[arg-type]

    if TYPE_CHECKING:
        _make_cell: Callable[..., cells.Cell]
        _parameters: dict[str, Tensor | None]
        input_size: int
        hidden_size: int


LEAST_ROWS, LEAST_WIDTH = 16, 192
"""One step is faster in the C++ core from so many rows and so many rows of W on; see `python -m bench calls`."""

CELL_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class RNNCell(_TorchCell, nn.RNNCell):  # type: ignore[misc]
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
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, *args, nonlinearity=nonlinearity, **kwargs)

    def _make_cell(self, nonlinearity: str) -> cells.Cell:
        return cells.Elman(nonlinearity)

    @property
    def kernel(self) -> Callable[..., Any] | None:  # type: ignore[override]
        return _ELMAN_KERNELS.get(self.nonlinearity)


_ELMAN_KERNELS = {"tanh": rnn_kernels.rnn_tanh_cell, "relu": rnn_kernels.rnn_relu_cell}


class GRUCell(_TorchCell, nn.GRUCell):  # type: ignore[misc]
    """torch.nn.GRUCell, one step of `GRU`.

    >>> cell, h = recur.nn.GRUCell(3, 4), torch.zeros(2, 4)
    >>> for x in torch.randn(5, 2, 3):
    ...     h = cell(x, h)
    >>> h.shape
    torch.Size([2, 4])
    """

    kernel = staticmethod(rnn_kernels.gru_cell)

    def _make_cell(self) -> cells.Cell:
        return cells.GRU()


class LSTMCell(_TorchCell, nn.LSTMCell):  # type: ignore[misc]
    """torch.nn.LSTMCell, one step of `LSTM`.

    >>> h, c = recur.nn.LSTMCell(3, 4)(torch.randn(2, 3))
    >>> h.shape, c.shape
    (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    kernel = staticmethod(rnn_kernels.lstm_cell)

    def _make_cell(self) -> cells.Cell:
        return cells.LSTM()
