"""Functions that layers share: dropout, MLPs, memory-saving cross-entropy, and the initialisation of weights.

Initialisation of U, W, and the output matrix V of a model:

    torch           uniform ±1/√H, as torch.nn does, with the same draws for the same seed
    glorot          Glorot and Bengio 2010: U, W and V uniform, scaled to their widths; biases zero
    orthogonal      Saxe et al. 2014: W orthogonal, so its powers neither shrink nor grow; U and V Glorot; biases zero
    identity        Le, Jaitly and Hinton 2015 (IRNN, with ReLU): W = I, U and V normal with 0.001; biases zero
    identity:0.1    the same with W = 0.1 · I
    normal:0.01     all of U, W and V normal with this standard deviation; biases zero

A gate with σ(b) = 1 − 1/τ keeps a state for about τ steps. Chrono initialisation (Tallec and Ollivier 2018) spreads
these times evenly: per unit, b = log u with u uniform in 1 … T − 1 at the forget gate, and −b at the input gate. Other
biases of these gates are zero.

Each block of a gate (and of a head) is initialised as a matrix by itself. V is initialised like U; an embedding that
is tied to V is initialised as `embedding_init` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, dropout, linear
from torch.types import Device

from recur.cells.cell import Cell, Weights
from recur.compat import in_transform
from recur.errors import OptionError
from recur.nn.options import Init, check_memory, parse_scheme
from recur.utils.files import memory


def fast_dropout(x: Tensor, p: float) -> Tensor:
    """Apply dropout with probability p; kept entries are divided by 1 − p.

    On the CPU the mask is made of 16 random bits per entry. Drawing whole 64-bit words is faster than torch's Bernoulli
    draws, which take a tenth of the training time of a small network. p is rounded to the nearest 1/65536.
    """
    dropped = round(p * 65536)
    transformed = torch.compiler.is_compiling() or in_transform()
    if x.device.type != "cpu" or transformed or dropped in (0, 65536):
        return dropout(x, p)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits >= dropped - 32768).to(x.dtype).div_(1 - p)


def sequence_dropout(x: Tensor, p: float, *, training: bool, variational: bool) -> Tensor:
    """Apply dropout to x (B, T, D) while training.

    variational   one mask for all steps of a sequence (Gal and Ghahramani 2016); else one mask per step
    """
    if not (training and p):
        return x
    if not variational:
        return fast_dropout(x, p)
    return x * fast_dropout(x.new_ones(x.shape[0], 1, x.shape[2]), p)


MASKED_LOGIT = -1e4
"""Logit of a class that cannot occur. Its probability is exactly 0 in every precision, and 0 · log 0 is no NaN."""


def logit_mask(can: Sequence[bool] | None) -> Tensor | None:
    """Return what is added to logits (…, K): 0 where a class can occur, else MASKED_LOGIT; None if all can occur."""
    if can is None or all(can):
        return None
    return torch.tensor([0.0 if each else MASKED_LOGIT for each in can])


class MaskedLinear(nn.Linear):
    """Linear layer to logits in which classes that cannot occur have probability 0.

    The mask is a buffer and no part of the bias, so that neither weight decay nor a warm start changes it.
    """

    mask: Tensor | None

    def __init__(self, width: int, K: int, mask: Tensor | None = None, device: Device = None) -> None:
        super().__init__(width, K, device=device)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias if self.mask is None else self.bias + self.mask)

    def fold_mask(self) -> None:
        """Add the mask to the bias, for use without training."""
        if self.mask is not None:
            self.bias = nn.Parameter(self.bias.detach() + self.mask, requires_grad=False)
            self.mask = None


LOGITS_CHUNK_BYTES = {"cpu": 32 << 20, "cuda": 64 << 20}
"""Size of a chunk of float32 logits: on a CPU large, so that V is read seldom; on a GPU about the size of its L2 cache.
"""

MIN_CHUNK_ROWS = 16
"""Least number of rows per chunk; fewer rows would read V too often."""


def linear_cross_entropy(
    h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float = 0.0, chunk: int | None = None
) -> Tensor:
    """Return the mean cross-entropy of the logits h Vᵀ + c without holding all logits in memory.

    h         (N, H)
    weight    V, (K, H)
    bias      c, (K,)
    targets   (N,)
    chunk     bytes of logits held at a time; chosen by device if not given. If all logits fit, this is torch's
              cross_entropy. Under autocast, products have the autocast dtype and sums are float32.
    """
    N, K = len(h), len(weight)
    limit = LOGITS_CHUNK_BYTES.get(h.device.type, LOGITS_CHUNK_BYTES["cpu"]) if chunk is None else chunk
    if limit >= 4 * N * K:
        return cross_entropy(linear(h, weight, bias), targets, label_smoothing=smoothing)
    kind = h.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else h.dtype
    if h.dtype == torch.float64:
        dtype = h.dtype
    rows = max(MIN_CHUNK_ROWS, limit // (4 * K))
    rows = -(-N // -(-N // rows))  # as many in each chunk
    loss: Tensor = _LinearCrossEntropy.apply(h, weight, bias, targets, smoothing, rows, dtype)
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy by chunks of rows.

    The forward pass computes the gradients while the logits of a chunk exist; the backward pass multiplies them by ∂L.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        smoothing: float,
        rows: int,
        dtype: torch.dtype,
    ) -> Tensor:
        N, K = len(h), len(weight)
        wide = torch.promote_types(dtype, torch.float32)
        V, c, back = weight.to(dtype), bias.to(dtype), any(ctx.needs_input_grad)
        total = torch.zeros((), dtype=wide, device=h.device)
        dh = torch.empty_like(h, dtype=dtype) if back else None
        dV, dc = (torch.zeros_like(p, dtype=wide) if back else None for p in (weight, bias))
        with torch.autocast(h.device.type, enabled=False):
            for begin in range(0, N, rows):
                some, y = h[begin : begin + rows].to(dtype), targets[begin : begin + rows, None]
                logp = torch.addmm(c, some, V.t()).log_softmax(-1, dtype=wide)
                total -= (1 - smoothing) * logp.gather(1, y).sum()
                if smoothing:
                    total -= smoothing / K * logp.sum()
                if dh is None or dV is None or dc is None:
                    continue
                g = logp.exp_() if dtype == wide else torch.exp(logp, out=torch.empty_like(logp, dtype=dtype))
                if smoothing:
                    g -= smoothing / K
                g.scatter_add_(1, y, g.new_full(y.shape, smoothing - 1))
                dc += g.sum(0, dtype=wide)
                torch.mm(g, V, out=dh[begin : begin + rows])
                if dtype == wide:
                    dV.addmm_(g.t(), some)
                else:
                    dV += g.t() @ some
        ctx.save_for_backward(dh, dV, dc)
        ctx.dtypes = h.dtype, weight.dtype, bias.dtype
        return total / N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        N = len(ctx.saved_tensors[0])
        found = [
            (part * (above / N)).to(dtype) if wanted else None
            for part, dtype, wanted in zip(ctx.saved_tensors, ctx.dtypes, ctx.needs_input_grad, strict=False)
        ]
        return *found, None, None, None, None


def make_mlp(width: int, out: int, depth: int, device: Device, dtype: torch.dtype | None) -> nn.Sequential | None:
    """Return an MLP with `depth` tanh layers from `width` to `out` units, or None if depth is 0."""
    if not depth:
        return None
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, out, device=device, dtype=dtype), nn.Tanh()]
        width = out
    return nn.Sequential(*layers)


def make_between_mlps(
    widths: Sequence[int], depth: int, device: Device, dtype: torch.dtype | None
) -> nn.ModuleList | None:
    """Return one MLP after each recurrent layer but the last, for outputs of these widths; None if depth is 0."""
    if not depth:
        return None
    if len(widths) == 1:
        raise OptionError("depth.between needs at least two layers, got one")
    mlps = (make_mlp(width, width, depth, device, dtype) for width in widths[:-1])
    return nn.ModuleList(mlp for mlp in mlps if mlp is not None)


def reset_mlp(mlp: nn.Module | None) -> None:
    """Draw weights by Glorot initialisation; set biases to zero."""
    for layer in () if mlp is None else mlp.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def apply_mlp(mlp: nn.Module | None, x: Tensor, padding: Tensor | None) -> Tensor:
    """Apply an MLP if there is one. Padded steps are zero before and after it."""
    if mlp is None:
        return x
    if padding is None:
        return mlp(x)  # type: ignore[no-any-return]
    return mlp(x.masked_fill(padding, 0)).masked_fill(padding, 0)  # type: ignore[no-any-return]


def padding_mask(x: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
    """Return a mask (B, T, 1) that is True at steps beyond the length of their row."""
    ends = torch.as_tensor(lengths, device=x.device)
    return (torch.arange(x.shape[1], device=x.device) >= ends[:, None])[..., None]


@torch.no_grad()
def initialise(
    cell: Cell,
    weights: Weights,
    scheme: str = "torch",
    forget_bias: float | None = None,
    chrono: int | None = None,
) -> None:
    """Initialise the weights of one cell in place.

    forget_bias   bias of the forget gate (Jozefowicz et al. 2015)
    chrono        longest dependency T for chrono initialisation
    """
    name, number = parse_scheme(scheme)
    if name == "torch":
        H = cell.units(weights["weight_ih"].shape[0])
        bound = 1 / math.sqrt(H)  # written as torch writes it, so that the draws agree to the last bit
        for key in (k for k in weights if k not in cell.extras):
            nn.init.uniform_(weights[key], -bound, bound)
    else:
        fill_input, fill_recurrent = _fillers(name, number)
        for block in cell.blocks(weights["weight_ih"]):
            fill_input(block)
        if "weight_hh" in weights:
            _each_block(weights["weight_hh"], len(cell.recurrent_gates) * cell.heads, fill_recurrent)
        if "weight_hr" in weights:
            fill_input(weights["weight_hr"])
        for key in ("bias_ih", "bias_hh"):
            if key in weights:
                nn.init.zeros_(weights[key])
    cell.init_extras(weights)
    if name != "torch":
        for key in cell.recurrent_matrices:
            if key != "weight_hh":  # a recurrent matrix by another name
                fill_recurrent(weights[key])
    if forget_bias is not None:
        _set_bias(cell, weights, cell.forget_gate, forget_bias)
    if chrono is not None:
        H = weights["bias_ih"].shape[0] // len(cell.gates)
        drawn = torch.empty_like(weights["bias_ih"][:H]).uniform_(1, chrono - 1).log()
        _set_bias(cell, weights, cell.forget_gate, drawn)
        _set_bias(cell, weights, cell.input_gate, -drawn)


@torch.no_grad()
def initialise_linear(scheme: str, weight: Tensor, bias: Tensor | None = None) -> None:
    """Initialise another matrix such as V, and its bias, in place; for `torch` keep the layer's own draws."""
    name, number = parse_scheme(scheme)
    if name == "torch":
        return
    fill, _ = _fillers(name, number)
    fill(weight)
    if bias is not None:
        nn.init.zeros_(bias)


def check_weights_fit(
    shapes: Mapping[str, tuple[int, ...]], layers: int, device: Device, dtype: torch.dtype | None
) -> None:
    """Raise OptionError if the weights of the layers do not fit into memory, before anything is allocated.

    Otherwise torch would raise an error of its own, or the system would kill the process.
    """
    like = torch.empty(0, device=device, dtype=dtype)
    if like.device.type == "cpu":
        check_memory(layers * sum(map(math.prod, shapes.values())) * like.element_size(), memory())


def check_init(cell: Cell, init: Init, bias: bool) -> None:
    """Raise OptionError if an option of `init` does not apply to the cell."""
    who = type(cell).__name__
    if init.forget_bias is not None and cell.forget_gate is None:
        raise OptionError(f"{who} has no forget gate, so forget_bias has no effect")
    if init.chrono is not None and cell.forget_gate is None and cell.input_gate is None:
        raise OptionError(f"{who} has neither a forget nor an input gate, so chrono has no effect")
    for name in ("forget_bias", "chrono"):
        if getattr(init, name) is not None and not bias:
            raise OptionError(f"{who} is made without biases, so {name} has no effect")


Fill = Callable[[Tensor], object]


def _fillers(name: str, number: float) -> tuple[Fill, Fill]:
    """Return the functions that initialise a block of U and a block of W."""

    def scaled_identity(block: Tensor) -> None:
        nn.init.eye_(block).mul_(number)

    fillers: dict[str, tuple[Fill, Fill]] = {
        "glorot": (nn.init.xavier_uniform_, nn.init.xavier_uniform_),
        "orthogonal": (nn.init.xavier_uniform_, nn.init.orthogonal_),
        "identity": (lambda block: nn.init.normal_(block, std=0.001), scaled_identity),
        "normal": (lambda block: nn.init.normal_(block, std=number),) * 2,
    }
    return fillers[name]


def _each_block(matrix: Tensor, blocks: int, fill: Fill) -> None:
    for block in matrix.chunk(blocks):
        fill(block)


def _set_bias(cell: Cell, weights: Weights, gate: str | None, value: float | Tensor) -> None:
    for key, gates, start in (("bias_ih", cell.gates, value), ("bias_hh", cell.recurrent_gates, 0.0)):
        if gate in gates:
            weights[key].chunk(len(gates))[gates.index(gate)][:] = start
