"""Probes of how much context a language model uses.

loss by context      each token predicted from its last n tokens alone, from a zero state
loss by position     along a window, from a zero state and from the one carried to it
saliency             of one prediction: ‖∂ log p / ∂x_{t−k}‖, x the network's input for an earlier token
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from recur.baselines.classifiers import fit_softmax
from recur.data.text import Ids
from recur.decoding import SamplingOptions, generate
from recur.diagnostics.finding import Finding, Level, Measurement, wider_window
from recur.diagnostics.subject import Subject
from recur.errors import OptionError
from recur.i18n import Message
from recur.models import LanguageModel
from recur.tasks.language.data import corpora, first_input, in_reading_order
from recur.utils.types import JsonObject

CONTEXT_TOLERANCE = 0.02
"""Nats: the shortest context whose loss is this near the best is all that is used."""
LITTLE = 4
"""A model that uses fewer tokens is no better than an n-gram."""
BEYOND = 1 / 8
"""Of what all context brings: a larger share from beyond the window is too much. Planted windows of 2 had 0.35 to 0.50,
other runs less than 0.04."""
NATS = 0.02
"""… if it is that much a token at least …"""
CERTAIN = 3
"""… and so many standard errors, so that it is not chance where it was measured."""
PLACES, READ = 1000, 100_000
"""Tokens that are predicted from each context, and that are read for it in all, at most."""
WIDEN, SHORTEST = 4, 32
"""A window that is too short becomes so many times as long, and at least this."""
HARM = -0.05
"""Nats a token: a carried state that is worth less does harm."""


@torch.no_grad()
def losses(subject: Subject) -> Tensor:
    """(N,): −log p of each token of the text, the state carried through all of it."""
    x, y = subject.rows(1, len(subject.inputs))
    return cross_entropy(subject.model(x).logits[0], y[0], reduction="none").double()


@torch.no_grad()
def losses_by_context(subject: Subject, lengths: tuple[int, ...], places: int) -> dict[int, Tensor]:
    """−log p of the same tokens, from each number of tokens before them that is at most half of the text."""
    model, N = subject.model, len(subject.inputs)
    assert isinstance(model, LanguageModel)
    lengths = tuple(n for n in lengths if n <= N // 2) or (1,)
    at = torch.linspace(max(lengths), N - 1, min(places, N - max(lengths))).long()
    found = {}
    for n in lengths:
        x = subject.inputs[at[:, None] + torch.arange(-n, 0)].long()
        logits = model.logits_of(model(x).outputs[:, -1])  # of the last step alone
        found[n] = cross_entropy(logits, subject.inputs[at].long(), reduction="none").double()
    return found


def loss_by_context(
    subject: Subject, lengths: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128), places: int = 256
) -> Measurement:
    """The loss of the same tokens, predicted from more and more of the text before them."""
    found = {n: float(each.mean()) for n, each in losses_by_context(subject, lengths, places).items()}
    longest = max(found)
    numbers: JsonObject = {"lengths": list(found), "losses": list(found.values())}
    best = min(found.values())
    used = next(n for n, loss in found.items() if loss <= best + CONTEXT_TOLERANCE)
    numbers["window"] = subject.backpropagated
    best_gain = found[min(found)] - best
    detail = Message(
        "{used} tokens of context are as good as {longest}: {gain:.2f} nats per token better than the last token alone",
        used=used, longest=longest, gain=best_gain,
    )  # fmt: skip
    if used < LITTLE and longest > 8:
        verdict = Message("the network uses almost no context: {detail}", detail=detail)
        finding = Finding("context", Level.WARNING, used, LITTLE, verdict)
    else:
        finding = Finding(
            "context", Level.OK, used, LITTLE, Message("the network uses its context: {detail}", detail=detail)
        )
    return Measurement(finding, numbers)


def window(subject: Subject) -> Measurement:
    """Whether the network gains by context from beyond the steps that its gradients reached back over: then it would
    learn to use more of it, were they to reach further. How much gradient lies there says nothing of that."""
    trained = subject.backpropagated
    if trained is None or not subject.is_language:
        return Measurement(Finding("window", Level.OK, 0.0, BEYOND, Message("the gradients are not truncated")))
    factors = (1, 2, 4) if trained >= 32 else (1, 4, 16)
    lengths = tuple(dict.fromkeys((1, *(trained * n for n in factors if trained * n <= 512))))
    found = losses_by_context(subject, lengths, min(PLACES, READ // sum(lengths)))
    if max(found) <= trained:
        few = Message(
            "unknown: the text is too short to test contexts longer than the window of {window} steps", window=trained
        )
        return Measurement(Finding("window", Level.UNKNOWN, 0.0, BEYOND, few))
    means = {n: float(each.mean()) for n, each in found.items()}
    best = min((n for n in means if n >= trained), key=lambda n: means[n])
    gains = found[trained] - found[best]
    gain, error = means[trained] - means[best], float(gains.std()) / len(gains) ** 0.5
    share = gain / (max(means[1] - means[trained], 0.0) + gain) if gain > 0 else 0.0
    numbers = {"window": trained, "lengths": list(means), "losses": list(means.values()), "gain": gain, "error": error}
    detail = Message(
        "context beyond the {window} steps of the window lowers the loss by {gain:.3f} nats per token, {share:.0%} of "
        "the gain from all context",
        window=trained, gain=gain, share=share,
    )  # fmt: skip
    if not (share > BEYOND and gain > max(NATS, CERTAIN * error)):
        verdict = Message("the truncation window is long enough: {detail}", detail=detail)
        return Measurement(Finding("window", Level.OK, share, BEYOND, verdict), numbers)
    verdict = Message("the truncation window is too short: {detail}, but no gradient reaches that far", detail=detail)
    tries = (wider_window(max(WIDEN * trained, SHORTEST)),)
    return Measurement(Finding("window", Level.FAULT, share, BEYOND, verdict, tries), numbers)


@torch.no_grad()
def loss_by_position(subject: Subject, length: int = 64) -> Measurement:
    """Loss by position in a window, the state zero at its start, or carried there through the text."""
    N = len(subject.inputs)
    length = max(2, min(length, N // 4))
    rows = N // length
    x, y = subject.rows(1, rows * length)
    whole = cross_entropy(subject.model(x).logits[0], y[0], reduction="none")
    x, y = x.view(rows, length), y.view(rows, length)
    cut = cross_entropy(subject.model(x).logits.flatten(0, 1), y.flatten(), reduction="none")
    carried, zero = (loss.view(rows, length).mean(dim=0) for loss in (whole, cut))
    numbers = {"zero": zero.tolist(), "carried": carried.tolist(), "windows": rows}
    gains = zero - carried
    gain, late = float(gains.mean()), float(gains[length // 2 :].mean())
    detail = Message(
        "carrying the state into a window of {length} steps gains {gain:.3f} nats per token, {late:.3f} in the second "
        "half of the window",
        length=length, gain=gain, late=late,
    )  # fmt: skip
    if gain < HARM:
        verdict = Message("carrying the state between windows raises the loss: {detail}", detail=detail)
        finding = Finding("position", Level.WARNING, gain, HARM, verdict)
    else:
        finding = Finding("position", Level.OK, gain, HARM, detail)
    return Measurement(finding, numbers)


def saliency(subject: Subject, at: int = -1, back: int = 60) -> Measurement:
    """Return how much the prediction of token `at` depends on each earlier token, by the norm of the gradient."""
    N = len(subject.inputs)
    end = at % N
    begin = max(0, end - back)
    x, y = (ids[:, begin : end + 1] for ids in subject.rows(1, N))
    target = int(y[0, -1])
    log_p, grad = _input_gradient(subject, x, target)
    norms = torch.linalg.vector_norm(grad[0].double(), dim=-1).cpu()
    share = norms / norms.sum().clamp_min(1e-300)
    lags = torch.arange(len(share) - 1, -1, -1, dtype=torch.float64)
    mean_lag = float((share * lags).sum())
    numbers = {
        "tokens": [subject.token(k) for k in x[0].tolist()],
        "share": share.tolist(),
        "predicted": subject.token(target),
        "probability": float(log_p.exp()),
    }
    verdict = Message(
        "the prediction depends on tokens {lag:.1f} steps back on average; {last:.0%} of its saliency is on the last "
        "token",
        lag=mean_lag, last=float(share[-1]),
    )  # fmt: skip
    return Measurement(Finding("saliency", Level.OK, mean_lag, 1.0, verdict), numbers)


def _input_gradient(subject: Subject, x: Tensor, target: int) -> tuple[Tensor, Tensor]:
    """log p of a token after ids (1, T), and its gradient with respect to the network's inputs, (1, T, D)."""
    inputs: list[Tensor] = []

    def capture(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        inputs.append(args[0].detach().requires_grad_())
        return (inputs[-1], *args[1:])

    handle = subject.net.register_forward_pre_hook(capture)
    try:
        log_p = subject.model(x).logits[0, -1].log_softmax(-1)[target]
    finally:
        handle.remove()
    (grad,) = torch.autograd.grad(log_p, inputs[0])
    return log_p.detach(), grad


GAIN = 0.02
"""Nats a token from which the error is said to depend on t."""
BLOCKS = 20


def stationarity(subject: Subject) -> Measurement:
    x, y = subject.rows(1, len(subject.inputs))
    reads_time = subject.language is not None and subject.language.options.time_input
    with torch.no_grad():
        start = torch.tensor([subject.start], device=x.device) if reads_time else None
        logits = (subject.model(x, start=start) if reads_time else subject.model(x)).logits[0].double()
    return time_as_input(logits.cpu(), y[0].cpu())


def time_as_input(logits: Tensor, y: Tensor) -> Measurement:
    """The gain of t for logits (T, K) of a text y (T,)."""
    T = len(logits)
    t = torch.linspace(-1, 1, T, dtype=torch.float64)
    block = torch.arange(T) * BLOCKS // T
    fitted, held_out = block % 2 == 0, block % 2 == 1
    one = torch.ones_like(t)
    losses = {}
    for name, inputs in {"without": one[:, None], "with": torch.stack([one, t, t * t], 1)}.items():
        weight = _fit(logits[fitted], y[fitted], inputs[fitted])
        losses[name] = float(cross_entropy(logits[held_out] + inputs[held_out] @ weight, y[held_out]))
    error = cross_entropy(logits, y, reduction="none")
    by_time = [float(error[block == k].mean()) for k in range(BLOCKS)]
    gain = losses["without"] - losses["with"]
    detail = Message(
        "knowing the position t in the text gains {gain:.3f} nats per token on held-out blocks ({without:.3f} → "
        "{with_:.3f})",
        gain=gain, without=losses["without"], with_=losses["with"],
    )  # fmt: skip
    if gain > GAIN:
        verdict = Message("the text is not stationary: {detail}", detail=detail)
        finding = Finding("stationarity", Level.WARNING, gain, GAIN, verdict)
    else:
        verdict = Message("the text is stationary: {detail}", detail=detail)
        finding = Finding("stationarity", Level.OK, gain, GAIN, verdict)
    return Measurement(finding, {"loss": losses, "by_time": by_time})


def _fit(logits: Tensor, y: Tensor, inputs: Tensor) -> Tensor:
    """Return the weights, with a little weight decay so that the weights of rare tokens stay bounded."""
    weight, bias = inputs.new_zeros(inputs.shape[1], logits.shape[1]), inputs.new_zeros(logits.shape[1])
    forward, backward = lambda weight: logits + inputs @ weight, inputs.T.matmul
    return fit_softmax(weight, bias, forward, backward, y, decay=1e-2, intercept=False, max_iter=30)[0]


ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
LONG = 16
"""Shorter n-grams of the training text are common in any text of the kind."""
EXCESS = 0.3
"""How much larger the share of long n-grams may be than that of held-out text."""


def ngram_hashes(ids: Ids, n: int) -> NDArray[np.uint64]:
    """One number for each n-gram; equal ones get equal numbers, and different ones practically never do."""
    if len(ids) < n:
        return np.empty(0, np.uint64)
    total = np.zeros(len(ids) - n + 1, np.uint64)
    with np.errstate(over="ignore"):
        for k in range(n):
            following = ids[k : len(ids) - n + 1 + k].astype(np.uint64) + np.uint64(1)
            total = total * np.uint64(0x9E3779B97F4A7C15) + following
            total ^= total >> np.uint64(29)
    return total


def known_shares(texts: list[Ids], training: Ids, orders: tuple[int, ...]) -> list[float]:
    """For each n, the share of the n-grams of some texts that occur in the training text."""
    found = []
    for n in orders:
        mine = np.concatenate([ngram_hashes(ids, n) for ids in texts])
        found.append(float(np.isin(mine, ngram_hashes(training, n)).mean()) if len(mine) else 0.0)
    return found


def copied(generated: list[Ids], held_out: Ids, training: Ids, orders: tuple[int, ...] = ORDERS) -> Measurement:
    """Compare how much of generated text, and of held-out text, occurs in the training text."""
    mine, usual = known_shares(generated, training, orders), known_shares([held_out], training, orders)
    numbers = {"orders": list(orders), "generated": mine, "held_out": usual}
    excess = [own - base for own, base in zip(mine, usual, strict=True)]
    at = max(range(len(orders)), key=lambda k: excess[k])
    detail = Message(
        "{mine:.0%} of the generated {order}-grams occur in the training text; of held-out text {usual:.0%} do",
        mine=mine[at], order=orders[at], usual=usual[at],
    )  # fmt: skip
    worst = max([excess[k] for k, n in enumerate(orders) if n >= LONG] or excess[-1:])
    if worst > EXCESS:
        verdict = Message("the model has memorised its training text: {detail}", detail=detail)
        return Measurement(Finding("copying", Level.WARNING, worst, EXCESS, verdict), numbers)
    verdict = Message("the generated text is not copied: {detail}", detail=detail)
    return Measurement(Finding("copying", Level.OK, max(excess[at], worst), EXCESS, verdict), numbers)


def copying(subject: Subject, *, samples: int = 8, length: int = 200) -> Measurement:
    """Generate text, and look for its n-grams in the training text."""
    language = subject.language
    if language is None:
        raise OptionError("copying needs the training text of a run; load one with recur.load")
    vocab = language.vocab
    train, valid, _ = corpora(language.options)
    columns = list(generate(language.model, [first_input(vocab)], length, SamplingOptions(), samples, subject.seed))
    generated = [in_reading_order(np.array([row[k] for row in columns]), language.options) for k in range(samples)]
    return copied(generated, vocab.encode_corpus(valid)[: samples * length], vocab.encode_corpus(train))
