"""Linear-chain conditional random field over tags.

    score(y | x) = start[y_1] + Σ_t x_t[y_t] + Σ_t transitions[y_{t−1}, y_t] + end[y_T]
    P(y | x)     = exp(score(y | x) − log Z),   log Z = log Σ_y exp(score(y | x))

Lafferty, McCallum and Pereira 2001; on top of a recurrent network, Lample et al. 2016. x (B, T, K) are the scores of a
network, and the weights are those of torchcrf (`start_transitions`, `transitions`, `end_transitions`).

log Z is one forward pass, α_t = log(exp(α_{t−1}) · exp(transitions)) + x_t; its gradient, the marginals, is one
backward pass. `log_partition` computes both as vector-matrix products in float64, with the largest term factored out.
`plain_log_partition` is the definition in logarithms: `log_partition` must equal it, and uses it if a sum underflows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from recur.errors import ShapeError

FORBIDDEN = -1e5
"""Score of a forbidden transition: taken only if there is no other path."""


class Transitions(NamedTuple):
    """Scores of transitions, or a mask of allowed ones: first tag (K,), tag after tag (K, K), last tag (K,)."""

    start: Tensor
    between: Tensor
    end: Tensor

    @classmethod
    def nothing(cls, like: Tensor) -> Transitions:
        """Return zero scores: every tag is independent of its neighbours."""
        K = like.shape[-1]
        return cls(like.new_zeros(K), like.new_zeros(K, K), like.new_zeros(K))


class NBest(NamedTuple):
    """The n best taggings of each sequence."""

    tags: Tensor
    """(B, n, T), 0 after the end of a sequence."""
    scores: Tensor
    """(B, n), best first; −∞ if a sequence has fewer than n taggings."""


class CRF(nn.Module):
    """Conditional random field over K tags.

    allowed   transitions that `nbest` and `marginals` may use. The likelihood uses all transitions, so that sequences
              that break the rules have a probability too.

    >>> crf, scores = recur.nn.CRF(3), torch.randn(1, 4, 3)
    >>> best = crf.nbest(scores, torch.tensor([4]), 2)
    >>> best.tags.shape                                 # the two likeliest sequences of four tags
    torch.Size([1, 2, 4])
    """

    def __init__(self, K: int, allowed: Transitions | None = None) -> None:
        super().__init__()
        self.K = K
        self.start = nn.Parameter(torch.empty(K).uniform_(-0.1, 0.1))
        self.transitions = nn.Parameter(torch.empty(K, K).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(K).uniform_(-0.1, 0.1))
        for name, part in (allowed or Transitions(None, None, None))._asdict().items():  # type: ignore[arg-type]
            self.register_buffer(f"allowed_{name}", part, persistent=False)

    @property
    def allowed(self) -> Transitions | None:
        """Mask of the allowed transitions; None if all are allowed."""
        found = [getattr(self, f"allowed_{name}") for name in Transitions._fields]
        return None if found[0] is None else Transitions(*found)

    def moves(self, constrained: bool = True) -> Transitions:
        weights, allowed = (self.start, self.transitions, self.end), self.allowed
        if not constrained or allowed is None:
            return Transitions(*weights)
        return Transitions(*(w.masked_fill(~a, FORBIDDEN) for w, a in zip(weights, allowed, strict=True)))

    def log_likelihood(self, x: Tensor, lengths: Tensor, tags: Tensor) -> Tensor:
        """Return log P of the tags (B, T) of each row, shape (B,). Tags after the end of a row are ignored."""
        check_scores(self.K, x, lengths)
        x = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x  # sums over time want more digits
        moves = self.moves(constrained=False)
        return path_score(x, lengths, moves, tags) - log_partition(x, lengths, moves)

    def marginals(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return P(y_t = k | x), shape (B, T, K), zero after the end of a row."""
        check_scores(self.K, x, lengths)
        return marginals(x, lengths, self.moves())

    def nbest(self, x: Tensor, lengths: Tensor, n: int = 1) -> NBest:
        """Return the n most likely taggings; scores are log P among allowed taggings."""
        check_scores(self.K, x, lengths)
        with torch.no_grad():
            found = viterbi(x, lengths, self.moves(), n)
            total = log_partition(x, lengths, self.moves())
        return NBest(found.tags, found.scores - total[:, None])


class FixedCRF(CRF):
    """Conditional random field with given transition scores that are not trained, such as those of a mixture."""

    def __init__(self, moves: Transitions, allowed: Transitions | None = None) -> None:
        nn.Module.__init__(self)
        self.K = len(moves.start)
        for name, part in zip(("start", "transitions", "end"), moves, strict=True):
            self.register_buffer(name, part.detach().clone())
        for name, part in (allowed or Transitions(None, None, None))._asdict().items():  # type: ignore[arg-type]
            self.register_buffer(f"allowed_{name}", part, persistent=False)


def check_scores(K: int, x: Tensor, lengths: Tensor) -> None:
    if x.dim() != 3 or x.shape[-1] != K:
        raise ShapeError(f"CRF: x must be (B, T, K={K}), got {tuple(x.shape)}")
    if lengths.shape != x.shape[:1] or not 1 <= int(lengths.min()) <= int(lengths.max()) <= x.shape[1]:
        raise ShapeError(f"CRF: lengths must be ({len(x)},), each 1 … {x.shape[1]}, got {lengths.tolist()}")


def length_mask(x: Tensor, lengths: Tensor) -> Tensor:
    """Return a mask (B, T) that is True at steps inside their sequence."""
    return torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None]


def path_score(x: Tensor, lengths: Tensor, moves: Transitions, tags: Tensor) -> Tensor:
    """Return the score of one path per row, shape (B,)."""
    there = length_mask(x, lengths)
    tags = tags.masked_fill(~there, 0)
    at_steps = x.gather(2, tags[..., None])[..., 0].masked_fill(~there, 0).sum(1)
    between = moves.between[tags[:, :-1], tags[:, 1:]].masked_fill(~there[:, 1:], 0).sum(1)
    last = tags.gather(1, lengths.to(tags.device)[:, None] - 1)[:, 0]
    return moves.start[tags[:, 0]] + at_steps + between + moves.end[last]


# The sum over all paths -----------------------------------------------------------------------------------------


def plain_log_partition(x: Tensor, lengths: Tensor, moves: Transitions) -> Tensor:
    """Return log Z (B,) by the forward algorithm as written, differentiated by autograd."""
    there = length_mask(x, lengths)
    alpha = moves.start + x[:, 0]
    for t in range(1, x.shape[1]):
        new = torch.logsumexp(alpha[:, :, None] + moves.between, dim=1) + x[:, t]
        alpha = torch.where(there[:, t, None], new, alpha)
    return torch.logsumexp(alpha + moves.end, dim=1)


def log_partition(x: Tensor, lengths: Tensor, moves: Transitions) -> Tensor:
    """Return log Z, shape (B,)."""
    total: Tensor = _LogPartition.apply(x, lengths.to(x.device), *moves)
    if bool(torch.isfinite(total).all()):
        return total
    return plain_log_partition(x, lengths, moves)


def marginals(x: Tensor, lengths: Tensor, moves: Transitions) -> Tensor:
    """Return P(y_t = k), shape (B, T, K): the gradient of log Z with respect to x."""
    with torch.enable_grad():
        x = x.detach().double().requires_grad_()
        total = log_partition(x, lengths, Transitions(*(part.detach().double() for part in moves)))
        (found,) = torch.autograd.grad(total.sum(), x)
    return found


class _LogPartition(torch.autograd.Function):
    """log Z with α and β as probabilities, normalised by c_t at each step (Rabiner 1989); log Z = Σ_t log c_t."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: Tensor, start: Tensor, between: Tensor, end: Tensor) -> Tensor:
        there, (B, T, K) = length_mask(x, lengths), x.shape
        last = lengths - 1
        highest = x.detach().amax(2, keepdim=True)
        e = (x - highest).double().exp_()
        first, A, final = ((part - part.max()).double().exp() for part in (start, between, end))
        alpha = e.new_empty(T, B, K)
        c = e.new_empty(T, B, 1)
        steps = e.transpose(0, 1).contiguous()
        before = first
        for t in range(T):
            a = steps[t] * (before @ A if t else before)
            torch.sum(a, 1, keepdim=True, out=c[t])
            before = torch.div(a, c[t], out=alpha[t])
        rows = torch.arange(B, device=x.device)
        ends = alpha[last, rows] @ final
        logs = c[..., 0].log().t().masked_fill(~there, 0).sum(1) + ends.log()
        logs += highest[..., 0].double().masked_fill(~there, 0).sum(1)
        logs += last * between.max().double() + (start.max() + end.max()).double()
        ctx.save_for_backward(alpha, c, steps, A, final, ends, last, there)
        ctx.dtypes = x.dtype, start.dtype
        return logs.to(torch.promote_types(x.dtype, start.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        alpha, c, steps, A, final, ends, last, there = ctx.saved_tensors
        T, B, K = alpha.shape
        g = grad.double()
        rows = torch.arange(B, device=alpha.device)
        at_end = (final / ends[:, None]).expand(B, K)
        beta = torch.empty_like(alpha)
        beta[T - 1] = at_end
        onward = torch.empty_like(alpha)  # e_t β_t / c_t: what step t hands to the step before it
        inner = there.t()[..., None]
        for t in range(T - 1, 0, -1):
            torch.mul(steps[t], beta[t], out=onward[t]).div_(c[t])
            beta[t - 1] = torch.where(inner[t], onward[t] @ A.t(), at_end)
        found = (alpha * beta * g[:, None]).masked_fill_(~inner, 0)
        moved = (alpha[:-1] * g[:, None]).masked_fill_(~inner[1:], 0).reshape(-1, K)
        between = A * (moved.t() @ onward[1:].reshape(-1, K))
        dtype, own = ctx.dtypes
        d_start, d_end = found[0].sum(0), found[last, rows].sum(0)
        return found.transpose(0, 1).to(dtype), None, d_start.to(own), between.to(own), d_end.to(own)


# The best of all paths ------------------------------------------------------------------------------------------


def viterbi(x: Tensor, lengths: Tensor, moves: Transitions, n: int = 1) -> NBest:
    """Return the n best paths of each row and their scores (Viterbi 1967); every tag keeps its n best paths."""
    (B, T, K), there = x.shape, length_mask(x, lengths)
    start, between, end = (part.double() for part in moves)
    x = x.double()
    best = x.new_full((B, K, n), -torch.inf)
    best[:, :, 0] = start + x[:, 0]
    behind = []  # for each step: where the j-th best path to each tag came from, tag · n + its place there
    stay = torch.arange(K * n, device=x.device).view(K, n).expand(B, K, n)
    for t in range(1, T):
        candidates = (best[..., None] + between[:, None, :]).reshape(B, K * n, K)
        found, origin = _highest(candidates, n)
        inner = there[:, t, None, None]
        best = torch.where(inner, found.transpose(1, 2) + x[:, t, :, None], best)
        behind.append(torch.where(inner, origin.transpose(1, 2), stay))
    scores, at = _highest((best + end[:, None]).reshape(B, K * n, 1), n)
    at = at[..., 0]
    path = [at // n]
    for origin in reversed(behind):
        at = origin.flatten(1).gather(1, at)
        path.append(at // n)
    tags = torch.stack(path[::-1], 2).masked_fill(~there[:, None], 0)
    return NBest(tags, scores[..., 0])


def _highest(candidates: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the n highest values along dimension 1 and their indices."""
    if n == 1:
        return tuple(candidates.max(1, keepdim=True))  # type: ignore[return-value]
    values, at = candidates.topk(min(n, candidates.shape[1]), 1)
    return values, at
