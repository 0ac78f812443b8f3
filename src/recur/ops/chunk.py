"""Backend `chunk`: matrix states by chunks of steps, in PyTorch operations, from the normal form of a cell.

For the recurrence of `recur.compiler.matrix`, with G the cumulated decay of a chunk that starts from S₀:

    (I − F) E = R̃ S₀ + L U        R̃_t = G_{t−1} r_t,   L[t,i; s,j] = r_tiᵀ (G_{t−1} / G_s) p_sj  for s < t,   F = L A
    S_C = G_C S₀ + Σ_s (G_C / G_s) p_s y_sᵀ,   y = u + A e

All chunks are prepared at once; what runs in sequence is one product per chunk, S_C = M S₀ + N. The adjoint
Λ_t = ∂L/∂S_t obeys the same recurrence in reversed time, with reads and writes exchanged:

    ȳ_j = Λ_tᵀ p_j        ē_i = Ē_i + Σ_j A_ji ȳ_j        Λ_{t−1} = ξ_t (diag(a_t) Λ_t + Σ_i r_i ē_iᵀ)

so that `solve` serves both passes, and ξ (truncated backpropagation) is exact at every step. Ratios of decays are sums
of logarithms over the steps between s and t, never a division by a cumulated decay: a may be 0.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from recur.cells.cell import State
from recur.cells.matrix import Dims, MatrixCell
from recur.compat import in_transform
from recur.compiler.matrix import NormalForm, matrix_form, resolve_output, running_maximum, trace_matrix
from recur.errors import BackendError
from recur.ops.call import ScaleGradient, ScanCall
from recur.ops.parallel import SegmentBlocks, affine_scan

CHUNK, SMALL_CHUNK = 64, 16
"""The number of steps of a chunk; the small one for a decay over K that is too strong for two factors: it needs K masks
of chunk × chunk."""

STRONGEST = {torch.float32: 60.0, torch.float64: 300.0}
"""The largest −log of a cumulated decay over a chunk for which G_{t−1} / G_s is the product of two factors, one of t
and one of s, about the middle of the chunk: none of them overflows."""

SHORTEST = 4
"""`auto` takes the loop for fewer steps."""


def computes_in(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for 16-bit results: states and sums need it."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def unsupported_reason(call: ScanCall) -> str | None:
    if not isinstance(call.cell, MatrixCell):
        return "it takes cells with a matrix state"
    if call.bptt.clip is not None:
        return "clip bounds the gradient of one step after the other, and this takes a chunk at once"
    if call.trace.wanted:
        return "it does not keep the gradient of the state of every step, which the trace records"
    if torch.compiler.is_compiling():
        return "torch.compile cannot trace it"
    if call.xi is not None and (in_transform() or bool((call.xi < 0).any())):
        return "ξ needs its own backward pass, with ξ ≥ 0 and outside transforms of torch.func"
    return missing_form(call.cell)


def missing_form(cell: MatrixCell) -> str | None:
    """Return why a cell has no chunkwise form; None if it has one."""
    found = matrix_form(cell)
    return found if isinstance(found, str) else None


def slower_reason(call: ScanCall) -> str | None:
    """Return why `auto` should choose the loop."""
    return f"fewer than {SHORTEST} steps" if len(call.sizes) < SHORTEST else None


def run(call: ScanCall) -> tuple[Tensor, State]:
    cell, weights, x, packing = call.cell, call.weights, call.x, call.packing
    assert isinstance(cell, MatrixCell)
    dims = cell.dims(call.widths[0])
    w = cell.tuple_of("w")._make(weights[name] for name in cell.extras)
    U, b = weights["weight_ih"], weights.get("bias_ih")
    if packing is None:
        xi = None if call.xi is None else call.xi.view(x.shape[1], x.shape[0]).t()
        outputs, state = run_block(cell, dims, linear(x, U, b), w, call.start, None, xi)
        return outputs, (outputs[:, -1], *state)
    share = linear(call.data, U, b)
    grid = SegmentBlocks.of(packing.sizes, share.device)
    steps = packing.steps
    edges = None if call.xi is None else grid.spread(call.xi.to(share.device)[:, None])
    found: list[Tensor] = []
    states: list[State] = []
    for k, (part, rows) in enumerate(zip(grid.spread(share), grid.rows, strict=True)):
        start = None if call.start is None else tuple(value[rows] for value in call.start)
        ended = torch.arange(part.shape[0], device=part.device) >= steps[rows, None]  # (rows, T)
        xi = None if edges is None else edges[k][..., 0].t().masked_fill(ended, 1.0)
        outputs, state = run_block(cell, dims, part.transpose(0, 1), w, start, ended, xi)
        found.append(outputs.transpose(0, 1))
        states.append(state)
    packed = grid.packed(found)
    return packed, (grid.last(packed), *(torch.cat(parts) for parts in zip(*states, strict=True)))


def run_block(
    cell: MatrixCell,
    dims: Dims,
    share: Tensor,
    w: Any,
    start: State | None,
    ended: Tensor | None,
    xi: Tensor | None,
) -> tuple[Tensor, State]:
    """Run rows of the same length; return the outputs (B, T, H) and the final states after h.

    share   (B, T, rows of weight_ih): the input projections
    ended   (B, T), bool: padding after the end of a row
    xi      (B, T): factors of the carried gradient
    """
    B, T, _ = share.shape
    xi = None if xi is None else xi.to(share.device, share.dtype)  # it is drawn on the CPU
    x = cell.tuple_of("x")._make(cell.split(share))
    mask = None if ended is None else ended[..., None, None]
    m_start = None
    if cell.stabilised:
        m_start = share.new_zeros(B, dims.heads, 1) if start is None else start[2][..., None]
    maximum = running_maximum if xi is None else functools.partial(truncated_maximum, xi)
    form = trace_matrix(cell, x, w, dims.K, mask, m_start, maximum)
    S0 = (
        share.new_zeros(B, dims.heads, dims.K, dims.columns)
        if start is None
        else start[1].view(B, dims.heads, dims.K, dims.columns)
    )
    reads, final = solve_form(form, dims, S0, xi)
    o = resolve_output(form, reads)
    cell.check_output(o, (B, T, dims.heads, dims.V))
    state = [final.reshape(B, -1)]
    if form.m is not None:
        state.append(form.m[:, -1, :, 0])
    return o.flatten(-2), tuple(state)


def solve_form(form: NormalForm, dims: Dims, S0: Tensor, xi: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
    """Return the reads of every step, (B, T, heads, V) each, and the last state (B, heads, K, V)."""
    B, T, heads = form.P[0].shape[:3]
    V = dims.columns
    zero = S0.new_zeros(1)

    def folded(parts: Sequence[Tensor]) -> Tensor:  # heads are rows: (B · heads, T, parts, size)
        return torch.stack(list(parts), dim=-2).transpose(1, 2).reshape(B * heads, T, len(parts), -1)

    P, R = folded(form.P), folded(form.R)
    U = folded([(zero if u is None else u).expand(B, T, heads, V) for u in form.U])
    A = None
    if any(form.A):
        of_reads = [[_number(row.get(i, 0.0), S0).expand(B, T, heads, 1) for i in range(len(form.R))] for row in form.A]
        A = torch.stack([torch.cat(row, dim=-1) for row in of_reads], dim=-2)  # (B, T, heads, M, J)
        A = A.transpose(1, 2).reshape(B * heads, T, *A.shape[-2:])
    log_a = None
    if form.log_a is not None:
        log_a = form.log_a.transpose(1, 2).reshape(B * heads, T, -1)
    size, factored = min(CHUNK, T), False
    if form.decay == "vector":
        fitting = [steps for steps in (size, SMALL_CHUNK) if xi is None and is_weak(log_a, steps)]
        size, factored = (fitting[0], True) if fitting else (min(SMALL_CHUNK, T), False)
    rows = None if xi is None else xi.repeat_interleave(heads, 0)
    start = S0.reshape(B * heads, dims.K, V)
    if in_transform():
        E, last = solve_composite(log_a, P, R, A, U, start, size)
    else:
        E, last = ChunkScan.apply(size, factored, rows, log_a, P, R, A, U, start)
    reads = E.view(B, heads, T, len(form.R), V).transpose(1, 2).unbind(-2)
    return list(reads), last.view(B, heads, dims.K, V)


def truncated_maximum(xi: Tensor, log_f: Tensor, log_i: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Return the running maximum and the one before every step; the gradient carried to m_{t−1} is multiplied by ξ_t.

    Given which argument of the maximum is larger, m is an affine recurrence.
    """
    with torch.no_grad():
        _, before = running_maximum(log_f, log_i, start)
        carried = log_f + before >= log_i
    b = torch.where(carried, log_f, log_i)
    across = xi.t()[..., None]
    by_time = [part.squeeze(-1).transpose(0, 1) for part in (carried.to(b.dtype), b)]
    m = affine_scan([by_time[0]], [by_time[1]], [start.squeeze(-1)], across, bounded=True)[0]
    m = m.transpose(0, 1)[..., None]
    before = torch.cat([start[:, None], m[:, :-1]], dim=1)
    return m, ScaleGradient.apply(xi[..., None, None], None, before)[0]


def _number(value: Tensor | float, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else like.new_tensor([value])


# The chunkwise form ---------------------------------------------------------------------------------------


def is_weak(log_a: Tensor | None, size: int) -> bool:
    """Return True if no decay over a chunk is stronger than STRONGEST."""
    if log_a is None or in_transform():
        return False
    with torch.no_grad():
        return bool(chunked(log_a, size).sum(2).min() > -STRONGEST[log_a.dtype])


class Decays(NamedTuple):
    """Products of decays inside the chunks, (…, C, k); k is 1 or K."""

    before: Tensor
    """From the start of the chunk to before step t: G_{t−1}."""
    after: Tensor
    """From after step t to the end of the chunk: G_C / G_t."""
    total: Tensor
    """Over the chunk, (…, k)."""
    between: Tensor
    """Between the steps s and t, both excluded, (…, t, s, k), 0 unless s < t; only 0 and 1 if there are factors."""
    factors: tuple[Tensor, Tensor] | None = None
    """Two factors (…, C, K) of the decay between s and t: of t and of s."""


def decays_of(log_a: Tensor | None, like: Tensor, factored: bool = False) -> Decays:
    """Return the products of decays of chunks; log_a (…, C, k), like (…, C, M, K)."""
    C = like.shape[-3]
    earlier = torch.ones(C, C, dtype=torch.bool, device=like.device).tril(-1)
    if log_a is None:
        one = like.new_ones(C, 1)
        return Decays(one, one, one[0], earlier.to(like.dtype)[..., None])
    shifted = pad(log_a[..., :-1, :], (0, 0, 1, 0))  # the decay of the step before
    behind = pad(log_a[..., 1:, :], (0, 0, 0, 1)).flip(-2).cumsum(-2).flip(-2)
    before, total = shifted.cumsum(-2), log_a.sum(-2)
    if factored:
        middle = total[..., None, :] / 2
        factors = (before - middle).exp(), (behind - middle).exp()
        mask = earlier.to(like.dtype)[..., None]
        return Decays(before.exp(), behind.exp(), total.exp(), mask, factors)
    table = shifted[..., :, None, :].masked_fill(~earlier.tril(-2)[..., None], 0.0).cumsum(-3)
    between = table.masked_fill(~earlier[..., None], -torch.inf).exp()
    return Decays(before.exp(), behind.exp(), total.exp(), between)


def pairs(left: Tensor, ratios: Decays, right: Tensor) -> Tensor:
    """Return Σ_k left_tik decay_tsk right_sjk, (…, t, i, s, j)."""
    decays = ratios.between
    if ratios.factors is not None:
        left, right = left * ratios.factors[0][..., None, :], right * ratios.factors[1][..., None, :]
    if decays.shape[-1] == 1:
        products: Tensor = torch.einsum("...tik,...sjk->...tisj", left, right)
        return products * decays[..., :, None, :, :]
    return torch.einsum("...tik,...tsk,...sjk->...tisj", left, decays, right)


def chunked(value: Tensor, size: int) -> Tensor:
    """Split time into chunks, (N, T, …) → (N, T / size, size, …), with zeros after the end."""
    T = value.shape[1]
    padded = pad(value, (*[0] * (2 * value.dim() - 4), 0, -T % size))
    split: Tensor = padded.unflatten(1, (-1, size))
    return split


def solve(
    log_a: Tensor | None, P: Tensor, R: Tensor, A: Tensor | None, U: Tensor, S0: Tensor, decays: Decays
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the reads E (N, chunks, C, J, V), the states before every chunk (N, chunks, K, V), and the last one.

    All arguments but S0 are chunked: P (N, chunks, C, M, K), R (…, J, K), A (…, M, J), U (…, M, V).
    """
    C, J = R.shape[2], R.shape[3]
    V = U.shape[-1]
    L = pairs(R, decays, P)  # (N, chunks, C, J, C, M)
    reach = R * decays.before[..., None, :]
    late = P * decays.after[..., None, :]
    W, Z = reach, (L.flatten(2, 3).flatten(-2) @ U.flatten(2, 3)).unflatten(2, (C, J))
    if A is not None:
        F = torch.einsum("...tjsm,...smi->...tjsi", L, A).flatten(2, 3).flatten(-2)
        both = torch.linalg.solve_triangular(
            -F, torch.cat([W, Z], dim=-1).flatten(2, 3), upper=False, unitriangular=True
        )
        W, Z = both.unflatten(2, (C, J)).split([P.shape[-1], V], dim=-1)
    written = U if A is None else U + A @ Z
    late_flat = late.flatten(2, 3).transpose(-1, -2)  # (N, chunks, K, C · M)
    added = late_flat @ written.flatten(2, 3)
    total = decays.total.expand(*late.shape[:2], -1)[..., None]
    state, states = S0, []
    if A is None:
        for k in range(late.shape[1]):
            states.append(state)
            state = total[:, k] * state + added[:, k]
    else:
        carry = late_flat @ (A @ W).flatten(2, 3)  # (N, chunks, K, K)
        carry = carry + torch.diag_embed(total[..., 0].expand(*carry.shape[:-1]))
        for k in range(late.shape[1]):
            states.append(state)
            state = torch.baddbmm(added[:, k], carry[:, k], state)
    starts = torch.stack(states, dim=1)
    E = Z + (W.flatten(2, 3) @ starts).unflatten(2, (C, J))
    return E, starts, state


def solve_composite(
    log_a: Tensor | None, P: Tensor, R: Tensor, A: Tensor | None, U: Tensor, S0: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """Return the reads (N, T, J, V) and the last state by operations that autograd can differentiate repeatedly."""
    T = P.shape[1]
    P, R, U = (chunked(part, size) for part in (P, R, U))
    log_a, A = (None if part is None else chunked(part, size) for part in (log_a, A))
    E, _, last = solve(log_a, P, R, A, U, S0, decays_of(log_a, P))
    return E.flatten(1, 2)[:, :T], last


class ChunkScan(torch.autograd.Function):
    """The chunkwise form with its adjoint, which solves the same system in reversed time."""

    @staticmethod
    def forward(
        ctx: Any,
        size: int,
        factored: bool,
        xi: Tensor | None,
        log_a: Tensor | None,
        P: Tensor,
        R: Tensor,
        A: Tensor | None,
        U: Tensor,
        S0: Tensor,
    ) -> tuple[Tensor, Tensor]:
        T = P.shape[1]
        parts = [chunked(part, size) for part in (P, R, U)]
        logs, coefficients = (None if part is None else chunked(part, size) for part in (log_a, A))
        decays = decays_of(logs, parts[0], factored)
        E, starts, last = solve(logs, parts[0], parts[1], coefficients, parts[2], S0, decays)
        reads = E.flatten(1, 2)[:, :T]
        ctx.size, ctx.factored = size, factored
        ctx.set_materialize_grads(True)
        ctx.save_for_backward(xi, log_a, P, R, A, U, S0, E, starts, last)
        return reads, last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        of_reads, of_last = grads
        xi, log_a, P, R, A, U, S0, E, starts, last = ctx.saved_tensors
        if torch.is_grad_enabled():  # this backward pass is itself recorded
            if xi is not None:
                raise BackendError("a truncated backward pass that is itself recorded needs backend='loop'")
            given = [log_a, P, R, A, U, S0]
            views: list[Any] = [None if part is None else part.view_as(part) for part in given]
            made = solve_composite(views[0], views[1], views[2], views[3], views[4], views[5], ctx.size)
            needed = [part is not None and part.requires_grad for part in views]
            wanted = [part for part, needs in zip(views, needed, strict=True) if needs]
            found = iter(torch.autograd.grad(made, wanted, (of_reads, of_last), create_graph=True, allow_unused=True))
            return None, None, None, *(next(found) if needs else None for needs in needed)
        return (
            None,
            None,
            None,
            *adjoint(ctx.size, ctx.factored, xi, log_a, P, R, A, U, E, starts, last, of_reads, of_last),
        )


def adjoint(
    size: int,
    factored: bool,
    xi: Tensor | None,
    log_a: Tensor | None,
    P: Tensor,
    R: Tensor,
    A: Tensor | None,
    U: Tensor,
    E: Tensor,
    starts: Tensor,
    last: Tensor,
    of_reads: Tensor,
    of_last: Tensor,
) -> list[Tensor | None]:
    """Return the gradients of log_a, P, R, A, U and S0, by `solve` in reversed time."""
    T = P.shape[1]
    P, R, U, of_reads = (chunked(part, size) for part in (P, R, U, of_reads))
    A = None if A is None else chunked(A, size)
    forward_log = None if log_a is None else chunked(log_a, size)
    decays = decays_of(forward_log, P, factored)
    back_log, back_R = forward_log, R
    if xi is not None:
        factors = pad(xi, (0, -T % size), value=1.0).unflatten(1, (-1, size))[..., None]
        back_log = factors.log() if forward_log is None else forward_log + factors.log()
        back_R = R * factors[..., None]

    def flipped(part: Tensor | None) -> Any:
        return None if part is None else part.flip(1, 2)

    reversed_A = None if A is None else A.transpose(-1, -2)
    reversed_log = flipped(back_log)
    Y_bar, ends, of_start = solve(
        reversed_log, flipped(back_R), flipped(P), flipped(reversed_A), flipped(of_reads), of_last,
        decays_of(reversed_log, P, factored and xi is None),
    )  # fmt: skip
    Y_bar, ends = Y_bar.flip(1, 2), ends.flip(1)  # the gradient of what is written; Λ after the last step of each chunk
    Y = U if A is None else U + A @ E
    E_bar = of_reads if A is None else of_reads + A.transpose(-1, -2) @ Y_bar
    back = decays if xi is None else decays_of(back_log, P)

    products = torch.einsum("...smv,...tjv->...smtj", Y, E_bar)  # written at s, read at t
    if decays.between.shape[-1] == 1 and back.between.shape[-1] == 1:
        of_t, of_s = (None, None) if decays.factors is None else (part[..., None, :] for part in decays.factors)
        late_R, early_P = (back_R, P) if of_t is None or of_s is None else (back_R * of_t, P * of_s)
        to_P = products * back.between[..., 0].transpose(-1, -2)[..., :, None, :, None]
        to_R = products * decays.between[..., 0].transpose(-1, -2)[..., :, None, :, None]
        P_bar = (to_P.flatten(-4, -3).flatten(-2) @ late_R.flatten(-3, -2)).view_as(P)
        R_bar = (to_R.flatten(-4, -3).flatten(-2).transpose(-1, -2) @ early_P.flatten(-3, -2)).view_as(R)
        if of_t is not None and of_s is not None:
            P_bar, R_bar = P_bar * of_s, R_bar * of_t
    else:
        P_bar = torch.einsum("...smtj,...tsk,...tjk->...smk", products, back.between, back_R)
        R_bar = torch.einsum("...smtj,...tsk,...smk->...tjk", products, decays.between, P)
    P_bar = P_bar + back.after[..., None, :] * (Y @ ends[:, :, None].transpose(-1, -2))
    R_bar = R_bar + decays.before[..., None, :] * (E_bar @ starts[:, :, None].transpose(-1, -2))

    log_bar = None
    if log_a is not None:
        after = torch.cat([starts[:, 1:], last[:, None]], dim=1)
        meeting = (after * ends).sum(-1)  # Σ_v S ∘ Λ at the end of every chunk, (N, chunks, K)
        wrote, read = (P * P_bar).sum(-2), (R * R_bar).sum(-2)
        if xi is None:
            inside = read - wrote
            log_bar = meeting[..., None, :] + inside.flip(2).cumsum(2).flip(2) - read
        else:
            through = decays_of(factors.log(), P)
            crossing = through.between[..., 0].transpose(-1, -2) * factors.transpose(-1, -2)  # Π ξ over (t, s]
            log_bar = crossing @ (read - wrote) + through.after * meeting[..., None, :] - wrote
        if log_a.shape[-1] == 1:
            log_bar = log_bar.sum(-1, keepdim=True)
        log_bar = log_bar.flatten(1, 2)[:, :T]
    A_bar = None if A is None else (Y_bar @ E.transpose(-1, -2)).flatten(1, 2)[:, :T]
    P_bar, R_bar, U_bar = (part.flatten(1, 2)[:, :T] for part in (P_bar, R_bar, Y_bar))
    return [log_bar, P_bar, R_bar, A_bar, U_bar, of_start]
